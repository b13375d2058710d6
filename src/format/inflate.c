/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the frame of gzip (RFC 1952); zlib owns deflate. States: HEADER (10 bytes) ─ BODY ─ TRAILER (8 bytes) ─
 * HEADER … The frame is read here since zlib's own gzip mode would take optional fields. */
#include "format/inflate.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define QV_GZIP_NAME(name, text) #name,
#define QV_GZIP_TEXT(name, text) text,
static const char *const reason_names[] = {QV_GZIP_REASONS(QV_GZIP_NAME)};
static const char *const reason_texts[] = {QV_GZIP_REASONS(QV_GZIP_TEXT)};

const char *qv_gzip_reason_name(QvGzipReason reason)
{
  return reason_names[reason];
}

const char *qv_gzip_reason_text(QvGzipReason reason)
{
  return reason_texts[reason];
}

enum { HEADER_BYTES = 10, TRAILER_BYTES = 8 };

struct QvGunzip {
  z_stream zlib;
  enum { HEADER, BODY, TRAILER, BAD } state;
  QvGzipReason reason;
  uint8_t frame[HEADER_BYTES]; /* of the header or trailer being read */
  size_t frame_n;
  bool any; /* a member was complete */
  uint32_t crc, length;
  uint64_t left; /* of the cap */
};

QvGunzip *qv_gunzip_new(uint64_t max_output_bytes)
{
  QvGunzip *gunzip = calloc(1, sizeof *gunzip);
  if (!gunzip)
    return NULL;
  gunzip->left = max_output_bytes;
  if (inflateInit2(&gunzip->zlib, -MAX_WBITS) != Z_OK) {
    free(gunzip);
    return NULL;
  }
  return gunzip;
}

void qv_gunzip_free(QvGunzip *gunzip)
{
  if (!gunzip)
    return;
  inflateEnd(&gunzip->zlib);
  free(gunzip);
}

static QvGunzipStatus refuse(QvGunzip *gunzip, QvGzipReason reason)
{
  gunzip->state = BAD;
  gunzip->reason = reason;
  return QV_GUNZIP_BAD;
}

static uint32_t little_endian(const uint8_t *bytes)
{
  return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

/* One byte of a header, refused as soon as it is wrong. */
static QvGzipReason header_byte(size_t at, uint8_t byte)
{
  switch (at) {
  case 0:
    return byte == 0x1f ? QV_GZIP_OK : QV_GZIP_MAGIC;
  case 1:
    return byte == 0x8b ? QV_GZIP_OK : QV_GZIP_MAGIC;
  case 2:
    return byte == 8 ? QV_GZIP_OK : QV_GZIP_METHOD;
  case 3:
    return byte == 0 ? QV_GZIP_OK : QV_GZIP_FLAGS;
  default:
    return QV_GZIP_OK; /* time, level and system say nothing */
  }
}

static QvGunzipStatus step_header(QvGunzip *gunzip, const uint8_t **bytes, size_t *n)
{
  for (; *n > 0 && gunzip->frame_n < HEADER_BYTES; ++*bytes, --*n) {
    QvGzipReason reason = header_byte(gunzip->frame_n++, **bytes);
    if (reason != QV_GZIP_OK)
      return refuse(gunzip, reason);
  }
  if (gunzip->frame_n < HEADER_BYTES)
    return QV_GUNZIP_MORE;
  gunzip->frame_n = 0;
  gunzip->crc = (uint32_t)crc32(0, NULL, 0);
  gunzip->length = 0;
  gunzip->state = BODY;
  return inflateReset(&gunzip->zlib) == Z_OK ? QV_GUNZIP_MORE : refuse(gunzip, QV_GZIP_DEFLATE);
}

static QvGunzipStatus step_trailer(QvGunzip *gunzip, const uint8_t **bytes, size_t *n)
{
  for (; *n > 0 && gunzip->frame_n < TRAILER_BYTES; ++*bytes, --*n)
    gunzip->frame[gunzip->frame_n++] = **bytes;
  if (gunzip->frame_n < TRAILER_BYTES)
    return QV_GUNZIP_MORE;
  if (little_endian(gunzip->frame) != gunzip->crc)
    return refuse(gunzip, QV_GZIP_CRC);
  if (little_endian(gunzip->frame + 4) != gunzip->length)
    return refuse(gunzip, QV_GZIP_LENGTH);
  gunzip->frame_n = 0;
  gunzip->any = true;
  gunzip->state = HEADER;
  return QV_GUNZIP_MORE;
}

static QvGunzipStatus step_body(QvGunzip *gunzip, const uint8_t **bytes, size_t *n, uint8_t *out, size_t out_max,
                                size_t *out_n)
{
  z_stream *zlib = &gunzip->zlib;
  size_t room = out_max - *out_n;
  /* Where the cap is nearer than the end of OUT, one byte more than the cap: it tells an
   * overrun from a stream that ends exactly there. */
  if (gunzip->left < room)
    room = (size_t)gunzip->left + 1;
  if (room > UINT_MAX)
    room = UINT_MAX;
  uInt in_n = *n > UINT_MAX ? UINT_MAX : (uInt)*n;
  zlib->next_in = (Bytef *)(uintptr_t)*bytes;
  zlib->avail_in = in_n;
  zlib->next_out = out + *out_n;
  zlib->avail_out = (uInt)room;
  int rc = inflate(zlib, Z_NO_FLUSH);
  size_t used = in_n - zlib->avail_in, made = room - zlib->avail_out;
  *bytes += used;
  *n -= used;
  if (made > gunzip->left)
    return refuse(gunzip, QV_GZIP_CAP);
  gunzip->crc = (uint32_t)crc32_z(gunzip->crc, out + *out_n, made);
  gunzip->length += (uint32_t)made;
  gunzip->left -= made;
  *out_n += made;
  if (rc == Z_STREAM_END) {
    gunzip->state = TRAILER;
    return QV_GUNZIP_MORE;
  }
  if (rc == Z_MEM_ERROR)
    return refuse(gunzip, QV_GZIP_MEMORY);
  /* Z_BUF_ERROR: nothing to do with what it was given. */
  if (rc != Z_OK && rc != Z_BUF_ERROR)
    return refuse(gunzip, QV_GZIP_DEFLATE);
  return *out_n == out_max ? QV_GUNZIP_OUTPUT : QV_GUNZIP_MORE;
}

QvGunzipStatus qv_gunzip_step(QvGunzip *gunzip, const uint8_t **bytes, size_t *n, uint8_t *out, size_t out_max,
                              size_t *out_n)
{
  *out_n = 0;
  for (;;) {
    int before = gunzip->state;
    QvGunzipStatus status;
    switch (gunzip->state) {
    case HEADER:
      status = step_header(gunzip, bytes, n);
      break;
    case BODY:
      status = step_body(gunzip, bytes, n, out, out_max, out_n);
      break;
    case TRAILER:
      status = step_trailer(gunzip, bytes, n);
      break;
    default:
      return QV_GUNZIP_BAD;
    }
    if (status != QV_GUNZIP_MORE)
      return status;
    /* zlib may hold output back while OUT has room only if it needs input. */
    if (*n == 0 && (int)gunzip->state == before)
      return QV_GUNZIP_MORE;
    if (*out_n == out_max && *n > 0 && gunzip->state == BODY)
      return QV_GUNZIP_OUTPUT;
  }
}

QvGzipReason qv_gunzip_reason(const QvGunzip *gunzip)
{
  return gunzip->reason;
}

QvGzipReason qv_gunzip_finish(const QvGunzip *gunzip)
{
  if (gunzip->state == BAD)
    return gunzip->reason;
  return gunzip->state == HEADER && gunzip->frame_n == 0 && gunzip->any ? QV_GZIP_OK : QV_GZIP_TRUNCATED;
}
