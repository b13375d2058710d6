/* SPDX-License-Identifier: Apache-2.0 */
/* A job at its end: the answer, and the input chunks that nobody needs any more. */
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "queue/stores.h"
#include "runner/job_result.h"
#include "runner/job_run_private.h"

/* ---- the answer */

void qv_run_log_end(const QvJobRun *run, const char *status, const char *code)
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
  qv_run_feed_type(run, error == NULL && finish == QV_FINISH_DONE ? QV_RUN_EVENT_ANSWERED : QV_RUN_EVENT_ANSWER_REFUSED);
  qv_run_unref(run);
}

void qv_run_fail(QvJobRun *run)
{
  qv_run_log_end(run, run->state.refusal, NULL);
  run->answering = TRUE;
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
  qv_run_log_end(run, status, code);
  run->answering = TRUE;
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
  run->unlinks = blobs[1] != NULL ? 2 : 1;
  for (guint i = 0, n = run->unlinks; i < n; i++)
    qv_blob_unlink(qv_run_conn(run), run->supervisor->prefix, blobs[i]->blob_id, blobs[i]->chunks, 0, on_unlinked,
                   qv_run_ref(run));
}
