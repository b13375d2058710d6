/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/progress.h"

#include <string.h>

static void round_trip(QvRunProgress in, const char *expected)
{
  g_autofree char *text = qv_run_progress_format(&in);
  g_assert_cmpstr(text, ==, expected);
  QvRunProgress out;
  g_assert_true(qv_run_progress_parse(text, strlen(text), &out));
  g_assert_cmpint(out.stage, ==, in.stage);
  g_assert_cmpuint(out.step, ==, in.step);
  g_assert_cmpuint(out.steps_n, ==, in.steps_n);
  g_assert_cmpint(out.elapsed_ms, ==, in.elapsed_ms);
}

static void test_stages(void)
{
  round_trip((QvRunProgress){.stage = QV_RUN_STAGE_PREPARING}, "{\"stage\":\"preparing\",\"elapsedMs\":0}");
  round_trip((QvRunProgress){.stage = QV_RUN_STAGE_SETUP, .name = "install", .elapsed_ms = 7},
             "{\"stage\":\"setup\",\"name\":\"install\",\"elapsedMs\":7}");
  round_trip((QvRunProgress){.stage = QV_RUN_STAGE_STEP, .step = 2, .steps_n = 3, .name = "unit-tests", .elapsed_ms = 12000},
             "{\"stage\":\"step\",\"step\":2,\"steps\":3,\"name\":\"unit-tests\",\"elapsedMs\":12000}");
  round_trip((QvRunProgress){.stage = QV_RUN_STAGE_COLLECTING, .elapsed_ms = 1}, "{\"stage\":\"collecting\",\"elapsedMs\":1}");
}

/* Anybody who can write to the queue can write a progress. */
static void test_refused(void)
{
  static const char *const texts[] = {"", "1", "null", "[]", "{}", "{\"stage\":\"step\"}", "{\"stage\":1,\"elapsedMs\":1}",
    "{\"stage\":\"step\",\"step\":0,\"steps\":3,\"elapsedMs\":1}", "{\"stage\":\"step\",\"step\":4,\"steps\":3,\"elapsedMs\":1}",
    "{\"stage\":\"step\",\"step\":1,\"steps\":100000,\"elapsedMs\":1}", "{\"stage\":\"setup\",\"elapsedMs\":-1}",
    "{\"stage\":\"setup\",\"elapsedMs\":\"1\"}", "{\"stage\":\"gone\",\"elapsedMs\":1}", "{\"stage\":\"setup\",\"elapsedMs\":1",
    "{\"phase\":\"running\",\"members\":2}"};
  for (gsize i = 0; i < G_N_ELEMENTS(texts); i++) {
    QvRunProgress out = {.step = 77};
    g_assert_false(qv_run_progress_parse(texts[i], strlen(texts[i]), &out));
    g_assert_cmpuint(out.step, ==, 77);
  }
  g_autofree char *longer = g_strnfill(5000, ' ');
  memcpy(longer, "{\"stage\":\"setup\",\"elapsedMs\":1}", 31);
  QvRunProgress out;
  g_assert_false(qv_run_progress_parse(longer, 5000, &out));
  g_assert_true(qv_run_progress_parse(longer, 1024, &out));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/protocol/progress/stages", test_stages);
  g_test_add_func("/protocol/progress/refused", test_refused);
  return g_test_run();
}
