/* SPDX-License-Identifier: Apache-2.0 */
/* The one door to libcrypto: SHA-256, HMAC-SHA256, HKDF-SHA256, AES-256-GCM.
 * OpenSSL's failures other than a tag that does not verify are out of memory or
 * a broken library: the process ends, as GLib does when memory is out. */
#pragma once

#include <glib.h>

enum { QV_GCM_KEY_BYTES = 32, QV_GCM_IV_BYTES = 12, QV_GCM_TAG_BYTES = 16, QV_HKDF_BYTES_MAX = 255 * 32 };

/* Does each thing once, so that libcrypto has read its configuration and made its tables: to be called before a
 * process shuts itself in. */
void qv_crypto_init(void);

/* Bulk SHA-256, and HMAC-SHA256 where a key is given. */
typedef struct QvDigest QvDigest;
QvDigest *qv_digest_new_sha256(void);
QvDigest *qv_digest_new_hmac(const void *key, gsize key_n);
void qv_digest_free(QvDigest *digest);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvDigest, qv_digest_free)
void qv_digest_update(QvDigest *digest, const void *bytes, gsize n);
/* 32 bytes; the digest may only be freed then. */
void qv_digest_final(QvDigest *digest, guint8 out[32]);
void qv_digest_final_hex(QvDigest *digest, char hex[65]);

void qv_crypto_hmac(const void *key, gsize key_n, const void *bytes, gsize n, guint8 mac[32]);

/* RFC 5869; OUT_N 1 to QV_HKDF_BYTES_MAX, else FALSE. */
gboolean qv_crypto_hkdf(const void *ikm, gsize ikm_n, const void *salt, gsize salt_n, const void *info, gsize info_n,
                        guint8 *out, gsize out_n);

/* NIST SP 800-38D with 96-bit IVs and 128-bit tags. N at most INT_MAX. CIPHERTEXT has N bytes, TAG 16. */
void qv_crypto_gcm_seal(const guint8 key[QV_GCM_KEY_BYTES], const guint8 iv[QV_GCM_IV_BYTES], const void *aad,
                        gsize aad_n, const void *plain, gsize n, guint8 *ciphertext, guint8 tag[QV_GCM_TAG_BYTES]);
/* FALSE where the tag does not verify: PLAIN then holds zeros. */
gboolean qv_crypto_gcm_open(const guint8 key[QV_GCM_KEY_BYTES], const guint8 iv[QV_GCM_IV_BYTES], const void *aad,
                            gsize aad_n, const guint8 *ciphertext, gsize n, const guint8 tag[QV_GCM_TAG_BYTES],
                            guint8 *plain);
