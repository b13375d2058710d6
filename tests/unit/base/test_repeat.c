/* SPDX-License-Identifier: Apache-2.0 */
/* What comes again and again, by a clock of the test's: said first, when it reads otherwise, and once in a while. */
#include "base/repeat.h"

enum { BEGIN_MS = 1000, EVERY_MS = 2000 };

static void expect(QvRepeat *repeat, const char *what, gint64 after_ms, gint wanted)
{
  guint unsaid = 99;
  gboolean due = qv_repeat_due(repeat, what, BEGIN_MS + after_ms, &unsaid);
  g_assert_cmpint(due, ==, wanted >= 0);
  g_assert_cmpuint(unsaid, ==, due ? (guint)wanted : 99);
}

enum { NOT = -1 };

static void test_same(void)
{
  QvRepeat repeat = {0};
  expect(&repeat, "away", 0, 0);
  for (gint64 at = EVERY_MS; at < QV_REPEAT_MS; at += EVERY_MS)
    expect(&repeat, "away", at, NOT);
  expect(&repeat, "away", QV_REPEAT_MS, 29);
  expect(&repeat, "away", 2 * QV_REPEAT_MS - 1, NOT);
  g_assert_cmpuint(qv_repeat_clear(&repeat), ==, 1);
  /* Over, and there again within the same minute. */
  expect(&repeat, "away", 2 * QV_REPEAT_MS, 0);
  g_assert_cmpuint(qv_repeat_clear(&repeat), ==, 0);
}

static void test_change(void)
{
  QvRepeat repeat = {0};
  expect(&repeat, "refused", 0, 0);
  expect(&repeat, "refused", 10, NOT);
  expect(&repeat, "reset", 20, 1);
  expect(&repeat, "reset", QV_REPEAT_MS, NOT);
  expect(&repeat, "reset", QV_REPEAT_MS + 20, 1);
  qv_repeat_clear(&repeat);
}

/* A reason that never reads the same is held down as well. */
static void test_changes(void)
{
  QvRepeat repeat = {0};
  guint said = 0, unsaid = 0, unsaid_all = 0, n = 0;
  for (gint64 at = 0; at < 10 * QV_REPEAT_MS; at += EVERY_MS, n++) {
    if (qv_repeat_due(&repeat, n % 2 == 0 ? "refused" : "reset", BEGIN_MS + at, &unsaid)) {
      said++;
      unsaid_all += unsaid;
    }
  }
  g_assert_cmpuint(said, ==, 10 * QV_REPEAT_CHANGES);
  unsaid_all += qv_repeat_clear(&repeat);
  g_assert_cmpuint(said + unsaid_all, ==, n);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/repeat/same", test_same);
  g_test_add_func("/repeat/change", test_change);
  g_test_add_func("/repeat/changes", test_changes);
  return g_test_run();
}
