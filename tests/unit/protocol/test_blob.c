/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs: numbers made by node:crypto from the contract's text, every way of
 * being corrupt, and the edges of chunk sizes. */
#include <string.h>

#include "base/error.h"
#include "base/sha256.h"
#include "base/hex.h"
#include "protocol/blob.h"
#include "support.h"

#define TENANT "acme"
#define BLOB "00000000-0000-4000-8000-000000000001.base"
#define TREE "6666666666666666666666666666666666666666666666666666666666666666"

static const guint8 salt[QV_SALT_BYTES] = { 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
                                            7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7 };

static QvSecret *derive(const char *tenant, const char *blob_id)
{
  guint8 bytes[32];
  for (guint i = 0; i < 32; i++)
    bytes[i] = (guint8)i;
  g_autoptr(QvKey) key = qv_key_new(bytes, sizeof bytes);
  return qv_blob_key_derive(key, salt, tenant, blob_id);
}

static void test_node(void)
{
  static const struct {
    gint64 i, chunks;
    const char *plain, *sealed;
  } rows[] = {
    { 0, 1, "hello, sandbox", "000102030405060708090a0b1cde51bbaf0e4eb263e200e31a968eca838f5f69293d11024773247472f5" },
    { 11, 12, "tail", "ffeeddccbbaa9988776655441db6b87304c06ecd6f3252c40a1b743c3b6afcb4" },
    { 3, QV_BLOB_CHUNKS_UNKNOWN, "live", "0c0b0a090807060504030201767f83a7b2357b65f85799e858755b5da65d29ed" },
  };
  g_autoptr(QvSecret) key = derive(TENANT, BLOB);
  g_autofree char *hex = t_to_hex(qv_secret_bytes(key), qv_secret_len(key));
  g_assert_cmpstr(hex, ==, "960d63ac87280088c9f73e6febfc2f9cadc8705f6e4674b043cf0011269f691d");
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(QvBlobCipher) cipher = qv_blob_cipher_new(key, TENANT, BLOB, rows[i].chunks);
    g_autoptr(GByteArray) want = t_hex(rows[i].sealed);
    gsize n = strlen(rows[i].plain);
    guint8 sealed[64], plain[64];
    g_assert_cmpuint(want->len, ==, n + 28);
    qv_blob_cipher_seal(cipher, rows[i].i, want->data, rows[i].plain, n, sealed);
    g_assert_cmpmem(sealed, n + 28, want->data, want->len);
    g_assert_true(qv_blob_cipher_unseal(cipher, rows[i].i, sealed, n + 28, plain, NULL));
    g_assert_cmpmem(plain, n, rows[i].plain, n);
  }
}

/* Everything that goes into key or AAD binds. */
static void test_binding(void)
{
  guint8 sealed[32], plain[32];
  static const guint8 iv[12] = { 1 };
  g_autoptr(QvSecret) key = derive(TENANT, BLOB);
  g_autoptr(QvBlobCipher) right = qv_blob_cipher_new(key, TENANT, BLOB, 3);
  qv_blob_cipher_seal(right, 1, iv, "abcd", 4, sealed);
  static const struct {
    const char *tenant, *blob;
    gint64 i, chunks;
    gboolean other_key;
  } rows[] = {
    { TENANT, BLOB, 0, 3, FALSE },
    { TENANT, BLOB, 2, 3, FALSE },
    { TENANT, BLOB, 1, 4, FALSE },
    { TENANT, BLOB, 1, QV_BLOB_CHUNKS_UNKNOWN, FALSE },
    { "acm", BLOB, 1, 3, FALSE },
    { TENANT, "00000000-0000-4000-8000-000000000001.overlay", 1, 3, FALSE },
    { TENANT, BLOB, 1, 3, TRUE },
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    GError *error = NULL;
    g_autoptr(QvSecret) other = derive("other", BLOB);
    g_autoptr(QvBlobCipher) cipher =
        qv_blob_cipher_new(rows[i].other_key ? other : key, rows[i].tenant, rows[i].blob, rows[i].chunks);
    memset(plain, 0xee, sizeof plain);
    g_assert_false(qv_blob_cipher_unseal(cipher, rows[i].i, sealed, 32, plain, &error));
    t_assert_error(&error, QV_ERROR_AUTH, "does not verify");
    g_assert_cmpmem(plain, 4, "\0\0\0\0", 4);
  }
  for (gsize bit = 0; bit < 32 * 8; bit++) {
    sealed[bit / 8] ^= (guint8)(1 << bit % 8);
    g_assert_false(qv_blob_cipher_unseal(right, 1, sealed, 32, plain, NULL));
    sealed[bit / 8] ^= (guint8)(1 << bit % 8);
  }
  for (gsize n = 0; n < 32; n++)
    g_assert_false(qv_blob_cipher_unseal(right, 1, sealed, n, plain, NULL));
  g_assert_true(qv_blob_cipher_unseal(right, 1, sealed, 32, plain, NULL));
}

static void test_chunk_arithmetic(void)
{
  static const struct {
    gint64 size, chunks;
    gsize last;
  } rows[] = {
    { 0, 0, 0 },
    { 1, 1, 1 },
    { QV_CHUNK_BYTES - 1, 1, QV_CHUNK_BYTES - 1 },
    { QV_CHUNK_BYTES, 1, QV_CHUNK_BYTES },
    { QV_CHUNK_BYTES + 1, 2, 1 },
    { 3ll * QV_CHUNK_BYTES, 3, QV_CHUNK_BYTES },
    { G_MAXINT64, 8796093022208, QV_CHUNK_BYTES - 1 },
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_assert_cmpint(qv_blob_chunks(rows[i].size), ==, rows[i].chunks);
    if (rows[i].chunks > 0)
      g_assert_cmpuint(qv_blob_chunk_bytes(rows[i].size, rows[i].chunks - 1), ==, rows[i].last);
    if (rows[i].chunks > 1)
      g_assert_cmpuint(qv_blob_chunk_bytes(rows[i].size, 0), ==, QV_CHUNK_BYTES);
  }
  g_assert_cmpint(QV_CHUNK_SEALED_BYTES_MAX, ==, 1048604);
  char id[QV_BLOB_ID_CAP];
  qv_blob_id_format("00000000-0000-4000-8000-000000000001", "overlay", id);
  g_assert_cmpstr(id, ==, "00000000-0000-4000-8000-000000000001.overlay");
}

typedef struct {
  QvBlobDescriptor descriptor;
  GPtrArray *sealed; /* GByteArray */
  GByteArray *plain;
} Sample;

static Sample *sample_new(gint64 size)
{
  Sample *sample = g_new0(Sample, 1);
  g_autoptr(QvSecret) key = derive(TENANT, BLOB);
  g_autoptr(QvBlobWriter) writer = qv_blob_writer_new(key, salt, TENANT, BLOB, size);
  sample->sealed = g_ptr_array_new_with_free_func((GDestroyNotify)g_byte_array_unref);
  sample->plain = g_byte_array_new();
  g_byte_array_set_size(sample->plain, (guint)size);
  for (gint64 i = 0; i < size; i++)
    sample->plain->data[i] = (guint8)(i * 2654435761u >> 13);
  gint64 at = 0;
  for (gint64 i = 0; qv_blob_writer_next(writer) >= 0; i++) {
    guint8 iv[12] = { (guint8)i, 0x55 };
    gsize n = qv_blob_writer_want(writer);
    g_assert_cmpint(qv_blob_writer_next(writer), ==, i);
    GByteArray *sealed = g_byte_array_new();
    g_byte_array_set_size(sealed, (guint)n + 28);
    qv_blob_writer_step(writer, iv, sample->plain->data + at, sealed->data);
    g_ptr_array_add(sample->sealed, sealed);
    at += (gint64)n;
  }
  g_assert_cmpint(at, ==, size);
  qv_blob_writer_describe(writer, TREE, &sample->descriptor);
  return sample;
}

static void sample_free(Sample *sample)
{
  g_ptr_array_unref(sample->sealed);
  g_byte_array_unref(sample->plain);
  g_free(sample);
}

/* Reads all chunks: -1 where it is complete and right, else the index of the
 * chunk that was refused. */
static gint64 read_all(const Sample *sample, const QvBlobDescriptor *descriptor, GByteArray *out)
{
  g_autoptr(QvSecret) key = derive(TENANT, BLOB);
  g_autoptr(QvBlobReader) reader = qv_blob_reader_new(key, TENANT, descriptor);
  g_autofree guint8 *plain = g_malloc(QV_CHUNK_BYTES);
  for (guint i = 0; i < sample->sealed->len; i++) {
    GError *error = NULL;
    GByteArray *sealed = sample->sealed->pdata[i];
    gsize n = 0;
    if (!qv_blob_reader_step(reader, sealed->data, sealed->len, plain, &n, &error)) {
      gint64 at = qv_blob_reader_next(reader);
      g_assert_error(error, QV_ERROR, QV_ERROR_AUTH);
      g_clear_error(&error);
      /* An error is final, even for the chunk that would have been right. */
      g_assert_false(qv_blob_reader_step(reader, sealed->data, sealed->len, plain, &n, NULL));
      return at < 0 ? (gint64)i : at;
    }
    if (out != NULL)
      g_byte_array_append(out, plain, (guint)n);
  }
  return qv_blob_reader_next(reader) < 0 ? -1 : qv_blob_reader_next(reader);
}

static void test_round_trip(void)
{
  static const gint64 sizes[] = { 1, 2, QV_CHUNK_BYTES - 1, QV_CHUNK_BYTES, QV_CHUNK_BYTES + 1, 2 * QV_CHUNK_BYTES + 77 };
  for (gsize i = 0; i < G_N_ELEMENTS(sizes); i++) {
    Sample *sample = sample_new(sizes[i]);
    guint8 digest[32];
    char hex[65];
    g_autoptr(GByteArray) out = g_byte_array_new();
    g_assert_cmpint(read_all(sample, &sample->descriptor, out), ==, -1);
    g_assert_cmpmem(out->data, out->len, sample->plain->data, sample->plain->len);
    qv_sha256(out->data, out->len, digest);
    qv_hex_encode(digest, 32, hex);
    g_assert_cmpstr(sample->descriptor.sha256, ==, hex);
    g_assert_cmpstr(sample->descriptor.tree_sha256, ==, TREE);
    g_assert_cmpint(sample->descriptor.size, ==, sizes[i]);
    g_assert_cmpint(sample->descriptor.chunks, ==, qv_blob_chunks(sizes[i]));
    g_assert_cmpmem(sample->descriptor.salt, 32, salt, 32);
    sample_free(sample);
  }
}

static void swap(GPtrArray *array, guint a, guint b)
{
  gpointer held = array->pdata[a];
  array->pdata[a] = array->pdata[b];
  array->pdata[b] = held;
}

static void resize(GPtrArray *array, guint i, guint n)
{
  GByteArray *bytes = array->pdata[i];
  guint before = bytes->len;
  g_byte_array_set_size(bytes, n);
  if (n > before)
    memset(bytes->data + before, 0, n - before);
}

static void test_corrupt(void)
{
  Sample *sample = sample_new(2 * QV_CHUNK_BYTES + 100);
  QvBlobDescriptor other = sample->descriptor;
  GByteArray *first = sample->sealed->pdata[0];

  swap(sample->sealed, 0, 1);
  g_assert_cmpint(read_all(sample, &sample->descriptor, NULL), ==, 0);
  swap(sample->sealed, 0, 1);
  swap(sample->sealed, 1, 2);
  g_assert_cmpint(read_all(sample, &sample->descriptor, NULL), ==, 1);
  swap(sample->sealed, 1, 2);
  for (guint i = 0; i < 3; i++) {
    guint n = ((GByteArray *)sample->sealed->pdata[i])->len;
    g_autofree guint8 *kept = g_memdup2(((GByteArray *)sample->sealed->pdata[i])->data, n);
    resize(sample->sealed, i, n - 1);
    g_assert_cmpint(read_all(sample, &sample->descriptor, NULL), ==, i);
    resize(sample->sealed, i, n + 1);
    g_assert_cmpint(read_all(sample, &sample->descriptor, NULL), ==, i);
    resize(sample->sealed, i, 0);
    g_assert_cmpint(read_all(sample, &sample->descriptor, NULL), ==, i);
    resize(sample->sealed, i, n);
    memcpy(((GByteArray *)sample->sealed->pdata[i])->data, kept, n);
  }
  first->data[5000] ^= 1;
  g_assert_cmpint(read_all(sample, &sample->descriptor, NULL), ==, 0);
  first->data[5000] ^= 1;
  other.sha256[0] = other.sha256[0] == '0' ? '1' : '0';
  g_assert_cmpint(read_all(sample, &other, NULL), ==, 2);
  other = sample->descriptor;
  other.size--;
  g_assert_cmpint(read_all(sample, &other, NULL), ==, 2);
  g_assert_cmpint(read_all(sample, &sample->descriptor, NULL), ==, -1);
  g_ptr_array_add(sample->sealed, g_byte_array_ref(first));
  g_assert_cmpint(read_all(sample, &sample->descriptor, NULL), ==, 3);
  sample_free(sample);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/blob/node", test_node);
  g_test_add_func("/blob/binding", test_binding);
  g_test_add_func("/blob/chunk-arithmetic", test_chunk_arithmetic);
  g_test_add_func("/blob/round-trip", test_round_trip);
  g_test_add_func("/blob/corrupt", test_corrupt);
  return g_test_run();
}
