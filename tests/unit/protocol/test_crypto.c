/* SPDX-License-Identifier: Apache-2.0 */
/* The crypto door against published numbers: FIPS 180, FIPS 198, RFC 4231, RFC
 * 5869, GCM's specification, and Wycheproof. */
#include <string.h>

#include "base/sha256.h"
#include "protocol/crypto.h"
#include "protocol/envelope.h"
#include "support.h"

static void test_sha256(void)
{
  g_autoptr(GPtrArray) rows = t_vector_rows("fips180/sha256.tsv");
  for (guint i = 0; i < rows->len; i++) {
    char **row = rows->pdata[i];
    g_autoptr(GByteArray) message = t_hex(row[0]);
    g_autoptr(QvDigest) whole = qv_digest_new_sha256();
    g_autoptr(QvDigest) bytewise = qv_digest_new_sha256();
    char hex[65];
    qv_digest_update(whole, message->data, message->len);
    qv_digest_final_hex(whole, hex);
    g_assert_cmpstr(hex, ==, row[1]);
    for (guint k = 0; k < message->len; k++)
      qv_digest_update(bytewise, message->data + k, 1);
    qv_digest_final_hex(bytewise, hex);
    g_assert_cmpstr(hex, ==, row[1]);
  }
  g_autoptr(QvDigest) million = qv_digest_new_sha256();
  char letters[1000];
  char hex[65];
  memset(letters, 'a', sizeof letters);
  for (int i = 0; i < 1000; i++)
    qv_digest_update(million, letters, sizeof letters);
  qv_digest_final_hex(million, hex);
  g_assert_cmpstr(hex, ==, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Both implementations of the project: libcrypto's and the libc-only one. */
static void check_hmac(const GByteArray *key, const GByteArray *message, const GByteArray *tag, gboolean valid)
{
  guint8 mac[32];
  guint8 small[32];
  qv_crypto_hmac(key->data, key->len, message->data, message->len, mac);
  qv_hmac_sha256(key->data, key->len, message->data, message->len, small);
  g_assert_cmpmem(mac, 32, small, 32);
  g_assert_cmpint(qv_equal_ct(mac, tag->data, tag->len), ==, valid);
}

static void test_hmac(void)
{
  g_autoptr(GPtrArray) rows = t_vector_rows("fips198/hmac-sha256.tsv");
  g_assert_cmpuint(rows->len, ==, 11);
  for (guint i = 0; i < rows->len; i++) {
    char **row = rows->pdata[i];
    g_autoptr(GByteArray) key = t_hex(row[0]);
    g_autoptr(GByteArray) message = t_hex(row[1]);
    g_autoptr(GByteArray) tag = t_hex(row[2]);
    check_hmac(key, message, tag, TRUE);
    tag->data[0] ^= 1;
    check_hmac(key, message, tag, FALSE);
  }
}

static const char *text_of(const json_t *object, const char *name)
{
  const char *text = json_string_value(json_object_get(object, name));
  g_assert_nonnull(text);
  return text;
}

static gboolean is_valid(const json_t *test)
{
  const char *result = text_of(test, "result");
  g_assert_true(strcmp(result, "valid") == 0 || strcmp(result, "invalid") == 0 || strcmp(result, "acceptable") == 0);
  return strcmp(result, "invalid") != 0;
}

/* A true tag of half the length is no signature. */
static void check_cut_signature(const GByteArray *tag)
{
  static const guint8 bytes[QV_KEY_BYTES_MIN] = {7};
  g_autoptr(QvKey) key = qv_key_new(bytes, sizeof bytes);
  json_t *body = json_pack("{s:i}", "a", 1), *taken = NULL;
  gsize n;
  g_autoptr(GError) error = NULL;
  g_autofree char *text = qv_envelope_sign(QV_ENVELOPE_JOB, key, body, &n, &error);
  g_assert_no_error(error);
  json_decref(body);
  json_t *envelope = json_loadb(text, n, 0, NULL);
  const guint8 *kinds[] = {tag->data, NULL};
  g_autofree guint8 *own = g_base64_decode(json_string_value(json_object_get(envelope, "sig")), &n);
  g_assert_cmpuint(n, ==, QV_SIG_BYTES);
  kinds[1] = own; /* the first half of the very one that is right */
  for (gsize i = 0; i < G_N_ELEMENTS(kinds); i++) {
    g_autofree char *half = g_base64_encode(kinds[i], tag->len);
    json_object_set_new(envelope, "sig", json_string(half));
    char *cut = json_dumps(envelope, JSON_COMPACT | JSON_SORT_KEYS);
    g_assert_cmpint(qv_envelope_verify_key(QV_ENVELOPE_JOB, key, cut, strlen(cut), &taken, NULL), ==, QV_ENVELOPE_MALFORMED);
    g_assert_null(taken);
    free(cut);
  }
  json_decref(envelope);
}

static void test_wycheproof_hmac(void)
{
  json_t *suite = t_shared_json("wycheproof/hmac_sha256_test.json");
  if (suite == NULL)
    return;
  size_t g, i, n = 0, cut = 0;
  json_t *group, *test;
  json_array_foreach (json_object_get(suite, "testGroups"), g, group) {
    gsize tag_n = (gsize)json_integer_value(json_object_get(group, "tagSize")) / 8;
    json_array_foreach (json_object_get(group, "tests"), i, test) {
      g_autoptr(GByteArray) key = t_hex(text_of(test, "key"));
      g_autoptr(GByteArray) message = t_hex(text_of(test, "msg"));
      g_autoptr(GByteArray) tag = t_hex(text_of(test, "tag"));
      g_assert_cmpuint(tag->len, ==, tag_n);
      check_hmac(key, message, tag, is_valid(test));
      n++;
      if (tag_n == QV_SIG_BYTES)
        continue;
      check_cut_signature(tag);
      cut++;
    }
  }
  g_assert_cmpuint(n, ==, 128);
  g_test_message("hmac: %zu cases; %zu tags of 128 bits, none a signature", n, cut);
  g_assert_cmpuint(cut, >, 0);
  json_decref(suite);
}

static void test_hkdf(void)
{
  g_autoptr(GPtrArray) rows = t_vector_rows("rfc5869/hkdf-sha256.tsv");
  g_assert_cmpuint(rows->len, ==, 3);
  for (guint i = 0; i < rows->len; i++) {
    char **row = rows->pdata[i];
    g_autoptr(GByteArray) ikm = t_hex(row[0]);
    g_autoptr(GByteArray) salt = t_hex(row[1]);
    g_autoptr(GByteArray) info = t_hex(row[2]);
    g_autoptr(GByteArray) prk = t_hex(row[4]);
    g_autoptr(GByteArray) okm = t_hex(row[5]);
    guint8 out[128], extracted[32];
    gsize n = g_ascii_strtoull(row[3], NULL, 10);
    g_assert_true(qv_crypto_hkdf(ikm->data, ikm->len, salt->data, salt->len, info->data, info->len, out, n));
    g_assert_cmpmem(out, n, okm->data, okm->len);
    qv_crypto_hmac(salt->data, salt->len, ikm->data, ikm->len, extracted);
    g_assert_cmpmem(extracted, 32, prk->data, prk->len);
  }
}

static void test_wycheproof_hkdf(void)
{
  json_t *suite = t_shared_json("wycheproof/hkdf_sha256_test.json");
  if (suite == NULL)
    return;
  size_t g, i, n = 0;
  json_t *group, *test;
  json_array_foreach (json_object_get(suite, "testGroups"), g, group) {
    json_array_foreach (json_object_get(group, "tests"), i, test) {
      g_autoptr(GByteArray) ikm = t_hex(text_of(test, "ikm"));
      g_autoptr(GByteArray) salt = t_hex(text_of(test, "salt"));
      g_autoptr(GByteArray) info = t_hex(text_of(test, "info"));
      g_autoptr(GByteArray) okm = t_hex(text_of(test, "okm"));
      gsize size = (gsize)json_integer_value(json_object_get(test, "size"));
      g_autofree guint8 *out = g_malloc0(size + 1);
      gboolean done = qv_crypto_hkdf(ikm->data, ikm->len, salt->data, salt->len, info->data, info->len, out, size);
      g_assert_cmpint(done, ==, is_valid(test));
      if (done)
        g_assert_cmpmem(out, size, okm->data, okm->len);
      n++;
    }
  }
  g_assert_cmpuint(n, ==, 56);
  g_test_message("hkdf: %zu cases", n);
  json_decref(suite);
}

/* Opens; where it must be right, seals as well and compares. */
static void check_gcm(const GByteArray *key, const GByteArray *iv, const GByteArray *aad, const GByteArray *plain,
                      const GByteArray *ciphertext, const GByteArray *tag, gboolean valid)
{
  g_autofree guint8 *out = g_malloc(ciphertext->len + 1);
  memset(out, 0xa5, ciphertext->len + 1);
  gboolean right = qv_crypto_gcm_open(key->data, iv->data, aad->data, aad->len, ciphertext->data, ciphertext->len,
                                      tag->data, out);
  g_assert_cmpint(right, ==, valid);
  g_assert_cmpint(out[ciphertext->len], ==, 0xa5);
  if (!valid) {
    for (guint i = 0; i < ciphertext->len; i++)
      g_assert_cmpint(out[i], ==, 0);
    return;
  }
  g_assert_cmpmem(out, ciphertext->len, plain->data, plain->len);
  guint8 made[QV_GCM_TAG_BYTES];
  qv_crypto_gcm_seal(key->data, iv->data, aad->data, aad->len, plain->data, plain->len, out, made);
  g_assert_cmpmem(out, plain->len, ciphertext->data, ciphertext->len);
  g_assert_cmpmem(made, sizeof made, tag->data, tag->len);
}

static void test_gcm(void)
{
  g_autoptr(GPtrArray) rows = t_vector_rows("nist-gcm/aes-256-gcm.tsv");
  g_assert_cmpuint(rows->len, ==, 4);
  for (guint i = 0; i < rows->len; i++) {
    GByteArray *part[6];
    for (guint k = 0; k < 6; k++)
      part[k] = t_hex(((char **)rows->pdata[i])[k]);
    check_gcm(part[0], part[1], part[3], part[2], part[4], part[5], TRUE);
    part[5]->data[15] ^= 0x80;
    check_gcm(part[0], part[1], part[3], part[2], part[4], part[5], FALSE);
    for (guint k = 0; k < 6; k++)
      g_byte_array_unref(part[k]);
  }
}

static void test_wycheproof_gcm(void)
{
  json_t *suite = t_shared_json("wycheproof/aes_gcm_test.json");
  if (suite == NULL)
    return;
  size_t g, i, n = 0, others = 0;
  json_t *group, *test;
  json_array_foreach (json_object_get(suite, "testGroups"), g, group) {
    if (json_integer_value(json_object_get(group, "keySize")) != 256 ||
        json_integer_value(json_object_get(group, "ivSize")) != 96) {
      others += json_array_size(json_object_get(group, "tests"));
      continue;
    }
    g_assert_cmpint(json_integer_value(json_object_get(group, "tagSize")), ==, 128);
    json_array_foreach (json_object_get(group, "tests"), i, test) {
      g_autoptr(GByteArray) key = t_hex(text_of(test, "key"));
      g_autoptr(GByteArray) iv = t_hex(text_of(test, "iv"));
      g_autoptr(GByteArray) aad = t_hex(text_of(test, "aad"));
      g_autoptr(GByteArray) plain = t_hex(text_of(test, "msg"));
      g_autoptr(GByteArray) ciphertext = t_hex(text_of(test, "ct"));
      g_autoptr(GByteArray) tag = t_hex(text_of(test, "tag"));
      check_gcm(key, iv, aad, plain, ciphertext, tag, is_valid(test));
      n++;
    }
  }
  g_assert_cmpuint(n, ==, 55);
  g_assert_cmpuint(n + others, ==, 217);
  g_test_message("aes-gcm: %zu cases; %zu of other lengths of key or IV, which the door cannot be given", n, others);
  json_decref(suite);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  qv_crypto_init();
  g_test_add_func("/crypto/sha256", test_sha256);
  g_test_add_func("/crypto/hmac", test_hmac);
  g_test_add_func("/crypto/hmac-wycheproof", test_wycheproof_hmac);
  g_test_add_func("/crypto/hkdf", test_hkdf);
  g_test_add_func("/crypto/hkdf-wycheproof", test_wycheproof_hkdf);
  g_test_add_func("/crypto/gcm", test_gcm);
  g_test_add_func("/crypto/gcm-wycheproof", test_wycheproof_gcm);
  return g_test_run();
}
