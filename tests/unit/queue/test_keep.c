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

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/queue/keep/cases", test_cases);
  return g_test_run();
}
