/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a job. The script is sent until there is an answer: at once on the
 * next connection when there was none, after a pause when the answer was "not now".
 * Its lock is renewed all the while, silently. */
#include <string.h>

#include "base/error.h"
#include "queue/worker_private.h"

#define CODE_MIN (-9) /* of finish.lua */
#define PAUSE_MIN_MS 100
#define PAUSE_MAX_MS 2000

static void send_end(gpointer user);

static void finished(Job *job, QvFinish finish, const GError *error)
{
  QvWorker *w = job->worker;
  QvFinishFunc func = g_steal_pointer(&job->func); /* it may free the worker, which calls what is left */
  w->held += job->holds;
  if (func)
    func(finish, error, job->user);
  qv_worker_forget(w, job);
}

static QvFinish outcome(gint64 code)
{
  return code == 0 ? QV_FINISH_DONE : code == -1 ? QV_FINISH_REMOVED : QV_FINISH_LOST;
}

static gboolean is_code(const QvReply *reply)
{
  return reply->type == QV_REPLY_INTEGER && reply->integer <= 0 && reply->integer >= CODE_MIN;
}

/* A code, or a code and what take.lua says (false: it was not asked). */
static gboolean is_answer(const QvReply *reply)
{
  const QvReply *next = qv_reply_at(reply, 1);
  return is_code(reply) || (reply->elements_n == 2 && is_code(qv_reply_at(reply, 0)) &&
         (next->type == QV_REPLY_NIL || qv_worker_is_take(next)));
}

static void on_answer(Job *job, const QvReply *reply)
{
  QvWorker *w = job->worker;
  const QvReply *code = reply->type == QV_REPLY_ARRAY ? qv_reply_at(reply, 0) : reply;
  const QvReply *next = reply->type == QV_REPLY_ARRAY ? qv_reply_at(reply, 1) : NULL;
  g_autofree char *token = g_steal_pointer(&job->next_token);
  gint64 sent_us = job->sent_us;
  guint order_n = job->order_n;
  qv_worker_say(w, NULL);
  finished(job, outcome(qv_reply_int(code, -2)), NULL);
  if (!w->freed && next && next->type == QV_REPLY_ARRAY)
    qv_worker_took(w, next, token, sent_us, order_n);
}

static void on_reply(const QvReply *reply, const GError *error, gpointer user)
{
  Job *job = user;
  QvWorker *w = job->worker;
  if (w->freed) {
    finished(job, QV_FINISH_LOST, error);
    qv_worker_unref(w);
    return;
  }
  g_autoptr(GError) odd = !error && !is_answer(reply) ? qv_reply_odd("the end of a job") : NULL;
  error = odd ? odd : error;
  if (!error) {
    on_answer(job, reply);
  } else {
    job->again = TRUE;
    qv_worker_say(w, error);
    if (w->freed)
      finished(job, QV_FINISH_LOST, error);
    else if (g_error_matches(error, QV_ERROR, QV_ERROR_GONE))
      send_end(job);
    else if (odd || qv_reply_error_is_transient(error)) {
      job->pause_ms = CLAMP(job->pause_ms * 2, PAUSE_MIN_MS, PAUSE_MAX_MS);
      if (!job->retry)
        job->retry = qv_timer_new(send_end, job);
      qv_timer_arm_ms(job->retry, job->pause_ms);
    } else {
      finished(job, QV_FINISH_LOST, error);
    }
  }
  if (!w->freed)
    qv_worker_pump(w);
  qv_worker_unref(w);
}

static void send_finish(Job *job)
{
  QvWorker *w = job->worker;
  gboolean ok = job->end == END_COMPLETE;
  const QvKeep *keep = ok ? &job->options.completed : &job->options.failed;
  char now[QV_NUMBER_SIZE], count[QV_NUMBER_SIZE], age[QV_NUMBER_SIZE], limit[QV_NUMBER_SIZE], attempts[QV_NUMBER_SIZE];
  qv_worker_number(now, qv_worker_now_ms());
  qv_worker_number(count, keep->count);
  qv_worker_number(age, keep->age_s);
  qv_worker_number(limit, keep->limit);
  qv_worker_number(attempts, job->options.attempts);
  const char *head[] = { w->queue,
                         job->pub.id,
                         job->token,
                         now,
                         ok ? "completed" : "failed",
                         job->text,
                         count,
                         age,
                         limit,
                         attempts,
                         job->again ? "1" : "0",
                         job->fetch_next ? "1" : "0",
                         job->next_token,
                         w->lock_ms_text,
                         w->name ? w->name : "",
                         w->data_max_text,
                         w->order };
  guint keys_n = job->keys ? g_strv_length(job->keys) : 0, n = G_N_ELEMENTS(head) + keys_n;
  g_autofree const char **args = g_new(const char *, n);
  g_autofree gsize *lens = g_new(gsize, n);
  for (guint i = 0; i < n; i++) {
    args[i] = i < G_N_ELEMENTS(head) ? head[i] : job->keys[i - G_N_ELEMENTS(head)];
    lens[i] = args[i] == job->text ? job->text_len : strlen(args[i]);
  }
  qv_script_call(w->conn, &qv_script_finish, QV_SEND_ONCE, 0, n, args, lens, on_reply, job);
}

static void send_end(gpointer user)
{
  Job *job = user;
  QvWorker *w = job->worker;
  job->sent_us = g_get_monotonic_time();
  job->order_n = w->order_n;
  qv_worker_ref(w);
  if (job->end == END_RELEASE) {
    const char *args[] = { w->queue, job->pub.id, job->token, job->again ? "1" : "0", job->text };
    qv_script_call(w->conn, &qv_script_release, QV_SEND_ONCE, 0, G_N_ELEMENTS(args), args, NULL, on_reply, job);
    return;
  }
  /* Once asked for, a next job must be asked for again: the lost reply may have held one. */
  if (!job->again) {
    guint others = qv_worker_taken(w) - 1 + (w->fetch_token != NULL);
    job->fetch_next = !w->paused && !job->holds && others < w->concurrency;
  }
  send_finish(job);
}

static void begin_end(QvWorker *w, QvFetchedJob *pub, JobEnd end, const char *text, gsize len, QvFinishFunc func,
                      gpointer user)
{
  Job *job = (Job *)pub;
  g_assert(job->state != JOB_ENDING);
  job->state = JOB_ENDING;
  job->end = end;
  job->text = g_malloc(len + 1);
  memcpy(job->text, text, len);
  job->text[len] = '\0';
  job->text_len = len;
  job->func = func;
  job->user = user;
  job->next_token = qv_worker_next_token(w);
  qv_lock_keeper_hush(w->keeper, job->token);
  send_end(job);
}

void qv_worker_complete(QvWorker *w, QvFetchedJob *job, const char *value, gsize len, QvFinishFunc func, gpointer user)
{
  begin_end(w, job, END_COMPLETE, value, len, func, user);
}

void qv_worker_fail(QvWorker *w, QvFetchedJob *job, const char *reason, QvFinishFunc func, gpointer user)
{
  begin_end(w, job, END_FAIL, reason, strlen(reason), func, user);
}

void qv_worker_release(QvWorker *w, QvFetchedJob *job, const char *tenant, QvFinishFunc func, gpointer user)
{
  const char *text = tenant ? tenant : "";
  begin_end(w, job, END_RELEASE, text, strlen(text), func, user);
}

void qv_worker_take_keys(QvWorker *w, QvFetchedJob *pub, char **take_keys)
{
  Job *job = (Job *)pub;
  g_strfreev(job->keys);
  job->keys = take_keys;
}
