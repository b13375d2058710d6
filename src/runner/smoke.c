/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the smoke test's three sandboxes, its role and its texts. */
#include "runner/smoke.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/error.h"
#include "base/exit.h"
#include "base/fd.h"
#include "base/log.h"
#include "runner/egress.h"
#include "runner/egress_trial.h"
#include "runner/settings.h"
#include "runner/smoke_box.h"
#include "runner/spawn.h"
#include "sandbox/probe_judge.h"

enum { CPU_SLACK_MS = 250, HOG_MILLI_CPUS = 500 };

static const QvSmokePlan facts_plan = {.arguments = {"facts"},
                                       .steps_n = 1,
                                       .limits = {.memory_mib = 128, .work_mib = 16, .milli_cpus = 1000, .pids = 64}};
static const QvSmokePlan forks_plan = {.arguments = {"forks"},
                                       .steps_n = 1,
                                       .limits = {.memory_mib = 128, .work_mib = 16, .milli_cpus = 1000, .pids = 24},
                                       .expects_kill = TRUE};
static const QvSmokePlan hog_plan = {.arguments = {"euid", "burn 1200", "hog"},
                                     .steps_n = 3,
                                     .limits = {.memory_mib = 64, .work_mib = 16, .milli_cpus = HOG_MILLI_CPUS, .pids = 64},
                                     .expects_kill = TRUE,
                                     .waits = TRUE};

/* ---- the order */

char *qv_smoke_order_format(const QvSmokeOrder *order)
{
  QvSweepOrder same = {.place = order->place, .trial = order->image, .sandbox_id = order->only};
  return qv_sweep_order_format(&same);
}

gboolean qv_smoke_order_parse(const char *text, QvSmokeOrder *order, GError **error)
{
  QvSweepOrder same = {0};
  if (!qv_sweep_order_parse(text, &same, error))
    return FALSE;
  *order = (QvSmokeOrder){.place = same.place, .image = same.trial, .only = same.sandbox_id};
  if (order->image.digests != NULL && order->image.digests[0] != NULL)
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "smoke order without an image");
  qv_smoke_order_clear(order);
  return FALSE;
}

void qv_smoke_order_clear(QvSmokeOrder *order)
{
  qv_place_clear(&order->place);
  qv_trial_images_clear(&order->image);
  g_free(order->only);
  *order = (QvSmokeOrder){0};
}

/* ---- the run */

typedef struct {
  QvBackend *backend;
  const QvTrialImages *image;
  QvProbeJudge *judge;
  gboolean started, clean;
} Run;

/* Where a sandbox never got as far as its output, everything else is guesswork. */
static void run_box(Run *run, const char *name, const QvSmokePlan *plan, QvSmokeSeen *seen)
{
  qv_smoke_box_run(run->backend, run->image, plan, seen);
  run->clean = run->clean && seen->clean;
  /* A kill is a good end only where something in it is to be killed. */
  if (seen->end != QV_HOST_COMPLETE && !(plan->expects_kill && (seen->end == QV_HOST_OOM || seen->end == QV_HOST_PIDS))) {
    run->started = FALSE;
    qv_log(QV_LOG_ERROR, "a sandbox of the smoke test failed", "sandbox", name, "end", qv_host_end_text(seen->end), "reason",
           seen->why, NULL);
  }
}

static void run_facts(Run *run)
{
  QvSmokeSeen seen;
  run_box(run, "facts", &facts_plan, &seen);
  qv_probe_judge_text(run->judge, seen.log->str, seen.log->len, seen.age_s);
  qv_smoke_seen_clear(&seen);
}

static void run_forks(Run *run)
{
  static const char head[] = "probe forks ";
  QvSmokeSeen seen;
  run_box(run, "forks", &forks_plan, &seen);
  char *lf = strchr(seen.log->str, '\n');
  if (seen.end == QV_HOST_PIDS) {
    qv_probe_judge_answer(run->judge, "forks", "PIDS");
  } else if (seen.end != QV_HOST_COMPLETE) {
    qv_probe_judge_answer(run->judge, "forks", "LOST");
  } else if (g_str_has_prefix(seen.log->str, head) && lf != NULL && lf[1] == '\0') {
    *lf = '\0';
    qv_probe_judge_answer(run->judge, "forks", seen.log->str + strlen(head));
  }
  qv_smoke_seen_clear(&seen);
}

static void run_hog(Run *run)
{
  QvSmokeSeen seen;
  run_box(run, "hog", &hog_plan, &seen);
  qv_probe_judge_answer(run->judge, "memory", seen.end == QV_HOST_OOM ? "OOM" : "SURVIVED");
  gint64 allowed_ms = seen.wall_ms * HOG_MILLI_CPUS / 1000 + CPU_SLACK_MS;
  qv_probe_judge_answer(run->judge, "cpu",
                        seen.wall_ms < 0 ? "UNKNOWN" : seen.cpu_ms <= allowed_ms ? "HELD" : "OVER");
  qv_smoke_seen_clear(&seen);
}

/* What held at the start may not hold any more: rules of a firewall can be flushed. A proxy that is away lets nobody out. */
static void run_egress(Run *run, const char *proxy)
{
  g_autoptr(GError) error = NULL;
  gboolean has_network = qv_backend_network(run->backend) != NULL;
  gboolean away, ok = qv_egress_trial(run->backend, run->image, proxy, &away, &error);
  if (!ok)
    qv_log(QV_LOG_ERROR, "the network of jobs with egress does not hold", "error", error->message, NULL);
  qv_probe_judge_answer(run->judge, "egress", ok ? (has_network ? "PROXY" : "NONE") : away ? "AWAY" : "BROKEN");
}

static gboolean is_asked(const QvSmokeOrder *order, const char *name)
{
  return order->only == NULL || strcmp(order->only, name) == 0;
}

/* NULL: the backend cannot be used at all, or has no column of answers. */
static QvProbeJudge *run_all(const QvSmokeOrder *order, GError **error)
{
  g_autoptr(GHashTable) host = qv_probe_host_read();
  g_autoptr(QvProbeJudge) judge = qv_probe_judge_new(order->place.backend, host);
  g_autoptr(QvBackend) backend = qv_place_open(&order->place, error);
  if (backend == NULL)
    return NULL;
  if (judge == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_POLICY, "there are no probes for the backend %s", order->place.backend);
    return NULL;
  }
  Run run = {.backend = backend, .image = &order->image, .judge = judge, .started = TRUE, .clean = TRUE};
  if (is_asked(order, "facts"))
    run_facts(&run);
  if (is_asked(order, "forks"))
    run_forks(&run);
  if (is_asked(order, "hog"))
    run_hog(&run);
  if (is_asked(order, "egress"))
    run_egress(&run, order->place.egress_proxy);
  qv_probe_judge_answer(judge, "started", run.started ? "OK" : "FAILED");
  qv_probe_judge_answer(judge, "gone", run.clean ? "CLEAN" : "LEFT");
  return g_steal_pointer(&judge);
}

/* ---- the role */

static char *answer_format(const char *backend, const QvProbeJudge *judge)
{
  json_t *failed = json_array(), *answers = json_array();
  g_auto(GStrv) names = qv_probe_judge_failed(judge);
  for (gsize i = 0; names[i] != NULL; i++)
    json_array_append_new(failed, json_string(names[i]));
  QvProbeRow row;
  for (guint i = 0; qv_probe_row(i, backend, &row); i++) {
    gboolean fine;
    const char *answer = qv_probe_judge_row(judge, i, &fine);
    if (!fine)
      json_array_append_new(answers, json_pack("{s:s,s:s?,s:s}", "probe", row.name, "answer", answer, "expected",
                                               row.expected));
  }
  json_t *root = json_pack("{s:b,s:i,s:o,s:o}", "passed", names[0] == NULL, "probes", (int)qv_probe_count(), "failed",
                           failed, "answers", answers);
  char *dumped = json_dumps(root, JSON_COMPACT);
  char *text = g_strdup(dumped);
  free(dumped);
  json_decref(root);
  return text;
}

int qv_smoke_main(const char *text)
{
  qv_role_enter(TRUE);
  g_autoptr(GError) error = NULL;
  QvSmokeOrder order = {0};
  if (text == NULL || !qv_smoke_order_parse(text, &order, &error)) {
    qv_log(QV_LOG_ERROR, "no order for the smoke test", "error", error != NULL ? error->message : NULL, NULL);
    return QV_EXIT_FAILED;
  }
  g_autoptr(QvProbeJudge) judge = run_all(&order, &error);
  gboolean fine = FALSE;
  if (judge != NULL) {
    g_autofree char *answer = answer_format(order.place.backend, judge);
    fine = qv_fd_write_all(QV_SMOKE_OUT_FD, "answer", answer, strlen(answer), &error);
  }
  if (!fine)
    qv_log(QV_LOG_ERROR, "the smoke test cannot run", "error", error->message, NULL);
  qv_smoke_order_clear(&order);
  return fine ? 0 : QV_EXIT_FAILED;
}

/* ---- for a person */

static int print_rows(const char *backend, const QvProbeJudge *judge)
{
  QvProbeRow row;
  guint failed = 0, n = 0;
  for (; qv_probe_row(n, backend, &row); n++) {
    gboolean fine;
    const char *answer = qv_probe_judge_row(judge, n, &fine);
    failed += !fine;
    printf("%-5s %-20s %s: %s", fine ? "ok" : "FAIL", row.name, row.tries, answer != NULL ? answer : "no answer");
    printf(fine ? "\n" : ", expected %s\n", row.expected);
  }
  printf("%u of %u probes passed on %s\n", n - failed, n, backend);
  return failed == 0 ? 0 : QV_EXIT_FAILED;
}

/* As --check and the runner have it: what they refuse is not to pass here. */
static gboolean check_egress(const QvConfig *config, GError **error)
{
  g_autofree char *ca_pem = NULL;
  g_autoptr(QvRegistries) registries = qv_settings_registries(config, error);
  return registries != NULL && qv_egress_settings(config, registries, &ca_pem, error);
}

int qv_smoke_print_main(const QvConfig *config)
{
  if (geteuid() != 0) {
    fprintf(stderr, "quavon-sandbox-runner: sandboxes need root: run it with sudo\n");
    return QV_EXIT_NOT_ROOT;
  }
  g_autoptr(GError) error = NULL;
  if (!check_egress(config, &error)) {
    fprintf(stderr, "quavon-sandbox-runner: %s\n", error->message);
    return QV_EXIT_CONFIG;
  }
  QvSmokeOrder order = {0};
  QvImageMemory *memory = qv_image_memory_new();
  QvImagesLock *images = qv_settings_images(config, memory, &order.image, &error);
  g_autoptr(QvProbeJudge) judge = NULL;
  if (images != NULL && qv_settings_place(config, &order.place, &error))
    judge = run_all(&order, &error);
  int status = QV_EXIT_FAILED;
  if (judge == NULL)
    fprintf(stderr, "quavon-sandbox-runner: %s\n", error->message);
  else
    status = print_rows(order.place.backend, judge);
  qv_smoke_order_clear(&order);
  qv_images_lock_free(images);
  qv_image_memory_free(memory);
  return status;
}
