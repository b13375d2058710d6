/* SPDX-License-Identifier: Apache-2.0 */
/* The head of an HTTP/1 request: request line and fields up to the empty line
 * (RFC 9112 sections 2, 3, 5), read strictly in one pass, byte for byte, from a stream. libc alone.
 *
 * Lines end with CR LF and nothing else; a bare CR or LF, NUL or another control character, a folded line, a blank before
 * a colon, an empty name, a second blank between the words of the request line are refused. Bytes over 0x7f may stand in
 * a value only. What follows the head is not looked at. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  QV_HTTP_HEAD_BYTES_MAX = 8 * 1024, /* in all, the empty line included */
  QV_HTTP_FIELDS_MAX = 64,
};

typedef enum {
  QV_HTTP_MORE,     /* so far good */
  QV_HTTP_DONE,     /* the empty line was read */
  QV_HTTP_BAD,      /* no head */
  QV_HTTP_TOO_LONG, /* over a cap above */
} QvHttpVerdict;

/* Where something stands in `bytes`. */
typedef struct {
  uint16_t at, n;
} QvHttpSpan;

typedef struct {
  QvHttpSpan name, value; /* value without blanks around it */
} QvHttpField;

typedef struct {
  uint8_t state;
  QvHttpVerdict verdict;
  uint16_t used; /* bytes of the head so far */
  uint16_t from; /* start of the present part */
  QvHttpSpan method, target;
  uint8_t major, minor;
  uint16_t fields_n;
  QvHttpField fields[QV_HTTP_FIELDS_MAX];
  char bytes[QV_HTTP_HEAD_BYTES_MAX];
} QvHttpHead;

/* Sets what needs to be set; the arrays stay as they are. */
void qv_http_head_init(QvHttpHead *head);

/* Reads on. *TAKEN (of N): bytes that belong to the head; all where more is needed. After BAD and TOO_LONG the verdict stays. */
QvHttpVerdict qv_http_head_feed(QvHttpHead *head, const void *bytes, size_t n, size_t *taken);

/* Number of fields of that name (any case); *FIRST, where it is not NULL, takes the first one's value. */
size_t qv_http_head_count(const QvHttpHead *head, const char *name, QvHttpSpan *first);
