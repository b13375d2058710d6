/* SPDX-License-Identifier: Apache-2.0 */
/* What a running runner shows of itself: one audit line a job, whatever the log's level, and the metrics' file, with figures
 * of what really went in and out. */
#include <glib.h>
#include <glib/gstdio.h>
#include <jansson.h>
#include <signal.h>
#include <string.h>

#include "../../unit/runner/prom.h"
#include "base/clock.h"
#include "support/loop.h"
#include "world.h"

static World *world;
static char *metrics_path;

/* The audit line of the job: exactly one. NULL: none yet. */
static json_t *audit_line(const char *job_id)
{
  g_autofree char *log = world_log(world);
  g_auto(GStrv) lines = g_strsplit(log, "\n", -1);
  json_t *found = NULL;
  for (guint i = 0; lines[i] != NULL; i++) {
    json_t *line = json_loads(lines[i], JSON_REJECT_DUPLICATES, NULL);
    /* A sanitizer that cannot look for leaks in a confined process says so in a line of its own. */
    if (lines[i][0] == '{' && line == NULL && lines[i + 1] != NULL)
      g_error("no JSON: %s", lines[i]);
    const char *event = json_string_value(json_object_get(line, "event"));
    if (g_strcmp0(event, "job") == 0 && strcmp(json_string_value(json_object_get(line, "jobId")), job_id) == 0) {
      g_assert_null(found);
      found = line;
    } else {
      json_decref(line);
    }
  }
  return found;
}

static void expect(const json_t *line, const char *name, const char *want)
{
  g_autofree char *is = json_dumps(json_object_get(line, name), JSON_ENCODE_ANY | JSON_COMPACT);
  if (strcmp(is, want) != 0)
    g_error("%s is %s, not %s", name, is, want);
}

static double metric(const char *sample)
{
  g_autofree char *text = NULL, *why = NULL;
  if (!g_file_get_contents(metrics_path, &text, NULL, NULL))
    return -1;
  g_autoptr(Prom) prom = prom_parse(text, &why);
  if (prom == NULL)
    g_error("%s, in:\n%s", why, text);
  return prom_value(prom, sample);
}

static void test_success(void)
{
  g_autoptr(QvJob) job = world_job(world, "echo said");
  char sha256[65];
  world_add(world, job, sha256);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  json_t *line = audit_line(job->job_id);
  g_assert_nonnull(line);
  g_autofree char *tenant = g_strdup_printf("\"%s\"", job->tenant_id), *digest = g_strdup_printf("\"%s\"", job->image.digest);
  g_autofree char *sha = g_strdup_printf("\"%s\"", sha256), *runner = g_strdup_printf("\"%s\"", result->runner_id);
  g_autofree char *backend = g_strdup_printf("\"%s\"", row->name);
  const char *const want[] = {"status", "\"succeeded\"", "code", "null", "tenantId", tenant, "digest", digest, "jobSha256", sha,
                              "runnerId", runner, "backend", backend, "pool", "\"default\"", "oom", "false", "egress", "null"};
  for (gsize i = 0; i < G_N_ELEMENTS(want); i += 2)
    expect(line, want[i], want[i + 1]);
  static const char *const more_than_nothing[] = {"startedAt", "finishedAt", "wallMs", "bytesIn", "bytesOut"};
  for (gsize i = 0; i < G_N_ELEMENTS(more_than_nothing); i++)
    g_assert_cmpint(json_integer_value(json_object_get(line, more_than_nothing[i])), >, 0);
  g_assert_cmpint(json_integer_value(json_object_get(line, "startedAt")), ==, result->started_at);
  g_assert_cmpint(json_integer_value(json_object_get(line, "bytesOut")), ==, result->payload->size);
  json_decref(line);
  QV_TEST_WAIT(metric("quavon_jobs_total{status=\"succeeded\",code=\"none\"}") == 1);
  QV_TEST_WAIT(metric("quavon_jobs_running") == 0);
  g_assert_cmpfloat(metric("quavon_job_duration_seconds_count"), ==, 1);
  g_assert_cmpfloat(metric("quavon_smoke_passed"), ==, 1);
}

/* Plain bytes of the payload, as they lie sealed in Valkey. */
static gint64 stored_bytes(const QvResult *result)
{
  gint64 sum = 0;
  for (guint i = 0;; i++) {
    g_autofree char *key = qv_blob_key(WORLD_PREFIX, result->payload->blob_id, i);
    g_autofree char *length = qv_test_valkey_cli(world->valkey, "STRLEN", key, NULL);
    gint64 n = g_ascii_strtoll(length, NULL, 10);
    if (n == 0)
      return sum;
    sum += n - QV_CHUNK_IV_BYTES - QV_CHUNK_TAG_BYTES;
  }
}

/* Bytes in are those of the snapshots that were put into Valkey, bytes out those that lie there afterwards: several chunks. */
static void test_bytes(void)
{
  g_autofree char *letters = g_malloc0(300001);
  for (gsize i = 0; i < 300000; i++)
    letters[i] = (char)g_test_rand_int_range('a', 'z');
  const char *base_files[] = {"hello.txt", letters, NULL}, *overlay_files[] = {"more.txt", letters, NULL};
  g_autoptr(GBytes) base = world_snapshot(base_files);
  g_autoptr(GBytes) overlay = world_snapshot(overlay_files);
  g_autoptr(QvJob) job = world_job(world, "test -s more.txt && mkdir out && head -c 3000000 /dev/urandom > out/noise");
  char sha256[65];
  g_strfreev(job->artefacts);
  job->artefacts = g_strdupv((char *[]){(char *)"out/*", NULL});
  world_put_base(world, job, base);
  world_put_overlay(world, job, overlay);
  double in = metric("quavon_job_bytes_in_total"), out = metric("quavon_job_bytes_out_total");
  world_add(world, job, sha256);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  gsize put = g_bytes_get_size(base) + g_bytes_get_size(overlay);
  gint64 stored = stored_bytes(result);
  g_assert_cmpuint(put, >, 300000);
  g_assert_cmpint(stored, >, 3000000);
  json_t *line = audit_line(job->job_id);
  g_assert_cmpint(json_integer_value(json_object_get(line, "bytesIn")), ==, put);
  g_assert_cmpint(json_integer_value(json_object_get(line, "bytesOut")), ==, stored);
  json_decref(line);
  QV_TEST_WAIT(metric("quavon_job_bytes_out_total") > out);
  g_assert_cmpfloat(metric("quavon_job_bytes_in_total") - in, ==, put);
  g_assert_cmpfloat(metric("quavon_job_bytes_out_total") - out, ==, stored);
}

/* Read from the sandbox's control group, which an engine removes at the end: of a job that is over at once there may be no figure. */
static void test_memory(void)
{
  static const char succeeded[] = "quavon_jobs_total{status=\"succeeded\",code=\"none\"}";
  json_int_t bytes = 0;
  QV_TEST_WAIT(metric("quavon_jobs_running") == 0);
  double before = MAX(metric(succeeded), 0); /* no figure: there was none yet */
  guint jobs_n = 0;
  for (guint seconds = 0; bytes == 0; seconds = 2 * seconds + 1, jobs_n++) {
    g_assert_cmpuint(seconds, <, 120);
    g_autofree char *script = g_strdup_printf("sleep %u", seconds);
    g_autoptr(QvJob) job = world_job(world, script);
    job->given.wall_ms = 600000;
    char sha256[65];
    world_add(world, job, sha256);
    qv_result_free(world_result(world, job, sha256));
    json_t *line = audit_line(job->job_id);
    bytes = json_integer_value(json_object_get(line, "maxMemoryBytes"));
    json_decref(line);
  }
  g_assert_cmpint(bytes, >, 64 * 1024);
  QV_TEST_WAIT(metric(succeeded) - before == jobs_n);
}

static void test_rejected(void)
{
  g_autofree char *id = g_strdup("00000000-0000-4000-8000-00000000000f"), *reason = NULL;
  world_add_raw(world, id, "{\"no\":\"envelope\"}", 17);
  g_assert_cmpint(world_wait(world, id, &reason), ==, QV_JOB_FAILED);
  json_t *line = audit_line(id);
  g_assert_nonnull(line);
  expect(line, "status", "\"rejected\"");
  expect(line, "code", "\"malformed\"");
  expect(line, "tenantId", "null");
  g_assert_true(json_is_string(json_object_get(line, "detail")));
  json_decref(line);
  QV_TEST_WAIT(metric("quavon_jobs_total{status=\"rejected\",code=\"malformed\"}") == 1);
}

/* Running jobs and the queue's depth, while they are so. */
static void test_busy(void)
{
  g_autoptr(QvJob) first = world_job(world, "sleep 1000"), second = world_job(world, "true");
  first->given.wall_ms = 600000;
  char sha256[65];
  world_add(world, first, sha256);
  world_await_state(world, first->job_id, QV_JOB_ACTIVE);
  world_add(world, second, sha256);
  QV_TEST_WAIT(metric("quavon_jobs_running") == 1 && metric("quavon_queue_waiting") == 1);
  world_cancel(world, first);
  g_autofree char *text = NULL;
  g_assert_cmpint(world_wait(world, second->job_id, &text), ==, QV_JOB_COMPLETED);
  QV_TEST_WAIT(metric("quavon_jobs_total{status=\"cancelled\",code=\"cancelled\"}") == 1);
  QV_TEST_WAIT(metric("quavon_queue_waiting") == 0);
}

static void test_end(void)
{
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  g_assert_false(g_file_test(metrics_path, G_FILE_TEST_EXISTS));
  world_expect_clean(world);
}

int main(int argc, char **argv)
{
  if (!backend_select(argc, argv))
    return 0;
  g_test_init(&argc, &argv, NULL);
  world = world_new(QV_TEST_VALKEY_PLAIN);
  if (world == NULL)
    return 77;
  world->keeps_input = TRUE;
  metrics_path = g_build_filename(world->dir, "quavon.prom", NULL);
  g_autofree char *metrics = g_strconcat("QUAVON_METRICS_FILE=", metrics_path, NULL);
  world_start(world, (const char *const[]){metrics, "QUAVON_SANDBOX_CONCURRENCY=1", "QUAVON_LOG_FORMAT=json",
                                           "QUAVON_LOG_LEVEL=warning", NULL});
  g_test_add_func("/runner/seeing/success", test_success);
  g_test_add_func("/runner/seeing/memory", test_memory);
  if (ON(ON_RUNSC)) { /* what depends on no backend */
    g_test_add_func("/runner/seeing/bytes", test_bytes);
    g_test_add_func("/runner/seeing/rejected", test_rejected);
    g_test_add_func("/runner/seeing/busy", test_busy);
  }
  g_test_add_func("/runner/seeing/end", test_end);
  int status = g_test_run();
  world_free(world);
  backend_finish();
  g_free(metrics_path);
  return status;
}
