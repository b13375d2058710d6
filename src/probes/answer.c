/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the form of an answer and the reading of small files. */
#include "probes/answer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sandbox/probe_text.h"

void qv_answer(const char *text)
{
  char line[QV_PROBE_ANSWER_MAX + 2];
  qv_probe_answer_format(text, line);
  size_t n = strlen(line);
  line[n] = '\n';
  if (write(STDOUT_FILENO, line, n + 1) < 0)
    _exit(1);
}

void qv_answer_number(long long value)
{
  char text[32];
  snprintf(text, sizeof text, "%lld", value);
  qv_answer(text);
}

void qv_answer_error(int error)
{
  const char *name = strerrorname_np(error);
  qv_answer(name != NULL ? name : "E?");
}

void qv_answer_result(long result)
{
  if (result < 0)
    qv_answer_error(errno);
  else
    qv_answer("OK");
}

long qv_slurp(const char *path, char *text, size_t n)
{
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return -1;
  size_t got = 0;
  long status = 0;
  while (got < n - 1 && (status = read(fd, text + got, n - 1 - got)) > 0)
    got += (size_t)status;
  int error = errno;
  close(fd);
  errno = error;
  text[got] = '\0';
  return status < 0 ? -1 : (long)got;
}

void qv_answer_open(const char *path, int flags)
{
  qv_answer_result(open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600));
}

bool qv_proc_value(const char *path, const char *name, char *value, size_t n)
{
  static char text[65536];
  if (qv_slurp(path, text, sizeof text) < 0)
    return false;
  size_t name_n = strlen(name);
  for (char *line = text; line != NULL; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (strncmp(line, name, name_n) != 0 || line[name_n] != ':')
      continue;
    line += name_n + 1;
    line += strspn(line, " \t");
    snprintf(value, n, "%.*s", (int)strcspn(line, "\n"), line);
    return true;
  }
  return false;
}
