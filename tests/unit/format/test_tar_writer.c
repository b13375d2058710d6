/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/sha256.h"
#include "format/tar.h"
#include "vectors.h"

static void field(const guint8 *block, gsize at, const char *text, gsize n)
{
  g_assert_cmpmem(block + at, n, text, n);
}

/* Protocol section 4, field by field. */
static void check_block(const guint8 *block, const char *name, const char *mode, const char *size, char type)
{
  guint8 wanted[QV_TAR_BLOCK_BYTES] = {0};
  memcpy(wanted, name, strlen(name));
  memcpy(wanted + 100, mode, 8);
  memcpy(wanted + 108, "0000000\0" "0000000", 16);
  memcpy(wanted + 124, size, 12);
  memcpy(wanted + 136, "00000000000", 12);
  wanted[156] = (guint8)type;
  memcpy(wanted + 257, "ustar\0" "00", 8);
  memcpy(wanted + 329, "0000000\0" "0000000", 16);
  guint sum = 8 * ' ';
  for (gsize i = 0; i < sizeof wanted; i++)
    sum += wanted[i];
  g_autofree char *checksum = g_strdup_printf("%06o", sum);
  memcpy(wanted + 148, checksum, 7);
  wanted[155] = ' ';
  g_assert_cmpmem(block, sizeof wanted, wanted, sizeof wanted);
}

static void test_short(void)
{
  guint8 out[QV_TAR_HEADER_BYTES_MAX];
  gsize n = 0;
  g_assert_cmpint(qv_tar_header("src/main.c", 1234, FALSE, out, &n), ==, QV_TAR_OK);
  g_assert_cmpuint(n, ==, 512);
  check_block(out, "src/main.c", "0000644", "00000002322", '0');
  /* Typed in: what GNU tar 1.34 computes for this header. */
  field(out, 148, "011063\0 ", 8);
  g_assert_cmpint(qv_tar_header("x", 0, TRUE, out, &n), ==, QV_TAR_OK);
  check_block(out, "x", "0000755", "00000000000", '0');
  g_autofree char *hundred = g_strnfill(100, 'n');
  g_assert_cmpint(qv_tar_header(hundred, 077777777777, FALSE, out, &n), ==, QV_TAR_OK);
  g_assert_cmpuint(n, ==, 512);
  check_block(out, hundred, "0000644", "77777777777", '0');
}

static void check_long(gsize path_n, const char *size, gsize total)
{
  g_autofree char *path = g_strnfill(path_n, 'p');
  for (gsize i = 199; i < path_n; i += 200)
    path[i] = '/';
  guint8 out[QV_TAR_HEADER_BYTES_MAX];
  gsize n = 0;
  g_assert_cmpint(qv_tar_header(path, 5, TRUE, out, &n), ==, QV_TAR_OK);
  g_assert_cmpuint(n, ==, total);
  g_assert_cmpuint(qv_tar_entry_bytes(path_n, 5), ==, total + 512);
  guint64 record_n = g_ascii_strtoull(size, NULL, 8);
  check_block(out, "pax", "0000644", size, 'x');
  g_autofree char *record = g_strdup_printf("%" G_GUINT64_FORMAT " path=%s\n", record_n, path);
  g_assert_cmpmem(out + 512, record_n, record, strlen(record));
  for (gsize i = 512 + record_n; i < n - 512; i++)
    g_assert_cmpuint(out[i], ==, 0);
  check_block(out + n - 512, "pax", "0000755", "00000000005", '0');
}

static void test_long(void)
{
  check_long(101, "00000000157", 3 * 512);  /* "111 path=" … */
  check_long(989, "00000001747", 4 * 512);  /* 999: the last of three digits */
  check_long(990, "00000001751", 4 * 512);  /* 1001: the length of the length grows */
  check_long(1013, "00000002000", 4 * 512); /* 1024: no padding */
  check_long(1014, "00000002001", 5 * 512);
  check_long(1024, "00000002013", 5 * 512);
}

static void test_refused(void)
{
  guint8 out[QV_TAR_HEADER_BYTES_MAX];
  gsize n = 0;
  g_assert_cmpint(qv_tar_header("a", G_GUINT64_CONSTANT(0100000000000), FALSE, out, &n), ==, QV_TAR_FILE_CAP);
  g_assert_cmpint(qv_tar_header("../a", 0, FALSE, out, &n), ==, QV_TAR_PATH_DOT);
  g_autofree char *longest = g_strnfill(1025, 'p');
  g_assert_cmpint(qv_tar_header(longest, 0, FALSE, out, &n), ==, QV_TAR_PATH_LONG);
  g_assert_cmpuint(n, ==, 0);
}

static void test_paths(void)
{
  static const struct {
    const char *path;
    QvTarReason plain, portable;
  } cases[] = {
    {"a", QV_TAR_OK, QV_TAR_OK},
    {"a/b c/\xc3\xa9\xf0\x9f\x98\x80", QV_TAR_OK, QV_TAR_OK},
    {"...", QV_TAR_OK, QV_TAR_OK},
    {".gitignore", QV_TAR_OK, QV_TAR_OK},
    {".github/x", QV_TAR_OK, QV_TAR_OK},
    {"a.git/x", QV_TAR_OK, QV_TAR_OK},
    {"", QV_TAR_PATH_EMPTY, QV_TAR_PATH_EMPTY},
    {"a/", QV_TAR_PATH_EMPTY, QV_TAR_PATH_EMPTY},
    {"a//b", QV_TAR_PATH_EMPTY, QV_TAR_PATH_EMPTY},
    {"/a", QV_TAR_PATH_ABSOLUTE, QV_TAR_PATH_ABSOLUTE},
    {"/", QV_TAR_PATH_ABSOLUTE, QV_TAR_PATH_ABSOLUTE},
    {".", QV_TAR_PATH_DOT, QV_TAR_PATH_DOT},
    {"a/..", QV_TAR_PATH_DOT, QV_TAR_PATH_DOT},
    {"a/./b", QV_TAR_PATH_DOT, QV_TAR_PATH_DOT},
    {"../b", QV_TAR_PATH_DOT, QV_TAR_PATH_DOT},
    {"a\nb", QV_TAR_PATH_CONTROL, QV_TAR_PATH_CONTROL},
    {"a\x1b[m", QV_TAR_PATH_CONTROL, QV_TAR_PATH_CONTROL},
    {"a\x7f", QV_TAR_PATH_CONTROL, QV_TAR_PATH_CONTROL},
    {"a\xc2\x9b", QV_TAR_PATH_CONTROL, QV_TAR_PATH_CONTROL},
    {"\xff", QV_TAR_PATH_UTF8, QV_TAR_PATH_UTF8},
    {"a/\xc0\xae\xc0\xae/b", QV_TAR_PATH_UTF8, QV_TAR_PATH_UTF8},
    {"\xed\xa0\x80", QV_TAR_PATH_UTF8, QV_TAR_PATH_UTF8},
    {".git", QV_TAR_PATH_GIT, QV_TAR_PATH_GIT},
    {"a/.g\xe2\x80\x8cit/x", QV_TAR_PATH_GIT, QV_TAR_PATH_GIT},
    {"\xef\xbb\xbf.git\xe2\x81\xaf", QV_TAR_PATH_GIT, QV_TAR_PATH_GIT},
    {".g\xe2\x80\x8bit", QV_TAR_OK, QV_TAR_OK},
    {"a/.git/config", QV_TAR_PATH_GIT, QV_TAR_PATH_GIT},
    {"a/.GiT", QV_TAR_PATH_GIT, QV_TAR_PATH_GIT},
    {".git. ./x", QV_TAR_PATH_GIT, QV_TAR_PATH_GIT},
    {"GIT~1/config", QV_TAR_OK, QV_TAR_PATH_GIT},
    {"a\\b", QV_TAR_OK, QV_TAR_PATH_FOREIGN},
    {"c:/x", QV_TAR_OK, QV_TAR_PATH_FOREIGN},
    {"a/c:x", QV_TAR_OK, QV_TAR_OK},
    {"1:x", QV_TAR_OK, QV_TAR_OK},
  };
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++) {
    gsize n = strlen(cases[i].path);
    QvTarReason plain = qv_tar_path_check(cases[i].path, n, FALSE), portable = qv_tar_path_check(cases[i].path, n, TRUE);
    if (plain != cases[i].plain || portable != cases[i].portable)
      g_error("%s: %s, %s", cases[i].path, qv_tar_reason_name(plain), qv_tar_reason_name(portable));
  }
  g_assert_cmpint(qv_tar_path_check("a\0b", 3, FALSE), ==, QV_TAR_PATH_CONTROL);
  g_autofree char *part = g_strnfill(256, 'p');
  g_assert_cmpint(qv_tar_path_check(part, 255, FALSE), ==, QV_TAR_OK);
  g_assert_cmpint(qv_tar_path_check(part, 256, FALSE), ==, QV_TAR_PATH_LONG);
}

static void test_padding(void)
{
  g_assert_cmpuint(qv_tar_padding(0), ==, 0);
  g_assert_cmpuint(qv_tar_padding(1), ==, 511);
  g_assert_cmpuint(qv_tar_padding(512), ==, 0);
  g_assert_cmpuint(qv_tar_padding(513), ==, 511);
  g_assert_cmpuint(qv_tar_padding(G_GUINT64_CONSTANT(0x1ffffffff)), ==, 1);
  g_assert_cmpuint(qv_tar_entry_bytes(100, 0), ==, 512);
  g_assert_cmpuint(qv_tar_entry_bytes(1, 513), ==, 512 + 1024);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/tar/writer/short", test_short);
  g_test_add_func("/tar/writer/long", test_long);
  g_test_add_func("/tar/writer/refused", test_refused);
  g_test_add_func("/tar/writer/paths", test_paths);
  g_test_add_func("/tar/writer/padding", test_padding);
  return g_test_run();
}
