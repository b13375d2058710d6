/* SPDX-License-Identifier: Apache-2.0 */
/* A job at its end: the answer, and the input chunks that nobody needs any more. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "protocol/egress_token.h"
#include "queue/stores.h"
#include "runner/audit.h"
#include "runner/job_result.h"
#include "runner/job_run_private.h"

/* ---- the answer */

void qv_run_account(QvJobRun *run, const char *status, const char *code)
{
  const QvSupervisor *supervisor = run->supervisor;
  g_autoptr(QvResult) egress = NULL;
  if (run->usage != NULL && run->admission.job != NULL) {
    egress = qv_result_new(run->admission.job, run->admission.job_sha256, supervisor->place.runner_id,
                           supervisor->place.backend);
    gsize n = 0;
    const char *text = g_bytes_get_data(run->usage, &n);
    if (!qv_token_usage_parse(text, n, run->token_hash, egress, NULL))
      g_clear_pointer(&egress, qv_result_free);
  }
  QvAudit audit = {.job_id = run->id,
                   .admission = &run->admission,
                   .pool = supervisor->config->pool,
                   .runner_id = supervisor->place.runner_id,
                   .backend = supervisor->place.backend,
                   .status = status,
                   .code = code,
                   .added_at = run->added_at,
                   .taken_at = run->taken_at,
                   .started_at = run->started_at,
                   .finished_at = qv_clock_unix_ms(),
                   .wall_ms = run->started_mono != 0 ? qv_clock_mono_ms() - run->started_mono : -1,
                   .host = run->state.reported ? &run->host : NULL};
  if (egress != NULL && egress->has_egress) {
    audit.has_egress = TRUE;
    audit.egress = egress->egress;
    audit.egress_n = egress->egress_n;
  }
  qv_audit_log(&audit);
  if (supervisor->metrics != NULL)
    qv_metrics_job(supervisor->metrics, &audit);
}

static void on_finish(QvFinish finish, const GError *error, gpointer user)
{
  QvJobRun *run = user;
  run->answering = FALSE;
  run->fetched = NULL;
  /* A job that is gone may have had our answer all the same, before somebody removed it. */
  run->unanswered |= error == NULL && finish == QV_FINISH_LOST;
  if (error != NULL && run->state.phase != QV_RUN_DONE)
    qv_log(QV_LOG_ERROR, "answer was refused", "jobId", run->id, "error", error->message, NULL);
  else if (error == NULL && finish != QV_FINISH_DONE)
    qv_log(QV_LOG_WARNING, "answer came too late", "jobId", run->id, NULL);
  qv_run_feed_type(run, error == NULL && finish == QV_FINISH_DONE ? QV_RUN_EVENT_ANSWERED : QV_RUN_EVENT_ANSWER_REFUSED);
  qv_run_unref(run);
}

static void add_keys(GPtrArray *keys, const QvJobRun *run, const char *blob_id, gint64 chunks)
{
  for (gint64 i = 0; i < chunks; i++)
    g_ptr_array_add(keys, qv_blob_key(run->supervisor->prefix, blob_id, i));
}

/* Chunks of a payload that no result tells of. */
static gint64 orphans(const QvJobRun *run)
{
  if (run->state.stalled) /* another's run, which is gone */
    return qv_blob_chunks(QV_PAYLOAD_BYTES_MAX);
  return run->unanswered || run->state.cause != QV_RUN_CAUSE_REPORTED ? qv_blob_chunks(run->host.payload_bytes) : 0;
}

/* The input goes in the same step as the answer comes, so that a runner that dies in between leaves nothing. */
static void owe_keys(QvJobRun *run)
{
  const QvJob *job = run->admission.job;
  if (!run->state.owes_unlink)
    return;
  g_autoptr(GPtrArray) keys = g_ptr_array_new();
  add_keys(keys, run, job->base.blob_id, job->base.chunks);
  if (job->overlay != NULL)
    add_keys(keys, run, job->overlay->blob_id, job->overlay->chunks);
  char blob_id[QV_BLOB_ID_CAP];
  qv_blob_id_format(job->job_id, "result", blob_id);
  add_keys(keys, run, blob_id, orphans(run));
  g_ptr_array_add(keys, NULL);
  qv_worker_take_keys(run->supervisor->worker, run->fetched, (char **)g_ptr_array_free(g_steal_pointer(&keys), FALSE));
}

void qv_run_fail(QvJobRun *run)
{
  static const char rejected[] = "rejected: ";
  const char *refusal = run->state.refusal;
  if (g_str_has_prefix(refusal, rejected))
    qv_run_account(run, "rejected", refusal + strlen(rejected));
  else
    qv_run_account(run, refusal, refusal);
  run->answering = TRUE;
  owe_keys(run);
  qv_worker_fail(run->supervisor->worker, run->fetched, run->state.refusal, on_finish, qv_run_ref(run));
}

void qv_run_finish(QvJobRun *run)
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
                    .usage = run->usage,
                    .token_hash = run->token_hash,
                    .result_salt = run->result_salt,
                    .started_at = run->started_at,
                    .finished_at = qv_clock_unix_ms(),
                    .wall_ms = qv_clock_mono_ms() - run->started_mono};
  const char *status, *code;
  gsize n;
  g_autofree char *text = qv_job_result_sign(&in, &n, &status, &code);
  qv_run_account(run, status, code);
  run->answering = TRUE;
  owe_keys(run);
  run->holds = run->state.sandbox;
  if (run->holds)
    qv_worker_hold_slot(run->supervisor->worker, run->fetched);
  qv_worker_complete(run->supervisor->worker, run->fetched, text, n, on_finish, qv_run_ref(run));
}

/* ---- tidy up */

enum { LIVE_LINGER_MS = 30000 };

/* Where the logs are in the payload, the live ones stay only as long as somebody may still be reading them; else they are
 * all that is known of what the job printed, and keep their time. */
static void expire_live(QvJobRun *run)
{
  gboolean whole = run->state.reported && run->host.end == QV_HOST_COMPLETE;
  guint n = run->link != NULL && whole ? qv_job_link_live_n(run->link) : 0;
  qv_live_expire(qv_run_conn(run), run->supervisor->prefix, run->id, n, LIVE_LINGER_MS);
}

static void on_unlinked(const GError *error, gpointer user)
{
  QvJobRun *run = user;
  if (error != NULL && run->state.phase != QV_RUN_DONE)
    qv_log(QV_LOG_WARNING, "input chunks stay until their time is over", "jobId", run->id, "error", error->message,
           NULL);
  if (--run->unlinks == 0)
    qv_run_feed_type(run, QV_RUN_EVENT_UNLINKED);
  qv_run_unref(run);
}

void qv_run_unlink(QvJobRun *run)
{
  expire_live(run);
  const QvBlobDescriptor *blobs[] = {&run->admission.job->base, run->admission.job->overlay};
  gint64 payload_chunks = orphans(run);
  run->unlinks = (blobs[1] != NULL ? 2 : 1) + (payload_chunks > 0 ? 1 : 0);
  if (payload_chunks > 0) {
    char blob_id[QV_BLOB_ID_CAP];
    qv_blob_id_format(run->admission.job->job_id, "result", blob_id);
    qv_blob_unlink(qv_run_conn(run), run->supervisor->prefix, blob_id, payload_chunks, 0, on_unlinked, qv_run_ref(run));
  }
  for (guint i = 0; i < G_N_ELEMENTS(blobs) && blobs[i] != NULL; i++)
    qv_blob_unlink(qv_run_conn(run), run->supervisor->prefix, blobs[i]->blob_id, blobs[i]->chunks, 0, on_unlinked,
                   qv_run_ref(run));
}
