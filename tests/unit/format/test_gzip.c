/* SPDX-License-Identifier: Apache-2.0 */
#include "format/gzip.h"

#include <string.h>
#include <zlib.h>

#include "format/error.h"
#include "format/inflate.h"
#include "format/members.h"
#include "vectors.h"

static void append(void *user, const guint8 *bytes, gsize n)
{
  g_byte_array_append(user, bytes, (guint)n);
}

/* Text that compresses about as source does. */
static guint8 *sample(gsize n)
{
  guint8 *bytes = g_malloc(n ? n : 1);
  guint32 x = 12345;
  for (gsize i = 0; i < n; i++) {
    x = x * 1664525 + 1013904223;
    bytes[i] = (x >> 28) < 11 && i >= 40 ? bytes[i - 40] : (guint8)('a' + (x >> 24) % 26);
  }
  return bytes;
}

static GByteArray *pack(const guint8 *bytes, gsize n, gsize portion)
{
  GByteArray *packed = g_byte_array_new();
  g_autoptr(QvGzipWriter) writer = qv_gzip_writer_new(append, packed);
  for (gsize at = 0; at < n; at += portion)
    qv_gzip_writer_add(writer, bytes + at, MIN(portion, n - at));
  qv_gzip_writer_finish(writer);
  return packed;
}

static QvGzipReason read_members(const guint8 *bytes, gsize n, gsize portion, guint64 cap, GByteArray *all)
{
  QvMembers *members = qv_members_new(cap);
  QvGunzipStatus status = QV_GUNZIP_MORE;
  for (gsize at = 0; at <= n && status != QV_GUNZIP_BAD;) {
    gsize part = MIN(portion, n - at), out_n;
    gboolean last = part == 0;
    g_autofree guint8 *exact = g_memdup2(bytes + at, part);
    const guint8 *b = exact, *out;
    at += last ? 1 : part;
    do {
      status = qv_members_step(members, &b, &part, last, &out, &out_n);
      if (status != QV_GUNZIP_BAD)
        g_byte_array_append(all, out, (guint)out_n);
    } while (status == QV_GUNZIP_OUTPUT);
    g_assert_true(status == QV_GUNZIP_BAD || part == 0);
  }
  QvGzipReason reason = status == QV_GUNZIP_BAD ? qv_members_reason(members) : qv_members_finish(members);
  g_assert_cmpuint(all->len, <=, cap);
  qv_members_free(members);
  return reason;
}

/* Whole members or a stream: what is taken, what came out of it, and the reason of a refusal are the same. (Of DEFLATE
 * that no writer writes they are not: test_lenient.) */
static void check_members(const guint8 *bytes, gsize n, gsize portion, guint64 cap, const GByteArray *wanted,
                          QvGzipReason wanted_reason)
{
  g_autoptr(GByteArray) all = g_byte_array_new();
  QvGzipReason reason = read_members(bytes, n, portion, cap, all);
  g_assert_cmpstr(qv_gzip_reason_name(reason), ==, qv_gzip_reason_name(wanted_reason));
  if (reason == QV_GZIP_OK)
    g_assert_cmpmem(all->data, all->len, wanted->data, wanted->len);
}

static QvGzipReason read_stream(const guint8 *bytes, gsize n, gsize portion, gsize room, guint64 cap, GByteArray *out)
{
  QvGunzip *gunzip = qv_gunzip_new(cap);
  g_autofree guint8 *buffer = g_malloc(room);
  QvGunzipStatus status = QV_GUNZIP_MORE;
  for (gsize at = 0; at < n && status != QV_GUNZIP_BAD;) {
    gsize part = MIN(portion, n - at), out_n;
    g_autofree guint8 *exact = g_memdup2(bytes + at, part);
    const guint8 *b = exact;
    at += part;
    do {
      status = qv_gunzip_step(gunzip, &b, &part, buffer, room, &out_n);
      if (status != QV_GUNZIP_BAD)
        g_byte_array_append(out, buffer, (guint)out_n);
    } while (status == QV_GUNZIP_OUTPUT);
    g_assert_true(status == QV_GUNZIP_BAD || part == 0);
  }
  if (status == QV_GUNZIP_BAD) {
    const guint8 *b = bytes;
    gsize part = n, out_n;
    g_assert_cmpint(qv_gunzip_step(gunzip, &b, &part, buffer, room, &out_n), ==, QV_GUNZIP_BAD);
    g_assert_cmpuint(out_n, ==, 0);
  }
  QvGzipReason reason = qv_gunzip_finish(gunzip);
  g_assert_cmpint(status == QV_GUNZIP_BAD ? qv_gunzip_reason(gunzip) : QV_GZIP_OK, ==,
                  status == QV_GUNZIP_BAD ? reason : QV_GZIP_OK);
  qv_gunzip_free(gunzip);
  return reason;
}

static QvGzipReason unpack_in(const guint8 *bytes, gsize n, gsize portion, gsize room, guint64 cap, GByteArray *out)
{
  QvGzipReason reason = read_stream(bytes, n, portion, room, cap, out);
  check_members(bytes, n, portion, cap, out, reason);
  return reason;
}

static QvGzipReason unpack(const guint8 *bytes, gsize n, guint64 cap, const guint8 *wanted, gsize wanted_n)
{
  static const gsize ways[][2] = {{G_MAXSIZE, 65536}, {1, 65536}, {G_MAXSIZE, 1}, {1, 1}, {13, 17}};
  QvGzipReason first = QV_GZIP_OK;
  for (gsize i = 0; i < (n + wanted_n < 100000 ? G_N_ELEMENTS(ways) : 1); i++) {
    g_autoptr(GByteArray) out = g_byte_array_new();
    QvGzipReason reason = unpack_in(bytes, n, ways[i][0], ways[i][1], cap, out);
    if (i == 0)
      first = reason;
    g_assert_cmpstr(qv_gzip_reason_name(reason), ==, qv_gzip_reason_name(first));
    g_assert_cmpuint(out->len, <=, cap);
    if (reason == QV_GZIP_OK)
      g_assert_cmpmem(out->data, out->len, wanted, wanted_n);
  }
  return first;
}

static void test_round_trip(void)
{
  static const gsize sizes[] = {0, 1, 511, 65536, QV_GZIP_MEMBER_BYTES - 1, QV_GZIP_MEMBER_BYTES, QV_GZIP_MEMBER_BYTES + 1,
                                3 * QV_GZIP_MEMBER_BYTES};
  for (gsize i = 0; i < G_N_ELEMENTS(sizes); i++) {
    g_autofree guint8 *bytes = sample(sizes[i]);
    g_autoptr(GByteArray) packed = pack(bytes, sizes[i], 65521);
    g_assert_cmpint(unpack(packed->data, packed->len, sizes[i], bytes, sizes[i]), ==, QV_GZIP_OK);
    if (sizes[i] > 0)
      g_assert_cmpint(unpack(packed->data, packed->len, sizes[i] - 1, bytes, sizes[i]), ==, QV_GZIP_CAP);
  }
}

/* Protocol section 4: FLG 0, MTIME 0, OS 255, members of 1 MiB, and not a byte that depends on the portions. */
static void test_writer_form(void)
{
  gsize n = 2 * QV_GZIP_MEMBER_BYTES + 100;
  g_autofree guint8 *bytes = sample(n);
  g_autoptr(GByteArray) packed = pack(bytes, n, G_MAXSIZE >> 1);
  g_autoptr(GByteArray) pieces = pack(bytes, n, 4099);
  g_assert_cmpmem(packed->data, packed->len, pieces->data, pieces->len);
  g_autoptr(GByteArray) members = g_byte_array_new();
  g_autoptr(QvGzipCompressor) compressor = qv_gzip_compressor_new();
  for (gsize at = 0; at < n; at += QV_GZIP_MEMBER_BYTES) {
    gsize part = MIN(QV_GZIP_MEMBER_BYTES, n - at), bound = qv_gzip_member_bound(compressor, part);
    g_autofree guint8 *out = g_malloc(bound);
    gsize out_n = qv_gzip_member(compressor, bytes + at, part, out, bound);
    static const guint8 head[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0};
    g_assert_cmpmem(out, sizeof head, head, sizeof head);
    g_assert_cmpuint(out[9], ==, 255);
    g_byte_array_append(members, out, (guint)out_n);
  }
  g_assert_cmpmem(members->data, members->len, packed->data, packed->len);
}

static void test_refused(void)
{
  g_autofree guint8 *bytes = sample(5000);
  g_autoptr(GByteArray) good = pack(bytes, 5000, 5000);
  static const struct {
    gssize at; /* from the end where negative */
    guint8 flip;
    QvGzipReason reason;
  } damage[] = {
    {0, 1, QV_GZIP_MAGIC},   {1, 1, QV_GZIP_MAGIC},  {2, 15, QV_GZIP_METHOD}, {3, 1, QV_GZIP_FLAGS},  {3, 2, QV_GZIP_FLAGS},
    {3, 4, QV_GZIP_FLAGS},   {3, 8, QV_GZIP_FLAGS},  {3, 16, QV_GZIP_FLAGS},  {3, 32, QV_GZIP_FLAGS}, {3, 128, QV_GZIP_FLAGS},
    {10, 6, QV_GZIP_DEFLATE}, {-8, 1, QV_GZIP_CRC},  {-5, 128, QV_GZIP_CRC},  {-4, 1, QV_GZIP_LENGTH}, {-1, 1, QV_GZIP_LENGTH},
  };
  for (gsize i = 0; i < G_N_ELEMENTS(damage); i++) {
    g_autofree guint8 *bad = g_memdup2(good->data, good->len);
    bad[damage[i].at < 0 ? (gssize)good->len + damage[i].at : damage[i].at] ^= damage[i].flip;
    QvGzipReason reason = unpack(bad, good->len, 1 << 20, bytes, 5000);
    if (reason != damage[i].reason)
      g_error("at %d: %s", (int)damage[i].at, qv_gzip_reason_name(reason));
  }
  for (guint n = 0; n < good->len; n += n < 40 || n > good->len - 40 ? 1 : 97) {
    g_autoptr(GByteArray) out = g_byte_array_new();
    g_assert_cmpint(unpack_in(good->data, n, G_MAXSIZE, 4096, 1 << 20, out), ==, QV_GZIP_TRUNCATED);
  }
}

static void test_members(void)
{
  g_autofree guint8 *bytes = sample(3000);
  g_autoptr(GByteArray) one = pack(bytes, 1000, 1000);
  g_autoptr(GByteArray) two = pack(bytes + 1000, 2000, 77);
  g_autoptr(GByteArray) none = pack(bytes, 0, 1);
  g_autoptr(GByteArray) all = g_byte_array_new();
  g_byte_array_append(all, one->data, one->len);
  g_byte_array_append(all, none->data, none->len);
  g_byte_array_append(all, two->data, two->len);
  g_assert_cmpint(unpack(all->data, all->len, 3000, bytes, 3000), ==, QV_GZIP_OK);
  g_assert_cmpint(unpack(all->data, all->len, 2999, bytes, 3000), ==, QV_GZIP_CAP);
  g_byte_array_append(all, (const guint8 *)"x", 1);
  g_assert_cmpint(unpack(all->data, all->len, 1 << 20, bytes, 3000), ==, QV_GZIP_MAGIC);
  g_byte_array_set_size(all, all->len - 1);
  g_byte_array_append(all, (const guint8 *)"\0\0", 2);
  g_assert_cmpint(unpack(all->data, all->len, 1 << 20, bytes, 3000), ==, QV_GZIP_MAGIC);
  g_byte_array_set_size(all, all->len - 2);
  g_byte_array_append(all, one->data, 9);
  g_assert_cmpint(unpack(all->data, all->len, 1 << 20, bytes, 3000), ==, QV_GZIP_TRUNCATED);
}

static void append_foreign(GByteArray *all, const guint8 *bytes, gsize n)
{
  gsize room = n + n / 1000 + 100;
  g_autofree guint8 *packed = g_malloc(room);
  z_stream zlib = {.next_in = (Bytef *)(guintptr)bytes, .avail_in = (uInt)n, .next_out = packed, .avail_out = (uInt)room};
  g_assert_cmpint(deflateInit2(&zlib, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), ==, Z_OK);
  g_assert_cmpint(deflate(&zlib, Z_FINISH), ==, Z_STREAM_END);
  g_byte_array_append(all, packed, (guint)(room - zlib.avail_out));
  deflateEnd(&zlib);
}

/* Members that are longer than ours, also where they do not compress, between ours, which are more than a reader holds. */
static void test_foreign_members(void)
{
  gsize n = 6 * QV_GZIP_MEMBER_BYTES, third = 2 * QV_GZIP_MEMBER_BYTES;
  g_autofree guint8 *bytes = sample(n);
  for (gsize i = 0; i < 2 * third; i++)
    bytes[i] = (guint8)g_test_rand_int();
  for (gint which = -1; which < 3; which++) {
    g_autoptr(GByteArray) all = g_byte_array_new();
    for (gint i = 0; i < 3; i++) {
      const guint8 *part = bytes + (gsize)i * third;
      g_autoptr(GByteArray) ours = pack(part, third, third);
      if (i == which)
        append_foreign(all, part, third);
      else
        g_byte_array_append(all, ours->data, ours->len);
    }
    for (gsize portion = 1 << 16; portion < all->len; portion *= 32) {
      g_autoptr(GByteArray) out = g_byte_array_new();
      g_assert_cmpint(unpack_in(all->data, all->len, portion, 1 << 20, n, out), ==, QV_GZIP_OK);
      g_assert_cmpmem(out->data, out->len, bytes, n);
      g_autoptr(GByteArray) part = g_byte_array_new();
      g_assert_cmpint(unpack_in(all->data, all->len - 1, portion, 1 << 20, n, part), ==, QV_GZIP_TRUNCATED);
    }
  }
}

/* 64 MiB of zeros in 64 KiB: the cap stops it at its own size. */
static void test_bomb(void)
{
  gsize n = 64 << 20;
  g_autofree guint8 *zeros = g_malloc0(n);
  g_autoptr(GByteArray) packed = pack(zeros, n, n);
  g_assert_cmpuint(packed->len, <, 1 << 19);
  g_autoptr(GByteArray) out = g_byte_array_new();
  g_assert_cmpint(unpack_in(packed->data, packed->len, G_MAXSIZE, 65536, 100000, out), ==, QV_GZIP_CAP);
  g_assert_cmpuint(out->len, <=, 100000);
}

/* ---- DEFLATE that zlib refuses and libdeflate, as of 1.14, takes */

typedef struct {
  GByteArray *bytes;
  guint bits_n;
} Bits;

/* N bits of VALUE, the lowest first. */
static void put(Bits *bits, guint value, guint n)
{
  for (guint i = 0; i < n; i++, bits->bits_n++) {
    if (bits->bits_n % 8 == 0)
      g_byte_array_append(bits->bytes, (const guint8 *)"", 1);
    bits->bytes->data[bits->bits_n / 8] |= (guint8)((value >> i & 1) << bits->bits_n % 8);
  }
}

/* A Huffman code: the highest first. */
static void put_code(Bits *bits, guint code, guint n)
{
  for (guint i = n; i > 0; i--)
    put(bits, code >> (i - 1) & 1, 1);
}

/* A symbol of the fixed code of literals and lengths, without those over 143 that are literals. */
static void put_fixed(Bits *bits, guint symbol)
{
  if (symbol < 144)
    put_code(bits, 0x30 + symbol, 8);
  else if (symbol < 280)
    put_code(bits, symbol - 256, 7);
  else
    put_code(bits, 0xc0 + symbol - 280, 8);
}

static void begin_fixed(Bits *bits)
{
  put(bits, 1, 1);
  put(bits, 1, 2);
  put_fixed(bits, 'a');
}

static void make_length_286(Bits *bits)
{
  begin_fixed(bits);
  put_fixed(bits, 286);
  put_code(bits, 0, 5);
  put_fixed(bits, 256);
}

/* Its base is that of 29; so much must have come out before. */
static void make_distance_30(Bits *bits)
{
  begin_fixed(bits);
  for (guint i = 0; i < 128; i++) {
    put_fixed(bits, 285);
    put_code(bits, 0, 5);
  }
  put_fixed(bits, 257);
  put_code(bits, 30, 5);
  put(bits, 0, 13);
  put_fixed(bits, 256);
}

/* A block's two codes, where each symbol that is used has one bit; the lengths are told by 0, 1 and 18, many zeros. */
static void begin_dynamic(Bits *bits, guint lengths_n, guint distances_n, gboolean literal)
{
  static const guint8 told[19] = {[2] = 1, [3] = 2, [17] = 2}; /* in the order of RFC 1951: 18, 0, 1 */
  put(bits, 1, 1);
  put(bits, 2, 2);
  put(bits, lengths_n - 257, 5);
  put(bits, distances_n - 1, 5);
  put(bits, sizeof told - 4, 4);
  for (guint i = 0; i < sizeof told; i++)
    put(bits, told[i], 3);
  for (guint i = 0; i < lengths_n + distances_n;) {
    guint one = literal && i <= 'a' ? 'a' : i <= 256 ? 256 : lengths_n, zeros = i <= one ? one - i : lengths_n + distances_n - i;
    zeros = MIN(zeros, 138);
    if (i == one) {
      put_code(bits, 3, 2);
      i++;
    } else if (zeros < 11) {
      put_code(bits, 2, 2);
      i++;
    } else {
      put_code(bits, 0, 1);
      put(bits, zeros - 11, 7);
      i += zeros;
    }
  }
}

static void make_288_lengths(Bits *bits)
{
  begin_dynamic(bits, 288, 1, TRUE);
  put_code(bits, 0, 1);
  put_code(bits, 1, 1);
}

static void make_32_distances(Bits *bits)
{
  begin_dynamic(bits, 257, 32, TRUE);
  put_code(bits, 0, 1);
  put_code(bits, 1, 1);
}

/* Nothing but the end of the block has a code, 0; here is 1. */
static void make_incomplete(Bits *bits)
{
  begin_dynamic(bits, 257, 1, FALSE);
  put_code(bits, 1, 1);
}

static void put_le32(GByteArray *out, guint32 value)
{
  value = GUINT32_TO_LE(value);
  g_byte_array_append(out, (const guint8 *)&value, sizeof value);
}

/* N times `a`, with the checks of that. */
static GByteArray *lenient_member(void (*make)(Bits *), gsize n)
{
  static const guint8 head[10] = {0x1f, 0x8b, 8, [9] = 255};
  g_autofree guint8 *text = g_malloc(n + 1);
  memset(text, 'a', n + 1);
  Bits bits = {.bytes = g_byte_array_new()};
  make(&bits);
  GByteArray *member = g_byte_array_new();
  g_byte_array_append(member, head, sizeof head);
  g_byte_array_append(member, bits.bytes->data, bits.bytes->len);
  put_le32(member, (guint32)crc32(0, text, (uInt)n));
  put_le32(member, (guint32)n);
  g_byte_array_unref(bits.bytes);
  return member;
}

/* As the head of members.h says: as a whole member it is taken, with the bytes that its own checks promise, or refused as
 * the stream is; cut, over the cap, with a wrong check or behind a member of another profile it is refused. */
static void check_lenient(const GByteArray *member, gsize n, const GByteArray *foreign)
{
  g_autoptr(GByteArray) streamed = g_byte_array_new();
  g_autoptr(GByteArray) all = g_byte_array_new();
  g_assert_cmpint(read_stream(member->data, member->len, G_MAXSIZE, 65536, n, streamed), ==, QV_GZIP_DEFLATE);
  QvGzipReason reason = read_members(member->data, member->len, G_MAXSIZE, n, all);
  g_test_message("as a member: %s", qv_gzip_reason_name(reason));
  if (reason == QV_GZIP_OK) {
    g_assert_cmpuint(all->len, ==, n);
    for (gsize i = 0; i < n; i++)
      g_assert_cmpint(all->data[i], ==, 'a');
  } else {
    g_assert_cmpint(reason, ==, QV_GZIP_DEFLATE);
  }
  if (n > 0)
    g_assert_cmpint(read_members(member->data, member->len, G_MAXSIZE, n - 1, streamed), !=, QV_GZIP_OK);
  for (gsize cut = 0; cut < member->len; cut++) {
    g_autoptr(GByteArray) part = g_byte_array_new();
    g_assert_cmpint(read_members(member->data, cut, G_MAXSIZE, n, part), !=, QV_GZIP_OK);
  }
  g_autoptr(GByteArray) wrong = g_byte_array_new();
  g_byte_array_append(wrong, member->data, member->len);
  wrong->data[member->len - 8] ^= 1;
  g_assert_cmpint(read_members(wrong->data, wrong->len, G_MAXSIZE, n, streamed), ==, QV_GZIP_DEFLATE);
  g_autoptr(GByteArray) behind = g_byte_array_new();
  g_byte_array_append(behind, foreign->data, foreign->len);
  g_byte_array_append(behind, member->data, member->len);
  g_autoptr(GByteArray) more = g_byte_array_new();
  g_assert_cmpint(read_members(behind->data, behind->len, G_MAXSIZE, 1 << 24, more), ==, QV_GZIP_DEFLATE);
}

static void test_lenient(void)
{
  static const struct {
    const char *name;
    void (*make)(Bits *bits);
    gsize n;
  } cases[] = {
    {"fixed, length 286", make_length_286, 1 + 258}, {"fixed, distance 30", make_distance_30, 1 + 128 * 258 + 3},
    {"288 lengths", make_288_lengths, 1},            {"32 distances", make_32_distances, 1},
    {"incomplete", make_incomplete, 0},
  };
  g_autofree guint8 *zeros = g_malloc0(2 * QV_GZIP_MEMBER_BYTES);
  g_autoptr(GByteArray) foreign = g_byte_array_new();
  append_foreign(foreign, zeros, 2 * QV_GZIP_MEMBER_BYTES);
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_test_message("%s", cases[i].name);
    g_autoptr(GByteArray) member = lenient_member(cases[i].make, cases[i].n);
    check_lenient(member, cases[i].n, foreign);
  }
}

static void test_gerror(void)
{
  g_autoptr(GError) error = NULL;
  qv_gzip_set_error(&error, QV_GZIP_CRC, "snapshot");
  g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
  g_assert_cmpstr(error->message, ==, "snapshot: wrong CRC");
  g_clear_error(&error);
  qv_gzip_set_error(&error, QV_GZIP_CAP, "snapshot");
  g_assert_error(error, QV_ERROR, QV_ERROR_LIMIT);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/gzip/round-trip", test_round_trip);
  g_test_add_func("/gzip/writer-form", test_writer_form);
  g_test_add_func("/gzip/refused", test_refused);
  g_test_add_func("/gzip/members", test_members);
  g_test_add_func("/gzip/foreign-members", test_foreign_members);
  g_test_add_func("/gzip/bomb", test_bomb);
  g_test_add_func("/gzip/lenient", test_lenient);
  g_test_add_func("/gzip/gerror", test_gerror);
  return g_test_run();
}
