/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics' text by a strict reader, what is counted, and that rules and dashboard ask for nothing that is not there. */
#include <glib.h>
#include <glib/gstdio.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "prom.h"
#include "runner/metrics_file.h"

static Prom *parse(const QvMetrics *metrics, const QvMetricsNow *now)
{
  g_autofree char *text = qv_metrics_format(metrics, now), *why = NULL;
  Prom *prom = prom_parse(text, &why);
  if (prom == NULL)
    g_error("%s, in:\n%s", why, text);
  return prom;
}

static void expect(const Prom *prom, const char *sample, double want)
{
  double is = prom_value(prom, sample);
  if (!(is == want) && !(isnan(is) && isnan(want)))
    g_error("%s is %g, not %g", sample, is, want);
}

static void end_job(QvMetrics *metrics, const char *status, const char *code, gint64 wait_ms, gint64 wall_ms)
{
  QvJob job = {.base = {.size = 100}};
  QvAdmission admission = {.job = &job};
  QvHostReport host = {.user_ms = 1500, .sys_ms = 500, .payload_bytes = 7, .oom = g_strcmp0(code, "memory") == 0};
  QvEgressUsage egress = {.bytes_up = 3, .bytes_down = 4, .refused = 1};
  QvAudit audit = {.admission = &admission, .status = status, .code = code, .added_at = wait_ms >= 0 ? 1000 : 0,
                   .taken_at = 1000 + wait_ms, .wall_ms = wall_ms, .host = wall_ms >= 0 ? &host : NULL,
                   .has_egress = TRUE, .egress = &egress, .egress_n = wall_ms >= 0 ? 1 : 0};
  qv_metrics_job(metrics, &audit);
}

static void on_problems(gpointer data) {}

static void test_counts(void)
{
  g_autoptr(QvMetrics) metrics = qv_metrics_new("0.1.0", "default", "r-1", "runsc", 5000);
  QvMetricsNow now = {.at_ms = 1700000000500, .waiting = -1};
  g_autoptr(Prom) fresh = parse(metrics, &now);
  expect(fresh, "quavon_jobs_total{status=\"succeeded\",code=\"none\"}", 0);
  expect(fresh, "quavon_jobs_total{status=\"rejected\",code=\"bad_signature\"}", 0);
  expect(fresh, "quavon_jobs_total{status=\"stalled\",code=\"stalled\"}", 0);
  expect(fresh, "quavon_queue_waiting", NAN);
  expect(fresh, "quavon_smoke_age_seconds", NAN);
  expect(fresh, "quavon_smoke_passed", 0);
  expect(fresh, "quavon_job_wait_seconds_bucket{le=\"+Inf\"}", 0);
  expect(fresh, "quavon_runner_info{version=\"0.1.0\",pool=\"default\",runner_id=\"r-1\",backend=\"runsc\"}", 1);
  expect(fresh, "quavon_written_time_seconds", 1700000000.5);

  end_job(metrics, "succeeded", NULL, 100, 2000);
  end_job(metrics, "succeeded", NULL, 101, 5000);
  end_job(metrics, "failed", "memory", 7200000, 7200000);
  end_job(metrics, "rejected", "expired", -1, -1);
  end_job(metrics, "rejected", "of a later version", -1, -1);
  g_autoptr(QvProblems) problems = qv_problems_new(on_problems, NULL);
  qv_problems_set(problems, QV_PROBLEM_DISK, NULL, "full");
  QvSmokeReport smoke = {.at = 1700000000500 - 90000, .passed = TRUE};
  now = (QvMetricsNow){.at_ms = 1700000000500, .running = 1, .concurrency = 2, .waiting = 3, .valkey = TRUE, .fetching = TRUE,
                       .problems = problems, .smoke = &smoke};
  g_autoptr(Prom) prom = parse(metrics, &now);
  expect(prom, "quavon_jobs_total{status=\"succeeded\",code=\"none\"}", 2);
  expect(prom, "quavon_jobs_total{status=\"failed\",code=\"memory\"}", 1);
  expect(prom, "quavon_jobs_total{status=\"rejected\",code=\"expired\"}", 1);
  expect(prom, "quavon_job_wait_seconds_bucket{le=\"0.1\"}", 1);
  expect(prom, "quavon_job_wait_seconds_bucket{le=\"0.5\"}", 2);
  expect(prom, "quavon_job_wait_seconds_bucket{le=\"900\"}", 2);
  expect(prom, "quavon_job_wait_seconds_count", 3);
  expect(prom, "quavon_job_wait_seconds_sum", 7200.201);
  expect(prom, "quavon_job_duration_seconds_bucket{le=\"5\"}", 2);
  expect(prom, "quavon_job_duration_seconds_count", 3);
  expect(prom, "quavon_job_cpu_seconds_total", 6);
  expect(prom, "quavon_job_oom_total", 1);
  expect(prom, "quavon_job_bytes_in_total", 300);
  expect(prom, "quavon_job_bytes_out_total", 21);
  expect(prom, "quavon_egress_bytes_down_total", 12);
  expect(prom, "quavon_egress_refused_total", 3);
  expect(prom, "quavon_queue_waiting", 3);
  expect(prom, "quavon_smoke_age_seconds", 90);
  expect(prom, "quavon_problem{kind=\"disk\"}", 1);
  expect(prom, "quavon_problem{kind=\"sweep\"}", 0);
}

/* The reader does refuse. */
static void test_reader(void)
{
  static const char *const bad[] = {
    "", "x 1\n", "# HELP x y\nx 1\n", "# HELP x y\n# TYPE x gauge\nx 1", "# HELP x y\n# TYPE x gauge\nx 1 \n",
    "# HELP x y\n# TYPE x gauge\nx one\n", "# HELP x y\n# TYPE x gauge\nx 1\nx 2\n", "# HELP x y\n# TYPE x counter\nx 1\n",
    "# HELP x y\n# TYPE x gauge\ny 1\n", "# HELP x y\n# TYPE x gauge\nx{a=b} 1\n", "# HELP x y\n# TYPE x gauge\nx{a=\"b} 1\n",
    "# HELP x y\n# TYPE x gauge\nx 1\n# HELP z y\n# TYPE z gauge\nz 1\n# HELP x y\n# TYPE x gauge\nx{a=\"b\"} 1\n",
    "# HELP x y\n# TYPE x histogram\nx_bucket{le=\"1\"} 2\nx_bucket{le=\"+Inf\"} 1\nx_sum 1\nx_count 1\n",
    "# HELP x y\n# TYPE x histogram\nx_bucket{le=\"1\"} 2\nx_sum 1\nx_count 2\n",
    "# HELP x y\n# TYPE x histogram\nx_bucket{le=\"+Inf\"} 2\nx_sum 1\nx_count 3\n", "# remark\n", "# HELP x y\n# TYPE x gauge\n\nx 1\n",
  };
  for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
    g_autofree char *why = NULL;
    if (prom_parse(bad[i], &why) != NULL)
      g_error("accepted: %s", bad[i]);
    g_assert_nonnull(why);
  }
}

static char *source_file(const char *name)
{
  g_autofree char *path = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "deploy", "prometheus", name, NULL);
  char *text = NULL;
  g_autoptr(GError) error = NULL;
  g_file_get_contents(path, &text, NULL, &error);
  g_assert_no_error(error);
  return text;
}

static void test_deployed(void)
{
  static const char *const names[] = {"rules.yml", "dashboard.json"};
  g_autoptr(QvMetrics) metrics = qv_metrics_new("0.1.0", "default", "r-1", "runsc", 5000);
  QvSmokeReport smoke = {.at = 1, .passed = TRUE};
  QvMetricsNow now = {.at_ms = 1700000000500, .smoke = &smoke};
  g_autoptr(Prom) prom = parse(metrics, &now);
  for (gsize i = 0; i < G_N_ELEMENTS(names); i++) {
    g_autofree char *text = source_file(names[i]);
    guint found = 0;
    for (const char *at = text; (at = strstr(at, "quavon_")) != NULL; found++) {
      gsize n = 0;
      while (g_ascii_isalnum(at[n]) || at[n] == '_')
        n++;
      g_autofree char *name = g_strndup(at, n);
      if (!prom_has(prom, name))
        g_error("%s asks for %s, which is not written", names[i], name);
      at += n;
    }
    g_assert_cmpuint(found, >, 8);
  }
  g_autofree char *dashboard = source_file("dashboard.json");
  json_t *json = json_loads(dashboard, JSON_REJECT_DUPLICATES, NULL);
  g_assert_cmpuint(json_array_size(json_object_get(json, "panels")), >, 5);
  json_decref(json);
}

static void test_write(void)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *dir = g_dir_make_tmp("qv-metrics-XXXXXX", &error);
  g_autofree char *path = g_build_filename(dir, "quavon.prom", NULL);
  mode_t before = umask(0077); /* as the unit has it */
  for (int i = 0; i < 2; i++) {
    g_autofree char *text = NULL;
    g_assert_true(qv_metrics_file_write(path, i == 0 ? "a long first text\n" : "b\n", &error));
    g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
    g_assert_cmpstr(text, ==, i == 0 ? "a long first text\n" : "b\n");
    struct stat st;
    g_assert_cmpint(stat(path, &st), ==, 0);
    g_assert_cmpint(st.st_mode & 07777, ==, 0644);
  }
  umask(before);
  g_autoptr(GDir) listed = g_dir_open(dir, 0, NULL);
  g_assert_cmpstr(g_dir_read_name(listed), ==, "quavon.prom");
  g_assert_null(g_dir_read_name(listed));
  g_unlink(path);
  g_rmdir(dir);
  g_assert_false(qv_metrics_file_write(path, "x\n", &error));
  g_assert_nonnull(error);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/metrics/counts", test_counts);
  g_test_add_func("/metrics/reader", test_reader);
  g_test_add_func("/metrics/deployed", test_deployed);
  g_test_add_func("/metrics/write", test_write);
  return g_test_run();
}
