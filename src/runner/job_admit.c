/* SPDX-License-Identifier: Apache-2.0 */
/* A job before it runs: the replay guard, the checks behind it, the cancel key
 * (also while it runs). */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "protocol/cancel.h"
#include "queue/stores.h"
#include "runner/admitted.h"
#include "runner/job_run_private.h"

/* ---- claim */

static void on_guard(QvGuard guard, const GError *error, gpointer user)
{
  QvJobRun *run = user;
  if (guard == QV_GUARD_UNKNOWN) {
    /* No answer is not run: the lock runs out and the job ends as stalled. */
    if (run->state.phase != QV_RUN_DONE)
      qv_log(QV_LOG_ERROR, "replay guard gives no answer", "jobId", run->id, "error",
             error != NULL ? error->message : NULL, NULL);
    qv_run_feed_type(run, QV_RUN_EVENT_LOCK_LOST);
    qv_run_feed_type(run, QV_RUN_EVENT_CLAIM_LOST);
  } else {
    qv_run_feed_type(run, guard == QV_GUARD_WON ? QV_RUN_EVENT_CLAIM_WON : QV_RUN_EVENT_CLAIM_LOST);
  }
  qv_run_unref(run);
}

void qv_run_claim(QvJobRun *run)
{
  QvSupervisor *supervisor = run->supervisor;
  const QvJob *job = run->admission.job;
  gint64 now_ms = qv_clock_unix_ms(), ttl_ms = qv_admission_guard_ttl_ms(job, now_ms);
  if (qv_admitted_remember(supervisor->admitted, job->job_id, now_ms + ttl_ms)) {
    qv_run_feed_type(run, QV_RUN_EVENT_CLAIM_LOST);
    return;
  }
  qv_replay_guard_take(qv_run_conn(run), supervisor->prefix, job->job_id, supervisor->place.runner_id, ttl_ms, 0, on_guard,
                       qv_run_ref(run));
}

/* ---- admission behind the guard */

static gboolean on_wall(gpointer data)
{
  QvJobRun *run = data;
  run->wall = 0;
  qv_run_interrupt(run, QV_RUN_CAUSE_WALL);
  return G_SOURCE_REMOVE;
}

void qv_run_arm_wall(QvJobRun *run)
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

void qv_run_admit(QvJobRun *run)
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
    qv_run_feed(run, (QvRunEvent){.type = QV_RUN_EVENT_REFUSED, .refusal = qv_reject_failed_reason(reject)});
    return;
  }
  g_autoptr(GError) error = NULL;
  run->image_digest = g_strdup(image->digest);
  if (!qv_supervisor_image(supervisor, image, &run->rootfs_file, &error)) {
    qv_log(QV_LOG_ERROR, "image cannot be used", "jobId", run->id, "error", error->message, NULL);
    qv_run_interrupt(run, QV_RUN_CAUSE_IMAGE_FAILED);
  }
  qv_run_feed(run, (QvRunEvent){.type = QV_RUN_EVENT_ADMITTED, .egress = run->admission.job->egress[0] != NULL});
}

/* ---- cancel */

/* Both for check 8 and for a hint while the job runs. A key that cannot be read is no key that is absent: as with the
 * guard, no answer is not run. */
static void on_cancel_key(GBytes *bytes, const GError *error, gpointer user)
{
  QvJobRun *run = user;
  run->cancel_asked = FALSE;
  g_autoptr(GError) cause = NULL;
  if (error != NULL && run->state.phase != QV_RUN_DONE) {
    qv_log(QV_LOG_ERROR, "cancel key cannot be read", "jobId", run->id, "error", error->message, NULL);
    if (run->state.phase == QV_RUN_ASKING)
      qv_run_feed_type(run, QV_RUN_EVENT_LOCK_LOST);
  }
  if (bytes != NULL && run->state.phase < QV_RUN_ANSWERING) {
    if (qv_cancel_verify(g_bytes_get_data(bytes, NULL), g_bytes_get_size(bytes), run->admission.job,
                         run->admission.key, &cause))
      qv_run_interrupt(run, QV_RUN_CAUSE_CANCELLED);
    else
      qv_log(QV_LOG_WARNING, "cancel record ignored", "jobId", run->id, "error", cause->message, NULL);
  }
  if (run->cancel_again && bytes == NULL && run->state.phase < QV_RUN_STORING) {
    run->cancel_again = FALSE;
    qv_run_ask_cancel(run);
    qv_run_unref(run);
    return;
  }
  qv_run_feed_type(run, QV_RUN_EVENT_NO_CANCEL);
  qv_run_unref(run);
}

void qv_run_ask_cancel(QvJobRun *run)
{
  if (run->cancel_asked) { /* the answer under way may be older than the record */
    run->cancel_again = TRUE;
    return;
  }
  run->cancel_asked = TRUE;
  qv_cancel_get(qv_run_conn(run), run->supervisor->prefix, run->admission.job->job_id, 0, on_cancel_key, qv_run_ref(run));
}

void qv_job_run_look_for_cancel(QvSupervisor *supervisor, const char *job_id)
{
  for (guint i = 0; i < supervisor->runs->len; i++) {
    QvJobRun *run = supervisor->runs->pdata[i];
    if (run->state.phase >= QV_RUN_ASKING && run->state.phase < QV_RUN_STORING &&
        (job_id == NULL || strcmp(job_id, run->id) == 0))
      qv_run_ask_cancel(run);
  }
}
