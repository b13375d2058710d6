/* SPDX-License-Identifier: Apache-2.0 */
/* The entry's stdin: one line, then bodies of known length. Nothing here
 * depends on the end of input, which some transports never pass on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { QV_ENTRY_INPUT_BYTES = 256 * 1024 };

typedef struct {
  int fd;
  size_t from, to; /* unread bytes of the buffer */
  char buffer[QV_ENTRY_INPUT_BYTES];
} QvEntryInput;

void qv_entry_input_init(QvEntryInput *input, int fd);

/* Reads up to and without the next LF into LINE, at most CAP bytes: their
 * number, or -1 with errno (EMSGSIZE: longer, ENODATA: the input ended). The copy inside
 * the buffer is wiped. */
int64_t qv_entry_input_line(QvEntryInput *input, char *line, size_t cap);

/* Some of the next MAX bytes, 1 or more: a view that is valid until the next
 * call and *N, or NULL with errno (ENODATA: the input ended). */
const char *qv_entry_input_take(QvEntryInput *input, uint64_t max, size_t *n);

/* Reads N bytes and forgets them. */
bool qv_entry_input_skip(QvEntryInput *input, uint64_t n);
