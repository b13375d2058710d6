/* SPDX-License-Identifier: Apache-2.0 */
#include "format/glob.h"

#include <string.h>

#include "base/limits.h"
#include "format/json.h"
#include "vectors.h"

static gboolean match(const char *pattern, const char *path)
{
  QvGlob *glob = qv_glob_new(pattern, strlen(pattern));
  gboolean matched = glob && qv_glob_match(glob, path, strlen(path));
  qv_glob_free(glob);
  return matched;
}

static void test_own(void)
{
  static const struct {
    const char *pattern, *path;
    gboolean wanted;
  } cases[] = {
    {"build/*.log", "build/a.log", TRUE},
    {"build/*.log", "build/x/a.log", FALSE},
    {"build/**", "build/x/y/z", TRUE},
    {"build/**", "build", FALSE},
    {"**", "a/b/c", TRUE},
    {"**/*.xml", "report.xml", TRUE},
    {"**/*.xml", "a/b/report.xml", TRUE},
    {"**/*.xml", "a/b/report.xmlx", FALSE},
    {"a/**/b/**/c", "a/x/b/c", TRUE},
    {"a/**/b/**/c", "a/b/x/y/c", TRUE},
    {"a/**/b/**/c", "a/c", FALSE},
    {"*.tar", ".tar", TRUE},
    {"*", ".hidden", TRUE},
    {"Lib.A", "lib.a", FALSE},
    {"[a-c]", "b", TRUE},
    {"[!a-c]", "b", FALSE},
    {"[^a-c]", "d", TRUE},
    {"[!a]", "/", FALSE},
    {"?", "/", FALSE},
    {"[]]", "]", TRUE},
    {"[]-a]", "^", TRUE},
    {"[a-]", "-", TRUE},
    {"[[:digit:]]x", "7x", TRUE},
    {"[[:digit:]]x", "ax", FALSE},
    {"[[:nosuch:]", ":", TRUE},
    {"[z-a]", "m", FALSE},
    {"\\*", "*", TRUE},
    {"\\*", "a", FALSE},
    {"\\[a]", "[a]", TRUE},
    {"{a,b}.c", "b.c", TRUE},
    {"{a,b}.c", "c.c", FALSE},
    {"{,a}b", "b", TRUE},
    {"{a,{b,c}d}e", "cde", TRUE},
    {"{src,lib}/**/*.[ch]", "lib/x/y.h", TRUE},
    {"{**/a,b}/c", "x/y/a/c", TRUE},
    {"{1..12}", "12", TRUE},
    {"{12..1}", "3", TRUE},
    {"{1..12}", "13", FALSE},
    {"{1..b}", "1..b", TRUE},
    {"{1.2}", "1.2", TRUE},
    {"v{-1..1}", "v-1", TRUE},
    {"+(ab|c)", "abcab", TRUE},
    {"+(ab|c)", "", FALSE},
    {"*(ab|c)x", "x", TRUE},
    {"?(ab|c)x", "ababx", FALSE},
    {"@(a|b)", "b", TRUE},
    {"*(*(a))b", "aab", TRUE},
    {"}", "}", TRUE},
    {"a,b", "a,b", TRUE},
    {"a|b)", "a|b)", TRUE},
    {"\xc3\xa9?", "\xc3\xa9\xc3\xbc", TRUE},
    {"?", "\xff", TRUE},
    {"\xef\xbf\xbd", "\xff", FALSE},
  };
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++) {
    if (match(cases[i].pattern, cases[i].path) != cases[i].wanted)
      g_error("%s against %s", cases[i].pattern, cases[i].path);
  }
}

static void test_invalid(void)
{
  static const char *const invalid[] = {"", "[", "[a", "[!", "[]", "{", "{a", "{a,", "{a,{b}", "+(a", "*(", "!(a)", "a\\", "\xff",
                                        "{1..1000}", "[a\\", "[a-\\", "{1..100}{1..100}{1..100}", "{{{{{{{{{a}}}}}}}}}"};
  for (gsize i = 0; i < G_N_ELEMENTS(invalid); i++)
    g_assert_false(qv_glob_valid(invalid[i], strlen(invalid[i])));
  g_assert_false(qv_glob_valid("a\0b", 3));
  g_autofree char *longest = g_strnfill(QV_GLOB_BYTES_MAX, 'a'), *longer = g_strnfill(QV_GLOB_BYTES_MAX + 1, 'a');
  g_assert_true(qv_glob_valid(longest, QV_GLOB_BYTES_MAX));
  g_assert_false(qv_glob_valid(longer, QV_GLOB_BYTES_MAX + 1));
  g_assert_true(qv_glob_valid("{{{{{{{{a}}}}}}}}", 17));
}

static void test_below(void)
{
  static const struct {
    const char *pattern, *dir;
    gboolean wanted;
  } cases[] = {
    {"build/*.log", "", TRUE},      {"build/*.log", "build", TRUE}, {"build/*.log", "build/x", FALSE},
    {"build/*.log", "src", FALSE},  {"**/x", "any/where", TRUE},    {"a/**", "a", TRUE},
    {"a/**", "b", FALSE},           {"a", "", TRUE},                {"a", "a", FALSE},
    {"{a,b/c}/d", "b", TRUE},       {"{a,b/c}/d", "c", FALSE},      {"a?/b", "ax", TRUE},
  };
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++) {
    QvGlob *glob = qv_glob_new(cases[i].pattern, strlen(cases[i].pattern));
    if (qv_glob_may_match_below(glob, cases[i].dir, strlen(cases[i].dir)) != cases[i].wanted)
      g_error("%s below %s", cases[i].pattern, cases[i].dir);
    qv_glob_free(glob);
  }
}

/* Patterns that make backtracking readers run for hours. What counts is that the test ends. */
static void test_hostile(void)
{
  GString *stars = g_string_new(NULL), *deep = g_string_new(NULL), *groups = g_string_new(NULL);
  while (stars->len < QV_GLOB_BYTES_MAX - 3)
    g_string_append(stars, "a*");
  g_string_append(stars, "b");
  while (deep->len < QV_GLOB_BYTES_MAX - 6)
    g_string_append(deep, "**/a/");
  g_string_append(deep, "b");
  while (groups->len < QV_GLOB_BYTES_MAX - 16)
    g_string_append(groups, "*(a|*(a|a))");
  g_string_append(groups, "b");
  g_autofree char *as = g_strnfill(QV_PATH_BYTES_MAX, 'a');
  GString *parts = g_string_new(NULL);
  while (parts->len < QV_PATH_BYTES_MAX - 2)
    g_string_append(parts, "a/");
  g_assert_false(match(stars->str, as));
  g_assert_false(match(deep->str, parts->str));
  g_assert_false(match(groups->str, as));
  g_assert_true(qv_glob_valid(stars->str, stars->len));
  g_assert_true(qv_glob_valid(deep->str, deep->len));
  g_assert_true(qv_glob_valid(groups->str, groups->len));
  g_string_free(stars, TRUE);
  g_string_free(deep, TRUE);
  g_string_free(groups, TRUE);
  g_string_free(parts, TRUE);
}

static char *string_of(const char *quoted)
{
  json_t *value = qv_json_parse(quoted, strlen(quoted), 10000, QV_JSON_ANY, NULL);
  char *text = g_strdup(json_string_value(value));
  g_assert_nonnull(text);
  json_decref(value);
  return text;
}

/* Where the readers agree: as they say. Else as glob_choices.tsv says, which is one reader's answer. */
static void check_pair(const json_t *pair, GPtrArray *choices, guint *chosen)
{
  const char *pattern = json_string_value(json_object_get(pair, "pattern"));
  const char *path = json_string_value(json_object_get(pair, "path"));
  gboolean matched = match(pattern, path);
  if (json_is_true(json_object_get(pair, "glob_agree"))) {
    if (matched != json_is_true(json_object_get(pair, "minimatch")))
      g_error("%s against %s", pattern, path);
    return;
  }
  for (guint i = 0; i < choices->len; i++) {
    char **row = choices->pdata[i];
    g_autofree char *row_pattern = string_of(row[0]), *row_path = string_of(row[1]);
    if (strcmp(row_pattern, pattern) != 0 || strcmp(row_path, path) != 0)
      continue;
    g_assert_cmpstr(matched ? "true" : "false", ==, row[2]);
    const json_t *reader = json_object_get(pair, row[3]);
    g_assert_true(json_is_boolean(reader) && json_is_true(reader) == matched);
    ++*chosen;
    return;
  }
  g_error("%s against %s: no choice", pattern, path);
}

static void test_pairs(void)
{
  if (!vectors_here())
    return;
  g_autoptr(GPtrArray) choices = table_read("glob_choices.tsv");
  gsize n;
  g_autofree char *text = vector_read("glob/pairs.jsonl", &n);
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  guint rows = 0, chosen = 0;
  for (guint i = 0; lines[i]; i++) {
    if (!*lines[i])
      continue;
    json_t *pair = qv_json_parse(lines[i], strlen(lines[i]), 10000, QV_JSON_ANY, NULL);
    check_pair(pair, choices, &chosen);
    json_decref(pair);
    rows++;
  }
  g_assert_cmpuint(rows, ==, 148);
  g_assert_cmpuint(chosen, ==, choices->len);
  g_test_message("glob: %u pairs, %u of them by our choice; gitignore-cases.jsonl (55): not asked, that meaning was not chosen", rows, chosen);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/glob/own", test_own);
  g_test_add_func("/glob/invalid", test_invalid);
  g_test_add_func("/glob/below", test_below);
  g_test_add_func("/glob/hostile", test_hostile);
  g_test_add_func("/glob/pairs", test_pairs);
  return g_test_run();
}
