/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/warm_plan.h"

enum { MANY = 1000000 };

static void check(const QvWarmWant *wants, gsize n, guint ceiling, gint64 free_mib, const guint *wanted)
{
  guint targets[8];
  qv_warm_plan(wants, n, ceiling, free_mib, targets);
  for (gsize i = 0; i < n; i++)
    g_assert_cmpuint(targets[i], ==, wanted[i]);
}

static void test_table(void)
{
  static const QvWarmWant two[] = {{.floor = 1, .peak = 4, .need_mib = 100}, {.floor = 1, .peak = 2, .need_mib = 300}};
  check(two, 2, 0, MANY, (guint[]){1, 1});      /* no ceiling over the floor */
  check(two, 2, 4, MANY, (guint[]){2, 2});      /* in turn */
  check(two, 2, 100, MANY, (guint[]){4, 2});    /* as many as ran at once */
  check(two, 2, 100, 399, (guint[]){3, 0});     /* the large one does not fit any more */
  check(two, 2, 100, 400, (guint[]){1, 1});     /* the floors come first */
  check(two, 2, 100, 500, (guint[]){2, 1});
  check(two, 2, 100, 99, (guint[]){0, 0});
  check(two, 2, 100, -5, (guint[]){0, 0});      /* jobs have more than the budget */
  static const QvWarmWant adaptive[] = {{.floor = 0, .peak = 3, .need_mib = 1}};
  check(adaptive, 1, 2, MANY, (guint[]){2});
  check(adaptive, 1, 0, MANY, (guint[]){0});
  qv_warm_plan(NULL, 0, 5, MANY, NULL);
}

/* Whatever is wanted: never over the memory, never more than floor or peak, over the ceiling only by floors, and nothing
 * that still fits is left out. */
static void test_random(void)
{
  g_autoptr(GRand) rand = g_rand_new_with_seed(7);
  for (int round = 0; round < 20000; round++) {
    QvWarmWant wants[6];
    guint targets[6], n = g_rand_int_range(rand, 1, 7), ceiling = g_rand_int_range(rand, 0, 12), all = 0, floors = 0;
    gint64 free_mib = g_rand_int_range(rand, -100, 3000), used = 0;
    for (guint i = 0; i < n; i++)
      wants[i] = (QvWarmWant){g_rand_int_range(rand, 0, 4), g_rand_int_range(rand, 0, 6), g_rand_int_range(rand, 1, 500)};
    qv_warm_plan(wants, n, ceiling, free_mib, targets);
    for (guint i = 0; i < n; i++) {
      g_assert_cmpuint(targets[i], <=, MAX(wants[i].floor, wants[i].peak));
      used += targets[i] * wants[i].need_mib;
      all += targets[i];
      floors += MIN(targets[i], wants[i].floor);
    }
    g_assert_true(used <= MAX(free_mib, 0));
    g_assert_cmpuint(all, <=, MAX(ceiling, floors));
    for (guint i = 0; i < n; i++) {
      gboolean more = targets[i] < wants[i].floor || (all < ceiling && targets[i] < wants[i].peak);
      g_assert_true(!more || used + wants[i].need_mib > free_mib);
    }
  }
}

/* Jobs by the letter of their kind, against who has the floor afterwards; A has it first. */
static void test_vote(void)
{
  static const struct {
    const char *jobs, *floor;
  } rows[] = {{"BABABABA", "AAAAAAAA"}, {"BBABA", "ABBBB"}, {"AAAAAABBBBBBA", "AAAAAAAAAABBB"}, {"BCBCC", "ACCCC"}, {"ABBBBCCC", "AAABBBBC"}};
  for (guint row = 0; row < G_N_ELEMENTS(rows); row++) {
    char floor = 'A';
    guint votes = 1;
    for (guint i = 0; rows[row].jobs[i] != '\0'; i++) {
      if (qv_warm_vote(&votes, rows[row].jobs[i] == floor))
        floor = rows[row].jobs[i];
      g_assert_cmpuint(votes, <=, QV_WARM_VOTES_MAX);
      g_assert_cmpint(floor, ==, rows[row].floor[i]);
    }
  }
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/warm-plan/table", test_table);
  g_test_add_func("/warm-plan/random", test_random);
  g_test_add_func("/warm-plan/vote", test_vote);
  return g_test_run();
}
