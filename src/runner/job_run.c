/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the jobs in progress: feeds the step function and carries out what it
 * says, and tells the queue whose jobs are next. */
#include "runner/job_run.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "runner/job_run_private.h"
#include "runner/warm.h"
#include "runner/sweep.h"
#include "runner/sweeper.h"

QvJobRun *qv_run_ref(QvJobRun *run)
{
  run->refs++;
  return run;
}

void qv_run_unref(QvJobRun *run)
{
  if (--run->refs > 0)
    return;
  g_clear_handle_id(&run->wall, g_source_remove);
  g_clear_handle_id(&run->overdue, g_source_remove);
  g_clear_handle_id(&run->token_timer, g_source_remove);
  g_clear_handle_id(&run->usage_timer, g_source_remove);
  g_clear_handle_id(&run->beat, g_source_remove);
  qv_job_link_free(run->link);
  qv_admission_clear(&run->admission);
  g_clear_pointer(&run->facts, g_bytes_unref);
  g_clear_pointer(&run->usage, g_bytes_unref);
  explicit_bzero(run->token, sizeof run->token);
  g_queue_clear_full(&run->events, g_free);
  g_free(run->rootfs_file);
  g_free(run->sandbox_id);
  qv_box_kind_clear(&run->box);
  g_free(run->image_digest);
  g_free(run->id);
  g_free(run);
}

void qv_run_feed_type(QvJobRun *run, QvRunEventType type)
{
  qv_run_feed(run, (QvRunEvent){.type = type});
}

void qv_run_interrupt(QvJobRun *run, QvRunCause cause)
{
  qv_run_feed(run, (QvRunEvent){.type = QV_RUN_EVENT_INTERRUPT, .cause = cause});
}

QvConn *qv_run_conn(QvJobRun *run)
{
  return qv_worker_conn(run->supervisor->worker);
}

/* ---- sweep */

static void on_swept(const QvSweepEnd *end, gpointer data)
{
  QvJobRun *run = data;
  qv_run_feed_type(run, end->status == QV_SWEEP_CLEAN ? QV_RUN_EVENT_SWEPT : QV_RUN_EVENT_SWEEP_FAILED);
  qv_run_unref(run);
}

static void do_release(QvJobRun *run)
{
  QvSupervisor *supervisor = run->supervisor;
  if (run->fetched != NULL && !run->answering) {
    qv_run_account(run, "lost", "lock_lost");
    qv_worker_drop(supervisor->worker, g_steal_pointer(&run->fetched));
  }
  g_ptr_array_remove(supervisor->runs, run);
  supervisor->busy(supervisor);
  supervisor->released(supervisor);
}

static void act(QvJobRun *run, QvRunAction action)
{
  switch (action) {
  case QV_RUN_DO_CLAIM: qv_run_claim(run); break;
  case QV_RUN_DO_ARM_WALL: qv_run_arm_wall(run); break;
  case QV_RUN_DO_ADMIT: qv_run_admit(run); break;
  case QV_RUN_DO_ASK_CANCEL: qv_run_ask_cancel(run); break;
  case QV_RUN_DO_GRANT: qv_run_grant(run); break;
  case QV_RUN_DO_REVOKE: qv_run_revoke(run); break;
  case QV_RUN_DO_SPAWN: qv_run_spawn(run); break;
  case QV_RUN_DO_STOP:
    qv_run_arm_overdue(run);
    if (run->link != NULL)
      qv_job_link_stop(run->link);
    break;
  case QV_RUN_DO_DISCARD:
    if (run->link != NULL)
      qv_job_link_discard(run->link);
    break;
  case QV_RUN_DO_KILL: qv_job_link_kill(run->link); break;
  case QV_RUN_DO_SWEEP:
    qv_sweeper_start(&run->supervisor->place, run->sandbox_id, NULL, NULL, on_swept, qv_run_ref(run));
    break;
  case QV_RUN_DO_STORE: qv_job_link_store(run->link); break;
  case QV_RUN_DO_FAIL: qv_run_fail(run); break;
  case QV_RUN_DO_FINISH: qv_run_finish(run); break;
  case QV_RUN_DO_UNLINK: qv_run_unlink(run); break;
  case QV_RUN_DO_PROBLEM:
    run->supervisor->problem(run->supervisor, run->id);
    break;
  case QV_RUN_DO_RELEASE: do_release(run); break;
  }
}

/* Its tenant may have another job in progress. */
static void stop_counting(QvJobRun *run)
{
  if (!run->counts)
    return;
  run->counts = FALSE;
  qv_job_run_order_tenants(run->supervisor);
}

/* No sandbox of it is there: what that took is for other jobs. The answer may have gone out long before: as many sandboxes as
 * there are slots, and no more of a tenant than it may have, also where removals stall. */
static void give_room(QvJobRun *run)
{
  QvSupervisor *supervisor = run->supervisor;
  if (run->state.phase < QV_RUN_CLEARING && !run->holds)
    return;
  if (run->box.image_digest != NULL)
    qv_warm_pool_job_ends(supervisor->warm, &run->box, run->state.egress);
  qv_box_kind_clear(&run->box);
  if (run->state.phase >= QV_RUN_CLEARING)
    stop_counting(run); /* first: whose job is next depends on it */
  if (run->holds)
    qv_worker_free_slot(supervisor->worker, run->fetched);
  run->holds = FALSE;
}

/* Events that come while one is handled wait: an action may cause the next. */
void qv_run_feed(QvJobRun *run, QvRunEvent event)
{
  g_queue_push_tail(&run->events, g_memdup2(&event, sizeof event));
  if (run->feeding)
    return;
  qv_run_ref(run);
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
    if (!run->state.sandbox)
      give_room(run);
  }
  run->feeding = FALSE;
  qv_run_unref(run);
}

/* ---- tenants */

static guint tenant_in_progress(const QvSupervisor *supervisor, const char *tenant_id)
{
  guint n = 0;
  for (guint i = 0; i < supervisor->runs->len; i++) {
    const QvJobRun *run = supervisor->runs->pdata[i];
    n += run->counts && strcmp(run->admission.job->tenant_id, tenant_id) == 0;
  }
  return n;
}

static gboolean has_enough(const QvSupervisor *supervisor, const char *tenant_id)
{
  gint64 most = supervisor->config->tenant_max;
  return most > 0 && tenant_in_progress(supervisor, tenant_id) >= most;
}

void qv_job_run_order_tenants(QvSupervisor *supervisor)
{
  g_autoptr(GPtrArray) skip = g_ptr_array_new();
  for (guint i = 0; i < supervisor->runs->len; i++) {
    const QvJobRun *run = supervisor->runs->pdata[i];
    if (run->counts && has_enough(supervisor, run->admission.job->tenant_id))
      g_ptr_array_add(skip, run->admission.job->tenant_id);
  }
  g_ptr_array_add(skip, NULL);
  qv_worker_set_tenants(supervisor->worker, (const char *const *)skip->pdata, qv_tenants_served(supervisor->tenants));
}

/* ---- begin */

static void on_put_back(QvFinish finish, const GError *error, gpointer user)
{
  QvJobRun *run = user;
  run->fetched = NULL;
  qv_run_unref(run);
}

/* The queue was read by what the text says of its tenant; what is signed decides. Not begun, and not counted. */
static void put_back(QvJobRun *run)
{
  QvSupervisor *supervisor = run->supervisor;
  qv_log(QV_LOG_DEBUG, "job goes back: its tenant has enough in progress", "jobId", run->id, "tenantId",
         run->admission.job->tenant_id, NULL);
  qv_worker_release(supervisor->worker, run->fetched, run->admission.job->tenant_id, on_put_back, qv_run_ref(run));
  g_ptr_array_remove(supervisor->runs, run);
}

static void begin(QvJobRun *run)
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
  QvReject reject = qv_admission_before_guard(&fields, &policy, qv_clock_unix_ms(), &run->admission);
  if (reject == QV_REJECT_NONE) {
    const char *tenant_id = run->admission.job->tenant_id;
    if (has_enough(supervisor, tenant_id)) {
      put_back(run);
      return;
    }
    run->counts = TRUE;
    qv_tenants_serve(supervisor->tenants, tenant_id);
    qv_job_run_order_tenants(supervisor);
  }
  qv_run_feed(run, (QvRunEvent){.type = QV_RUN_EVENT_FETCHED,
                         .refusal = reject == QV_REJECT_NONE ? NULL : qv_reject_failed_reason(reject),
                         .stalled = reject == QV_REJECT_STALLED,
                         .verified = reject == QV_REJECT_STALLED && run->admission.job != NULL});
}

void qv_job_run_begin(QvSupervisor *supervisor, QvFetchedJob *fetched)
{
  QvJobRun *run = g_new0(QvJobRun, 1);
  run->refs = 1;
  run->supervisor = supervisor;
  run->fetched = fetched;
  run->id = g_strdup(fetched->id);
  run->added_at = MAX(fetched->timestamp_ms, 0);
  run->taken_at = qv_clock_unix_ms();
  g_queue_init(&run->events);
  fetched->caller = run;
  g_ptr_array_add(supervisor->runs, run);
  supervisor->busy(supervisor);
  begin(run);
}

void qv_job_run_lock_lost(QvSupervisor *supervisor, QvFetchedJob *fetched, const char *why)
{
  QvJobRun *run = fetched->caller;
  qv_log(QV_LOG_WARNING, "job's lock is lost", "jobId", run->id, "reason", why, NULL);
  run->unanswered |= run->state.phase < QV_RUN_ANSWERING;
  qv_run_feed_type(run, QV_RUN_EVENT_LOCK_LOST);
}

static void for_all(QvSupervisor *supervisor, QvRunEvent event)
{
  g_autoptr(GPtrArray) runs = g_ptr_array_new();
  for (guint i = 0; i < supervisor->runs->len; i++)
    g_ptr_array_add(runs, qv_run_ref(supervisor->runs->pdata[i]));
  for (guint i = 0; i < runs->len; i++) {
    qv_run_feed(runs->pdata[i], event);
    qv_run_unref(runs->pdata[i]);
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

void qv_job_run_free_func(gpointer run)
{
  qv_run_unref(run);
}
