/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 and HMAC against published answers: FIPS 180-4's examples, RFC 4231. */
#include <glib.h>
#include <string.h>

#include "base/hex.h"
#include "base/sha256.h"

static void expect_digest(const void *bytes, gsize n, const char *hex)
{
  guint8 digest[QV_SHA256_BYTES];
  char text[65];
  qv_sha256(bytes, n, digest);
  qv_hex_encode(digest, sizeof digest, text);
  g_assert_cmpstr(text, ==, hex);
}

static void test_published(void)
{
  expect_digest("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  expect_digest("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  expect_digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  expect_digest("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrs"
                "mnopqrstnopqrstu", 112,
                "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  g_autofree char *million = g_malloc(1000000);
  memset(million, 'a', 1000000);
  expect_digest(million, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Every length around the block border, in every cut of two, against GLib's
 * own implementation. */
static void test_lengths_and_cuts(void)
{
  guint8 bytes[200];
  for (gsize i = 0; i < sizeof bytes; i++)
    bytes[i] = (guint8)(i * 7 + 3);
  for (gsize n = 0; n <= sizeof bytes; n++) {
    g_autofree char *expected = g_compute_checksum_for_data(G_CHECKSUM_SHA256, bytes, n);
    for (gsize cut = 0; cut <= n; cut++) {
      QvSha256 state;
      guint8 digest[QV_SHA256_BYTES];
      char text[65];
      qv_sha256_init(&state);
      qv_sha256_update(&state, bytes, cut);
      qv_sha256_update(&state, bytes + cut, n - cut);
      qv_sha256_final(&state, digest);
      qv_hex_encode(digest, sizeof digest, text);
      g_assert_cmpstr(text, ==, expected);
    }
  }
}

static void expect_mac(const void *key, gsize key_n, const void *bytes, gsize n, const char *hex)
{
  guint8 mac[QV_SHA256_BYTES];
  char text[65];
  qv_hmac_sha256(key, key_n, bytes, n, mac);
  qv_hex_encode(mac, sizeof mac, text);
  g_assert_cmpstr(text, ==, hex);
}

/* RFC 4231, test cases 1, 2, 3, 4, 6 and 7. */
static void test_hmac(void)
{
  guint8 key[131];
  guint8 data[50];
  memset(key, 0x0b, 20);
  expect_mac(key, 20, "Hi There", 8, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  expect_mac("Jefe", 4, "what do ya want for nothing?", 28,
             "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  memset(key, 0xaa, sizeof key);
  memset(data, 0xdd, sizeof data);
  expect_mac(key, 20, data, 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  expect_mac(key, 131, "Test Using Larger Than Block-Size Key - Hash Key First", 54,
             "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  const char *last = "This is a test using a larger than block-size key and a larger than block-size data. The key "
                     "needs to be hashed before being used by the HMAC algorithm.";
  expect_mac(key, 131, last, strlen(last), "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
  for (guint8 i = 0; i < 25; i++)
    key[i] = (guint8)(i + 1);
  memset(data, 0xcd, sizeof data);
  expect_mac(key, 25, data, 50, "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
}

static void test_equal(void)
{
  g_assert_true(qv_equal_ct("abcd", "abcd", 4));
  g_assert_true(qv_equal_ct("a", "b", 0));
  for (gsize i = 0; i < 4; i++) {
    char other[] = "abcd";
    other[i] ^= (char)0x80;
    g_assert_false(qv_equal_ct("abcd", other, 4));
  }
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/sha256/published", test_published);
  g_test_add_func("/sha256/lengths-and-cuts", test_lengths_and_cuts);
  g_test_add_func("/sha256/hmac", test_hmac);
  g_test_add_func("/sha256/equal", test_equal);
  return g_test_run();
}
