/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the wait for a job's end, and its cancel.
 *
 *   WAITING ─ACTIVE→ PREPARING ─progress→ SETUP, STEP i, FINISHING ─COMPLETED→ verify
 *      └────────────── FAILED, UNKNOWN, notAfter + wallMs + 180 s: no result ──────┘
 *
 * When the caller gives up, the cancel key is set; a job that nobody has taken yet is also removed from the
 * queue, since without a runner there would be no answer. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "client/live.h"
#include "client/path.h"
#include "client/result.h"
#include "protocol/cancel.h"
#include "protocol/progress.h"
#include "queue/stores.h"

enum { TICK_MS = 200, CANCEL_PATIENCE_MS = 20000 };

typedef struct {
  QuavonClient *client;
  QvTicket *ticket;
  QuavonProgressFunction function;
  void *data;
  gint64 started_ms;
  gint64 cancelled_ms; /* 0: not */
  gboolean abandoned;
  QuavonStage stage;
  gint64 step;
  gboolean ended;
  QvJobState state;
  char *text;
  gsize len;
  GError *error;
} Wait;

static void report(Wait *wait)
{
  QuavonProgress progress = { .stage = wait->stage, .elapsed_ms = qv_clock_mono_ms() - wait->started_ms };
  if (wait->stage == QUAVON_STAGE_STEP) {
    progress.done = wait->step;
    progress.total = (gint64)wait->ticket->job->run_n;
    progress.detail = wait->ticket->job->run[wait->step - 1].name; /* what is said is unsigned: the name is ours */
  }
  int answer = wait->function != NULL ? wait->function(&progress, wait->data) : QUAVON_GO_ON;
  if (answer != QUAVON_GO_ON && wait->cancelled_ms == 0)
    wait->cancelled_ms = qv_clock_mono_ms();
  wait->abandoned |= answer == QUAVON_ABANDON;
}

static void on_state(QvJobState state, const char *text, gsize len, const GError *error, gpointer user)
{
  Wait *wait = user;
  if (error == NULL && (state == QV_JOB_WAITING || state == QV_JOB_ACTIVE)) {
    if (state == QV_JOB_ACTIVE && wait->stage == QUAVON_STAGE_WAITING)
      wait->stage = QUAVON_STAGE_PREPARING;
    return;
  }
  wait->ended = TRUE;
  wait->state = state;
  wait->error = error != NULL ? g_error_copy(error) : NULL;
  if (text != NULL) {
    wait->text = g_strndup(text, len);
    wait->len = len;
  }
}

static void on_progress(const char *json, gsize len, gpointer user)
{
  Wait *wait = user;
  static const QuavonStage stages[QV_RUN_STAGES_N] = { [QV_RUN_STAGE_PREPARING] = QUAVON_STAGE_PREPARING,
                                                       [QV_RUN_STAGE_SETUP] = QUAVON_STAGE_SETUP,
                                                       [QV_RUN_STAGE_STEP] = QUAVON_STAGE_STEP,
                                                       [QV_RUN_STAGE_COLLECTING] = QUAVON_STAGE_FINISHING };
  QvRunProgress said;
  if (!qv_run_progress_parse(json, len, &said) || said.step > wait->ticket->job->run_n)
    return;
  wait->stage = stages[said.stage];
  wait->step = said.step;
}

static gboolean on_tick(gpointer user)
{
  report(user);
  return G_SOURCE_CONTINUE;
}

static gboolean put_cancel(QuavonClient *client, const QvTicket *ticket, GError **error)
{
  gsize n = 0;
  gint64 now_ms = qv_clock_unix_ms();
  g_autofree char *text = qv_cancel_sign(ticket->job, now_ms, ticket->key, &n, error);
  if (text == NULL)
    return FALSE;
  QvCall call = { 0 };
  qv_cancel_put(client->conn, client->prefix, ticket->job->job_id, text, n, qv_cancel_ttl_ms(ticket->job, now_ms),
                QV_CALL_DEADLINE_MS, qv_call_done, &call);
  return qv_session_wait(client, &call, error);
}

typedef struct {
  QvCall call;
  gboolean removed;
} RemoveCall;

static void on_remove(gboolean removed, const GError *error, gpointer user)
{
  RemoveCall *remove = user;
  remove->removed = removed;
  qv_call_finish(&remove->call, error);
}

/* TRUE: nobody had taken the job, and nobody will. */
static gboolean withdraw(QuavonClient *client, const QvJob *job)
{
  RemoveCall remove = { 0 };
  qv_producer_remove(client->producer, job->job_id, on_remove, &remove);
  if (!qv_session_wait(client, &remove.call, NULL) || !remove.removed)
    return FALSE;
  const QvBlobDescriptor *blobs[] = { &job->base, job->overlay };
  for (guint i = 0; i < G_N_ELEMENTS(blobs) && blobs[i] != NULL; i++) {
    QvCall call = { 0 };
    qv_blob_unlink(client->conn, client->prefix, blobs[i]->blob_id, (guint)blobs[i]->chunks, QV_CALL_DEADLINE_MS,
                   qv_call_done, &call);
    qv_session_wait(client, &call, NULL);
  }
  return TRUE;
}

static gint64 lost_at_ms(const QvJob *job)
{
  return job->not_after + job->limits.wall_ms + QV_LOST_EXTRA_MS;
}

/* FALSE: the wait is over without an end. */
static gboolean cancel_once(Wait *wait, GError **error)
{
  gboolean waiting = wait->stage == QUAVON_STAGE_WAITING;
  if (!put_cancel(wait->client, wait->ticket, error))
    return FALSE;
  if (!waiting || !withdraw(wait->client, wait->ticket->job))
    return TRUE;
  g_set_error_literal(error, QV_ERROR, QV_ERROR_CANCELLED, "cancelled before a runner took the job");
  return FALSE;
}

/* FALSE: there is no point in waiting any longer. */
static gboolean check_patience(const Wait *wait, QuavonErrorCode *code, GError **error)
{
  if (wait->cancelled_ms != 0 && qv_clock_mono_ms() - wait->cancelled_ms > CANCEL_PATIENCE_MS) {
    g_set_error_literal(error, QV_ERROR, QV_ERROR_CANCELLED, "cancelled; no runner has confirmed it");
    return FALSE;
  }
  if (qv_clock_unix_ms() <= lost_at_ms(wait->ticket->job))
    return TRUE;
  put_cancel(wait->client, wait->ticket, NULL);
  *code = QUAVON_ERROR_LOST;
  g_set_error(error, QV_ERROR, QV_ERROR_TIMEOUT, "lost: job %s has no result and can have none any more",
              wait->ticket->job->job_id);
  return FALSE;
}

/* Turns the loop until the job ended or there is no point in waiting. */
static gboolean wait_for_end(Wait *wait, QuavonErrorCode *code, GError **error)
{
  gboolean cancel_sent = FALSE;
  while (!wait->ended) {
    g_main_context_iteration(wait->client->context, TRUE);
    if (wait->ended)
      break;
    if (wait->abandoned) {
      g_set_error_literal(error, QV_ERROR, QV_ERROR_CANCELLED, "abandoned");
      return FALSE;
    }
    if (wait->cancelled_ms != 0 && !cancel_sent) {
      cancel_sent = TRUE;
      if (!cancel_once(wait, error))
        return FALSE;
    }
    if (!wait->ended && !check_patience(wait, code, error))
      return FALSE;
  }
  return TRUE;
}

/* What an end means. */
static QuavonResult *conclude(QvTicket *ticket, QvJobState state, const char *text, gsize len, QuavonErrorCode *code,
                              GError **error)
{
  const char *job_id = ticket->job->job_id;
  switch (state) {
  case QV_JOB_COMPLETED:
    return qv_api_result_new(ticket, text != NULL ? text : "", len, error);
  case QV_JOB_FAILED: {
    g_autofree char *shown = qv_path_show(text != NULL ? text : "");
    *code = QUAVON_ERROR_REJECTED;
    g_set_error(error, QV_ERROR, QV_ERROR_PEER, "job %s was not run: %s", job_id, shown);
    return NULL;
  }
  default:
    g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND, "job %s is no longer there", job_id);
    return NULL;
  }
}

static QuavonResult *wait_for(Wait *wait, QuavonErrorCode *code, GError **error)
{
  QuavonClient *client = wait->client;
  const char *job_id = wait->ticket->job->job_id;
  QvWaiter *waiter = qv_waiter_new(client->address, client->prefix, QV_RESULT_JSON_BYTES_MAX);
  qv_waiter_add(waiter, job_id, on_state, wait);
  qv_waiter_set_progress(waiter, job_id, on_progress, wait);
  GSource *tick = g_timeout_source_new(TICK_MS);
  g_source_set_callback(tick, on_tick, wait, NULL);
  g_source_attach(tick, client->context);
  report(wait);
  g_autoptr(QvLive) live = client->log_function != NULL
                             ? qv_live_follow(client, wait->ticket, client->log_function, client->log_data)
                             : NULL;
  QuavonResult *result = NULL;
  if (wait_for_end(wait, code, error)) {
    if (wait->error != NULL)
      g_propagate_error(error, g_steal_pointer(&wait->error));
    else
      result = conclude(wait->ticket, wait->state, wait->text, wait->len, code, error);
  }
  g_source_destroy(tick);
  g_source_unref(tick);
  if (live != NULL && wait->ended)
    qv_live_drain(live);
  qv_waiter_free(waiter);
  return result;
}

/* The job is over for this client: a result has its own reference. */
static void forget(QuavonClient *client, const char *job_id, const QuavonResult *result, QuavonErrorCode code)
{
  if (result != NULL || code == QUAVON_ERROR_REJECTED || code == QUAVON_ERROR_LOST)
    g_hash_table_remove(client->tickets, job_id);
}

static QuavonResult *finish(QuavonResult *result, QuavonErrorCode code, GError *cause, QuavonError **error)
{
  if (result == NULL && cause != NULL) {
    if (code != 0)
      qv_api_error_take_as(error, code, cause);
    else
      qv_api_error_take(error, cause);
  }
  return result;
}

QuavonResult *quavon_wait(QuavonClient *client, const char *job_id, QuavonProgressFunction progress, void *data,
                          QuavonError **error)
{
  g_autoptr(QvSessionScope) scope G_GNUC_UNUSED = qv_session_enter(client);
  GError *cause = NULL;
  QuavonErrorCode code = 0;
  g_autoptr(QvTicket) ticket = qv_session_ticket(client, job_id, &cause);
  QuavonResult *result = NULL;
  if (ticket != NULL) {
    Wait wait = { .client = client, .ticket = ticket, .function = progress, .data = data };
    wait.stage = QUAVON_STAGE_WAITING;
    wait.started_ms = qv_clock_mono_ms();
    result = wait_for(&wait, &code, &cause);
    g_free(wait.text);
    g_clear_error(&wait.error);
    forget(client, ticket->job->job_id, result, code);
  }
  return finish(result, code, cause, error);
}

typedef struct {
  QvCall call;
  QvJobState state;
  char *text;
  gsize len;
} StateCall;

static void on_state_now(QvJobState state, const char *text, gsize len, const GError *error, gpointer user)
{
  StateCall *now = user;
  now->state = state;
  now->text = text != NULL ? g_strndup(text, len) : NULL;
  now->len = len;
  qv_call_finish(&now->call, error);
}

QuavonResult *quavon_result_get(QuavonClient *client, const char *job_id, QuavonError **error)
{
  g_autoptr(QvSessionScope) scope G_GNUC_UNUSED = qv_session_enter(client);
  GError *cause = NULL;
  QuavonErrorCode code = 0;
  QuavonResult *result = NULL;
  g_autoptr(QvTicket) ticket = qv_session_ticket(client, job_id, &cause);
  if (ticket != NULL) {
    StateCall now = { 0 };
    qv_producer_state(client->producer, job_id, QV_RESULT_JSON_BYTES_MAX, on_state_now, &now);
    if (qv_session_wait(client, &now.call, &cause) && now.state != QV_JOB_WAITING && now.state != QV_JOB_ACTIVE)
      result = conclude(ticket, now.state, now.text, now.len, &code, &cause);
    g_free(now.text);
    forget(client, ticket->job->job_id, result, code);
  }
  return finish(result, code, cause, error);
}

int quavon_cancel(QuavonClient *client, const char *job_id, QuavonError **error)
{
  g_autoptr(QvSessionScope) scope G_GNUC_UNUSED = qv_session_enter(client);
  GError *cause = NULL;
  g_autoptr(QvTicket) ticket = qv_session_ticket(client, job_id, &cause);
  if (ticket != NULL && put_cancel(client, ticket, &cause))
    return 0;
  qv_api_error_take(error, cause);
  return -1;
}
