/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON between processes, round trip and refusals; and the way from a run's end to its signed result. */
#include <glib.h>
#include <string.h>

#include "base/error.h"
#include "protocol/result.h"
#include "runner/job_result.h"
#include "runner/setup.h"

static QvJob *make_job(void)
{
  QvJob *job = qv_job_new();
  g_strlcpy(job->job_id, "01234567-89ab-cdef-0123-456789abcdef", sizeof job->job_id);
  job->tenant_id = g_strdup("tenant");
  job->pool = g_strdup("default");
  job->kind = g_strdup("check");
  g_strfreev(job->backends);
  job->backends = g_strdupv((char *[]){(char *)"runsc", NULL});
  job->image.name = g_strdup("base");
  job->image.digest = g_strconcat("sha256:", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", NULL);
  qv_blob_id_format(job->job_id, "base", job->base.blob_id);
  job->base.size = 5;
  job->base.chunks = 1;
  memset(job->base.sha256, 'a', 64);
  memset(job->base.tree_sha256, 'b', 64);
  job->run = g_new0(QvStep, 1);
  job->run_n = 1;
  job->run[0].name = g_strdup("step");
  job->run[0].argv = g_strdupv((char *[]){(char *)"true", NULL});
  job->issued_at = 1000;
  job->not_after = 2000;
  QvLimitsPolicy policy;
  qv_limits_policy_standard(&policy, 2);
  job->given.memory_mib = 300;
  qv_limits_resolve(&policy, &job->given, &job->limits);
  return job;
}

static void test_setup(void)
{
  QvSetup setup = {.place = {(char *)"runsc", (char *)"/state", (char *)"id", (char *)"runsc"},
                   .job = make_job(),
                   .sandbox_id = (char *)"3f0c",
                   .rootfs_file = (char *)"/images/x.erofs",
                   .egress_proxy = (char *)"/run/proxy.sock",
                   .ca_pem = (char *)"line\nline\n",
                   .live = TRUE};
  gsize n;
  g_autofree char *text = qv_setup_format(&setup, &n);
  g_autoptr(GError) error = NULL;
  g_autoptr(QvSetup) back = qv_setup_parse(text, n, &error);
  g_assert_no_error(error);
  g_assert_cmpstr(back->place.state_dir, ==, "/state");
  g_assert_cmpstr(back->sandbox_id, ==, "3f0c");
  g_assert_cmpstr(back->egress_proxy, ==, "/run/proxy.sock");
  g_assert_cmpstr(back->ca_pem, ==, "line\nline\n");
  g_assert_cmpstr(back->rootfs_file, ==, "/images/x.erofs");
  g_assert_true(back->live);
  g_assert_cmpstr(back->job->run[0].argv[0], ==, "true");
  g_assert_cmpmem(&back->job->limits, sizeof(QvLimits), &setup.job->limits, sizeof(QvLimits));
  qv_job_free(setup.job);
  for (gsize i = 0; i < n; i += 7) {
    g_autoptr(GError) cause = NULL;
    g_assert_null(qv_setup_parse(text, i, &cause));
    g_assert_error(cause, QV_ERROR, QV_ERROR_FORMAT);
  }
}

static void test_warm_order(void)
{
  QvWarmOrder order = {.place = {(char *)"runsc", (char *)"/s", (char *)"id", (char *)"runsc"},
                       .sandbox_id = (char *)"3f0c",
                       .kind = {.image_digest = (char *)"sha256:1", .limits = {1, 2, 3, 4}}};
  for (int file = 0; file <= 1; file++) {
    order.kind.rootfs_file = file ? (char *)"/x.erofs" : NULL;
    gsize n;
    g_autofree char *text = qv_warm_order_format(&order, &n);
    g_autoptr(GError) error = NULL;
    g_autoptr(QvWarmOrder) back = qv_warm_order_parse(text, n, &error);
    g_assert_no_error(error);
    g_assert_cmpstr(back->sandbox_id, ==, "3f0c");
    g_assert_cmpstr(back->place.state_dir, ==, "/s");
    g_assert_true(qv_box_kind_equal(&back->kind, &order.kind));
    for (gsize i = 0; i < n; i++)
      g_assert_null(qv_warm_order_parse(text, i, NULL));
  }
}

/* Each part of a kind counts. */
static void test_box_kind(void)
{
  const QvBoxKind kind = {.rootfs_file = (char *)"/x", .image_digest = (char *)"sha256:1", .limits = {1, 2, 3, 4}};
  QvBoxKind others[] = {kind, kind, kind, kind, kind, kind, kind};
  others[0].rootfs_file = (char *)"/y";
  others[1].rootfs_file = NULL;
  others[2].image_digest = (char *)"sha256:2";
  others[3].limits.memory_mib++;
  others[4].limits.work_mib++;
  others[5].limits.milli_cpus++;
  others[6].limits.pids++;
  g_assert_true(qv_box_kind_equal(&kind, &kind));
  for (gsize i = 0; i < G_N_ELEMENTS(others); i++)
    g_assert_false(qv_box_kind_equal(&kind, &others[i]));
}

static void test_host(void)
{
  QvHostReport report = {.end = QV_HOST_OOM, .user_ms = 1, .sys_ms = 2, .max_memory_bytes = 3, .oom = TRUE}, back;
  gsize n;
  g_autofree char *text = qv_host_report_format(&report, &n);
  g_assert_true(qv_host_report_parse(text, n, &back, NULL));
  g_assert_cmpmem(&report, sizeof report, &back, sizeof back);
  static const char *const bad[] = {
    "{}", "[]", "",
    "{\"end\":\"?\",\"userMs\":1,\"sysMs\":2,\"maxMemoryBytes\":3,\"oom\":true,\"pids\":false,\"payloadBytes\":0,\"payloadSha256\":\"\"}",
    "{\"end\":\"oom\",\"userMs\":-1,\"sysMs\":2,\"maxMemoryBytes\":3,\"oom\":true,\"pids\":false,\"payloadBytes\":0,\"payloadSha256\":\"\"}",
    "{\"end\":\"oom\",\"userMs\":1,\"sysMs\":2,\"maxMemoryBytes\":3,\"oom\":true,\"pids\":false,\"payloadBytes\":5,\"payloadSha256\":\"\"}"};
  for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
    g_autoptr(GError) error = NULL;
    g_assert_false(qv_host_report_parse(bad[i], strlen(bad[i]), &back, &error));
    g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
  }
}

static void test_sweep_order(void)
{
  QvSweepOrder order = {.place = {(char *)"runsc", (char *)"/s", (char *)"id", (char *)"runsc"}}, back = {0};
  g_autofree char *all = qv_sweep_order_format(&order);
  g_assert_true(qv_sweep_order_parse(all, &back, NULL));
  g_assert_null(back.sandbox_id);
  g_assert_null(back.trial.rootfs_file);
  g_assert_null(back.trial.digests[0]);
  g_assert_null(back.place.docker_socket);
  qv_sweep_order_clear(&back);
  order.sandbox_id = (char *)"one";
  const char *const digests[] = {"sha256:1", "sha256:2", NULL};
  order.trial = (QvTrialImages){.rootfs_file = (char *)"/x", .digests = (char **)digests};
  order.place.docker_socket = (char *)"/d.sock";
  order.place.engine = (char *)"{\"version\":\"26\"}";
  order.place.engine_min = 25;
  g_autofree char *one = qv_sweep_order_format(&order);
  g_assert_true(qv_sweep_order_parse(one, &back, NULL));
  g_assert_cmpstr(back.sandbox_id, ==, "one");
  g_assert_cmpstr(back.trial.rootfs_file, ==, "/x");
  g_assert_cmpstrv(back.trial.digests, digests);
  g_assert_cmpstr(back.place.docker_socket, ==, "/d.sock");
  g_assert_cmpstr(back.place.engine, ==, order.place.engine);
  g_assert_cmpuint(back.place.engine_min, ==, 25);
  qv_sweep_order_clear(&back);
  g_assert_false(qv_sweep_order_parse("{}", &back, NULL));
}

static void test_sweep_word(void)
{
  QvBackendFacts facts = {(char *)"release-1", (char *)"systrap", (char *)"v2"};
  QvSweepWord word = {.facts = &facts};
  gsize n;
  g_autofree char *text = qv_sweep_word_format(&word, &n);
  g_autoptr(QvSweepWord) back = qv_sweep_word_parse(text, n, NULL);
  g_assert_null(back->engine);
  g_assert_cmpstr(back->facts->runtime_version, ==, "release-1");
  g_assert_cmpstr(back->facts->platform, ==, "systrap");
  g_assert_cmpstr(back->facts->cgroup, ==, "v2");
  g_autofree char *watch = qv_sweep_word_format(&(QvSweepWord){.engine = (char *)"{\"version\":\"26\"}"}, &n);
  g_autoptr(QvSweepWord) watched = qv_sweep_word_parse(watch, n, NULL);
  g_assert_null(watched->facts);
  g_assert_cmpstr(watched->engine, ==, "{\"version\":\"26\"}");
  /* A reason from outside may be long, and anything. */
  g_autofree char *long_error = g_strnfill(2 * QV_SWEEP_ERROR_BYTES_MAX, '\xff');
  g_autofree char *failed = qv_sweep_word_format(&(QvSweepWord){.event = (char *)"sweep failed", .error = long_error}, &n);
  g_autoptr(QvSweepWord) failure = qv_sweep_word_parse(failed, n, NULL);
  g_assert_cmpstr(failure->event, ==, "sweep failed");
  g_assert_cmpuint(g_utf8_strlen(failure->error, -1), ==, QV_SWEEP_ERROR_BYTES_MAX);
  static const char *const bad[] = {"", "null", "{}", "{\"engine\":null,\"event\":null,\"error\":null,\"facts\":{\"cgroup\":\"v2\"}}"};
  for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
    g_autoptr(GError) error = NULL;
    g_assert_null(qv_sweep_word_parse(bad[i], strlen(bad[i]), &error));
    g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
  }
}

/* ---- results */

static const char *code_of(QvRunCause cause, const QvHostReport *host, const char *facts)
{
  g_autoptr(QvJob) job = make_job();
  guint8 bytes[32] = {5}, salt[QV_SALT_BYTES] = {6};
  g_autoptr(QvKey) key = qv_key_new(bytes, sizeof bytes);
  char sha256[65];
  json_t *body = qv_job_build(job);
  QvLimitsPolicy policy;
  qv_limits_policy_standard(&policy, 2);
  gsize n;
  g_autoptr(GError) error = NULL;
  g_autofree char *data = qv_job_sign(job, &policy, key, &n, sha256, &error);
  g_assert_no_error(error);
  json_decref(body);
  g_autoptr(GBytes) report = facts != NULL ? g_bytes_new(facts, strlen(facts)) : NULL;
  QvJobResult in = {.job = job, .job_sha256 = sha256, .key = key, .runner_id = "runner", .backend = "runsc",
                    .cause = cause, .host = host, .facts = report, .result_salt = salt, .started_at = 1500,
                    .finished_at = 1600, .wall_ms = 100};
  const char *status, *code;
  g_autofree char *text = qv_job_result_sign(&in, &n, &status, &code);
  g_autoptr(QvResult) result = qv_result_verify(text, n, job, sha256, key, &error);
  g_assert_no_error(error);
  g_assert_cmpstr(qv_code_text(result->code), ==, code);
  return code;
}


static char *facts_text(const char *tree, gint64 exit_code)
{
  g_autoptr(QvEntryFacts) facts = qv_entry_facts_new();
  facts->steps = g_new0(QvStepRecord, 1);
  facts->steps_n = 1;
  facts->steps[0].name = g_strdup("step");
  facts->steps[0].has_exit_code = TRUE;
  facts->steps[0].exit_code = exit_code;
  gsize n;
  g_autofree char *json = qv_entry_facts_format(facts, &n);
  return g_strdup_printf("%s\n%.*s", tree, (int)n, json);
}

static void test_results(void)
{
  QvHostReport host = {.end = QV_HOST_COMPLETE, .payload_bytes = 10};
  memset(host.payload_sha256, 'c', 64);
  g_autofree char *tree = g_strnfill(64, 'd');
  g_autofree char *good = facts_text(tree, 0);
  g_autofree char *failed = facts_text(tree, 3);
  g_autofree char *no_tree = facts_text("-", 0);
  g_assert_cmpstr(code_of(QV_RUN_CAUSE_REPORTED, &host, good), ==, NULL);
  g_assert_cmpstr(code_of(QV_RUN_CAUSE_REPORTED, &host, failed), ==, "step_failed");
  /* What the unpack process may say when it was taken over. */
  static const char *const nonsense[] = {"", "\n", "-", "{}", "-\n{}", "-\n", "zz\n{}"};
  for (gsize i = 0; i < G_N_ELEMENTS(nonsense); i++)
    g_assert_cmpstr(code_of(QV_RUN_CAUSE_REPORTED, &host, nonsense[i]), ==, "bad_output");
  g_assert_cmpstr(code_of(QV_RUN_CAUSE_REPORTED, &host, NULL), ==, "bad_output");
  g_assert_cmpstr(code_of(QV_RUN_CAUSE_REPORTED, &host, no_tree), ==, "bad_output");
  /* A cause from outside wins over whatever was reported. */
  g_assert_cmpstr(code_of(QV_RUN_CAUSE_CANCELLED, &host, good), ==, "cancelled");
  g_assert_cmpstr(code_of(QV_RUN_CAUSE_WALL, NULL, NULL), ==, "wall");
  g_assert_cmpstr(code_of(QV_RUN_CAUSE_SHUTDOWN, NULL, NULL), ==, "shutdown");
  g_assert_cmpstr(code_of(QV_RUN_CAUSE_BLOB_MISSING, NULL, NULL), ==, "blob_missing");
  g_assert_cmpstr(code_of(QV_RUN_CAUSE_BLOB_CORRUPT, NULL, NULL), ==, "blob_corrupt");
  g_assert_cmpstr(code_of(QV_RUN_CAUSE_IMAGE_FAILED, NULL, NULL), ==, "image_failed");
  g_assert_cmpstr(code_of(QV_RUN_CAUSE_SANDBOX_FAILED, NULL, NULL), ==, "sandbox_failed");
  g_assert_cmpstr(code_of(QV_RUN_CAUSE_SANDBOX_LOST, NULL, NULL), ==, "sandbox_lost");
  host = (QvHostReport){.end = QV_HOST_OOM, .oom = TRUE};
  g_assert_cmpstr(code_of(QV_RUN_CAUSE_REPORTED, &host, NULL), ==, "memory");
  host = (QvHostReport){.end = QV_HOST_PIDS, .pids = TRUE};
  g_assert_cmpstr(code_of(QV_RUN_CAUSE_REPORTED, &host, NULL), ==, "processes");
  host = (QvHostReport){.end = QV_HOST_CUT};
  g_assert_cmpstr(code_of(QV_RUN_CAUSE_REPORTED, &host, NULL), ==, "sandbox_lost");
  host = (QvHostReport){.end = QV_HOST_CUT, .oom = TRUE};
  g_assert_cmpstr(code_of(QV_RUN_CAUSE_REPORTED, &host, NULL), ==, "memory");
  host = (QvHostReport){.end = QV_HOST_BAD_OUTPUT};
  g_assert_cmpstr(code_of(QV_RUN_CAUSE_REPORTED, &host, NULL), ==, "bad_output");
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/setup/setup", test_setup);
  g_test_add_func("/setup/host", test_host);
  g_test_add_func("/setup/warm-order", test_warm_order);
  g_test_add_func("/setup/box-kind", test_box_kind);
  g_test_add_func("/setup/sweep-order", test_sweep_order);
  g_test_add_func("/setup/sweep-word", test_sweep_word);
  g_test_add_func("/setup/results", test_results);
  return g_test_run();
}
