/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs (section 3): key derivation, sealed chunks, and the streaming state of
 * a reader and of a writer. Where chunks are kept is not known here. */
#pragma once

#include <glib.h>

#include "base/limits.h"
#include "base/secret.h"
#include "protocol/key.h"

enum { QV_BLOB_ID_CAP = QV_JOB_ID_BYTES + 16 };

typedef struct {
  char blob_id[QV_BLOB_ID_CAP]; /* <jobId>.base, .overlay, .result, .live */
  gint64 size;                  /* bytes of plaintext (a gzip) */
  gint64 chunks;                /* ceil(size / QV_CHUNK_BYTES) */
  char sha256[65];              /* of the plaintext, hex */
  guint8 salt[QV_SALT_BYTES];
  char tree_sha256[65];         /* of the tar inside; a name that nothing verifies */
} QvBlobDescriptor;

/* ceil(size / QV_CHUNK_BYTES). */
gint64 qv_blob_chunks(gint64 size);
/* Plaintext bytes of chunk I of a blob of SIZE bytes. */
gsize qv_blob_chunk_bytes(gint64 size, gint64 i);

/* "<job_id>.<part>", into CAP = QV_BLOB_ID_CAP bytes. */
void qv_blob_id_format(const char *job_id, const char *part, char blob_id[QV_BLOB_ID_CAP]);

/* HKDF-SHA256 over the pool key, 32 bytes. Never NULL. */
QvSecret *qv_blob_key_derive(const QvKey *key, const guint8 salt[QV_SALT_BYTES], const char *tenant_id,
                             const char *blob_id);

/* A derived key with the names that go into the AAD: all that a process needs
 * to seal or unseal one blob, and nothing more. */
typedef struct QvBlobCipher QvBlobCipher;

enum { QV_BLOB_CHUNKS_UNKNOWN = -1 }; /* live logs: AAD ends with "*" */

/* Copies KEY (32 bytes). */
QvBlobCipher *qv_blob_cipher_new(const QvSecret *key, const char *tenant_id, const char *blob_id, gint64 chunks);
void qv_blob_cipher_free(QvBlobCipher *cipher);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvBlobCipher, qv_blob_cipher_free)

/* Writes N + 28 bytes, IV ‖ ciphertext ‖ tag, to SEALED (which may not overlap PLAIN). IV: fresh random
 * bytes. N at most QV_CHUNK_BYTES. */
void qv_blob_cipher_seal(QvBlobCipher *cipher, gint64 i, const guint8 iv[QV_CHUNK_IV_BYTES], const void *plain, gsize n,
                         guint8 *sealed);

/* Writes N - 28 bytes to PLAIN. QV_ERROR_AUTH where the tag does not verify or N is out of range: PLAIN then
 * holds zeros only. */
gboolean qv_blob_cipher_unseal(QvBlobCipher *cipher, gint64 i, const guint8 *sealed, gsize n, guint8 *plain,
                               GError **error);

/* Reads the chunks of a described blob in order. */
typedef struct QvBlobReader QvBlobReader;

/* Copies KEY (derived) and DESCRIPTOR. */
QvBlobReader *qv_blob_reader_new(const QvSecret *key, const char *tenant_id, const QvBlobDescriptor *descriptor);
void qv_blob_reader_free(QvBlobReader *reader);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvBlobReader, qv_blob_reader_free)

/* Index of the chunk that is wanted next; -1 when the blob is complete and right. */
gint64 qv_blob_reader_next(const QvBlobReader *reader);
gboolean qv_blob_reader_at_last(const QvBlobReader *reader);

/* Takes the next chunk as it is in the store: *PLAIN_N bytes of plaintext go to PLAIN (room for QV_CHUNK_BYTES).
 * Every error is blob_corrupt (QV_ERROR_AUTH) and final. With the last chunk the
 * whole size and SHA-256 are checked first. */
gboolean qv_blob_reader_step(QvBlobReader *reader, const guint8 *sealed, gsize n, guint8 *plain, gsize *plain_n,
                             GError **error);

/* The same in two calls: a verified chunk can be passed on before it is hashed. The plaintext of every chunk but the
 * last goes to qv_blob_reader_hash once, in order, in pieces of any length; all of it before the last chunk is opened,
 * which is hashed and checked there. */
gboolean qv_blob_reader_open(QvBlobReader *reader, const guint8 *sealed, gsize n, guint8 *plain, gsize *plain_n,
                             GError **error);
void qv_blob_reader_hash(QvBlobReader *reader, const guint8 *plain, gsize n);

/* Seals plaintext of a known size, chunk by chunk. */
typedef struct QvBlobWriter QvBlobWriter;

/* Copies KEY (derived with SALT). SIZE at least 1. */
QvBlobWriter *qv_blob_writer_new(const QvSecret *key, const guint8 salt[QV_SALT_BYTES], const char *tenant_id,
                                 const char *blob_id, gint64 size);
void qv_blob_writer_free(QvBlobWriter *writer);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvBlobWriter, qv_blob_writer_free)

/* Index of the chunk that comes next, -1 when all SIZE bytes were sealed. */
gint64 qv_blob_writer_next(const QvBlobWriter *writer);
/* Plaintext bytes that the next chunk must have. */
gsize qv_blob_writer_want(const QvBlobWriter *writer);
/* Seals the next chunk, exactly qv_blob_writer_want() bytes, into want + 28 bytes. */
void qv_blob_writer_step(QvBlobWriter *writer, const guint8 iv[QV_CHUNK_IV_BYTES], const void *plain, guint8 *sealed);
/* The descriptor, once all is sealed. TREE_SHA256: hex. */
void qv_blob_writer_describe(const QvBlobWriter *writer, const char *tree_sha256, QvBlobDescriptor *descriptor);
