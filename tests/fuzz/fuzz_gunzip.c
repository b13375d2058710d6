/* SPDX-License-Identifier: Apache-2.0 */
/* The gzip readers: whole and in pieces alike, never over their cap, and what the one of streams accepts zlib's own reader
 * accepts with the same bytes. The one of whole members accepts that too, and refuses what is refused for the same reason; but
 * it may go on where the stream is bad DEFLATE (members.h). Every input is also compressed by the writer and must come back. */
#include <glib.h>
#include <string.h>
#include <zlib.h>

#include "format/gzip.h"
#include "format/inflate.h"
#include "format/members.h"
#include "fuzz.h"

enum { CAP = 1 << 20 };

static QvGzipReason read_all(const uint8_t *data, size_t size, size_t portion, size_t room, uint64_t cap, GByteArray *out)
{
  QvGunzip *gunzip = qv_gunzip_new(cap);
  uint8_t *buffer = g_malloc(room);
  QvGunzipStatus status = QV_GUNZIP_MORE;
  for (size_t at = 0; at < size && status != QV_GUNZIP_BAD;) {
    size_t n = MIN(size - at, portion);
    const uint8_t *bytes = data + at;
    at += n;
    do {
      size_t out_n, before = n;
      status = qv_gunzip_step(gunzip, &bytes, &n, buffer, room, &out_n);
      QV_FUZZ_CHECK(out_n <= room && n <= before);
      QV_FUZZ_CHECK(status != QV_GUNZIP_OUTPUT || out_n == room);
      if (status != QV_GUNZIP_BAD)
        g_byte_array_append(out, buffer, (guint)out_n);
    } while (status == QV_GUNZIP_OUTPUT);
    QV_FUZZ_CHECK(status == QV_GUNZIP_BAD || n == 0);
  }
  QvGzipReason reason = qv_gunzip_finish(gunzip);
  QV_FUZZ_CHECK((status == QV_GUNZIP_BAD) <= (reason != QV_GZIP_OK) && out->len <= cap);
  g_free(buffer);
  qv_gunzip_free(gunzip);
  return reason;
}

static void check_members(const uint8_t *data, size_t size, size_t portion, QvGzipReason wanted, const GByteArray *whole)
{
  QvMembers *members = qv_members_new(CAP);
  GByteArray *all = g_byte_array_new();
  QvGunzipStatus status = QV_GUNZIP_MORE;
  size_t at = 0, n;
  do {
    n = MIN(size - at, portion);
    const uint8_t *bytes = data + at, *out;
    size_t left = n, out_n;
    at += n;
    do {
      status = qv_members_step(members, &bytes, &left, n == 0, &out, &out_n);
      if (status != QV_GUNZIP_BAD)
        g_byte_array_append(all, out, (guint)out_n);
    } while (status == QV_GUNZIP_OUTPUT);
  } while (n > 0 && status != QV_GUNZIP_BAD);
  QvGzipReason reason = status == QV_GUNZIP_BAD ? qv_members_reason(members) : qv_members_finish(members);
  QV_FUZZ_CHECK((reason == wanted || wanted == QV_GZIP_DEFLATE) && all->len <= CAP);
  if (wanted == QV_GZIP_OK)
    QV_FUZZ_CHECK(all->len == whole->len && (whole->len == 0 || memcmp(whole->data, all->data, whole->len) == 0));
  g_byte_array_unref(all);
  qv_members_free(members);
}

/* zlib's gzip mode, member after member. */
static int zlib_accepts(const uint8_t *data, size_t size, const GByteArray *wanted)
{
  uint8_t *out = g_malloc(wanted->len + 1);
  z_stream zlib = {.next_in = (Bytef *)(uintptr_t)data, .avail_in = (uInt)size, .next_out = out, .avail_out = wanted->len + 1};
  int rc = inflateInit2(&zlib, 16 + MAX_WBITS);
  while (rc == Z_OK && zlib.avail_in > 0) {
    rc = inflate(&zlib, Z_FINISH);
    if (rc == Z_STREAM_END && zlib.avail_in > 0)
      rc = inflateReset(&zlib);
  }
  int same = rc == Z_STREAM_END && zlib.avail_out == 1 && memcmp(out, wanted->data ? wanted->data : out, wanted->len) == 0;
  inflateEnd(&zlib);
  g_free(out);
  return same;
}

static void append(void *user, const guint8 *bytes, gsize n)
{
  g_byte_array_append(user, bytes, (guint)n);
}

static void check_round_trip(const uint8_t *data, size_t size)
{
  GByteArray *packed = g_byte_array_new(), *out = g_byte_array_new();
  QvGzipWriter *writer = qv_gzip_writer_new(append, packed);
  qv_gzip_writer_add(writer, data, size / 2);
  qv_gzip_writer_add(writer, data + size / 2, size - size / 2);
  qv_gzip_writer_finish(writer);
  qv_gzip_writer_free(writer);
  QV_FUZZ_CHECK(read_all(packed->data, packed->len, SIZE_MAX, 4096, size, out) == QV_GZIP_OK);
  QV_FUZZ_CHECK(out->len == size && (size == 0 || memcmp(out->data, data, size) == 0));
  g_byte_array_unref(packed);
  g_byte_array_unref(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  GByteArray *whole = g_byte_array_new(), *pieces = g_byte_array_new();
  QvGzipReason reason = read_all(data, size, SIZE_MAX, 1 << 16, CAP, whole);
  /* One byte at a time into a small room: only where that takes no minutes. */
  if (size < 4096 && whole->len < 65536) {
    QV_FUZZ_CHECK(read_all(data, size, 1, 1 + size % 97, CAP, pieces) == reason);
    if (reason == QV_GZIP_OK)
      QV_FUZZ_CHECK(pieces->len == whole->len && (whole->len == 0 || memcmp(whole->data, pieces->data, whole->len) == 0));
  }
  if (reason == QV_GZIP_OK)
    QV_FUZZ_CHECK(zlib_accepts(data, size, whole));
  check_members(data, size, size % 2 ? SIZE_MAX : 1 + size / 3, reason, whole);
  check_round_trip(data, size);
  g_byte_array_unref(whole);
  g_byte_array_unref(pieces);
  return 0;
}
