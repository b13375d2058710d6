/* SPDX-License-Identifier: Apache-2.0 */
/* The gzip reader (protocol section 4), zlib's raw inflate: any number of members, FLG 0 only, CRC and length of
 * each verified, every inflated byte counted against a cap, nothing after the last member.
 *
 *   do {
 *     status = qv_gunzip_step(g, &bytes, &n, out, sizeof out, &out_n);   (consumes BYTES)
 *     use out, out_n                                                      (also where status is BAD: discard)
 *   } while (status == QV_GUNZIP_OUTPUT);
 *   at the end of the stream: qv_gunzip_finish(g) == QV_GZIP_OK */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Why a stream is refused: enumerator, text. */
#define QV_GZIP_REASONS(X)                                  \
  X(QV_GZIP_OK, "fine")                                     \
  X(QV_GZIP_TRUNCATED, "ends within a gzip member")         \
  X(QV_GZIP_MAGIC, "not gzip, or bytes behind its end")     \
  X(QV_GZIP_METHOD, "not deflate")                          \
  X(QV_GZIP_FLAGS, "optional header fields")                \
  X(QV_GZIP_DEFLATE, "damaged deflate data")                \
  X(QV_GZIP_CRC, "wrong CRC")                               \
  X(QV_GZIP_LENGTH, "wrong length")                         \
  X(QV_GZIP_CAP, "inflates to more than its cap")           \
  X(QV_GZIP_MEMORY, "out of memory")

#define QV_GZIP_ENUM(name, text) name,
typedef enum { QV_GZIP_REASONS(QV_GZIP_ENUM) } QvGzipReason;
#undef QV_GZIP_ENUM

const char *qv_gzip_reason_name(QvGzipReason reason);
const char *qv_gzip_reason_text(QvGzipReason reason);

typedef enum {
  QV_GUNZIP_MORE,   /* the input is used up, and all that came of it was given out */
  QV_GUNZIP_OUTPUT, /* OUT is full: use it, then step again (with *N as it is, maybe 0) */
  QV_GUNZIP_BAD,    /* for good */
} QvGunzipStatus;

typedef struct QvGunzip QvGunzip;

/* NULL: out of memory. */
QvGunzip *qv_gunzip_new(uint64_t max_output_bytes);
void qv_gunzip_free(QvGunzip *gunzip); /* NULL is fine */
QvGunzipStatus qv_gunzip_step(QvGunzip *gunzip, const uint8_t **bytes, size_t *n, uint8_t *out, size_t out_max,
                              size_t *out_n);
QvGzipReason qv_gunzip_reason(const QvGunzip *gunzip);
/* The stream has ended: QV_GZIP_OK where at least one member was there and the last one is complete. */
QvGzipReason qv_gunzip_finish(const QvGunzip *gunzip);
