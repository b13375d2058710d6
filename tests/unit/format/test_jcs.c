/* SPDX-License-Identifier: Apache-2.0 */
#include "format/jcs.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "format/json.h"
#include "vectors.h"

static char *canonical(const char *text)
{
  json_t *value = qv_json_parse(text, strlen(text), 1 << 20, QV_JSON_ANY, NULL);
  g_assert_nonnull(value);
  char *out = qv_jcs(value, NULL);
  json_decref(value);
  return out;
}

static void check(const char *text, const char *wanted)
{
  char *out = canonical(text);
  g_assert_cmpstr(out, ==, wanted);
  free(out);
}

/* RFC 8785, sections 3.2.2, 3.2.3. */
static void test_rfc(void)
{
  check("{\"numbers\": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],\n"
        "\"string\": \"\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\\"\\/\", \"literals\": [null, true, false]}",
        "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],"
        "\"string\":\"\xe2\x82\xac$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}");
  check("{\"\\u20ac\":1,\"\\r\":2,\"\\ufb33\":3,\"1\":4,\"\\ud83d\\ude00\":5,\"\\u0080\":6,\"\\u00f6\":7}",
        "{\"\\r\":2,\"1\":4,\"\xc2\x80\":6,\"\xc3\xb6\":7,\"\xe2\x82\xac\":1,\"\xf0\x9f\x98\x80\":5,\"\xef\xac\xb3\":3}");
}

static void test_order(void)
{
  /* Prefix first; a NUL is a character; surrogates below U+E000 and U+FFFF, above U+D7FF. */
  check("{\"ab\":1,\"a\":2,\"\":3,\"a\\u0000\":4,\"b\":5}", "{\"\":3,\"a\":2,\"a\\u0000\":4,\"ab\":1,\"b\":5}");
  check("{\"\\ue000\":1,\"\\uffff\":2,\"\\ud800\\udc00\":3,\"\\udbff\\udfff\":4,\"\\ud7ff\":5}",
        "{\"\xed\x9f\xbf\":5,\"\xf0\x90\x80\x80\":3,\"\xf4\x8f\xbf\xbf\":4,\"\xee\x80\x80\":1,\"\xef\xbf\xbf\":2}");
  /* No normalisation: two names. */
  check("{\"\xc3\xa9\":1,\"e\xcc\x81\":2}", "{\"e\xcc\x81\":2,\"\xc3\xa9\":1}");
}

/* Every pair of names of one and of two characters at the borders of what UTF-8 and UTF-16 write differently. */
static void test_pairs(void)
{
  static const char *const characters[] = { "", "\x01", "A", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                                            "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "\xee\x80\x80", "\xef\xbf\xbf" };
  enum { N = G_N_ELEMENTS(characters) }; /* in the order of their UTF-16 code units */
  for (gsize i = 0; i < N * N * N; i++) {
    g_autofree char *low = g_strconcat(characters[i / N / N], characters[i / N % N], NULL);
    g_autofree char *high = g_strconcat(characters[i / N / N], characters[i % N], NULL);
    if (i / N % N >= i % N)
      continue;
    for (int turn = 0; turn <= 1; turn++) {
      g_autoptr(GString) wanted = g_string_new(NULL);
      json_t *value = json_object();
      json_object_set_new(value, turn ? low : high, json_true());
      json_object_set_new(value, turn ? high : low, json_true());
      char *out = qv_jcs(value, NULL);
      g_string_append_printf(wanted, "{\"%s\":true,\"%s\":true}", low, high);
      g_string_replace(wanted, "\x01", "\\u0001", 0);
      g_assert_cmpstr(out, ==, wanted->str);
      free(out);
      json_decref(value);
    }
  }
}

static void test_strings(void)
{
  check("\"\\u0000\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f \\u007f\\u2028/\"",
        "\"\\u0000\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f \x7f\xe2\x80\xa8/\"");
}

/* Each character below U+0080 at each place of texts of up to three words: what is looked at eight bytes at a time must
 * see it wherever it stands. */
static void test_places(void)
{
  for (int c = 0; c < 0x80; c++) {
    char wanted_c[8];
    static const char named[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\";
    const char *found = c != 0 ? strchr(named, c) : NULL;
    if (found != NULL)
      g_snprintf(wanted_c, sizeof wanted_c, "\\%c", letters[found - named]);
    else
      g_snprintf(wanted_c, sizeof wanted_c, c < 0x20 ? "\\u%04x" : "%c", c);
    for (gsize n = 1; n <= 24; n++) {
      for (gsize at = 0; at < n; at++) {
        char text[25];
        memset(text, '~', n);
        text[at] = (char)c;
        g_autofree char *head = g_strnfill(at, '~'), *tail = g_strnfill(n - at - 1, '~');
        g_autofree char *wanted = g_strdup_printf("[\"%s%s%s\"]", head, wanted_c, tail);
        json_t *value = json_pack("[s%]", text, n);
        char *out = qv_jcs(value, NULL);
        g_assert_cmpstr(out, ==, wanted);
        free(out);
        json_decref(value);
        g_autofree char *wanted_name = g_strdup_printf("{\"%s%s%s\":[]}", head, wanted_c, tail);
        value = json_object();
        json_object_setn_new(value, text, n, json_array());
        out = qv_jcs(value, NULL);
        g_assert_cmpstr(out, ==, wanted_name);
        free(out);
        json_decref(value);
      }
    }
  }
}

/* Any number of members, in order and backwards: both ways of sorting. */
static void test_many_members(void)
{
  for (guint n = 0; n <= 70; n++) {
    json_t *up = json_object(), *down = json_object();
    for (guint i = 0; i < n; i++) {
      char name[8];
      g_snprintf(name, sizeof name, "m%03u", i);
      json_object_set_new(up, name, json_integer(i));
      g_snprintf(name, sizeof name, "m%03u", n - 1 - i);
      json_object_set_new(down, name, json_integer(n - 1 - i));
    }
    char *a = qv_jcs(up, NULL), *b = qv_jcs(down, NULL);
    g_assert_cmpstr(a, ==, b);
    if (n >= 2)
      g_assert_true(g_str_has_prefix(a, "{\"m000\":0,\"m001\":1"));
    free(a);
    free(b);
    json_decref(up);
    json_decref(down);
  }
}

/* RFC 8785, appendix B. */
static void test_appendix_b(void)
{
  static const struct {
    guint64 bits;
    const char *text; /* NULL: refused */
  } table[] = {
    {0x0000000000000000, "0"},
    {0x8000000000000000, "0"},
    {0x0000000000000001, "5e-324"},
    {0x8000000000000001, "-5e-324"},
    {0x7fefffffffffffff, "1.7976931348623157e+308"},
    {0xffefffffffffffff, "-1.7976931348623157e+308"},
    {0x4340000000000000, "9007199254740992"},
    {0xc340000000000000, "-9007199254740992"},
    {0x4430000000000000, "295147905179352830000"},
    {0x7fffffffffffffff, NULL},
    {0x7ff0000000000000, NULL},
    {0x44b52d02c7e14af5, "9.999999999999997e+22"},
    {0x44b52d02c7e14af6, "1e+23"},
    {0x44b52d02c7e14af7, "1.0000000000000001e+23"},
    {0x444b1ae4d6e2ef4e, "999999999999999700000"},
    {0x444b1ae4d6e2ef4f, "999999999999999900000"},
    {0x444b1ae4d6e2ef50, "1e+21"},
    {0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"},
    {0x3eb0c6f7a0b5ed8d, "0.000001"},
    {0x41b3de4355555553, "333333333.3333332"},
    {0x41b3de4355555554, "333333333.33333325"},
    {0x41b3de4355555555, "333333333.3333333"},
    {0x41b3de4355555556, "333333333.3333334"},
    {0x41b3de4355555557, "333333333.33333343"},
    {0xbecbf647612f3696, "-0.0000033333333333333333"},
    {0x43143ff3c1cb0959, "1424953923781206.2"},
  };
  for (gsize i = 0; i < G_N_ELEMENTS(table); i++) {
    double value;
    char text[QV_JCS_NUMBER_BYTES];
    memcpy(&value, &table[i].bits, sizeof value);
    gsize n = qv_jcs_number(value, text);
    if (table[i].text)
      g_assert_cmpstr(text, ==, table[i].text);
    else
      g_assert_cmpuint(n, ==, 0);
  }
}

static void check_numbers(const char *name, guint wanted)
{
  gsize n;
  g_autofree char *table = vector_read(name, &n);
  g_auto(GStrv) lines = g_strsplit(table, "\n", -1);
  guint rows = 0;
  for (guint i = 0; lines[i]; i++) {
    g_auto(GStrv) row = g_strsplit(lines[i], ",", 2);
    if (!row[0] || !row[1])
      continue;
    guint64 bits = g_ascii_strtoull(row[0], NULL, 16);
    double value;
    char text[QV_JCS_NUMBER_BYTES];
    memcpy(&value, &bits, sizeof value);
    g_assert_cmpuint(qv_jcs_number(value, text), ==, strlen(g_strchomp(row[1])));
    g_assert_cmpstr(text, ==, row[1]);
    rows++;
  }
  g_assert_cmpuint(rows, ==, wanted);
}

static void test_number_corpus(void)
{
  if (!vectors_here())
    return;
  check_numbers("jcs/es6-numbers-1k.txt", 1000);
  check_numbers("jcs/es6-numbers-6k.txt", 6000);
  g_test_message("jcs: 1000 and 6000 numbers");
}

/* Every power of two, which printf's rounding alone gets wrong, reads back. */
static void test_powers(void)
{
  for (int e = -1074; e < 1024; e++) {
    char text[QV_JCS_NUMBER_BYTES];
    double value = ldexp(1, e);
    g_assert_cmpuint(qv_jcs_number(value, text), >, 0);
    g_assert_true(g_ascii_strtod(text, NULL) == value);
  }
  char text[QV_JCS_NUMBER_BYTES];
  qv_jcs_number(ldexp(1, -44), text); /* "%.15e" would end in …3785 */
  g_assert_cmpstr(text, ==, "5.684341886080802e-14");
}

static void test_documents(void)
{
  if (!vectors_here())
    return;
  static const char *const names[] = {"arrays", "french", "structures", "values"};
  for (gsize i = 0; i < G_N_ELEMENTS(names); i++) {
    g_autofree char *in = g_strdup_printf("jcs/input/%s.json", names[i]);
    g_autofree char *out = g_strdup_printf("jcs/output/%s.json", names[i]);
    g_autofree char *hex = g_strdup_printf("jcs/outhex/%s.txt", names[i]);
    gsize in_n, out_n, hex_n, n;
    g_autofree char *text = vector_read(in, &in_n), *wanted = vector_read(out, &out_n), *digits = vector_read(hex, &hex_n);
    json_t *value = qv_json_parse(text, in_n, 1 << 20, QV_JSON_ANY, NULL);
    char *got = qv_jcs(value, &n);
    g_assert_cmpmem(got, n, wanted, out_n);
    const char *digit = digits;
    for (gsize k = 0; k < n; k++) {
      char *end;
      g_assert_cmpuint(strtoul(digit, &end, 16), ==, (guint8)got[k]);
      digit = end;
    }
    json_decref(value);
    free(got);
  }
  g_test_message("jcs: %zu documents, as text and as hex", G_N_ELEMENTS(names));
}

static void test_refused(void)
{
  json_t *deep = json_array();
  for (int i = 0; i < 32; i++) {
    json_t *outer = json_array();
    json_array_append_new(outer, deep);
    deep = outer;
  }
  g_assert_null(qv_jcs(deep, NULL)); /* 33 levels */
  char *fine = qv_jcs(json_array_get(deep, 0), NULL);
  g_assert_nonnull(fine);
  free(fine);
  json_decref(deep);
  json_t *bad = json_stringn_nocheck("\xff", 1);
  g_assert_null(qv_jcs(bad, NULL));
  json_decref(bad);
}

/* A program that speaks another language writes the same numbers. */
/* In a locale whose numbers have a decimal comma. Made here: machines have few. */
static void test_locale(void)
{
  g_autofree char *folder = g_dir_make_tmp("qv-locale-XXXXXX", NULL);
  g_assert_nonnull(folder);
  g_autofree char *path = g_build_filename(folder, "de_DE.UTF-8", NULL);
  const char *argv[] = {"localedef", "--no-archive", "-c", "-i", "de_DE", "-f", "UTF-8", path, NULL};
  g_spawn_sync(NULL, (char **)argv, NULL,
               G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL, NULL, NULL, NULL, NULL,
               NULL, NULL);
  g_setenv("LOCPATH", folder, TRUE);
  const char *set = setlocale(LC_NUMERIC, "de_DE.UTF-8");
  if (set != NULL) {
    g_assert_cmpstr(localeconv()->decimal_point, ==, ",");
    check("[0.5,1e-7,123456789.25]", "[0.5,1e-7,123456789.25]");
    setlocale(LC_NUMERIC, "C");
  } else {
    g_test_skip("localedef cannot make de_DE.UTF-8: the package locales is missing");
  }
  const char *remove[] = {"rm", "-rf", "--", folder, NULL};
  g_assert_true(g_spawn_sync(NULL, (char **)remove, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, NULL, NULL, NULL));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/jcs/rfc-8785", test_rfc);
  g_test_add_func("/jcs/order", test_order);
  g_test_add_func("/jcs/pairs", test_pairs);
  g_test_add_func("/jcs/strings", test_strings);
  g_test_add_func("/jcs/places", test_places);
  g_test_add_func("/jcs/many-members", test_many_members);
  g_test_add_func("/jcs/appendix-b", test_appendix_b);
  g_test_add_func("/jcs/number-corpus", test_number_corpus);
  g_test_add_func("/jcs/powers-of-two", test_powers);
  g_test_add_func("/jcs/documents", test_documents);
  g_test_add_func("/jcs/refused", test_refused);
  g_test_add_func("/jcs/locale", test_locale);
  return g_test_run();
}
