/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the jobs in progress. What may come back after a job is done (a reply
 * of Valkey, a sweeper) holds a reference; the step function makes nothing of it then. */
#include "runner/job_run.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "protocol/cancel.h"
#include "protocol/progress.h"
#include "protocol/result.h"
#include "queue/stores.h"
#include "runner/admitted.h"
#include "runner/job_link.h"
#include "runner/job_result.h"

enum { OVERDUE_MS = 60000 };

struct QvJobRun {
  gint refs;
  QvSupervisor *supervisor;
  QvFetchedJob *fetched;  /* NULL once the queue has it back */
  char *id;               /* as the queue names it: hostile until verified */
  QvAdmission admission;
  QvRun state;
  GQueue events;          /* of QvRunEvent, waiting while one is handled */
  gboolean feeding;
  gboolean held;          /* its tenant has enough in progress */
  gboolean answering;     /* the queue owes an answer to ours */
  gboolean cancel_asked, cancel_again;
  char *rootfs_file;
  guint8 result_salt[QV_SALT_BYTES];
  QvJobLink *link;
  QvHostReport host;
  GBytes *facts;
  gint64 started_at;      /* Unix ms */
  gint64 started_mono;
  guint wall, overdue;    /* timer sources */
  guint unlinks;          /* blobs still to be unlinked */
};

static void feed(QvJobRun *run, QvRunEvent event);

static QvJobRun *run_ref(QvJobRun *run)
{
  run->refs++;
  return run;
}

static void run_unref(QvJobRun *run)
{
  if (--run->refs > 0)
    return;
  g_clear_handle_id(&run->wall, g_source_remove);
  g_clear_handle_id(&run->overdue, g_source_remove);
  qv_job_link_free(run->link);
  qv_admission_clear(&run->admission);
  g_clear_pointer(&run->facts, g_bytes_unref);
  g_queue_clear_full(&run->events, g_free);
  g_free(run->rootfs_file);
  g_free(run->id);
  g_free(run);
}

static void feed_type(QvJobRun *run, QvRunEventType type)
{
  feed(run, (QvRunEvent){.type = type});
}

static void interrupt(QvJobRun *run, QvRunCause cause)
{
  feed(run, (QvRunEvent){.type = QV_RUN_EVENT_INTERRUPT, .cause = cause});
}

static QvConn *conn_of(QvJobRun *run)
{
  return qv_worker_conn(run->supervisor->worker);
}

/* ---- claim */

static void on_guard(QvGuard guard, const GError *error, gpointer user)
{
  QvJobRun *run = user;
  if (guard == QV_GUARD_UNKNOWN) {
    /* No answer is not run: the lock runs out and the job ends as stalled. */
    if (run->state.phase != QV_RUN_DONE)
      qv_log(QV_LOG_ERROR, "replay guard gives no answer", "jobId", run->id, "error",
             error != NULL ? error->message : NULL, NULL);
    feed_type(run, QV_RUN_EVENT_LOCK_LOST);
    feed_type(run, QV_RUN_EVENT_CLAIM_LOST);
  } else {
    feed_type(run, guard == QV_GUARD_WON ? QV_RUN_EVENT_CLAIM_WON : QV_RUN_EVENT_CLAIM_LOST);
  }
  run_unref(run);
}

static void do_claim(QvJobRun *run)
{
  QvSupervisor *supervisor = run->supervisor;
  const QvJob *job = run->admission.job;
  gint64 now_ms = qv_clock_unix_ms(), ttl_ms = qv_admission_guard_ttl_ms(job, now_ms);
  if (qv_admitted_remember(supervisor->admitted, job->job_id, now_ms + ttl_ms)) {
    feed_type(run, QV_RUN_EVENT_CLAIM_LOST);
    return;
  }
  qv_replay_guard_take(conn_of(run), supervisor->prefix, job->job_id, supervisor->place.runner_id, ttl_ms, 0, on_guard,
                       run_ref(run));
}

/* ---- admission behind the guard */

static gboolean on_wall(gpointer data)
{
  QvJobRun *run = data;
  run->wall = 0;
  interrupt(run, QV_RUN_CAUSE_WALL);
  return G_SOURCE_REMOVE;
}

static void do_arm_wall(QvJobRun *run)
{
  run->started_at = qv_clock_unix_ms();
  run->started_mono = qv_clock_mono_ms();
  run->wall = g_timeout_add(MIN(run->admission.job->limits.wall_ms, (gint64)G_MAXINT32), on_wall, run);
}

/* Every slot may take what this one takes: else the host could run out of memory. */
static gboolean over_budget(const QvJobRun *run)
{
  const QvLimits *limits = &run->admission.job->limits;
  return limits->memory_mib + limits->work_mib + QV_SANDBOX_TMP_MIB + QV_SANDBOX_HEADROOM_MIB >
         run->supervisor->memory_budget_mib / run->supervisor->config->concurrency;
}

static void do_admit(QvJobRun *run)
{
  QvSupervisor *supervisor = run->supervisor;
  QvAdmissionPolicy policy;
  qv_supervisor_policy(supervisor, &policy);
  const QvImage *image = NULL;
  g_autofree char *detail = NULL;
  QvReject reject = qv_admission_after_guard(run->admission.job, &policy, &image, &detail);
  if (reject == QV_REJECT_NONE && over_budget(run)) {
    reject = QV_REJECT_LIMITS;
    detail = g_strdup("memoryMiB and workMiB are over QUAVON_SANDBOX_MEMORY_BUDGET_MIB / QUAVON_SANDBOX_CONCURRENCY");
  }
  if (reject != QV_REJECT_NONE) {
    g_free(run->admission.detail);
    run->admission.detail = g_steal_pointer(&detail);
    feed(run, (QvRunEvent){.type = QV_RUN_EVENT_REFUSED, .refusal = qv_reject_failed_reason(reject)});
    return;
  }
  g_autoptr(GError) error = NULL;
  run->rootfs_file = qv_supervisor_image(supervisor, image, &error);
  if (run->rootfs_file == NULL) {
    qv_log(QV_LOG_ERROR, "image cannot be used", "jobId", run->id, "error", error->message, NULL);
    interrupt(run, QV_RUN_CAUSE_IMAGE_FAILED);
  }
  feed_type(run, QV_RUN_EVENT_ADMITTED);
}

/* ---- cancel */

/* Both for check 8 and for a hint while the job runs. */
static void do_ask_cancel(QvJobRun *run);

static void on_cancel_key(GBytes *bytes, const GError *error, gpointer user)
{
  QvJobRun *run = user;
  run->cancel_asked = FALSE;
  g_autoptr(GError) cause = NULL;
  if (bytes != NULL && run->state.phase < QV_RUN_ANSWERING) {
    if (qv_cancel_verify(g_bytes_get_data(bytes, NULL), g_bytes_get_size(bytes), run->admission.job,
                         run->admission.key, &cause))
      interrupt(run, QV_RUN_CAUSE_CANCELLED);
    else
      qv_log(QV_LOG_WARNING, "cancel record ignored", "jobId", run->id, "error", cause->message, NULL);
  }
  if (run->cancel_again && bytes == NULL && run->state.phase < QV_RUN_STORING) {
    run->cancel_again = FALSE;
    do_ask_cancel(run);
    run_unref(run);
    return;
  }
  feed_type(run, QV_RUN_EVENT_NO_CANCEL);
  run_unref(run);
}

static void do_ask_cancel(QvJobRun *run)
{
  if (run->cancel_asked) { /* the answer under way may be older than the record */
    run->cancel_again = TRUE;
    return;
  }
  run->cancel_asked = TRUE;
  qv_cancel_get(conn_of(run), run->supervisor->prefix, run->admission.job->job_id, 0, on_cancel_key, run_ref(run));
}

void qv_job_run_look_for_cancel(QvSupervisor *supervisor, const char *job_id)
{
  for (guint i = 0; i < supervisor->runs->len; i++) {
    QvJobRun *run = supervisor->runs->pdata[i];
    if (run->state.phase >= QV_RUN_ASKING && run->state.phase < QV_RUN_STORING &&
        (job_id == NULL || strcmp(job_id, run->id) == 0))
      do_ask_cancel(run);
  }
}

/* ---- what the job process says */

static void say_progress(QvJobRun *run, gboolean running, guint members)
{
  if (run->fetched == NULL || run->answering || run->state.phase != QV_RUN_RUNNING)
    return;
  g_autofree char *json = qv_progress_format(running, members);
  qv_worker_progress(run->supervisor->worker, run->fetched, json);
}

static void on_input_done(gpointer data)
{
  qv_log(QV_LOG_DEBUG, "sandbox has its input", "jobId", ((QvJobRun *)data)->id, NULL);
  say_progress(data, TRUE, 0);
}

static void on_progress(guint32 members, gpointer data) { say_progress(data, TRUE, members); }

static void on_trouble(const char *code, const char *text, gpointer data)
{
  QvJobRun *run = data;
  qv_log(QV_LOG_WARNING, "job cannot go on", "jobId", run->id, "code", code, "reason", text, NULL);
  QvRunCause cause = strcmp(code, "blob_missing") == 0     ? QV_RUN_CAUSE_BLOB_MISSING
                     : strcmp(code, "blob_corrupt") == 0   ? QV_RUN_CAUSE_BLOB_CORRUPT
                     : strcmp(code, "sandbox_failed") == 0 ? QV_RUN_CAUSE_SANDBOX_FAILED
                                                           : QV_RUN_CAUSE_SANDBOX_LOST;
  interrupt(run, cause);
}

static gboolean on_overdue(gpointer data)
{
  QvJobRun *run = data;
  if (run->link != NULL && qv_job_link_is_storing(run->link))
    return G_SOURCE_CONTINUE;
  run->overdue = 0;
  qv_log(QV_LOG_ERROR, "job process does not obey", "jobId", run->id, NULL);
  feed_type(run, QV_RUN_EVENT_OVERDUE);
  return G_SOURCE_REMOVE;
}

static void arm_overdue(QvJobRun *run)
{
  if (run->overdue == 0)
    run->overdue = g_timeout_add(OVERDUE_MS, on_overdue, run);
}

static void on_report(const QvHostReport *host, GBytes *facts, gpointer data)
{
  QvJobRun *run = data;
  run->host = *host;
  run->facts = facts != NULL ? g_bytes_ref(facts) : NULL;
  arm_overdue(run);
  feed_type(run, QV_RUN_EVENT_REPORT);
}

static void on_received(gpointer data) { feed_type(data, QV_RUN_EVENT_RECEIVED); }

static void on_stored(gpointer data) { feed_type(data, QV_RUN_EVENT_STORED); }

static void on_store_failed(const char *text, gpointer data)
{
  QvJobRun *run = data;
  qv_log(QV_LOG_ERROR, "payload cannot be stored", "jobId", run->id, "error", text, NULL);
  qv_job_link_discard(run->link); /* it may wait for room in the window */
  feed_type(run, QV_RUN_EVENT_STORE_FAILED);
}

static void on_gone(const char *left, gpointer data)
{
  QvJobRun *run = data;
  if (left == NULL)
    feed_type(run, QV_RUN_EVENT_GONE);
  else
    qv_log(QV_LOG_ERROR, "sandbox is not wholly removed", "jobId", run->id, "error", left, NULL);
}

static void on_exited(gpointer data)
{
  QvJobRun *run = data;
  g_clear_handle_id(&run->overdue, g_source_remove);
  feed_type(run, QV_RUN_EVENT_EXITED);
}

static const QvJobLinkEvents link_events = {.input_done = on_input_done,
                                            .progress = on_progress,
                                            .trouble = on_trouble,
                                            .report = on_report,
                                            .received = on_received,
                                            .stored = on_stored,
                                            .store_failed = on_store_failed,
                                            .gone = on_gone,
                                            .exited = on_exited};

static void do_spawn(QvJobRun *run)
{
  QvSupervisor *supervisor = run->supervisor;
  const QvJob *job = run->admission.job;
  qv_log(QV_LOG_INFO, "job starts", "jobId", run->id, "tenantId", job->tenant_id, "kind", job->kind, "image",
         job->image.name, "digest", job->image.digest, NULL);
  say_progress(run, FALSE, 0);
  QvSetup setup = {.place = supervisor->place, .job = run->admission.job, .rootfs_file = run->rootfs_file};
  QvJobKeys keys;
  qv_random_bytes(run->result_salt, sizeof run->result_salt);
  qv_job_keys_derive(job, run->admission.key, run->result_salt, &keys);
  QvJobLinkOptions options = {.conn = conn_of(run),
                              .prefix = supervisor->prefix,
                              .lock_fd = supervisor->lock_fd,
                              .setup = &setup,
                              .keys = &keys};
  g_autoptr(GError) error = NULL;
  run->link = qv_job_link_new(&options, &link_events, run, &error);
  explicit_bzero(&keys, sizeof keys);
  if (run->link == NULL) {
    on_trouble("sandbox_failed", error->message, run);
    feed_type(run, QV_RUN_EVENT_EXITED);
  }
}

/* ---- sweep */

static void on_swept(gboolean clean, gpointer data)
{
  QvJobRun *run = data;
  feed_type(run, clean ? QV_RUN_EVENT_SWEPT : QV_RUN_EVENT_SWEEP_FAILED);
  run_unref(run);
}

/* ---- the answer */

static void log_end(const QvJobRun *run, const char *status, const char *code)
{
  g_autofree char *wall = run->started_mono != 0
                            ? g_strdup_printf("%" G_GINT64_FORMAT, qv_clock_mono_ms() - run->started_mono)
                            : NULL;
  qv_log(QV_LOG_INFO, "job ends", "jobId", run->id, "status", status, "code", code, "wallMs", wall, "detail",
         run->admission.detail, NULL);
}

static void on_finish(QvFinish finish, const GError *error, gpointer user)
{
  QvJobRun *run = user;
  run->answering = FALSE;
  run->fetched = NULL;
  if (error != NULL && run->state.phase != QV_RUN_DONE)
    qv_log(QV_LOG_ERROR, "answer was refused", "jobId", run->id, "error", error->message, NULL);
  else if (error == NULL && finish != QV_FINISH_DONE)
    qv_log(QV_LOG_WARNING, "answer came too late", "jobId", run->id, NULL);
  feed_type(run, error == NULL && finish == QV_FINISH_DONE ? QV_RUN_EVENT_ANSWERED : QV_RUN_EVENT_ANSWER_REFUSED);
  run_unref(run);
}

static void do_fail(QvJobRun *run)
{
  log_end(run, run->state.refusal, NULL);
  run->answering = TRUE;
  qv_worker_fail(run->supervisor->worker, run->fetched, run->state.refusal, on_finish, run_ref(run));
}

static void do_finish(QvJobRun *run)
{
  g_clear_handle_id(&run->wall, g_source_remove);
  QvJobResult in = {.job = run->admission.job,
                    .job_sha256 = run->admission.job_sha256,
                    .key = run->admission.key,
                    .runner_id = run->supervisor->place.runner_id,
                    .backend = run->supervisor->place.backend,
                    .cause = run->state.cause,
                    .host = run->state.reported ? &run->host : NULL,
                    .facts = run->state.reported ? run->facts : NULL,
                    .result_salt = run->result_salt,
                    .started_at = run->started_at,
                    .finished_at = qv_clock_unix_ms(),
                    .wall_ms = qv_clock_mono_ms() - run->started_mono};
  const char *status, *code;
  gsize n;
  g_autofree char *text = qv_job_result_sign(&in, &n, &status, &code);
  log_end(run, status, code);
  run->answering = TRUE;
  qv_worker_complete(run->supervisor->worker, run->fetched, text, n, on_finish, run_ref(run));
}

/* ---- tidy up */

static void on_unlinked(const GError *error, gpointer user)
{
  QvJobRun *run = user;
  if (error != NULL && run->state.phase != QV_RUN_DONE)
    qv_log(QV_LOG_WARNING, "input chunks stay until their time is over", "jobId", run->id, "error", error->message,
           NULL);
  if (--run->unlinks == 0)
    feed_type(run, QV_RUN_EVENT_UNLINKED);
  run_unref(run);
}

static void do_unlink(QvJobRun *run)
{
  const QvBlobDescriptor *blobs[] = {&run->admission.job->base, run->admission.job->overlay};
  run->unlinks = blobs[1] != NULL ? 2 : 1;
  for (guint i = 0, n = run->unlinks; i < n; i++)
    qv_blob_unlink(conn_of(run), run->supervisor->prefix, blobs[i]->blob_id, blobs[i]->chunks, 0, on_unlinked,
                   run_ref(run));
}

static void resume_held(QvSupervisor *supervisor);

static void do_release(QvJobRun *run)
{
  QvSupervisor *supervisor = run->supervisor;
  if (run->fetched != NULL && !run->answering) {
    log_end(run, "lost", "lock_lost");
    qv_worker_drop(supervisor->worker, g_steal_pointer(&run->fetched));
  }
  g_ptr_array_remove(supervisor->runs, run);
  resume_held(supervisor);
  supervisor->released(supervisor);
}

static void act(QvJobRun *run, QvRunAction action)
{
  switch (action) {
  case QV_RUN_DO_CLAIM: do_claim(run); break;
  case QV_RUN_DO_ARM_WALL: do_arm_wall(run); break;
  case QV_RUN_DO_ADMIT: do_admit(run); break;
  case QV_RUN_DO_ASK_CANCEL: do_ask_cancel(run); break;
  case QV_RUN_DO_SPAWN: do_spawn(run); break;
  case QV_RUN_DO_STOP:
    arm_overdue(run);
    if (run->link != NULL)
      qv_job_link_stop(run->link);
    break;
  case QV_RUN_DO_DISCARD:
    if (run->link != NULL)
      qv_job_link_discard(run->link);
    break;
  case QV_RUN_DO_KILL: qv_job_link_kill(run->link); break;
  case QV_RUN_DO_SWEEP:
    qv_supervisor_sweep(run->supervisor, run->admission.job->job_id, NULL, on_swept, run_ref(run));
    break;
  case QV_RUN_DO_STORE: qv_job_link_store(run->link); break;
  case QV_RUN_DO_FAIL: do_fail(run); break;
  case QV_RUN_DO_FINISH: do_finish(run); break;
  case QV_RUN_DO_UNLINK: do_unlink(run); break;
  case QV_RUN_DO_PROBLEM:
    run->supervisor->problem(run->supervisor, run->id);
    break;
  case QV_RUN_DO_RELEASE: do_release(run); break;
  }
}

/* Events that come while one is handled wait: an action may cause the next. */
static void feed(QvJobRun *run, QvRunEvent event)
{
  g_queue_push_tail(&run->events, g_memdup2(&event, sizeof event));
  if (run->feeding)
    return;
  run_ref(run);
  run->feeding = TRUE;
  QvRunEvent *next;
  while ((next = g_queue_pop_head(&run->events)) != NULL) {
    QvRunPhase before = run->state.phase;
    QvRunActions out = qv_run_step(&run->state, next);
    if (before != run->state.phase)
      qv_log(QV_LOG_DEBUG, "job goes on", "jobId", run->id, "event", qv_run_event_name(next->type), "phase",
             qv_run_phase_name(run->state.phase), NULL);
    g_free(next);
    for (unsigned i = 0; i < out.n; i++)
      act(run, out.item[i]);
  }
  run->feeding = FALSE;
  run_unref(run);
}

/* ---- begin */

static guint tenant_in_progress(const QvSupervisor *supervisor, const char *tenant_id)
{
  guint n = 0;
  for (guint i = 0; i < supervisor->runs->len; i++) {
    const QvJobRun *run = supervisor->runs->pdata[i];
    n += !run->held && run->admission.job != NULL && run->state.phase < QV_RUN_CLEARING &&
         strcmp(run->admission.job->tenant_id, tenant_id) == 0;
  }
  return n;
}

static void try_begin(QvJobRun *run)
{
  QvSupervisor *supervisor = run->supervisor;
  QvFetchedJob *fetched = run->fetched;
  QvAdmissionPolicy policy;
  qv_supervisor_policy(supervisor, &policy);
  gsize data_n = 0;
  const char *data = fetched->data != NULL ? g_bytes_get_data(fetched->data, &data_n) : NULL;
  QvAdmissionFields fields = {.bullmq_id = fetched->id,
                              .has_defa = fetched->deferred_failure != NULL,
                              .has_unsupported = fetched->has_scheduler || fetched->has_parent ||
                                                 fetched->has_parent_key || fetched->has_dedup,
                              .data = data,
                              .data_n = data_n};
  qv_admission_clear(&run->admission);
  QvReject reject = qv_admission_before_guard(&fields, &policy, qv_clock_unix_ms(), &run->admission);
  gint64 tenant_max = supervisor->config->tenant_max;
  run->held = TRUE;
  if (reject == QV_REJECT_NONE && tenant_max > 0 &&
      tenant_in_progress(supervisor, run->admission.job->tenant_id) >= tenant_max)
    return;
  run->held = FALSE;
  feed(run, (QvRunEvent){.type = QV_RUN_EVENT_FETCHED,
                         .refusal = reject == QV_REJECT_NONE ? NULL : qv_reject_failed_reason(reject),
                         .stalled = reject == QV_REJECT_STALLED,
                         .verified = reject == QV_REJECT_STALLED && run->admission.job != NULL});
}

static void resume_held(QvSupervisor *supervisor)
{
  g_autoptr(GPtrArray) held = g_ptr_array_new();
  for (guint i = 0; i < supervisor->runs->len; i++) {
    if (((QvJobRun *)supervisor->runs->pdata[i])->held)
      g_ptr_array_add(held, supervisor->runs->pdata[i]);
  }
  for (guint i = 0; i < held->len; i++)
    try_begin(held->pdata[i]);
}

void qv_job_run_begin(QvSupervisor *supervisor, QvFetchedJob *fetched)
{
  QvJobRun *run = g_new0(QvJobRun, 1);
  run->refs = 1;
  run->supervisor = supervisor;
  run->fetched = fetched;
  run->id = g_strdup(fetched->id);
  g_queue_init(&run->events);
  fetched->caller = run;
  g_ptr_array_add(supervisor->runs, run);
  try_begin(run);
}

void qv_job_run_lock_lost(QvSupervisor *supervisor, QvFetchedJob *fetched, const char *why)
{
  QvJobRun *run = fetched->caller;
  qv_log(QV_LOG_WARNING, "job's lock is lost", "jobId", run->id, "reason", why, NULL);
  run->held = FALSE;
  feed_type(run, QV_RUN_EVENT_LOCK_LOST);
}

static void for_all(QvSupervisor *supervisor, QvRunEvent event)
{
  g_autoptr(GPtrArray) runs = g_ptr_array_new();
  for (guint i = 0; i < supervisor->runs->len; i++)
    g_ptr_array_add(runs, run_ref(supervisor->runs->pdata[i]));
  for (guint i = 0; i < runs->len; i++) {
    feed(runs->pdata[i], event);
    run_unref(runs->pdata[i]);
  }
}

void qv_job_run_interrupt_all(QvSupervisor *supervisor, QvRunCause cause)
{
  for_all(supervisor, (QvRunEvent){.type = QV_RUN_EVENT_INTERRUPT, .cause = cause});
}

void qv_job_run_abandon_all(QvSupervisor *supervisor)
{
  for_all(supervisor, (QvRunEvent){.type = QV_RUN_EVENT_ABANDON});
}

void qv_job_run_release_held(QvSupervisor *supervisor)
{
  for (guint i = supervisor->runs->len; i > 0; i--) {
    QvJobRun *run = supervisor->runs->pdata[i - 1];
    if (!run->held)
      continue;
    qv_worker_release(supervisor->worker, g_steal_pointer(&run->fetched), NULL, NULL);
    g_ptr_array_remove_index(supervisor->runs, i - 1);
  }
}

void qv_job_run_free_func(gpointer run)
{
  run_unref(run);
}
