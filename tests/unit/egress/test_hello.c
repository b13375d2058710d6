/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of ClientHellos: whole, byte by byte, over records; every length made wrong. */
#include <string.h>

#include "format/tls_hello.h"
#include "hello.h"

static QvTlsVerdict read_in(const guint8 *bytes, gsize n, gsize step, char name[256], gsize *used)
{
  g_autofree QvTlsHello *hello = g_new(QvTlsHello, 1);
  QvTlsVerdict verdict = QV_TLS_MORE;
  qv_tls_hello_init(hello);
  *used = 0;
  while (*used < n && verdict == QV_TLS_MORE) {
    gsize taken;
    verdict = qv_tls_hello_feed(hello, bytes + *used, MIN(step, n - *used), &taken);
    *used += taken;
  }
  strcpy(name, hello->name);
  return verdict;
}

/* Takes BYTES; in one piece and in single bytes. */
static void expect(GByteArray *bytes, QvTlsVerdict verdict, const char *name)
{
  char found[256];
  gsize used;
  for (gsize step = 1; step <= bytes->len; step = step == 1 ? bytes->len : bytes->len + 1) {
    g_assert_cmpint(read_in(bytes->data, bytes->len, step, found, &used), ==, verdict);
    if (name != NULL)
      g_assert_cmpstr(found, ==, name);
  }
  g_byte_array_unref(bytes);
}

static void test_names(void)
{
  expect(t_hello("registry.example.org"), QV_TLS_DONE, "registry.example.org");
  expect(t_hello("A.Example"), QV_TLS_DONE, "A.Example");
  expect(t_hello(NULL), QV_TLS_NO_NAME, "");
  expect(t_hello_with(NULL), QV_TLS_NO_NAME, "");
}

static void test_records(void)
{
  g_autoptr(GByteArray) whole = t_hello("registry.example.org");
  for (gsize n = 2; n < whole->len; n++)
    expect(t_hello_cut(whole, n), QV_TLS_DONE, "registry.example.org");
  expect(t_hello_cut(whole, 1), QV_TLS_TOO_LONG, NULL); /* more records than anyone needs */
  /* What follows is left alone. */
  g_autoptr(GByteArray) more = t_hello("a.example");
  gsize n = more->len, used;
  char name[256];
  g_byte_array_append(more, (const guint8 *)"\x14\x03\x03\x00\x01\x01", 6);
  g_assert_cmpint(read_in(more->data, more->len, more->len, name, &used), ==, QV_TLS_DONE);
  g_assert_cmpuint(used, ==, n);
}

/* No prefix is a verdict; a cut hello never passes. */
static void test_prefixes(void)
{
  g_autoptr(GByteArray) whole = t_hello("registry.example.org");
  char name[256];
  gsize used;
  for (gsize n = 0; n < whole->len; n++)
    g_assert_cmpint(read_in(whole->data, n, G_MAXSIZE, name, &used), ==, QV_TLS_MORE);
  /* Any one byte of a length field raised or lowered breaks it: positions counted from the record's start. */
  static const gsize lengths[] = {3, 4, 6, 7, 8, 43, 44, 45, 50, 52, 53};
  for (gsize i = 0; i < G_N_ELEMENTS(lengths); i++) {
    for (int by = -1; by <= 1; by += 2) {
      g_autoptr(GByteArray) bent = g_byte_array_new();
      g_byte_array_append(bent, whole->data, whole->len);
      bent->data[lengths[i]] = (guint8)(bent->data[lengths[i]] + by);
      g_test_message("byte %zu by %d", lengths[i], by);
      g_assert_cmpint(read_in(bent->data, bent->len, G_MAXSIZE, name, &used), !=, QV_TLS_DONE);
    }
  }
}

static void test_refused(void)
{
  static const struct {
    const char *bytes;
    gsize n;
    QvTlsVerdict verdict;
  } rows[] = {
    {"GET / HTTP/1.1\r\n", 16, QV_TLS_NOT_TLS},
    {"SSH-2.0-x\r\n", 11, QV_TLS_NOT_TLS},
    {"\x80\x2e\x01\x03\x01", 5, QV_TLS_NOT_TLS},          /* SSL 2 */
    {"\x17\x03\x03\x00\x05hello", 10, QV_TLS_NOT_TLS},    /* application data */
    {"\x15\x03\x01\x00\x02\x02\x28", 7, QV_TLS_NOT_TLS},  /* an alert */
    {"\x16\x02\x00", 3, QV_TLS_NOT_TLS},
    {"\x16\x03\x05", 3, QV_TLS_BAD},
    {"\x16\x03\x01\x00\x00", 5, QV_TLS_BAD},              /* an empty record */
    {"\x16\x03\x01\x40\x01", 5, QV_TLS_BAD},              /* over 2^14 */
    {"\x16\x03\x01\x00\x04\x02", 6, QV_TLS_BAD},          /* a ServerHello */
    {"\x16\x03\x01\x00\x04\x01\x00\x00\x00", 9, QV_TLS_BAD},
    {"\x16\x03\x01\x10\x00\x01\x01\x00\x00", 9, QV_TLS_TOO_LONG},
    {"\x16\x03\x01\x00\x02\x01\x00\x17", 8, QV_TLS_BAD},  /* another kind of record inside the hello */
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    GByteArray *bytes = g_byte_array_new();
    g_test_message("row %zu", i);
    g_byte_array_append(bytes, (const guint8 *)rows[i].bytes, (guint)rows[i].n);
    expect(bytes, rows[i].verdict, NULL);
  }
}

static GByteArray *with(const void *list, gsize n)
{
  g_autoptr(GByteArray) extensions = g_byte_array_new();
  t_extension(extensions, 0, list, n);
  return t_hello_with(extensions);
}

static void test_server_names(void)
{
  g_autoptr(GByteArray) twice = g_byte_array_new();
  t_server_name(twice, "a.example", 9);
  t_server_name(twice, "a.example", 9);
  expect(t_hello_with(twice), QV_TLS_BAD, NULL);
  expect(with("", 0), QV_TLS_BAD, NULL);
  expect(with("\0\0", 2), QV_TLS_BAD, NULL);
  expect(with("\0\3\0\0\0", 5), QV_TLS_BAD, NULL);                           /* an empty name */
  expect(with("\0\4\1\0\1a", 6), QV_TLS_BAD, NULL);                          /* no host name */
  expect(with("\0\10\0\0\1a\0\0\1b", 10), QV_TLS_BAD, NULL);                 /* two names */
  expect(with("\0\4\0\0\1a!", 7), QV_TLS_BAD, NULL);                         /* more than the list */
  expect(with("\0\5\0\0\2a", 6), QV_TLS_BAD, NULL);                          /* less */
  expect(with("\0\6\0\0\3a\0b", 8), QV_TLS_BAD, NULL);                       /* a NUL */
  expect(with("\0\4\0\0\1a", 6), QV_TLS_DONE, "a");
  g_autoptr(GByteArray) hidden = g_byte_array_new();
  t_server_name(hidden, "a.example", 9);
  t_extension(hidden, 0xfe0d, "\0\0\1\0\1\0\0\0\0\0\0", 11);
  expect(t_hello_with(hidden), QV_TLS_ENCRYPTED, NULL);
  g_autoptr(GByteArray) many = g_byte_array_new();
  t_server_name(many, "a.example", 9);
  for (guint i = 100; i < 300; i++)
    t_extension(many, i, "", 0);
  expect(t_hello_with(many), QV_TLS_BAD, NULL);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/hello/names", test_names);
  g_test_add_func("/hello/records", test_records);
  g_test_add_func("/hello/prefixes", test_prefixes);
  g_test_add_func("/hello/refused", test_refused);
  g_test_add_func("/hello/server-names", test_server_names);
  return g_test_run();
}
