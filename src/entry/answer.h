/* SPDX-License-Identifier: Apache-2.0 */
/* What the proxy answered, read as it passes the forwarder: a refusal becomes one
 * line in setup's log, since clients show their users little of it. Nothing is
 * changed or held back. The line:
 *
 *   quavon: registry.example:443 refused: host_not_listed: the operator's list of registries does not have this host
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
  QV_ENTRY_ANSWER_TARGET_MAX = 280,
  QV_ENTRY_ANSWER_BYTES_MAX = 1024, /* of the answer that are looked at */
  QV_ENTRY_ANSWER_LINE_MAX = 640,   /* of the line, with its LF and NUL */
};

typedef struct {
  char target[QV_ENTRY_ANSWER_TARGET_MAX]; /* of the client's request line */
  char bytes[QV_ENTRY_ANSWER_BYTES_MAX];
  size_t n;
  bool decided; /* nothing more is looked at */
} QvEntryAnswer;

/* HEAD: the client's, whole. */
void qv_entry_answer_init(QvEntryAnswer *answer, const char *head, size_t n);

/* The next bytes from the proxy. True, at most once: LINE is a refusal to be told. */
bool qv_entry_answer_feed(QvEntryAnswer *answer, const char *bytes, size_t n, char line[QV_ENTRY_ANSWER_LINE_MAX]);
/* No more will come. */
bool qv_entry_answer_end(QvEntryAnswer *answer, char line[QV_ENTRY_ANSWER_LINE_MAX]);
