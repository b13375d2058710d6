/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "protocol/key.h"
#include "support.h"

/* 32 and 64 bytes 00 01 02 …; their ids by another tool: printf … | sha256sum. */
#define KEY32 "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
#define KEY64 \
  "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw=="

static void test_parse(void)
{
  static const struct {
    const char *text;
    const char *id; /* NULL: refused */
  } rows[] = {
    { KEY32, "630dcd2966c43366" },
    { KEY32 "\n", "630dcd2966c43366" },
    { KEY64, "fdeab9acf3710362" },
    { KEY64 "\n", "fdeab9acf3710362" },
    { "", NULL },
    { "\n", NULL },
    { KEY32 "\n\n", NULL },
    { KEY32 "\r\n", NULL },
    { " " KEY32, NULL },
    { KEY32 " ", NULL },
    { "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8", NULL },  /* no padding */
    { "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9=", NULL }, /* unused bits set */
    { "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg==", NULL }, /* 31 bytes */
    { "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0A=", NULL }, /* 65 */
    { "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f!", NULL },
    { "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=AAAA", NULL },
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(GError) error = NULL;
    g_autoptr(QvKey) key = qv_key_parse(rows[i].text, strlen(rows[i].text), &error);
    if (rows[i].id == NULL) {
      g_assert_null(key);
      t_assert_error(&error, QV_ERROR_FORMAT, "base64");
      continue;
    }
    g_assert_no_error(error);
    g_assert_cmpstr(qv_key_id(key), ==, rows[i].id);
    g_autoptr(QvSecret) text = qv_key_format(key);
    g_autoptr(QvKey) again = qv_key_parse((const char *)qv_secret_bytes(text), qv_secret_len(text), NULL);
    g_assert_true(qv_secret_equal(qv_key_secret(key), qv_key_secret(again)));
    g_assert_cmpint(qv_secret_bytes(text)[qv_secret_len(text) - 1], ==, '\n');
  }
  g_assert_null(qv_key_parse("AA\0A", 4, NULL));
}

static void test_error_hides_content(void)
{
  GError *error = NULL;
  g_assert_null(qv_key_parse("c2VjcmV0IHRoYXQgaXMgdG9vIHNob3J0", 32, &error));
  g_assert_null(strstr(error->message, "c2Vj"));
  g_error_free(error);
}

static void test_file(void)
{
  static const guint groups[] = { 7, 9 };
  static const QvKeyReader reader = { .egid = 5, .groups = groups, .groups_n = 2 };
  static const struct {
    guint mode, gid;
    const char *fault; /* NULL: fine */
  } rows[] = {
    { S_IFREG | 0600, 1, NULL },       { S_IFREG | 0400, 1, NULL },
    { S_IFREG | 0640, 5, NULL },       { S_IFREG | 0440, 7, NULL },
    { S_IFREG | 0640, 9, NULL },       { S_IFREG | 0700, 1, NULL },
    { S_IFREG | 0640, 1, "chgrp" },    { S_IFREG | 0660, 5, "g-w" },
    { S_IFREG | 0620, 5, "g-w" },      { S_IFREG | 0604, 5, "others" },
    { S_IFREG | 0602, 5, "others" },   { S_IFREG | 0601, 5, "others" },
    { S_IFREG | 0644, 5, "others" },   { S_IFREG | 0666, 5, "others" },
    { S_IFDIR | 0600, 5, "regular" },  { S_IFIFO | 0600, 5, "regular" },
    { S_IFLNK | 0777, 5, "regular" },  { S_IFCHR | 0600, 5, "regular" },
    { S_IFSOCK | 0600, 5, "regular" }, { S_IFREG | 0610, 1, NULL },
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    GError *error = NULL;
    QvKeyFile file = { .mode = rows[i].mode, .gid = rows[i].gid };
    g_assert_cmpint(qv_key_file_check(&file, &reader, &error), ==, rows[i].fault == NULL);
    if (rows[i].fault != NULL)
      t_assert_error(&error, QV_ERROR_AUTH, rows[i].fault);
  }
}

static void test_ring(void)
{
  g_autoptr(QvKey) a = t_key(1);
  g_autoptr(QvKey) b = t_key(2);
  g_autoptr(QvKey) c = t_key(3);
  g_autoptr(QvKeyring) ring = qv_keyring_new(a);
  qv_keyring_add_previous(ring, b);
  qv_keyring_add_previous(ring, a);
  g_assert_true(qv_keyring_current(ring) == a);
  g_assert_true(qv_keyring_find(ring, qv_key_id(a)) == a);
  g_assert_true(qv_keyring_find(ring, qv_key_id(b)) == b);
  g_assert_null(qv_keyring_find(ring, qv_key_id(c)));
  g_assert_null(qv_keyring_find(ring, ""));
  g_assert_true(qv_keyring_is_current(ring, a));
  g_assert_false(qv_keyring_is_current(ring, b));
  g_autoptr(QvKeyring) shared = qv_keyring_ref(ring);
  g_assert_true(shared == ring);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/key/parse", test_parse);
  g_test_add_func("/key/error-hides-content", test_error_hides_content);
  g_test_add_func("/key/file", test_file);
  g_test_add_func("/key/ring", test_ring);
  return g_test_run();
}
