/* SPDX-License-Identifier: Apache-2.0 */
/* Owns every call of libcrypto. Algorithms are fetched once and kept. Sources:
 * FIPS 180-4, FIPS 198-1, RFC 5869, NIST SP 800-38D. */
#include "protocol/crypto.h"

#include <limits.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <string.h>

#include "base/hex.h"

struct QvDigest {
  EVP_MD_CTX *sha256; /* one of the two */
  EVP_MAC_CTX *hmac;
};

static EVP_MD *sha256_algorithm;
static EVP_MAC_CTX *hmac_template; /* knows its digest: finding that by name costs more than a short HMAC */
static EVP_KDF *hkdf_algorithm;
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
  EVP_MAC *hmac_algorithm = EVP_MAC_fetch(NULL, "HMAC", NULL);
  must(hmac_algorithm != NULL);
  OSSL_PARAM params[] = {
    OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)"SHA256", 0),
    OSSL_PARAM_construct_end(),
  };
  must((hmac_template = EVP_MAC_CTX_new(hmac_algorithm)) != NULL);
  EVP_MAC_free(hmac_algorithm);
  must(EVP_MAC_init(hmac_template, (const unsigned char *)"", 0, params));
  must((hkdf_algorithm = EVP_KDF_fetch(NULL, "HKDF", NULL)) != NULL);
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
  must(qv_crypto_hkdf("k", 1, "", 0, "", 0, out, sizeof out));
  qv_crypto_gcm_seal(out, out, "", 0, out, 16, sealed, sealed + 16);
  must(qv_crypto_gcm_open(out, out, "", 0, sealed, 16, sealed + 16, out));
}

QvDigest *qv_digest_new_sha256(void)
{
  fetch_all();
  QvDigest *digest = g_new0(QvDigest, 1);
  must((digest->sha256 = EVP_MD_CTX_new()) != NULL);
  must(EVP_DigestInit_ex2(digest->sha256, sha256_algorithm, NULL));
  return digest;
}

QvDigest *qv_digest_new_hmac(const void *key, gsize key_n)
{
  fetch_all();
  QvDigest *digest = g_new0(QvDigest, 1);
  must((digest->hmac = EVP_MAC_CTX_dup(hmac_template)) != NULL);
  /* A NULL key would mean "the one of before": an empty one needs an address. */
  must(EVP_MAC_init(digest->hmac, key_n > 0 ? key : (const void *)"", key_n, NULL));
  return digest;
}

void qv_digest_free(QvDigest *digest)
{
  if (digest == NULL)
    return;
  EVP_MD_CTX_free(digest->sha256);
  EVP_MAC_CTX_free(digest->hmac);
  g_free(digest);
}

void qv_digest_update(QvDigest *digest, const void *bytes, gsize n)
{
  if (digest->hmac != NULL)
    must(EVP_MAC_update(digest->hmac, bytes, n));
  else
    must(EVP_DigestUpdate(digest->sha256, bytes, n));
}

void qv_digest_final(QvDigest *digest, guint8 out[32])
{
  gsize n = 32;
  if (digest->hmac != NULL)
    must(EVP_MAC_final(digest->hmac, out, &n, 32));
  else
    must(EVP_DigestFinal_ex(digest->sha256, out, NULL));
  g_assert(n == 32);
}

void qv_digest_final_hex(QvDigest *digest, char hex[65])
{
  guint8 out[32];
  qv_digest_final(digest, out);
  qv_hex_encode(out, sizeof out, hex);
}

void qv_crypto_hmac(const void *key, gsize key_n, const void *bytes, gsize n, guint8 mac[32])
{
  g_autoptr(QvDigest) digest = qv_digest_new_hmac(key, key_n);
  qv_digest_update(digest, bytes, n);
  qv_digest_final(digest, mac);
}

gboolean qv_crypto_hkdf(const void *ikm, gsize ikm_n, const void *salt, gsize salt_n, const void *info, gsize info_n,
                        guint8 *out, gsize out_n)
{
  if (out_n == 0 || out_n > QV_HKDF_BYTES_MAX)
    return FALSE;
  fetch_all();
  EVP_KDF_CTX *ctx = EVP_KDF_CTX_new(hkdf_algorithm);
  must(ctx != NULL);
  /* An empty salt or info is left out: libcrypto refuses a parameter without an address. */
  OSSL_PARAM params[5];
  gsize n = 0;
  params[n++] = OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)"SHA256", 0);
  params[n++] = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, ikm_n > 0 ? (void *)ikm : (void *)"", ikm_n);
  if (salt_n > 0)
    params[n++] = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)salt, salt_n);
  if (info_n > 0)
    params[n++] = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)info, info_n);
  params[n] = OSSL_PARAM_construct_end();
  must(EVP_KDF_derive(ctx, out, out_n, params) > 0);
  EVP_KDF_CTX_free(ctx);
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
