/* SPDX-License-Identifier: Apache-2.0 */
#include "format/json.h"

#include <pthread.h>
#include <string.h>

#include "base/limits.h"
#include "format/error.h"
#include "format/jcs.h"
#include "vectors.h"

#if defined(__SANITIZE_ADDRESS__)
enum { STACK_BYTES = 256 * 1024 };
#else
enum { STACK_BYTES = 64 * 1024 };
#endif

static QvJsonReason reason_of(const char *text, gsize n, QvJsonKind kind)
{
  QvJsonError error = {0};
  /* A copy of exactly that length: a read behind its end is seen. */
  g_autofree char *exact = g_memdup2(n ? text : "x", n ? n : 1);
  json_t *value = qv_json_parse(exact, n, QV_JOB_JSON_BYTES_MAX, kind, &error);
  if (value)
    error.reason = QV_JSON_OK;
  else
    g_assert_cmpint(error.reason, !=, QV_JSON_OK);
  json_decref(value);
  return error.reason;
}

static void check(const char *text, QvJsonKind kind, QvJsonReason wanted)
{
  const char *reason = qv_json_reason_name(reason_of(text, strlen(text), kind));
  if (strcmp(reason, qv_json_reason_name(wanted)) != 0)
    g_error("%s: %s, not %s", text, reason, qv_json_reason_name(wanted));
}

/* RFC 8259 alone: every number form and every word, in their places. */
static void test_signed_numbers(void)
{
  static const char *const fine[] = {"0", "-1", "9007199254740991", "-9007199254740991", "[0,1]", "{\"a\":10}"};
  for (gsize i = 0; i < G_N_ELEMENTS(fine); i++)
    check(fine[i], QV_JSON_SIGNED, QV_JSON_OK);
  static const char *const not_integers[] = {"-0", "0.0", "1.0", "1e0", "1E2", "-0.0", "[1.5]", "0e0", "1e-400"};
  for (gsize i = 0; i < G_N_ELEMENTS(not_integers); i++)
    check(not_integers[i], QV_JSON_SIGNED, QV_JSON_NOT_INTEGER);
  static const char *const out_of_range[] = {"9007199254740992", "-9007199254740992", "9223372036854775808",
                                             "18446744073709551616", "100000000000000000000000000"};
  for (gsize i = 0; i < G_N_ELEMENTS(out_of_range); i++) {
    check(out_of_range[i], QV_JSON_SIGNED, QV_JSON_NUMBER_RANGE);
    check(out_of_range[i], QV_JSON_ANY, QV_JSON_OK);
  }
  static const char *const none[] = {"01", "-01", "-", "+1", ".5", "1.", "1e", "1e+", "0x1", "NaN", "Infinity", "-Infinity"};
  for (gsize i = 0; i < G_N_ELEMENTS(none); i++) {
    g_assert_cmpint(reason_of(none[i], strlen(none[i]), QV_JSON_SIGNED), !=, QV_JSON_OK);
    g_assert_cmpint(reason_of(none[i], strlen(none[i]), QV_JSON_ANY), !=, QV_JSON_OK);
  }
  check("1e400", QV_JSON_ANY, QV_JSON_NUMBER_RANGE);
  json_t *value = qv_json_parse("[-9007199254740991,42]", 22, 100, QV_JSON_SIGNED, NULL);
  g_assert_cmpint(json_integer_value(json_array_get(value, 0)), ==, -9007199254740991);
  g_assert_cmpint(json_integer_value(json_array_get(value, 1)), ==, 42);
  json_decref(value);
}

static void test_reasons(void)
{
  check("", QV_JSON_SIGNED, QV_JSON_TRUNCATED);
  check(" \n", QV_JSON_SIGNED, QV_JSON_TRUNCATED);
  check("{\"a\":1", QV_JSON_SIGNED, QV_JSON_TRUNCATED);
  check("\xef\xbb\xbf{}", QV_JSON_SIGNED, QV_JSON_BOM);
  check("{}\xef\xbb\xbf", QV_JSON_SIGNED, QV_JSON_TRAILING);
  check("{} {}", QV_JSON_SIGNED, QV_JSON_TRAILING);
  check("{}x", QV_JSON_SIGNED, QV_JSON_TRAILING);
  check("{\"a\":1,}", QV_JSON_SIGNED, QV_JSON_SYNTAX);
  check("[1,]", QV_JSON_SIGNED, QV_JSON_SYNTAX);
  check("{\"a\" 1}", QV_JSON_SIGNED, QV_JSON_SYNTAX);
  check("{'a':1}", QV_JSON_SIGNED, QV_JSON_SYNTAX);
  check("/**/1", QV_JSON_SIGNED, QV_JSON_SYNTAX);
  check("tru", QV_JSON_SIGNED, QV_JSON_TRUNCATED);
  check("nul1", QV_JSON_SIGNED, QV_JSON_SYNTAX);
  check("True", QV_JSON_SIGNED, QV_JSON_SYNTAX);
  check("\"a\tb\"", QV_JSON_SIGNED, QV_JSON_CONTROL);
  check("\"\\x41\"", QV_JSON_SIGNED, QV_JSON_ESCAPE);
  check("\"\\u00g0\"", QV_JSON_SIGNED, QV_JSON_ESCAPE);
  check("\"\\ud800\"", QV_JSON_SIGNED, QV_JSON_SURROGATE);
  check("\"\\ud800\\n\"", QV_JSON_SIGNED, QV_JSON_SURROGATE);
  check("\"\\ud800\\", QV_JSON_SIGNED, QV_JSON_TRUNCATED);
  check("\"\\ud8", QV_JSON_SIGNED, QV_JSON_TRUNCATED);
  check("\"\\udc00\\ud800\"", QV_JSON_SIGNED, QV_JSON_SURROGATE);
  check("\"\\ud800\\ud800\"", QV_JSON_SIGNED, QV_JSON_SURROGATE);
  check("\"\xc0\xaf\"", QV_JSON_SIGNED, QV_JSON_NOT_UTF8);
  check("\"\xed\xa0\x80\"", QV_JSON_SIGNED, QV_JSON_NOT_UTF8);
  check("{\"a\":1,\"a\":1}", QV_JSON_SIGNED, QV_JSON_DUPLICATE);
  check("{\"a\":1,\"\\u0061\":2}", QV_JSON_SIGNED, QV_JSON_DUPLICATE);
  check("[{\"a\":{\"b\":1,\"c\":2,\"b\":3}}]", QV_JSON_ANY, QV_JSON_DUPLICATE);
  check("\"\\u0000\"", QV_JSON_SIGNED, QV_JSON_NUL);
  check("{\"a\\u0000b\":1}", QV_JSON_SIGNED, QV_JSON_NUL);
  check("{\"a\\u0000b\":1,\"a\":2}", QV_JSON_ANY, QV_JSON_OK);
  g_assert_cmpint(reason_of("1\0", 2, QV_JSON_SIGNED), ==, QV_JSON_TRAILING);
  g_assert_cmpint(reason_of("\"a\0b\"", 5, QV_JSON_SIGNED), ==, QV_JSON_CONTROL);
}

static void test_strings(void)
{
  const char *text = "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD834\\uDd1e\\u20ac\",\"\x7f\xc3\xa9\xf0\x9f\x98\x80\"]";
  json_t *value = qv_json_parse(text, strlen(text), 200, QV_JSON_SIGNED, NULL);
  g_assert_cmpstr(json_string_value(json_array_get(value, 0)), ==,
                  "\"\\/\b\f\n\r\t\xc3\xa9\xf0\x9d\x84\x9e\xe2\x82\xac");
  g_assert_cmpstr(json_string_value(json_array_get(value, 1)), ==, "\x7f\xc3\xa9\xf0\x9f\x98\x80");
  json_decref(value);
}

static char *nested(int depth, const char *open, const char *inside, const char *close)
{
  GString *text = g_string_new(NULL);
  for (int i = 0; i < depth; i++)
    g_string_append(text, open);
  g_string_append(text, inside);
  for (int i = 0; i < depth; i++)
    g_string_append(text, close);
  return g_string_free(text, FALSE);
}

static void test_caps(void)
{
  g_autofree char *deep = nested(32, "[", "", "]"), *deeper = nested(33, "[", "", "]");
  g_autofree char *members = nested(32, "{\"a\":", "1", "}"), *more = nested(33, "{\"a\":", "1", "}");
  g_autofree char *endless = nested(100000, "[", "", "");
  check(deep, QV_JSON_SIGNED, QV_JSON_OK);
  check(members, QV_JSON_ANY, QV_JSON_OK);
  check(deeper, QV_JSON_SIGNED, QV_JSON_TOO_DEEP);
  check(more, QV_JSON_ANY, QV_JSON_TOO_DEEP);
  check(endless, QV_JSON_ANY, QV_JSON_TOO_DEEP);
  /* Broad is not deep. */
  check("[[[]],[[]],{\"a\":[]}]", QV_JSON_SIGNED, QV_JSON_OK);

  QvJsonError error;
  json_t *value = qv_json_parse("[1]", 3, 3, QV_JSON_SIGNED, &error);
  g_assert_nonnull(value);
  json_decref(value);
  g_assert_null(qv_json_parse("[1] ", 4, 3, QV_JSON_SIGNED, &error));
  g_assert_cmpint(error.reason, ==, QV_JSON_TOO_LONG);
}

static void test_shape(void)
{
  static const QvJsonMember table[] = {
    {"name", QV_JSON_STRING}, {"exitCode", QV_JSON_INTEGER | QV_JSON_NULL}, {"cwd", QV_JSON_STRING | QV_JSON_OPTIONAL},
    {"on", QV_JSON_BOOL},     {"list", QV_JSON_ARRAY},                      {"map", QV_JSON_OBJECT | QV_JSON_NULL},
  };
  static const struct {
    const char *text, *name; /* NULL: fine */
  } cases[] = {
    {"{\"name\":\"a\",\"exitCode\":1,\"on\":true,\"list\":[],\"map\":{}}", NULL},
    {"{\"name\":\"a\",\"exitCode\":null,\"cwd\":\"\",\"on\":false,\"list\":[],\"map\":null}", NULL},
    {"{\"exitCode\":1,\"on\":true,\"list\":[],\"map\":{}}", "name"},
    {"{\"name\":\"a\",\"exitCode\":\"1\",\"on\":true,\"list\":[],\"map\":{}}", "exitCode"},
    {"{\"name\":\"a\",\"exitCode\":1,\"cwd\":null,\"on\":true,\"list\":[],\"map\":{}}", "cwd"},
    {"{\"name\":\"a\",\"exitCode\":1,\"on\":0,\"list\":[],\"map\":{}}", "on"},
    {"{\"name\":\"a\",\"exitCode\":1,\"on\":true,\"list\":{},\"map\":{}}", "list"},
    {"{\"name\":\"a\",\"exitCode\":1,\"on\":true,\"list\":[],\"map\":{},\"x\":1}", ""},
    {"[]", ""},
  };
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++) {
    json_t *value = qv_json_parse(cases[i].text, strlen(cases[i].text), 1000, QV_JSON_SIGNED, NULL);
    const char *name = NULL;
    g_assert_nonnull(value);
    gboolean fine = qv_json_shape(value, table, G_N_ELEMENTS(table), &name);
    g_assert_cmpint(fine, ==, cases[i].name == NULL);
    if (cases[i].name)
      g_assert_cmpstr(name, ==, cases[i].name);
    json_decref(value);
  }
}

static void test_gerror(void)
{
  g_autoptr(GError) error = NULL;
  g_assert_null(qv_json_load("{\"a\":01}", 8, 100, QV_JSON_SIGNED, "job data", &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
  g_assert_cmpstr(error->message, ==, "job data: a number that JSON does not have (at byte 6)");
  g_clear_error(&error);
  g_assert_null(qv_json_load("{}", 2, 1, QV_JSON_SIGNED, "x", &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_LIMIT);
}

/* What a suite does on a stack of this size; the sanitizers' frames are larger. */
static void on_small_stack(gpointer (*func)(gpointer data), gpointer data)
{
  pthread_attr_t small;
  pthread_t thread;
  g_assert_cmpint(pthread_attr_init(&small), ==, 0);
  g_assert_cmpint(pthread_attr_setstacksize(&small, STACK_BYTES), ==, 0);
  g_assert_cmpint(pthread_create(&thread, &small, func, data), ==, 0);
  g_assert_cmpint(pthread_join(thread, NULL), ==, 0);
  pthread_attr_destroy(&small);
}

/* y_ are taken (with the canonical text that two other implementations agree on), n_ refused, i_ as
 * I-POLICY.tsv says; what JSON allows and we refuse is in json_refused.tsv with its reason. */
static gpointer run_suite(gpointer data)
{
  guint *n_of = data;
  g_autoptr(GPtrArray) files = vector_list("json/test_parsing");
  g_autoptr(GPtrArray) refused = table_read("json_refused.tsv");
  g_autoptr(GPtrArray) policy = vector_table("json/I-POLICY.tsv");
  g_assert_cmpuint(files->len, ==, 241);
  for (guint i = 0; i < files->len; i++) {
    const char *file = files->pdata[i];
    g_autofree char *path = g_build_filename("json/test_parsing", file, NULL);
    gsize n;
    g_autofree char *text = vector_read(path, &n);
    QvJsonReason reason = reason_of(text, n, QV_JSON_ANY);
    char **row = table_find(refused, file);
    if (file[0] == 'n')
      g_assert_cmpint(reason, !=, QV_JSON_OK);
    else if (strcmp(qv_json_reason_name(reason), row ? row[1] : "QV_JSON_OK") != 0)
      g_error("%s: %s", file, qv_json_reason_name(reason));
    char **verdict = table_find(policy, file);
    if (verdict && strcmp(verdict[1], "REJECT") == 0)
      g_assert_cmpint(reason, !=, QV_JSON_OK);
    /* What is refused as any JSON is refused as a signed body. */
    g_assert_true(reason == QV_JSON_OK || reason_of(text, n, QV_JSON_SIGNED) != QV_JSON_OK);
    n_of[(guint8)file[0]]++;
  }
  return NULL;
}

static void test_suite(void)
{
  guint n_of[256] = {0};
  if (!vectors_here())
    return;
  on_small_stack(run_suite, n_of);
  g_test_message("json: y %u, n %u, i %u", n_of['y'], n_of['n'], n_of['i']);
  g_assert_cmpuint(n_of['y'], ==, 74);
  g_assert_cmpuint(n_of['n'], ==, 151);
  g_assert_cmpuint(n_of['i'], ==, 16);
}

static char *canonical_hex(const char *text, gsize n)
{
  json_t *value = qv_json_parse(text, n, QV_JOB_JSON_BYTES_MAX, QV_JSON_ANY, NULL);
  if (!value)
    return g_strdup("REJECT");
  gsize out_n;
  char *out = qv_jcs(value, &out_n);
  json_decref(value);
  g_assert_nonnull(out);
  GString *hex = g_string_new(NULL);
  for (gsize i = 0; i < out_n; i++)
    g_string_append_printf(hex, "%02x", (guint8)out[i]);
  free(out);
  return g_string_free(hex, FALSE);
}

static void test_transform(void)
{
  if (!vectors_here())
    return;
  g_autoptr(GPtrArray) rows = vector_table("json/TRANSFORM.tsv");
  g_assert_cmpuint(rows->len, ==, 15);
  for (guint i = 0; i < rows->len; i++) {
    char **row = rows->pdata[i];
    g_autofree char *path = g_build_filename("json/test_transform", row[0], NULL);
    gsize n;
    g_autofree char *text = vector_read(path, &n), *hex = canonical_hex(text, n);
    if (g_str_has_prefix(row[2], "REJECT"))
      g_assert_cmpstr(hex, ==, "REJECT");
    else
      g_assert_cmpstr(hex, ==, row[1] + strlen("JCS hex "));
  }
  g_test_message("json: %u transforms", rows->len);
}

static void test_canonical_of_suite(void)
{
  if (!vectors_here())
    return;
  gsize n;
  g_autofree char *table = vector_read("jcs/jsontestsuite-y-canonical.tsv", &n);
  g_auto(GStrv) lines = g_strsplit(table, "\n", -1);
  guint rows = 0;
  for (guint i = 0; lines[i]; i++) {
    g_auto(GStrv) row = g_strsplit(lines[i], "\t", -1);
    if (!g_str_has_prefix(lines[i], "y_"))
      continue;
    g_autofree char *path = g_build_filename("json/test_parsing", row[0], NULL);
    g_autofree char *text = vector_read(path, &n), *hex = canonical_hex(text, n);
    g_assert_cmpstr(hex, ==, g_str_has_prefix(row[1], "REJECT") ? "REJECT" : row[1]);
    rows++;
  }
  g_assert_cmpuint(rows, ==, 74);
  g_test_message("jcs: %u canonical forms of the suite", rows);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/json/signed-numbers", test_signed_numbers);
  g_test_add_func("/json/reasons", test_reasons);
  g_test_add_func("/json/strings", test_strings);
  g_test_add_func("/json/caps", test_caps);
  g_test_add_func("/json/shape", test_shape);
  g_test_add_func("/json/gerror", test_gerror);
  g_test_add_func("/json/suite", test_suite);
  g_test_add_func("/json/transform", test_transform);
  g_test_add_func("/json/canonical-of-suite", test_canonical_of_suite);
  return g_test_run();
}
