/* SPDX-License-Identifier: Apache-2.0 */
/* Live logs: what binds a chunk to its job, and which messages are one. */
#include <string.h>

#include "protocol/live.h"
#include "support.h"

#define SHA "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static void test_binding(void)
{
  static const guint8 iv[QV_CHUNK_IV_BYTES] = { 7 };
  g_autoptr(QvKey) key = t_key(1);
  g_autoptr(QvSecret) secret = qv_live_key_derive(key, SHA, "tenant", T_JOB_ID);
  g_autoptr(QvBlobCipher) writer = qv_live_cipher_new(secret, "tenant", T_JOB_ID);
  guint8 sealed[3 + 28], plain[3 + 28];
  qv_blob_cipher_seal(writer, 41, iv, "abc", 3, sealed);
  g_assert_true(qv_blob_cipher_unseal(writer, 41, sealed, sizeof sealed, plain, NULL));
  g_assert_cmpmem(plain, 3, "abc", 3);
  g_assert_false(qv_blob_cipher_unseal(writer, 40, sealed, sizeof sealed, plain, NULL));
  /* As section 3 has it, with the job's digest as salt. */
  guint8 salt[QV_SALT_BYTES];
  qv_live_salt(SHA, salt);
  g_autofree char *hex = t_to_hex(salt, sizeof salt);
  g_assert_cmpstr(hex, ==, SHA);
  g_autoptr(QvSecret) same = qv_blob_key_derive(key, salt, "tenant", T_JOB_ID ".live");
  g_assert_cmpmem(qv_secret_bytes(same), qv_secret_len(same), qv_secret_bytes(secret), qv_secret_len(secret));

  static const struct {
    const char *sha, *tenant, *id;
  } others[] = { { "10112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", "tenant", T_JOB_ID }, { SHA, "tenant2", T_JOB_ID },
                 { SHA, "tenant", "00000000-0000-4000-8000-000000000002" } };
  for (gsize i = 0; i < G_N_ELEMENTS(others); i++) {
    g_autoptr(QvSecret) other = qv_live_key_derive(key, others[i].sha, others[i].tenant, others[i].id);
    g_autoptr(QvBlobCipher) reader = qv_live_cipher_new(other, others[i].tenant, others[i].id);
    g_assert_false(qv_blob_cipher_unseal(reader, 41, sealed, sizeof sealed, plain, NULL));
  }
}

static void test_messages(void)
{
  static const char *const good[] = { T_JOB_ID " 0", T_JOB_ID " 7", T_JOB_ID " 86399" };
  static const guint numbers[] = { 0, 7, 86399 };
  static const char *const bad[] = {
    "", " ", T_JOB_ID, T_JOB_ID " ", T_JOB_ID "  1", T_JOB_ID " 01", T_JOB_ID " 00", T_JOB_ID " -1", T_JOB_ID " 1 ",
    T_JOB_ID " 1x", T_JOB_ID " 86400", T_JOB_ID " 99999", T_JOB_ID " 100000", T_JOB_ID " 18446744073709551617", T_JOB_ID "\t1",
    "00000000-0000-4000-8000-000000000002 1", "x" T_JOB_ID " 1",
  };
  for (gsize i = 0; i < G_N_ELEMENTS(good); i++) {
    guint n = 1;
    g_assert_true(qv_live_message_parse(good[i], strlen(good[i]), T_JOB_ID, &n));
    g_assert_cmpuint(n, ==, numbers[i]);
  }
  for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
    guint n = 4711;
    if (qv_live_message_parse(bad[i], strlen(bad[i]), T_JOB_ID, &n) || n != 4711)
      g_error("taken for a message: \"%s\"", bad[i]);
  }
  guint n;
  g_assert_false(qv_live_message_parse(T_JOB_ID " 1\0" "2", QV_JOB_ID_BYTES + 4, T_JOB_ID, &n));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/live/binding", test_binding);
  g_test_add_func("/live/messages", test_messages);
  return g_test_run();
}
