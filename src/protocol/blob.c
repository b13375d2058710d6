/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the sealing of blobs: derived keys, the AAD of a chunk, and the order
 * in which a reader and a writer go through a blob. Not where chunks are kept.
 *
 * Chunk: IV (12) ‖ AES-256-GCM ciphertext ‖ tag (16). Source: section 3. */
#include "protocol/blob.h"

#include <string.h>

#include "base/error.h"
#include "protocol/crypto.h"

#define DOMAIN_TEXT "quavon/sandbox/blob/v1"

struct QvBlobCipher {
  QvSecret *key;
  char *aad_head; /* domain LF tenantId LF blobId LF */
  gint64 chunks;
};

struct QvBlobReader {
  QvBlobCipher *cipher;
  QvBlobDescriptor descriptor;
  QvDigest *sha256;
  gint64 hashed; /* bytes of plaintext */
  gint64 next;
  gboolean failed;
};

struct QvBlobWriter {
  QvBlobCipher *cipher;
  QvDigest *sha256;
  QvBlobDescriptor descriptor;
  gint64 next;
};

gint64 qv_blob_chunks(gint64 size)
{
  return size / QV_CHUNK_BYTES + (size % QV_CHUNK_BYTES != 0);
}

gsize qv_blob_chunk_bytes(gint64 size, gint64 i)
{
  return (gsize)MIN((gint64)QV_CHUNK_BYTES, size - i * QV_CHUNK_BYTES);
}

void qv_blob_id_format(const char *job_id, const char *part, char blob_id[QV_BLOB_ID_CAP])
{
  int n = g_snprintf(blob_id, QV_BLOB_ID_CAP, "%s.%s", job_id, part);
  g_assert(n > 0 && n < QV_BLOB_ID_CAP);
}

QvSecret *qv_blob_key_derive(const QvKey *key, const guint8 salt[QV_SALT_BYTES], const char *tenant_id,
                             const char *blob_id)
{
  const QvSecret *ikm = qv_key_secret(key);
  g_autofree char *info = g_strconcat(DOMAIN_TEXT "\n", tenant_id, "\n", blob_id, NULL);
  QvSecret *derived = qv_secret_new(QV_BLOB_KEY_BYTES);
  gboolean done = qv_crypto_hkdf(qv_secret_bytes(ikm), qv_secret_len(ikm), salt, QV_SALT_BYTES, info, strlen(info),
                                 qv_secret_bytes_mut(derived), QV_BLOB_KEY_BYTES);
  g_assert(done);
  return derived;
}

QvBlobCipher *qv_blob_cipher_new(const QvSecret *key, const char *tenant_id, const char *blob_id, gint64 chunks)
{
  g_assert(qv_secret_len(key) == QV_BLOB_KEY_BYTES && (chunks == QV_BLOB_CHUNKS_UNKNOWN || chunks >= 0));
  QvBlobCipher *cipher = g_new0(QvBlobCipher, 1);
  cipher->key = qv_secret_dup(key);
  cipher->aad_head = g_strconcat(DOMAIN_TEXT "\n", tenant_id, "\n", blob_id, "\n", NULL);
  cipher->chunks = chunks;
  return cipher;
}

void qv_blob_cipher_free(QvBlobCipher *cipher)
{
  if (cipher == NULL)
    return;
  qv_secret_free(cipher->key);
  g_free(cipher->aad_head);
  g_free(cipher);
}

/* "<head>i LF chunks", or "*" where their number is not known. */
static char *chunk_aad(const QvBlobCipher *cipher, gint64 i)
{
  if (cipher->chunks == QV_BLOB_CHUNKS_UNKNOWN)
    return g_strdup_printf("%s%" G_GINT64_FORMAT "\n*", cipher->aad_head, i);
  return g_strdup_printf("%s%" G_GINT64_FORMAT "\n%" G_GINT64_FORMAT, cipher->aad_head, i, cipher->chunks);
}

void qv_blob_cipher_seal(QvBlobCipher *cipher, gint64 i, const guint8 iv[QV_CHUNK_IV_BYTES], const void *plain, gsize n,
                         guint8 *sealed)
{
  g_assert(n <= QV_CHUNK_BYTES && i >= 0);
  g_autofree char *aad = chunk_aad(cipher, i);
  guint8 *text = sealed + QV_CHUNK_IV_BYTES;
  memcpy(sealed, iv, QV_CHUNK_IV_BYTES);
  qv_crypto_gcm_seal(qv_secret_bytes(cipher->key), iv, aad, strlen(aad), plain, n, text, text + n);
}

gboolean qv_blob_cipher_unseal(QvBlobCipher *cipher, gint64 i, const guint8 *sealed, gsize n, guint8 *plain,
                               GError **error)
{
  if (n < QV_CHUNK_IV_BYTES + QV_CHUNK_TAG_BYTES || n > QV_CHUNK_SEALED_BYTES_MAX) {
    g_set_error(error, QV_ERROR, QV_ERROR_AUTH, "chunk %" G_GINT64_FORMAT " has %zu bytes", i, n);
    return FALSE;
  }
  gsize plain_n = n - QV_CHUNK_IV_BYTES - QV_CHUNK_TAG_BYTES;
  const guint8 *text = sealed + QV_CHUNK_IV_BYTES;
  g_autofree char *aad = chunk_aad(cipher, i);
  if (qv_crypto_gcm_open(qv_secret_bytes(cipher->key), sealed, aad, strlen(aad), text, plain_n, text + plain_n, plain))
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_AUTH, "the tag of chunk %" G_GINT64_FORMAT " does not verify", i);
  return FALSE;
}

QvBlobReader *qv_blob_reader_new(const QvSecret *key, const char *tenant_id, const QvBlobDescriptor *descriptor)
{
  g_assert(descriptor->size > 0 && descriptor->chunks == qv_blob_chunks(descriptor->size));
  QvBlobReader *reader = g_new0(QvBlobReader, 1);
  reader->descriptor = *descriptor;
  reader->cipher = qv_blob_cipher_new(key, tenant_id, descriptor->blob_id, descriptor->chunks);
  reader->sha256 = qv_digest_new_sha256();
  return reader;
}

void qv_blob_reader_free(QvBlobReader *reader)
{
  if (reader == NULL)
    return;
  qv_blob_cipher_free(reader->cipher);
  qv_digest_free(reader->sha256);
  g_free(reader);
}

gint64 qv_blob_reader_next(const QvBlobReader *reader)
{
  return reader->next == reader->descriptor.chunks ? -1 : reader->next;
}

void qv_blob_reader_hash(QvBlobReader *reader, const guint8 *plain, gsize n)
{
  reader->hashed += (gint64)n;
  g_assert(reader->hashed <= reader->next * QV_CHUNK_BYTES);
  qv_digest_update(reader->sha256, plain, n);
}

/* PLAIN is the last chunk: nothing of it is passed on where the whole is not the descriptor's. */
gboolean qv_blob_reader_at_last(const QvBlobReader *reader)
{
  return reader->next + 1 == reader->descriptor.chunks;
}

static gboolean check_whole(QvBlobReader *reader, guint8 *plain, gsize n, GError **error)
{
  const QvBlobDescriptor *blob = &reader->descriptor;
  char hex[65];
  g_assert(reader->hashed == blob->size - (gint64)n);
  qv_digest_update(reader->sha256, plain, n);
  qv_digest_final_hex(reader->sha256, hex);
  if (strcmp(hex, blob->sha256) == 0)
    return TRUE;
  memset(plain, 0, n);
  g_set_error(error, QV_ERROR, QV_ERROR_AUTH, "the SHA-256 of the whole is not the descriptor's");
  return FALSE;
}

static gboolean reader_take(QvBlobReader *reader, const guint8 *sealed, gsize n, guint8 *plain, GError **error)
{
  const QvBlobDescriptor *blob = &reader->descriptor;
  gsize want = qv_blob_chunk_bytes(blob->size, reader->next);
  if (n != want + QV_CHUNK_IV_BYTES + QV_CHUNK_TAG_BYTES) {
    g_set_error(error, QV_ERROR, QV_ERROR_AUTH, "chunk %" G_GINT64_FORMAT " has %zu bytes, not %zu", reader->next, n,
                want + QV_CHUNK_IV_BYTES + QV_CHUNK_TAG_BYTES);
    return FALSE;
  }
  return qv_blob_cipher_unseal(reader->cipher, reader->next, sealed, n, plain, error) &&
         (!qv_blob_reader_at_last(reader) || check_whole(reader, plain, want, error));
}

gboolean qv_blob_reader_open(QvBlobReader *reader, const guint8 *sealed, gsize n, guint8 *plain, gsize *plain_n,
                             GError **error)
{
  gboolean over = qv_blob_reader_next(reader) < 0;
  if (reader->failed || over) {
    g_set_error(error, QV_ERROR, QV_ERROR_AUTH, "%s", over ? "a chunk behind the last one" : "a chunk behind a bad one");
    return FALSE;
  }
  if (!reader_take(reader, sealed, n, plain, error)) {
    reader->failed = TRUE;
    g_prefix_error(error, "blob %s: ", reader->descriptor.blob_id);
    return FALSE;
  }
  *plain_n = qv_blob_chunk_bytes(reader->descriptor.size, reader->next);
  reader->next++;
  return TRUE;
}

gboolean qv_blob_reader_step(QvBlobReader *reader, const guint8 *sealed, gsize n, guint8 *plain, gsize *plain_n,
                             GError **error)
{
  if (!qv_blob_reader_open(reader, sealed, n, plain, plain_n, error))
    return FALSE;
  if (qv_blob_reader_next(reader) >= 0)
    qv_blob_reader_hash(reader, plain, *plain_n);
  return TRUE;
}

QvBlobWriter *qv_blob_writer_new(const QvSecret *key, const guint8 salt[QV_SALT_BYTES], const char *tenant_id,
                                 const char *blob_id, gint64 size)
{
  g_assert(size > 0);
  QvBlobWriter *writer = g_new0(QvBlobWriter, 1);
  gsize id_n = g_strlcpy(writer->descriptor.blob_id, blob_id, QV_BLOB_ID_CAP);
  g_assert(id_n < QV_BLOB_ID_CAP);
  writer->descriptor.size = size;
  writer->descriptor.chunks = qv_blob_chunks(size);
  memcpy(writer->descriptor.salt, salt, QV_SALT_BYTES);
  writer->cipher = qv_blob_cipher_new(key, tenant_id, blob_id, writer->descriptor.chunks);
  writer->sha256 = qv_digest_new_sha256();
  return writer;
}

void qv_blob_writer_free(QvBlobWriter *writer)
{
  if (writer == NULL)
    return;
  qv_blob_cipher_free(writer->cipher);
  qv_digest_free(writer->sha256);
  g_free(writer);
}

gint64 qv_blob_writer_next(const QvBlobWriter *writer)
{
  return writer->next == writer->descriptor.chunks ? -1 : writer->next;
}

gsize qv_blob_writer_want(const QvBlobWriter *writer)
{
  return qv_blob_writer_next(writer) < 0 ? 0 : qv_blob_chunk_bytes(writer->descriptor.size, writer->next);
}

void qv_blob_writer_step(QvBlobWriter *writer, const guint8 iv[QV_CHUNK_IV_BYTES], const void *plain, guint8 *sealed)
{
  gsize n = qv_blob_writer_want(writer);
  g_assert(n > 0);
  qv_digest_update(writer->sha256, plain, n);
  qv_blob_cipher_seal(writer->cipher, writer->next, iv, plain, n, sealed);
  writer->next++;
  if (writer->next == writer->descriptor.chunks)
    qv_digest_final_hex(writer->sha256, writer->descriptor.sha256);
}

void qv_blob_writer_describe(const QvBlobWriter *writer, const char *tree_sha256, QvBlobDescriptor *descriptor)
{
  g_assert(qv_blob_writer_next(writer) < 0 && strlen(tree_sha256) == 64);
  *descriptor = writer->descriptor;
  g_strlcpy(descriptor->tree_sha256, tree_sha256, sizeof descriptor->tree_sha256);
}
