/* SPDX-License-Identifier: Apache-2.0 */
/* The server name of a TLS ClientHello (RFC 8446 sections 4.1.2 and 5.1, RFC 6066
 * section 3), read from the first bytes of a stream, over any number of records. libc alone.
 *
 * It must be the first thing there, alone in its records, well-formed as a whole (every length fits, every extension
 * once) and carry exactly one host name. A hello with encrypted_client_hello (RFC 9849) is refused: the name that counts
 * would be hidden in it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  QV_TLS_HELLO_BYTES_MAX = 16 * 1024, /* the message, its four bytes of head included */
  QV_TLS_RECORDS_MAX = 64,            /* records that a hello may be cut into */
  QV_TLS_NAME_BYTES_MAX = 255,
};

typedef enum {
  QV_TLS_MORE,
  QV_TLS_DONE,
  QV_TLS_NOT_TLS,   /* the first bytes are no handshake record */
  QV_TLS_BAD,       /* malformed */
  QV_TLS_TOO_LONG,  /* over a cap above */
  QV_TLS_NO_NAME,   /* well-formed, without a server name */
  QV_TLS_ENCRYPTED, /* well-formed, with encrypted_client_hello */
} QvTlsVerdict;

typedef struct {
  QvTlsVerdict verdict;
  uint8_t head[5]; /* of the present record */
  uint8_t head_n;
  uint8_t records_n;
  uint16_t record_left;
  uint16_t used;
  uint16_t name_n;
  char name[QV_TLS_NAME_BYTES_MAX + 1]; /* as it stands in the hello */
  uint8_t bytes[QV_TLS_HELLO_BYTES_MAX];
} QvTlsHello;

void qv_tls_hello_init(QvTlsHello *hello);

/* Reads on. *TAKEN (of N): bytes that belong to the records of the hello; all where more is needed. */
QvTlsVerdict qv_tls_hello_feed(QvTlsHello *hello, const void *bytes, size_t n, size_t *taken);
