/* SPDX-License-Identifier: Apache-2.0 */
/* A job's egress token from its making to the proxy's account of it (protocol
 * section 7). The token is in this process and in the job process only until it
 * is taken back; Valkey has its hash. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "queue/stores.h"
#include "runner/egress.h"
#include "runner/job_run_private.h"

enum { USAGE_WAIT_MS = 2000 };

/* ---- grant */

static void on_granted(const GError *error, gpointer user)
{
  QvJobRun *run = user;
  run->grant = 0;
  if (error == NULL) {
    qv_run_feed_type(run, QV_RUN_EVENT_GRANTED);
  } else if (run->state.phase != QV_RUN_DONE) {
    qv_log(QV_LOG_ERROR, "egress token cannot be written", "jobId", run->id, "error", error->message, NULL);
    qv_run_interrupt(run, QV_RUN_CAUSE_SANDBOX_FAILED);
  }
  qv_run_unref(run);
}

static gboolean on_token_over(gpointer data)
{
  QvJobRun *run = data;
  run->token_timer = 0;
  qv_run_feed_type(run, QV_RUN_EVENT_SETUP_OVER);
  return G_SOURCE_REMOVE;
}

void qv_run_grant(QvJobRun *run)
{
  QvSupervisor *supervisor = run->supervisor;
  const QvJob *job = run->admission.job;
  guint8 bytes[QV_TOKEN_BYTES];
  gint64 now_ms = qv_clock_unix_ms();
  qv_random_bytes(bytes, sizeof bytes);
  qv_token_format(bytes, run->token);
  explicit_bzero(bytes, sizeof bytes);
  qv_token_hash(run->token, run->token_hash);
  QvTokenRecord record = {.hosts = job->egress,
                          .expires_at = qv_token_expires_at(job, now_ms, run->started_at + job->limits.wall_ms)};
  g_strlcpy(record.job_id, job->job_id, sizeof record.job_id);
  gint64 lasts_ms = MAX(record.expires_at - now_ms, 1);
  gsize n;
  g_autofree char *text = qv_token_record_format(&record, &n);
  g_autoptr(GError) error = NULL;
  if (!qv_egress_note_add(supervisor->place.state_dir, run->token_hash, &error)) {
    qv_log(QV_LOG_ERROR, "egress token cannot be noted", "jobId", run->id, "error", error->message, NULL);
    qv_run_interrupt(run, QV_RUN_CAUSE_SANDBOX_FAILED);
    return;
  }
  run->token_timer = g_timeout_add(MIN(lasts_ms, (gint64)G_MAXINT32), on_token_over, run);
  run->grant = qv_egress_token_put(qv_run_conn(run), supervisor->prefix, run->token_hash, text, n, lasts_ms, 0, on_granted,
                                   qv_run_ref(run));
}

/* ---- revoke */

static void on_revoked(const GError *error, gpointer user)
{
  QvJobRun *run = user;
  if (error == NULL)
    qv_egress_note_remove(run->supervisor->place.state_dir, run->token_hash);
  else if (run->state.phase != QV_RUN_DONE)
    qv_log(QV_LOG_ERROR, "egress token stays until its time is over", "jobId", run->id, "error", error->message, NULL);
  qv_run_feed_type(run, QV_RUN_EVENT_REVOKED);
  qv_run_unref(run);
}

static gboolean on_no_usage(gpointer data)
{
  QvJobRun *run = data;
  run->usage_timer = 0;
  qv_run_feed_type(run, QV_RUN_EVENT_USAGE);
  return G_SOURCE_REMOVE;
}

void qv_run_revoke(QvJobRun *run)
{
  explicit_bzero(run->token, sizeof run->token);
  g_clear_handle_id(&run->token_timer, g_source_remove);
  /* The job process cuts what is open first: that needs no Valkey. */
  if (run->link != NULL)
    qv_job_link_end_egress(run->link);
  if (run->grant != 0) { /* else it could be sent again behind the revocation */
    qv_conn_cancel(qv_run_conn(run), run->grant);
    run->grant = 0;
    qv_run_unref(run);
  }
  qv_egress_token_revoke(qv_run_conn(run), run->supervisor->prefix, run->token_hash, 0, on_revoked, qv_run_ref(run));
  run->usage_timer = g_timeout_add(USAGE_WAIT_MS, on_no_usage, run);
}

/* ---- the proxy's account */

/* Kept as text until the result is made; read here so that nonsense ends nobody's wait. */
static gboolean is_usage(const QvJobRun *run, const char *text, gsize n)
{
  g_autoptr(QvResult) scratch = qv_result_new(run->admission.job, run->admission.job_sha256, "runner", "runsc");
  g_autoptr(GError) error = NULL;
  if (qv_token_usage_parse(text, n, run->token_hash, scratch, &error))
    return TRUE;
  qv_log(QV_LOG_WARNING, "an egress account is ignored", "jobId", run->id, "error", error->message, NULL);
  return FALSE;
}

void qv_job_run_egress_usage(QvSupervisor *supervisor, const char *text, gsize n)
{
  for (guint i = 0; i < supervisor->runs->len; i++) {
    QvJobRun *run = supervisor->runs->pdata[i];
    if (!run->state.egress || *run->token_hash == '\0' || g_strstr_len(text, n, run->token_hash) == NULL)
      continue;
    if (run->state.phase < QV_RUN_ANSWERING && run->usage == NULL && is_usage(run, text, n)) {
      run->usage = g_bytes_new(text, n);
      qv_run_feed_type(run, QV_RUN_EVENT_USAGE);
    }
    return;
  }
}
