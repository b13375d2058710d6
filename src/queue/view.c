/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/view.h"

#include "queue/script.h"

enum { NUMBERS_N = 7 }; /* paused or not, and six counts */

typedef struct {
  QvQueueViewFunc func;
  QvDoneFunc done;
  gpointer user;
} Call;

static void job_free(gpointer data)
{
  QvViewJob *job = data;
  g_free(job->id);
  g_free(job->worker);
  g_free(job->progress);
  g_free(job->failed_reason);
  g_free(job);
}

void qv_queue_view_free(QvQueueView *view)
{
  if (view == NULL)
    return;
  g_ptr_array_unref(view->jobs);
  g_free(view);
}

static gint64 number_at(const QvReply *reply, gsize i)
{
  const char *text = qv_reply_text(qv_reply_at(reply, i));
  return text != NULL ? g_ascii_strtoll(text, NULL, 10) : 0;
}

static char *text_at(const QvReply *reply, gsize i)
{
  return g_strdup(qv_reply_text(qv_reply_at(reply, i)));
}

static void take_job(QvQueueView *view, const QvReply *reply)
{
  gint64 state = qv_reply_int(qv_reply_at(reply, 0), 0);
  char *id = text_at(reply, 1);
  if (id == NULL || state < 1 || state > 4) {
    g_free(id);
    return;
  }
  QvViewJob *job = g_new(QvViewJob, 1);
  *job = (QvViewJob){ .state = (QvViewState)(state - 1),
                      .id = id,
                      .timestamp = number_at(reply, 2),
                      .processed_on = number_at(reply, 3),
                      .finished_on = number_at(reply, 4),
                      .worker = text_at(reply, 5),
                      .progress = text_at(reply, 6),
                      .failed_reason = text_at(reply, 7) };
  g_ptr_array_add(view->jobs, job);
}

/* Seven numbers and the jobs. */
static gboolean is_view(const QvReply *reply)
{
  gboolean fine = reply->elements_n == NUMBERS_N + 1 && qv_reply_at(reply, NUMBERS_N)->type == QV_REPLY_ARRAY;
  for (gsize i = 0; fine && i < NUMBERS_N; i++)
    fine = qv_reply_at(reply, i)->type == QV_REPLY_INTEGER;
  return fine;
}

static void on_view(const QvReply *reply, const GError *error, gpointer user)
{
  g_autofree Call *call = user;
  g_autoptr(GError) odd = error == NULL && !is_view(reply) ? qv_reply_odd("the view of the queue") : NULL;
  if (error != NULL || odd != NULL) {
    call->func(NULL, error != NULL ? error : odd, call->user);
    return;
  }
  QvQueueView *view = g_new0(QvQueueView, 1);
  gint64 *const counts[] = { &view->waiting, &view->prioritised, &view->delayed, &view->active, &view->completed,
                             &view->failed };
  view->jobs = g_ptr_array_new_with_free_func(job_free);
  view->paused = qv_reply_int(qv_reply_at(reply, 0), 0) != 0;
  for (gsize i = 0; i < G_N_ELEMENTS(counts); i++)
    *counts[i] = qv_reply_int(qv_reply_at(reply, i + 1), 0);
  const QvReply *jobs = qv_reply_at(reply, G_N_ELEMENTS(counts) + 1);
  for (gsize i = 0; i < jobs->elements_n; i++)
    take_job(view, jobs->elements[i]);
  call->func(view, NULL, call->user);
}

void qv_queue_view(QvConn *conn, const char *prefix, guint waiting_max, guint ended_max, gint64 deadline_ms,
                   QvQueueViewFunc func, gpointer user)
{
  g_autofree char *queue = qv_queue_prefix(prefix);
  g_autofree char *waiting = g_strdup_printf("%u", waiting_max), *ended = g_strdup_printf("%u", ended_max);
  const char *args[] = { queue, waiting, ended };
  Call *call = g_new(Call, 1);
  *call = (Call){ .func = func, .user = user };
  qv_script_call(conn, &qv_script_view, QV_SEND_AGAIN, deadline_ms, G_N_ELEMENTS(args), args, NULL, on_view, call);
}

static void on_paused(const QvReply *reply, const GError *error, gpointer user)
{
  g_autofree Call *call = user;
  call->done(error, call->user);
}

void qv_queue_pause(QvConn *conn, const char *prefix, gboolean pause, gint64 deadline_ms, QvDoneFunc func, gpointer user)
{
  g_autofree char *queue = qv_queue_prefix(prefix);
  const char *args[] = { queue, pause ? "1" : "0" };
  Call *call = g_new(Call, 1);
  *call = (Call){ .done = func, .user = user };
  qv_script_call(conn, &qv_script_pause, QV_SEND_AGAIN, deadline_ms, G_N_ELEMENTS(args), args, NULL, on_paused, call);
}
