/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pool.h"

#include "base/clock.h"
#include "base/error.h"
#include "queue/stores.h"

static void runner_free(gpointer data)
{
  QvPoolRunner *runner = data;
  g_free(runner->runner_id);
  qv_health_free(runner->health);
  g_free(runner->why);
  g_free(runner);
}

void qv_pool_view_free(QvPoolView *view)
{
  if (view == NULL)
    return;
  qv_queue_view_free(view->queue);
  g_clear_pointer(&view->runners, g_ptr_array_unref);
  g_clear_pointer(&view->tickets, g_hash_table_unref);
  g_free(view);
}

typedef struct {
  QvCall call;
  QuavonClient *client;
  QvPoolView *view;
} ViewCall;

static void on_view(QvQueueView *queue, const GError *error, gpointer user)
{
  ViewCall *call = user;
  call->view->queue = queue;
  qv_call_finish(&call->call, error);
}

static int by_id(gconstpointer a, gconstpointer b)
{
  return g_strcmp0((*(QvPoolRunner *const *)a)->runner_id, (*(QvPoolRunner *const *)b)->runner_id);
}

static void on_health(guint n, const char *const *runner_ids, GBytes *const *records, const GError *error, gpointer user)
{
  ViewCall *call = user;
  const QuavonClient *client = call->client;
  for (guint i = 0; i < n; i++) {
    QvPoolRunner *runner = g_new0(QvPoolRunner, 1);
    runner->runner_id = g_strdup(runner_ids[i]);
    g_ptr_array_add(call->view->runners, runner);
    if (records[i] == NULL) {
      runner->why = g_strdup("its health record has expired");
      continue;
    }
    gsize size = 0;
    const char *text = g_bytes_get_data(records[i], &size);
    g_autoptr(GError) why = NULL;
    runner->health = qv_health_verify(text, size, client->ring, client->config->pool, runner_ids[i], call->view->at, NULL, &why);
    if (runner->health == NULL)
      runner->why = g_strdup(why->message);
  }
  g_ptr_array_sort(call->view->runners, by_id);
  qv_call_finish(&call->call, error);
}

static void take_tickets(QuavonClient *client, QvPoolView *view, gboolean ended, const QvPoolView *before)
{
  for (guint i = 0; i < view->queue->jobs->len; i++) {
    const QvViewJob *job = view->queue->jobs->pdata[i];
    if (!ended && job->state != QV_VIEW_WAITING && job->state != QV_VIEW_ACTIVE)
      continue;
    QvTicket *known = before != NULL ? g_hash_table_lookup(before->tickets, job->id) : NULL;
    QvTicket *ticket = known != NULL ? qv_ticket_ref(known) : qv_session_ticket(client, job->id, NULL);
    if (ticket != NULL)
      g_hash_table_replace(view->tickets, g_strdup(job->id), ticket);
  }
}

QvPoolView *qv_pool_view(QuavonClient *client, guint waiting_max, guint ended_max, gboolean ended_tickets,
                         const QvPoolView *before, QuavonError **error)
{
  g_autoptr(QvSessionScope) scope G_GNUC_UNUSED = qv_session_enter(client);
  g_autoptr(QvPoolView) view = g_new0(QvPoolView, 1);
  view->at = qv_clock_unix_ms();
  view->runners = g_ptr_array_new_with_free_func(runner_free);
  view->tickets = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, (GDestroyNotify)qv_ticket_unref);
  GError *cause = NULL;
  ViewCall queue = { .client = client, .view = view }, health = queue;
  qv_queue_view(client->conn, client->prefix, waiting_max, ended_max, QV_CALL_DEADLINE_MS, on_view, &queue);
  gboolean fine = qv_session_wait(client, &queue.call, &cause);
  if (fine) {
    qv_health_list(client->conn, client->prefix, view->at, QV_CALL_DEADLINE_MS, on_health, &health);
    fine = qv_session_wait(client, &health.call, &cause);
  }
  if (!fine) {
    qv_api_error_take(error, cause);
    return NULL;
  }
  take_tickets(client, view, ended_tickets, before);
  return g_steal_pointer(&view);
}

int qv_pool_pause(QuavonClient *client, gboolean pause, QuavonError **error)
{
  g_autoptr(QvSessionScope) scope G_GNUC_UNUSED = qv_session_enter(client);
  GError *cause = NULL;
  QvCall call = { 0 };
  qv_queue_pause(client->conn, client->prefix, pause, QV_CALL_DEADLINE_MS, qv_call_done, &call);
  if (qv_session_wait(client, &call, &cause))
    return 0;
  qv_api_error_take(error, cause);
  return -1;
}

void qv_pool_hurry(QuavonClient *client)
{
  qv_conn_set_fail_fast(client->conn, TRUE);
}

const char *qv_pool_name(const QuavonClient *client)
{
  return client->config->pool;
}
