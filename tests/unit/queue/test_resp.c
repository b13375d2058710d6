/* SPDX-License-Identifier: Apache-2.0 */
/* The reader: whole and byte by byte, deep, hostile. */
#include <glib.h>
#include <string.h>

#include "../../support/resp_text.h"

static const struct {
  const char *bytes, *replies;
} cases[] = {
  { "+OK\r\n", "+OK;" },
  { "-ERR no\r\n:5\r\n", "-ERR no;5;" },
  { "$-1\r\n*-1\r\n", "nil;nil;" },
  { "$0\r\n\r\n*0\r\n", "'';[];" },
  { "*3\r\n$1\r\na\r\n*2\r\n:1\r\n$-1\r\n+s\r\n", "['a' [1 nil] +s];" },
  { "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", "[[[[[1]]]]];" },
  { "?\r\n", "{bad}" },
  { "HTTP/1.1 400 Bad Request\r\n", "{bad}" },
  { "*1048577\r\n", "{bad}" },
  { "*2147483647\r\n", "{bad}" },
  { "*-2\r\n", "{bad}" },
  { "$536870912\r\n", "{bad}" },
  { "$9223372036854775807\r\n", "{bad}" },
  { "$18446744073709551616\r\n", "{bad}" },
  { "$-2\r\n", "{bad}" },
  { ":9223372036854775807\r\n:-9223372036854775808\r\n", "9223372036854775807;-9223372036854775808;" },
  { ":9223372036854775808\r\n", "{bad}" },
  { ":one\r\n", "{bad}" },
  { ">1\r\n+a\r\n", "{bad}" },
  { "%1\r\n+a\r\n+b\r\n", "{bad}" },
  { "~1\r\n+a\r\n", "{bad}" },
  { ",1.5\r\n", "{bad}" },
  { "#t\r\n", "{bad}" },
  { "_\r\n", "{bad}" },
  { "(12\r\n", "{bad}" },
  { "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", "{bad}" },
};

static void test_cases(void)
{
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++)
    for (gsize n = 1; n <= strlen(cases[i].bytes); n++) {
      g_autoptr(GString) got = qv_test_resp_text(cases[i].bytes, strlen(cases[i].bytes), n, NULL);
      g_assert_cmpstr(got->str, ==, cases[i].replies);
    }
}

static gint64 peak_kib(void)
{
  g_autofree char *text = NULL;
  g_assert_true(g_file_get_contents("/proc/self/status", &text, NULL, NULL));
  const char *line = strstr(text, "VmHWM:");
  g_assert_nonnull(line);
  return g_ascii_strtoll(line + 6 + strspn(line + 6, " \t"), NULL, 10);
}

/* A reply that never ends: it is refused, after no more than the bound, and the memory that it took has a bound too. */
static void test_endless(void)
{
  static const struct {
    const char *head, *again;
    gsize taken_max; /* bytes, before it is refused */
  } ENDLESS[] = {
    { "$536870912\r\n", "x", 0 },
    { "*1000000\r\n", "$60\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n", QV_RESP_BYTES_MAX },
    { "*1048576\r\n", "*1\r\n:1\r\n", QV_RESP_BYTES_MAX },
    { "*1048576\r\n", "*1\r\n*0\r\n", QV_RESP_BYTES_MAX },
    { "", "*1048576\r\n", 1 << 16 },
    { "$90000000\r\n", "x", QV_RESP_BYTES_MAX }, /* fits: the bound is met behind it */
    { "+", "x", QV_RESP_LINE_MAX },
    { "-", "x", QV_RESP_LINE_MAX },
    { ":", "1", QV_RESP_LINE_MAX },
    { "*", "1", QV_RESP_LINE_MAX },
    { "$", "1", 1 << 16 },
  };
  enum { PIECE = 1 << 16, PEAK_MAX_KIB = 3 * (QV_RESP_BYTES_MAX >> 10) };
  for (gsize i = 0; i < G_N_ELEMENTS(ENDLESS); i++) {
    g_autoptr(QvRespReader) reader = qv_resp_reader_new();
    g_autoptr(GString) piece = g_string_new(NULL);
    while (piece->len < PIECE)
      g_string_append(piece, ENDLESS[i].again);
    g_assert_true(qv_resp_reader_feed(reader, ENDLESS[i].head, strlen(ENDLESS[i].head), NULL));
    gsize taken = 0;
    g_autoptr(GError) error = NULL;
    for (;;) {
      QvReply *reply = NULL;
      gboolean fine = qv_resp_reader_next(reader, &reply, &error);
      qv_reply_free(reply);
      if (!fine || !qv_resp_reader_feed(reader, piece->str, piece->len, &error))
        break;
      taken += piece->len;
      g_assert_cmpuint(taken, <=, ENDLESS[i].taken_max + 2 * PIECE);
    }
    g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
  }
#if !defined(__SANITIZE_ADDRESS__)
  if (g_getenv("LD_PRELOAD") == NULL) /* valgrind's memory is not ours */
    g_assert_cmpint(peak_kib(), <, PEAK_MAX_KIB);
#endif
  g_test_message("peak %" G_GINT64_FORMAT " KiB", peak_kib());
}

/* A peer's words go to logs and terminals: cut, and without what could do something there. */
static void test_error_text(void)
{
  g_autofree char *text = g_strdup("ERR \x1b[2J\a\n\xff");
  QvReply reply = { .type = QV_REPLY_ERROR, .text = text, .len = strlen(text) };
  g_autoptr(GError) error = NULL, long_error = NULL;
  g_assert_false(qv_reply_check(&reply, &error));
  g_assert_cmpstr(error->message, ==, "Valkey answered: ERR \\x1b[2J\\x07\\n\\ufffd");
  g_autofree char *many = g_strnfill(4 << 20, 'x');
  QvReply long_reply = { .type = QV_REPLY_ERROR, .text = many, .len = strlen(many) };
  g_assert_false(qv_reply_check(&long_reply, &long_error));
  g_assert_cmpuint(strlen(long_error->message), <, 600);
}

static void test_errors(void)
{
  const struct {
    const char *text;
    gboolean transient;
    gint code;
  } errors[] = {
    { "LOADING Valkey is loading", TRUE, QV_ERROR_PEER },
    { "OOM command not allowed", TRUE, QV_ERROR_PEER },
    { "READONLY You can't write", TRUE, QV_ERROR_PEER },
    { "MASTERDOWN x", TRUE, QV_ERROR_PEER },
    { "OOMPH x", FALSE, QV_ERROR_PEER },
    { "ERR LOADING", FALSE, QV_ERROR_PEER },
    { "NOPERM no", FALSE, QV_ERROR_AUTH },
    { "WRONGPASS no", FALSE, QV_ERROR_AUTH },
    { "ERR ACL failure in script: x", FALSE, QV_ERROR_AUTH },
    { "NOSCRIPT No matching script.", FALSE, QV_ERROR_PEER },
  };
  for (gsize i = 0; i < G_N_ELEMENTS(errors); i++) {
    g_autofree char *text = g_strdup(errors[i].text);
    QvReply reply = { .type = QV_REPLY_ERROR, .text = text, .len = strlen(text) };
    g_autoptr(GError) error = NULL;
    g_assert_false(qv_reply_check(&reply, &error));
    g_assert_cmpint(error->code, ==, errors[i].code);
    g_assert_cmpint(qv_reply_is_transient(&reply), ==, errors[i].transient);
    g_assert_cmpint(qv_reply_error_is_transient(error), ==, errors[i].transient);
  }
}

static void test_format(void)
{
  const char *argv[] = { "SET", "k", "a\0b" };
  gsize lens[] = { 3, 1, 3 };
  g_autoptr(GBytes) bytes = qv_resp_format(3, argv, lens);
  const char expected[] = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\na\0b\r\n";
  g_assert_cmpmem(g_bytes_get_data(bytes, NULL), g_bytes_get_size(bytes), expected, sizeof expected - 1);
}

/* A command is an array of strings: the reader gives back what was written, whatever the lengths of counts. */
static void test_format_reads_back(void)
{
  static const gsize LENS[10] = {0, 1, 9, 10, 99, 100, 101, 65535, 65536, 1234567};
  enum { ARGS = 1001 };
  g_autofree char *text = g_malloc(1234567 + 5);
  for (gsize i = 0; i < 1234567 + 5; i++)
    text[i] = "\r\n$*\0abc"[i % 8];
  for (int argc = 1; argc <= ARGS; argc = argc * 10 + 1) {
    g_autofree const char **argv = g_new(const char *, argc);
    g_autofree gsize *lens = g_new(gsize, argc);
    for (int i = 0; i < argc; i++) {
      argv[i] = text + i % 5;
      lens[i] = i < 10 ? LENS[(i + argc) % 10] : (gsize)i;
    }
    g_autoptr(GBytes) bytes = qv_resp_format(argc, argv, lens);
    g_autoptr(QvRespReader) reader = qv_resp_reader_new();
    g_autoptr(QvReply) reply = NULL;
    g_assert_true(qv_resp_reader_feed(reader, g_bytes_get_data(bytes, NULL), g_bytes_get_size(bytes), NULL));
    g_assert_true(qv_resp_reader_next(reader, &reply, NULL));
    g_assert_cmpint(reply->type, ==, QV_REPLY_ARRAY);
    g_assert_cmpuint(reply->elements_n, ==, argc);
    for (int i = 0; i < argc; i++) {
      g_assert_cmpint(reply->elements[i]->type, ==, QV_REPLY_STRING);
      g_assert_cmpmem(reply->elements[i]->text, reply->elements[i]->len, argv[i], lens[i]);
    }
    QvReply *more = NULL;
    g_assert_true(qv_resp_reader_next(reader, &more, NULL));
    g_assert_null(more);
  }
}

/* A long text is kept without a copy, beyond its reply and its reader; a short one is copied. What follows it is read on. */
static void test_bytes(void)
{
  static const gsize lens[] = { 0, 3, 65535, 65536, 300000 };
  for (gsize i = 0; i < G_N_ELEMENTS(lens); i++) {
    g_autofree char *text = g_malloc(lens[i] + 1), *head = g_strdup_printf("*2\r\n$%zu\r\n", lens[i]);
    memset(text, 'a' + (int)i, lens[i]);
    g_autoptr(GString) stream = g_string_new(head);
    g_string_append_len(stream, text, lens[i]);
    g_string_append(stream, "\r\n:5\r\n+OK\r\n");
    QvRespReader *reader = qv_resp_reader_new();
    for (gsize at = 0; at < stream->len; at += 60000)
      g_assert_true(qv_resp_reader_feed(reader, stream->str + at, MIN(60000, stream->len - at), NULL));
    QvReply *reply = NULL, *behind = NULL, *none = NULL;
    g_assert_true(qv_resp_reader_next(reader, &reply, NULL));
    g_assert_true(qv_resp_reader_next(reader, &behind, NULL));
    g_assert_true(qv_resp_reader_next(reader, &none, NULL));
    g_assert_null(none);
    g_assert_true(qv_resp_reader_feed(reader, ":7\r\n", 4, NULL));
    g_autoptr(QvReply) later = NULL;
    g_assert_true(qv_resp_reader_next(reader, &later, NULL));
    g_assert_cmpint(qv_reply_int(later, -1), ==, 7);
    g_assert_null(qv_reply_bytes(later));
    g_assert_null(qv_reply_bytes(behind));
    const char *of_reply = qv_reply_text(qv_reply_at(reply, 0));
    g_assert_cmpuint(strlen(of_reply), ==, lens[i]);
    g_autoptr(GBytes) bytes = qv_reply_bytes(qv_reply_at(reply, 0));
    g_assert_true((g_bytes_get_data(bytes, NULL) == of_reply) == (lens[i] >= 65536));
    qv_reply_free(reply);
    qv_reply_free(behind);
    qv_resp_reader_free(reader);
    g_assert_cmpmem(g_bytes_get_data(bytes, NULL), g_bytes_get_size(bytes), text, lens[i]);
  }
}

static void test_getters(void)
{
  g_autoptr(QvRespReader) reader = qv_resp_reader_new();
  const char bytes[] = "*3\r\n:7\r\n$2\r\n42\r\n$1\r\nx\r\n";
  QvReply *raw = NULL;
  g_assert_true(qv_resp_reader_feed(reader, bytes, sizeof bytes - 1, NULL));
  g_assert_true(qv_resp_reader_next(reader, &raw, NULL));
  g_autoptr(QvReply) r = raw;
  g_assert_cmpint(qv_reply_int(qv_reply_at(r, 0), -1), ==, 7);
  g_assert_cmpint(qv_reply_int(qv_reply_at(r, 1), -1), ==, 42);
  g_assert_cmpint(qv_reply_int(qv_reply_at(r, 2), -1), ==, -1);
  g_assert_cmpint(qv_reply_int(qv_reply_at(r, 3), -5), ==, -5);
  g_assert_cmpint(qv_reply_at(r, 3)->type, ==, QV_REPLY_NIL);
  g_assert_null(qv_reply_text(qv_reply_at(r, 0)));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/queue/resp/cases", test_cases);
  g_test_add_func("/queue/resp/endless", test_endless);
  g_test_add_func("/queue/resp/errors", test_errors);
  g_test_add_func("/queue/resp/error-text", test_error_text);
  g_test_add_func("/queue/resp/format", test_format);
  g_test_add_func("/queue/resp/format-reads-back", test_format_reads_back);
  g_test_add_func("/queue/resp/bytes", test_bytes);
  g_test_add_func("/queue/resp/getters", test_getters);
  return g_test_run();
}
