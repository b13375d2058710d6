/* SPDX-License-Identifier: Apache-2.0 */
/* Hex and base64: RFC 4648's examples, and each way in which a text is not canonical. */
#include <glib.h>
#include <string.h>

#include "base/base64.h"
#include "base/hex.h"

static void test_hex(void)
{
  char text[9];
  guint8 bytes[4] = {0};
  qv_hex_encode("\x00\x7f\xa0\xff", 4, text);
  g_assert_cmpstr(text, ==, "007fa0ff");
  g_assert_true(qv_hex_decode(text, 8, bytes, 4));
  g_assert_cmpmem(bytes, 4, "\x00\x7f\xa0\xff", 4);
  g_assert_true(qv_hex_decode("", 0, bytes, 0));
}

static void test_hex_refused(void)
{
  static const char *const bad[] = {"", "0", "00", "0011223", "001122334", "0011223344", "0011223G",
                                    "0011223A", "001122 3", "00112:33", "00/12233", "0011`233", "001122g3"};
  for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
    guint8 bytes[4] = {1, 2, 3, 4};
    g_test_message("%s", bad[i]);
    g_assert_false(qv_hex_decode(bad[i], strlen(bad[i]), bytes, 4));
    g_assert_cmpmem(bytes, 4, "\1\2\3\4", 4);
  }
  g_assert_true(qv_hex_valid("0af", 3));
  g_assert_false(qv_hex_valid("0aF", 3));
}

static void test_base64(void)
{
  static const char *const pairs[][2] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"},
                                         {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}};
  for (gsize i = 0; i < G_N_ELEMENTS(pairs); i++) {
    char text[16];
    guint8 bytes[16];
    gsize n = 99;
    gsize plain_n = strlen(pairs[i][0]);
    qv_base64_encode(pairs[i][0], plain_n, text);
    g_assert_cmpstr(text, ==, pairs[i][1]);
    g_assert_cmpuint(QV_BASE64_LEN(plain_n), ==, strlen(text));
    g_assert_true(qv_base64_decode(text, strlen(text), bytes, plain_n, &n));
    g_assert_cmpmem(bytes, n, pairs[i][0], plain_n);
  }
}

static void test_base64_all(void)
{
  guint8 bytes[256];
  guint8 back[256];
  char text[QV_BASE64_LEN(256) + 1];
  for (gsize i = 0; i < sizeof bytes; i++)
    bytes[i] = (guint8)i;
  for (gsize n = 0; n <= sizeof bytes; n++) {
    gsize back_n;
    qv_base64_encode(bytes, n, text);
    g_autofree char *expected = g_base64_encode(bytes, n);
    g_assert_cmpstr(text, ==, expected);
    g_assert_true(qv_base64_decode(text, strlen(text), back, n, &back_n));
    g_assert_cmpmem(back, back_n, bytes, n);
    g_assert_true(n == 0 || !qv_base64_decode(text, strlen(text), back, n - 1, &back_n));
  }
}

static void test_base64_refused(void)
{
  /* Unpadded, unused bits, white space, padding in the middle, the URL alphabet, a NUL. */
  static const char *const bad[] = {"Z", "Zg", "Zg=", "Zh==", "Zm9=", "Zm8", "Zm9v\n", "Zm9 ", "Zg==Zg==", "Z===",
                                    "====", "=m9v", "Zm-v", "Zm_v", " Zg=", "Zg=a", "Zm9v="};
  for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
    guint8 bytes[16];
    gsize n = 99;
    g_test_message("%s", bad[i]);
    g_assert_false(qv_base64_decode(bad[i], strlen(bad[i]), bytes, sizeof bytes, &n));
    g_assert_cmpuint(n, ==, 99);
  }
  guint8 bytes[16];
  gsize n;
  g_assert_false(qv_base64_decode("Zm\0v", 4, bytes, sizeof bytes, &n));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/text/hex", test_hex);
  g_test_add_func("/text/hex-refused", test_hex_refused);
  g_test_add_func("/text/base64", test_base64);
  g_test_add_func("/text/base64-all", test_base64_all);
  g_test_add_func("/text/base64-refused", test_base64_refused);
  return g_test_run();
}
