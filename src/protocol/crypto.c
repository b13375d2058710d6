/* SPDX-License-Identifier: Apache-2.0 */
/* Owns every call of libcrypto. Algorithms are fetched once and kept. Sources:
 * FIPS 180-4, FIPS 198-1, RFC 5869, NIST SP 800-38D.
 *
 * HMAC and HKDF are the few lines of their standards over libcrypto's SHA-256: its own EVP_MAC takes 25 allocations and three
 * copies of contexts for one, as long as 600 bytes of SHA-256, and its EVP_KDF looks its digest up by name each time. */
#include "protocol/crypto.h"

#include <limits.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/hex.h"

enum { SHA256_BLOCK = 64, SHA256_BYTES = 32 };

struct QvDigest {
  EVP_MD_CTX *sha256;
  gboolean keyed;
  guint8 outer[SHA256_BLOCK]; /* HMAC: the key and its padding, for the second hash */
};

static EVP_MD *sha256_algorithm;
static EVP_CIPHER *gcm_algorithm;

static void must(int done)
{
  if (done <= 0)
    g_error("libcrypto failed where it cannot");
}

static void fetch_all(void)
{
  static gsize once;
  if (!g_once_init_enter(&once))
    return;
  must((sha256_algorithm = EVP_MD_fetch(NULL, "SHA256", NULL)) != NULL);
  must((gcm_algorithm = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL)) != NULL);
  g_once_init_leave(&once, 1);
}

void qv_crypto_init(void)
{
  guint8 out[32];
  guint8 sealed[16 + QV_GCM_TAG_BYTES];
  char hex[65];
  QvDigest *digest = qv_digest_new_sha256();
  qv_digest_final_hex(digest, hex);
  qv_digest_free(digest);
  qv_crypto_hmac("k", 1, "", 0, out);
  qv_crypto_gcm_seal(out, out, "", 0, out, 16, sealed, sealed + 16);
  must(qv_crypto_gcm_open(out, out, "", 0, sealed, 16, sealed + 16, out));
}

static void digest_start(QvDigest *digest)
{
  fetch_all();
  digest->keyed = FALSE;
  must((digest->sha256 = EVP_MD_CTX_new()) != NULL);
  must(EVP_DigestInit_ex2(digest->sha256, sha256_algorithm, NULL));
}

/* FIPS 198-1, steps 1 to 5. */
static void hmac_start(QvDigest *digest, const void *key, gsize key_n)
{
  digest_start(digest);
  guint8 inner[SHA256_BLOCK] = { 0 };
  if (key_n > SHA256_BLOCK) {
    must(EVP_DigestUpdate(digest->sha256, key, key_n));
    must(EVP_DigestFinal_ex(digest->sha256, inner, NULL));
    must(EVP_DigestInit_ex2(digest->sha256, NULL, NULL));
  } else if (key_n > 0) {
    memcpy(inner, key, key_n);
  }
  digest->keyed = TRUE;
  for (gsize i = 0; i < SHA256_BLOCK; i++) {
    digest->outer[i] = inner[i] ^ 0x5c;
    inner[i] ^= 0x36;
  }
  must(EVP_DigestUpdate(digest->sha256, inner, sizeof inner));
  explicit_bzero(inner, sizeof inner);
}

/* libcrypto wipes its own. */
static void digest_end(QvDigest *digest)
{
  EVP_MD_CTX_free(digest->sha256);
  if (digest->keyed)
    explicit_bzero(digest->outer, sizeof digest->outer);
}

QvDigest *qv_digest_new_sha256(void)
{
  QvDigest *digest = g_new(QvDigest, 1);
  digest_start(digest);
  return digest;
}

QvDigest *qv_digest_new_hmac(const void *key, gsize key_n)
{
  QvDigest *digest = g_new(QvDigest, 1);
  hmac_start(digest, key, key_n);
  return digest;
}

void qv_digest_free(QvDigest *digest)
{
  if (digest == NULL)
    return;
  digest_end(digest);
  g_free(digest);
}

void qv_digest_update(QvDigest *digest, const void *bytes, gsize n)
{
  must(EVP_DigestUpdate(digest->sha256, bytes, n));
}

void qv_digest_final(QvDigest *digest, guint8 out[32])
{
  must(EVP_DigestFinal_ex(digest->sha256, out, NULL));
  if (!digest->keyed)
    return;
  /* FIPS 198-1, steps 7 to 9. */
  must(EVP_DigestInit_ex2(digest->sha256, NULL, NULL));
  must(EVP_DigestUpdate(digest->sha256, digest->outer, SHA256_BLOCK));
  must(EVP_DigestUpdate(digest->sha256, out, SHA256_BYTES));
  must(EVP_DigestFinal_ex(digest->sha256, out, NULL));
}

void qv_digest_final_hex(QvDigest *digest, char hex[65])
{
  guint8 out[32];
  qv_digest_final(digest, out);
  qv_hex_encode(out, sizeof out, hex);
}

void qv_crypto_hmac(const void *key, gsize key_n, const void *bytes, gsize n, guint8 mac[32])
{
  QvDigest digest;
  hmac_start(&digest, key, key_n);
  qv_digest_update(&digest, bytes, n);
  qv_digest_final(&digest, mac);
  digest_end(&digest);
}

/* T(i) of RFC 5869, section 2.3. BEFORE: NULL for the first. */
static void hkdf_block(const guint8 prk[SHA256_BYTES], const guint8 *before, const void *info, gsize info_n, guint8 i,
                       guint8 block[SHA256_BYTES])
{
  QvDigest digest;
  hmac_start(&digest, prk, SHA256_BYTES);
  if (before != NULL)
    qv_digest_update(&digest, before, SHA256_BYTES);
  qv_digest_update(&digest, info, info_n);
  qv_digest_update(&digest, &i, 1);
  qv_digest_final(&digest, block);
  digest_end(&digest);
}

gboolean qv_crypto_hkdf(const void *ikm, gsize ikm_n, const void *salt, gsize salt_n, const void *info, gsize info_n,
                        guint8 *out, gsize out_n)
{
  if (out_n == 0 || out_n > QV_HKDF_BYTES_MAX)
    return FALSE;
  guint8 prk[SHA256_BYTES], block[SHA256_BYTES];
  qv_crypto_hmac(salt, salt_n, ikm, ikm_n, prk); /* no salt is one of zeros, and so is an empty key of HMAC */
  for (gsize at = 0; at < out_n; at += SHA256_BYTES) {
    hkdf_block(prk, at > 0 ? block : NULL, info, info_n, (guint8)(at / SHA256_BYTES + 1), block);
    memcpy(out + at, block, MIN(out_n - at, SHA256_BYTES));
  }
  explicit_bzero(prk, sizeof prk);
  explicit_bzero(block, sizeof block);
  return TRUE;
}

static EVP_CIPHER_CTX *gcm_start(const guint8 *key, const guint8 *iv, const void *aad, gsize aad_n, int encrypt)
{
  int n = 0;
  fetch_all();
  EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
  must(ctx != NULL && aad_n <= INT_MAX);
  must(EVP_CipherInit_ex2(ctx, gcm_algorithm, key, iv, encrypt, NULL));
  if (aad_n > 0)
    must(EVP_CipherUpdate(ctx, NULL, &n, aad, (int)aad_n));
  return ctx;
}

void qv_crypto_gcm_seal(const guint8 key[QV_GCM_KEY_BYTES], const guint8 iv[QV_GCM_IV_BYTES], const void *aad,
                        gsize aad_n, const void *plain, gsize n, guint8 *ciphertext, guint8 tag[QV_GCM_TAG_BYTES])
{
  int out_n = 0;
  guint8 end[EVP_MAX_BLOCK_LENGTH];
  EVP_CIPHER_CTX *ctx = gcm_start(key, iv, aad, aad_n, 1);
  must(n <= INT_MAX);
  if (n > 0)
    must(EVP_CipherUpdate(ctx, ciphertext, &out_n, plain, (int)n));
  must(EVP_CipherFinal_ex(ctx, end, &out_n));
  must(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, QV_GCM_TAG_BYTES, tag));
  EVP_CIPHER_CTX_free(ctx);
}

gboolean qv_crypto_gcm_open(const guint8 key[QV_GCM_KEY_BYTES], const guint8 iv[QV_GCM_IV_BYTES], const void *aad,
                            gsize aad_n, const guint8 *ciphertext, gsize n, const guint8 tag[QV_GCM_TAG_BYTES],
                            guint8 *plain)
{
  int out_n = 0;
  guint8 end[EVP_MAX_BLOCK_LENGTH];
  EVP_CIPHER_CTX *ctx = gcm_start(key, iv, aad, aad_n, 0);
  must(n <= INT_MAX);
  if (n > 0)
    must(EVP_CipherUpdate(ctx, plain, &out_n, ciphertext, (int)n));
  must(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, QV_GCM_TAG_BYTES, (void *)tag));
  gboolean right = EVP_CipherFinal_ex(ctx, end, &out_n) > 0;
  EVP_CIPHER_CTX_free(ctx);
  /* No caller may go on with bytes whose tag is wrong, not even by mistake. */
  if (!right && n > 0)
    memset(plain, 0, n);
  return right;
}
