/* SPDX-License-Identifier: Apache-2.0 */
/* The list of problems: kinds and ids, what a sweep may clear, the texts of the health record. */
#include <glib.h>
#include <string.h>

#include "runner/problems.h"

static void count(gpointer data)
{
  ++*(guint *)data;
}

static void test_set_and_clear(void)
{
  guint changes = 0;
  g_autoptr(QvProblems) problems = qv_problems_new(count, &changes);
  g_assert_false(qv_problems_stop(problems));
  qv_problems_clear(problems, QV_PROBLEM_CLOCK, NULL);
  g_assert_cmpuint(changes, ==, 0);
  qv_problems_set(problems, QV_PROBLEM_CLOCK, NULL, "9 s");
  g_assert_cmpuint(changes, ==, 1);
  g_assert_false(qv_problems_stop(problems));
  qv_problems_set(problems, QV_PROBLEM_CLOCK, NULL, "9 s");
  g_assert_cmpuint(changes, ==, 1);
  qv_problems_set(problems, QV_PROBLEM_CLOCK, NULL, "10 s");
  g_assert_cmpuint(changes, ==, 2);
  qv_problems_set(problems, QV_PROBLEM_SWEEP, "a", "of a");
  qv_problems_set(problems, QV_PROBLEM_SWEEP, "b", "of b");
  g_assert_true(qv_problems_stop(problems));
  g_auto(GStrv) texts = qv_problems_texts(problems);
  g_assert_cmpstr(texts[0], ==, "clock: 10 s");
  g_assert_cmpstr(texts[1], ==, "sweep: of a");
  g_assert_cmpstr(texts[2], ==, "sweep: of b");
  g_assert_null(texts[3]);
  qv_problems_clear(problems, QV_PROBLEM_SWEEP, "a");
  g_assert_true(qv_problems_any(problems, QV_PROBLEM_SWEEP));
  qv_problems_clear(problems, QV_PROBLEM_SWEEP, "b");
  g_assert_false(qv_problems_stop(problems));
  g_assert_true(qv_problems_any(problems, QV_PROBLEM_CLOCK));
}

/* A sweep of everything speaks for what was there when it began, and for nothing that was told since. */
static void test_sweep_speaks_for_the_past(void)
{
  guint changes = 0;
  g_autoptr(QvProblems) problems = qv_problems_new(count, &changes);
  qv_problems_set(problems, QV_PROBLEM_SWEEP, "old", "of old");
  qv_problems_set(problems, QV_PROBLEM_SWEEP, "again", "of again");
  qv_problems_set(problems, QV_PROBLEM_SMOKE, NULL, "failed");
  guint64 mark = qv_problems_mark(problems);
  qv_problems_set(problems, QV_PROBLEM_SWEEP, "new", "of new");
  qv_problems_set(problems, QV_PROBLEM_SWEEP, "again", "of again");
  g_assert_false(qv_problems_clear_until(problems, QV_PROBLEM_SWEEP, mark));
  g_auto(GStrv) texts = qv_problems_texts(problems);
  g_assert_cmpuint(g_strv_length(texts), ==, 3);
  g_assert_false(g_strv_contains((const char *const *)texts, "sweep: of old"));
  g_assert_true(g_strv_contains((const char *const *)texts, "sweep: of new"));
  g_assert_true(g_strv_contains((const char *const *)texts, "sweep: of again"));
  g_assert_true(g_strv_contains((const char *const *)texts, "smoke: failed"));
  g_assert_true(qv_problems_clear_until(problems, QV_PROBLEM_SWEEP, qv_problems_mark(problems)));
  g_assert_true(qv_problems_stop(problems));
}

static void test_texts(void)
{
  guint changes = 0;
  g_autoptr(QvProblems) problems = qv_problems_new(count, &changes);
  g_autofree char *umlauts = g_strnfill(3, 'x');
  g_autoptr(GString) longer = g_string_new(umlauts);
  while (longer->len < 700)
    g_string_append(longer, "\xc3\xbc");
  qv_problems_set(problems, QV_PROBLEM_ENGINE, NULL, longer->str);
  qv_problems_set(problems, QV_PROBLEM_DISK, NULL, "a\nb\x1b[0m\xff");
  for (guint i = 0; i < 40; i++) {
    g_autofree char *id = g_strdup_printf("%u", i);
    qv_problems_set(problems, QV_PROBLEM_SWEEP, id, id);
  }
  g_auto(GStrv) texts = qv_problems_texts(problems);
  g_assert_cmpuint(g_strv_length(texts), ==, 32);
  g_assert_cmpuint(strlen(texts[0]), <=, 512);
  g_assert_cmpuint(strlen(texts[0]), >, 508);
  g_assert_true(g_utf8_validate(texts[0], -1, NULL));
  g_assert_cmpstr(texts[1], ==, "disk: a b [0m\xef\xbf\xbd");
}

/* The oldest of those that stop fetching; the others are no reason. */
static void test_why(void)
{
  guint changes = 0;
  g_autoptr(QvProblems) problems = qv_problems_new(count, &changes);
  g_assert_null(qv_problems_why(problems));
  qv_problems_set(problems, QV_PROBLEM_CLOCK, NULL, "the clock");
  g_assert_null(qv_problems_why(problems));
  qv_problems_set(problems, QV_PROBLEM_SMOKE, NULL, "the\nsmoke");
  qv_problems_set(problems, QV_PROBLEM_SWEEP, "1", "the sweep");
  g_autofree char *why = qv_problems_why(problems);
  g_assert_cmpstr(why, ==, "the smoke");
  qv_problems_clear(problems, QV_PROBLEM_SMOKE, NULL);
  g_autofree char *next = qv_problems_why(problems);
  g_assert_cmpstr(next, ==, "the sweep");
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/problems/set-and-clear", test_set_and_clear);
  g_test_add_func("/problems/sweep-speaks-for-the-past", test_sweep_speaks_for_the_past);
  g_test_add_func("/problems/texts", test_texts);
  g_test_add_func("/problems/why", test_why);
  return g_test_run();
}
