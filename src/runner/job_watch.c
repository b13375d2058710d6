/* SPDX-License-Identifier: Apache-2.0 */
/* A job while it runs: starts the job process, hears what it says, and gives it
 * up when it does not obey. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "runner/job_result.h"
#include "runner/job_run_private.h"
#include "runner/warm.h"

enum {
  OVERDUE_MS = 60000,
  BEAT_MS = 5000, /* between two words of a stage that goes on */
};

/* ---- what the job process says */

static void say_progress(QvJobRun *run)
{
  if (run->fetched == NULL || run->answering || run->state.phase < QV_RUN_RUNNING || run->state.phase > QV_RUN_STORING)
    return;
  run->progress.elapsed_ms = qv_clock_mono_ms() - run->stage_mono;
  g_autofree char *json = qv_run_progress_format(&run->progress);
  qv_worker_progress(run->supervisor->worker, run->fetched, json);
}

static gboolean on_beat(gpointer data)
{
  say_progress(data);
  return G_SOURCE_CONTINUE;
}

static void enter_stage(QvJobRun *run, QvRunProgress next)
{
  if (run->stage_mono != 0 && next.stage == run->progress.stage && next.step == run->progress.step)
    return;
  run->progress = next;
  run->stage_mono = qv_clock_mono_ms();
  if (run->beat == 0)
    run->beat = g_timeout_add(BEAT_MS, on_beat, run);
  say_progress(run);
}

/* MEMBERS: two for setup and two for each step; setup and steps come in this order. */
static void say_members(QvJobRun *run, guint32 members)
{
  const QvJob *job = run->admission.job;
  guint setup = job->setup != NULL ? 2 : 0;
  QvRunProgress next = {.stage = QV_RUN_STAGE_COLLECTING};
  if (members < setup) {
    next = (QvRunProgress){.stage = QV_RUN_STAGE_SETUP, .name = job->setup->name};
  } else if ((members - setup) / 2 < job->run_n) {
    guint i = (members - setup) / 2;
    next = (QvRunProgress){.stage = QV_RUN_STAGE_STEP, .step = i + 1, .steps_n = job->run_n, .name = job->run[i].name};
  }
  enter_stage(run, next);
}

static void on_started(gpointer data)
{
  qv_log(QV_LOG_DEBUG, "sandbox runs", "jobId", ((QvJobRun *)data)->id, NULL);
}

static void on_input_done(gpointer data)
{
  qv_log(QV_LOG_DEBUG, "sandbox has its input", "jobId", ((QvJobRun *)data)->id, NULL);
  say_members(data, 0);
}

static void on_progress(guint32 members, gpointer data)
{
  QvJobRun *run = data;
  if (members > 0) /* setup.json comes first where there is a setup */
    qv_run_feed_type(run, QV_RUN_EVENT_SETUP_OVER);
  say_members(run, members);
}

static void on_trouble(const char *code, const char *text, gpointer data)
{
  QvJobRun *run = data;
  qv_log(QV_LOG_WARNING, "job cannot go on", "jobId", run->id, "code", code, "reason", text, NULL);
  QvRunCause cause = strcmp(code, "blob_missing") == 0     ? QV_RUN_CAUSE_BLOB_MISSING
                     : strcmp(code, "blob_corrupt") == 0   ? QV_RUN_CAUSE_BLOB_CORRUPT
                     : strcmp(code, "sandbox_failed") == 0 ? QV_RUN_CAUSE_SANDBOX_FAILED
                                                           : QV_RUN_CAUSE_SANDBOX_LOST;
  qv_run_interrupt(run, cause);
}

static gboolean on_overdue(gpointer data)
{
  QvJobRun *run = data;
  if (run->link != NULL && qv_job_link_is_storing(run->link))
    return G_SOURCE_CONTINUE;
  run->overdue = 0;
  qv_log(QV_LOG_ERROR, "job process does not obey", "jobId", run->id, NULL);
  qv_run_feed_type(run, QV_RUN_EVENT_OVERDUE);
  return G_SOURCE_REMOVE;
}

void qv_run_arm_overdue(QvJobRun *run)
{
  if (run->overdue == 0)
    run->overdue = g_timeout_add(OVERDUE_MS, on_overdue, run);
}

static void on_report(const QvHostReport *host, GBytes *facts, gpointer data)
{
  QvJobRun *run = data;
  run->host = *host;
  run->facts = facts != NULL ? g_bytes_ref(facts) : NULL;
  qv_run_arm_overdue(run);
  qv_run_feed_type(run, QV_RUN_EVENT_REPORT);
}

static void on_received(gpointer data) { qv_run_feed_type(data, QV_RUN_EVENT_RECEIVED); }

static void on_stored(gpointer data) { qv_run_feed_type(data, QV_RUN_EVENT_STORED); }

static void on_store_failed(const char *text, gpointer data)
{
  QvJobRun *run = data;
  qv_log(QV_LOG_ERROR, "payload cannot be stored", "jobId", run->id, "error", text, NULL);
  qv_job_link_discard(run->link); /* it may wait for room in the window */
  qv_run_feed_type(run, QV_RUN_EVENT_STORE_FAILED);
}

static void on_gone(const char *left, gpointer data)
{
  QvJobRun *run = data;
  if (left == NULL)
    qv_run_feed_type(run, QV_RUN_EVENT_GONE);
  else
    qv_log(QV_LOG_ERROR, "sandbox is not wholly removed", "jobId", run->id, "error", left, NULL);
}

static void on_exited(gpointer data)
{
  QvJobRun *run = data;
  g_clear_handle_id(&run->overdue, g_source_remove);
  qv_run_feed_type(run, QV_RUN_EVENT_EXITED);
}

static const QvJobLinkEvents link_events = {.started = on_started,
                                            .input_done = on_input_done,
                                            .progress = on_progress,
                                            .trouble = on_trouble,
                                            .report = on_report,
                                            .received = on_received,
                                            .stored = on_stored,
                                            .store_failed = on_store_failed,
                                            .gone = on_gone,
                                            .exited = on_exited};

/* A warm sandbox where there is one that fits, else a job process of its own. */
static QvJobLink *make_link(QvJobRun *run, QvSetup *setup, const QvJobKeys *keys, GError **error)
{
  QvSupervisor *supervisor = run->supervisor;
  const QvBoxKind kind = {.rootfs_file = run->rootfs_file,
                          .image_digest = run->image_digest,
                          .limits = qv_box_limits(&run->admission.job->limits)};
  QvJobLink *link = run->state.egress ? NULL : qv_warm_pool_take(supervisor->warm, &kind, &run->sandbox_id);
  gboolean warm = link != NULL;
  if (!warm)
    run->sandbox_id = g_strdup(run->admission.job->job_id);
  setup->sandbox_id = run->sandbox_id;
  qv_box_kind_copy(&kind, &run->box);
  qv_warm_pool_job_begins(supervisor->warm, &kind, run->state.egress);
  if (warm) {
    qv_log(QV_LOG_DEBUG, "sandbox was warm", "jobId", run->id, "sandbox", run->sandbox_id, NULL);
    qv_job_link_assign(link, setup, keys, &link_events, run);
    return link;
  }
  QvJobLinkOptions options = {.conn = qv_run_conn(run),
                              .prefix = supervisor->prefix,
                              .lock_fd = supervisor->lock_fd,
                              .starter = supervisor->starter,
                              .setup = setup,
                              .keys = keys};
  return qv_job_link_new(&options, &link_events, run, error);
}

void qv_run_spawn(QvJobRun *run)
{
  QvSupervisor *supervisor = run->supervisor;
  const QvJob *job = run->admission.job;
  qv_log(QV_LOG_INFO, "job starts", "jobId", run->id, "tenantId", job->tenant_id, "kind", job->kind, "image",
         job->image.name, "digest", job->image.digest, NULL);
  enter_stage(run, (QvRunProgress){.stage = QV_RUN_STAGE_PREPARING});
  QvSetup setup = {.place = supervisor->place, .job = run->admission.job, .rootfs_file = run->rootfs_file,
                   .image_digest = run->image_digest,
                   .live = strcmp(supervisor->config->live_logs, "on") == 0};
  if (run->state.egress) {
    setup.egress_proxy = supervisor->config->egress_proxy;
    setup.ca_pem = supervisor->ca_pem;
  }
  QvJobKeys keys;
  qv_random_bytes(run->result_salt, sizeof run->result_salt);
  qv_job_keys_derive(job, run->admission.job_sha256, run->admission.key, run->result_salt, &keys);
  memcpy(keys.egress_token, run->token, sizeof keys.egress_token);
  g_autoptr(GError) error = NULL;
  run->link = make_link(run, &setup, &keys, &error);
  explicit_bzero(&keys, sizeof keys);
  if (run->link == NULL) {
    on_trouble("sandbox_failed", error->message, run);
    qv_run_feed_type(run, QV_RUN_EVENT_EXITED);
  }
}
