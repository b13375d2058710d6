/* SPDX-License-Identifier: Apache-2.0 */
/* The two forms of a line, and values that would break out of one. */
#include <glib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

static void expect(gboolean json, const char *message, const char *const *pairs, const char *line)
{
  g_autofree char *got = qv_log_format_line(json, "prog", QV_LOG_WARNING, 1700000000123, message, pairs);
  g_assert_cmpstr(got, ==, line);
}

static void test_forms(void)
{
  const char *pairs[] = {"jobId", "a-b", "left", NULL, "text", "two words", NULL};
  expect(TRUE, "done", pairs,
         "{\"time\":\"2023-11-14T22:13:20.123Z\",\"level\":\"warning\",\"program\":\"prog\",\"message\":\"done\","
         "\"jobId\":\"a-b\",\"text\":\"two words\"}");
  expect(FALSE, "done", pairs, "2023-11-14T22:13:20.123Z warning prog: done jobId=a-b text=\"two words\"");
}

static void test_record(void)
{
  const QvLogField fields[] = {{"a", "x\"y"}, {"n", "12", TRUE}, {"gone", NULL}, {"list", "[{\"h\":1}]", TRUE}};
  g_autofree char *json = qv_log_format_record(TRUE, "prog", 1700000000123, "done", fields, G_N_ELEMENTS(fields));
  g_assert_cmpstr(json, ==,
                  "{\"time\":\"2023-11-14T22:13:20.123Z\",\"level\":\"info\",\"program\":\"prog\",\"message\":\"done\","
                  "\"a\":\"x\\\"y\",\"n\":12,\"gone\":null,\"list\":[{\"h\":1}]}");
  g_autofree char *text = qv_log_format_record(FALSE, "prog", 1700000000123, "done", fields, G_N_ELEMENTS(fields));
  g_assert_cmpstr(text, ==,
                  "2023-11-14T22:13:20.123Z info    prog: done a=\"x\\\"y\" n=12 list=\"[{\\\"h\\\":1}]\"");
}

static void test_escapes(void)
{
  const char *pairs[] = {"v", "a\nb\"c\\\x1b[31m\xff\x7f", NULL};
  expect(TRUE, "x\ny", pairs,
         "{\"time\":\"2023-11-14T22:13:20.123Z\",\"level\":\"warning\",\"program\":\"prog\",\"message\":\"x\\u000ay\","
         "\"v\":\"a\\u000ab\\\"c\\\\\\u001b[31m\xef\xbf\xbd\\u007f\"}");
  expect(FALSE, "x\ny", pairs,
         "2023-11-14T22:13:20.123Z warning prog: x\\u000ay v=\"a\\u000ab\\\"c\\\\\\u001b[31m\xef\xbf\xbd\\u007f\"");
}

/* What drives a terminal, reorders a line or hides in it, with one of two UTF-16 units and neighbours that are shown. */
static void test_invisible(void)
{
  const char *value = "a\xc2\x9b" "31m\xc2\x85\xe2\x80\xae" "b\xe2\x81\xa6\xd8\x9c\xe2\x80\x8b\xc2\xad\xef\xbb\xbf\xf3\xa0\x81\x81\xe2\x80\xa8" "c",
             *shown = "\xc2\xa0\xc3\xa9\xe2\x80\x90\xe2\x9c\x94\xef\xb8\x8f\xf0\x9f\x98\x80",
             *pairs[] = {"v", value, "w", shown, NULL};
#define ESCAPED "a\\u009b31m\\u0085\\u202eb\\u2066\\u061c\\u200b\\u00ad\\ufeff\\udb40\\udc41\\u2028c"
#define SHOWN "\xc2\xa0\xc3\xa9\xe2\x80\x90\xe2\x9c\x94\xef\xb8\x8f\xf0\x9f\x98\x80"
  expect(TRUE, value, pairs,
         "{\"time\":\"2023-11-14T22:13:20.123Z\",\"level\":\"warning\",\"program\":\"prog\",\"message\":\"" ESCAPED "\","
         "\"v\":\"" ESCAPED "\",\"w\":\"" SHOWN "\"}");
  expect(FALSE, value, pairs, "2023-11-14T22:13:20.123Z warning prog: " ESCAPED " v=" ESCAPED " w=" SHOWN);
  /* In a field that is JSON such a character can only be in a string, whose own escapes stay. */
  const QvLogField field = {"list", "[{\"h\":\"\\\"\\n\xc2\x9b\x7f\xe2\x80\xae\xf3\xa0\x81\x81\"}]", TRUE};
  g_autofree char *json = qv_log_format_record(TRUE, "prog", 0, "m", &field, 1);
  g_assert_nonnull(strstr(json, "\"list\":[{\"h\":\"\\\"\\n\\u009b\\u007f\\u202e\\udb40\\udc41\"}]}"));
}

static char *stderr_of_child(const char *level)
{
  int pair[2];
  g_assert_true(qv_fd_pipe(pair, NULL));
  g_autofree char *long_value = g_strnfill(20000, 'x');
  int saved = dup(STDERR_FILENO);
  dup2(pair[1], STDERR_FILENO);
  close(pair[1]);
  qv_log_init("prog", level, "json");
  qv_log(QV_LOG_DEBUG, "one", NULL);
  qv_log(QV_LOG_INFO, "two", "k", "v", NULL);
  qv_logf(QV_LOG_ERROR, "three %d", 3);
  qv_log(QV_LOG_ERROR, "four", "long", long_value, NULL);
  dup2(saved, STDERR_FILENO);
  close(saved);
  gsize n;
  char *text = qv_fd_read_all(pair[0], "pipe", 65536, &n, NULL);
  close(pair[0]);
  return text;
}

static void test_levels(void)
{
  g_autofree char *info = stderr_of_child("info");
  g_auto(GStrv) lines = g_strsplit(info, "\n", -1);
  g_assert_cmpuint(g_strv_length(lines), ==, 4);
  g_assert_nonnull(strstr(lines[0], "\"message\":\"two\",\"k\":\"v\"}"));
  g_assert_nonnull(strstr(lines[1], "\"message\":\"three 3\"}"));
  g_assert_nonnull(strstr(lines[2], "too long"));
  g_autofree char *error = stderr_of_child("error");
  g_assert_null(strstr(error, "two"));
  g_assert_nonnull(strstr(error, "three 3"));
  g_autofree char *debug = stderr_of_child("debug");
  g_assert_nonnull(strstr(debug, "one"));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/log/forms", test_forms);
  g_test_add_func("/log/record", test_record);
  g_test_add_func("/log/escapes", test_escapes);
  g_test_add_func("/log/invisible", test_invisible);
  g_test_add_func("/log/levels", test_levels);
  return g_test_run();
}
