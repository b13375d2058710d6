/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the reads from stdin. */
#include "entry/input.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void qv_entry_input_init(QvEntryInput *input, int fd)
{
  input->fd = fd;
  input->from = input->to = 0;
}

static bool fill(QvEntryInput *input)
{
  if (input->from < input->to)
    return true;
  ssize_t got;
  do
    got = read(input->fd, input->buffer, sizeof input->buffer);
  while (got < 0 && errno == EINTR);
  if (got == 0)
    errno = ENODATA;
  if (got <= 0)
    return false;
  input->from = 0;
  input->to = (size_t)got;
  return true;
}

int64_t qv_entry_input_line(QvEntryInput *input, char *line, size_t cap)
{
  size_t done = 0;
  for (;;) {
    if (!fill(input))
      return -1;
    char *start = input->buffer + input->from;
    size_t held = input->to - input->from;
    char *end = memchr(start, '\n', held);
    size_t n = end ? (size_t)(end - start) : held;
    if (n > cap - done) {
      errno = EMSGSIZE;
      return -1;
    }
    memcpy(line + done, start, n);
    explicit_bzero(start, n);
    done += n;
    input->from += n + (end ? 1 : 0);
    if (end)
      return (int64_t)done;
  }
}

const char *qv_entry_input_take(QvEntryInput *input, uint64_t max, size_t *n)
{
  if (!fill(input))
    return NULL;
  const char *view = input->buffer + input->from;
  size_t held = input->to - input->from;
  *n = held < max ? held : (size_t)max;
  input->from += *n;
  return view;
}

bool qv_entry_input_skip(QvEntryInput *input, uint64_t n)
{
  while (n > 0) {
    size_t got;
    if (!qv_entry_input_take(input, n, &got))
      return false;
    n -= got;
  }
  return true;
}
