/* SPDX-License-Identifier: Apache-2.0 */
#include <glib.h>
#include <string.h>

#include "queue/keep.h"

static const struct {
  const char *json;
  QvKeep completed;
  gint64 attempts;
} cases[] = {
  { NULL, { -1, -1, 1000 }, 0 },
  { "", { -1, -1, 1000 }, 0 },
  { "not json", { -1, -1, 1000 }, 0 },
  { "[]", { -1, -1, 1000 }, 0 },
  { "{}", { -1, -1, 1000 }, 0 },
  { "{\"attempts\":3}", { -1, -1, 1000 }, 3 },
  { "{\"attempts\":-3}", { -1, -1, 1000 }, 0 },
  { "{\"attempts\":\"3\"}", { -1, -1, 1000 }, 0 },
  { "{\"attempts\":1e300}", { -1, -1, 1000 }, 0 },
  { "{\"removeOnComplete\":true}", { 0, -1, 1000 }, 0 },
  { "{\"removeOnComplete\":false}", { -1, -1, 1000 }, 0 },
  { "{\"removeOnComplete\":0}", { 0, -1, 1000 }, 0 },
  { "{\"removeOnComplete\":7}", { 7, -1, 1000 }, 0 },
  { "{\"removeOnComplete\":-7}", { -1, -1, 1000 }, 0 },
  { "{\"removeOnComplete\":7.9}", { 7, -1, 1000 }, 0 },
  { "{\"removeOnComplete\":{\"age\":3600,\"count\":1000}}", { 1000, 3600, 1000 }, 0 },
  { "{\"removeOnComplete\":{\"age\":3600}}", { -1, 3600, 1000 }, 0 },
  { "{\"removeOnComplete\":{\"age\":99999999999,\"limit\":5}}", { -1, G_MAXINT32, 5 }, 0 },
  { "{\"removeOnComplete\":{\"count\":2,\"limit\":999999}}", { 2, -1, 10000 }, 0 },
  { "{\"removeOnComplete\":\"x\",\"removeOnFail\":9}", { -1, -1, 1000 }, 0 },
};

static void test_cases(void)
{
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++) {
    QvJobOptions o;
    qv_job_options_parse(cases[i].json, cases[i].json ? strlen(cases[i].json) : 0, &o);
    if (memcmp(&o.completed, &cases[i].completed, sizeof o.completed) != 0 || o.attempts != cases[i].attempts)
      g_error("%s: count %" G_GINT64_FORMAT " age %" G_GINT64_FORMAT " limit %" G_GINT64_FORMAT " attempts %" G_GINT64_FORMAT,
              cases[i].json, o.completed.count, o.completed.age_s, o.completed.limit, o.attempts);
  }
  QvJobOptions o;
  const char *both = "{\"removeOnComplete\":1,\"removeOnFail\":{\"count\":2}}";
  qv_job_options_parse(both, strlen(both), &o);
  g_assert_cmpint(o.completed.count, ==, 1);
  g_assert_cmpint(o.failed.count, ==, 2);
}

/* Whatever came before, it says what parsing says. */
static void test_recall(void)
{
  static const char *const shapes[] = {
    "{\"attempts\":1,\"removeOnComplete\":{\"age\":3600,\"count\":1000},\"jobId\":\"%s\"}",
    "{\"jobId\":\"%s\",\"attempts\":2,\"removeOnComplete\":true}",
    "{\"jobId\":\"%s\",\"attempts\":3,\"removeOnComplete\":true}",
    "{\"jobId\":\"%sx\",\"attempts\":4}",
    "{\"jobId\":\"%s\",\"jobId\":\"1\",\"attempts\":5}", /* refused */
    "{\"x\\\"jobId\":\"%s\",\"attempts\":6}",
    "{\"removeOnFail\":{\"jobId\":\"%s\",\"count\":7},\"attempts\":7}",
    "{\"jobId\":\"%s\"",
    "{\"attempts\":8}%.0s",
  };
  static const char *const ids[] = {"a", "b", "longer-than_these", "attempts", "quo\"te", "", "\\"};
  g_auto(QvOptionsMemo) memo = { NULL };
  for (int i = 0; i < 5000; i++) {
    const char *id = ids[g_test_rand_int_range(0, G_N_ELEMENTS(ids))], *shape = shapes[g_test_rand_int_range(0, G_N_ELEMENTS(shapes))];
    QvJobOptions parsed = { 0 }, recalled = { 0 };
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    g_autofree char *json = g_strdup_printf(shape, id);
#pragma GCC diagnostic pop
    qv_job_options_parse(json, strlen(json), &parsed);
    qv_job_options_recall(&memo, json, strlen(json), id, &recalled);
    g_assert_cmpmem(&parsed, sizeof parsed, &recalled, sizeof recalled);
  }
  g_assert_nonnull(memo.rest);
  QvJobOptions none;
  qv_job_options_recall(&memo, NULL, 0, "a", &none);
  g_assert_cmpint(none.attempts, ==, 0);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/queue/keep/cases", test_cases);
  g_test_add_func("/queue/keep/recall", test_recall);
  return g_test_run();
}
