/* SPDX-License-Identifier: Apache-2.0 */
/* Theory of operation. Events only say where to look: whenever one names a job that is
 * waited for, the job itself is read through the second connection. The reader
 * blocks on the stream from a real id on, taken before the first look, so that
 * nothing falls between the two. */
#include <string.h>

#include "base/error.h"
#include "queue/producer.h"
#include "queue/timer.h"

#define BLOCK_MS "3000" /* well below QV_SILENCE_DEAD_MS */
#define EVENTS_A_READ "64" /* each may hold a result of 1 MiB: all fit into QV_RESP_BYTES_MAX */
#define EVENT_ID_MAX 64
#define HASTE_MS 100 /* an answer without events comes after BLOCK_MS, not before this */
#define LOOK_MS 5000
#define RETRY_MS 500

typedef struct {
  QvWaiter *waiter;
  char *id;
  QvJobStateFunc func;
  gpointer user;
  QvProgressFunc progress;
  gpointer progress_user;
  gboolean said_active, looking, look_again, removed;
} Wait;

struct QvWaiter {
  guint refs;
  gboolean freed;
  char *events_key;
  char *last_id; /* NULL: not known yet */
  gsize text_max_bytes;
  QvConn *events, *commands;
  QvProducer *producer;
  GHashTable *waits; /* id > Wait */
  QvTimer *look, *retry;
  gboolean reading;
  gint64 asked_us; /* for events */
};

static void look(Wait *wait);
static void read_events(QvWaiter *w);

static void waiter_unref(QvWaiter *w)
{
  if (--w->refs)
    return;
  g_hash_table_unref(w->waits);
  g_free(w->events_key);
  g_free(w->last_id);
  g_free(w);
}

static void wait_free(Wait *wait)
{
  g_free(wait->id);
  g_free(wait);
}

/* A Wait with a look on its way is freed when that returns. */
static void drop_wait(gpointer data)
{
  Wait *wait = data;
  wait->removed = TRUE;
  if (!wait->looking)
    wait_free(wait);
}

static void on_looked(QvJobState state, const char *text, gsize len, const GError *error, gpointer user)
{
  Wait *wait = user;
  QvWaiter *w = wait->waiter;
  wait->looking = FALSE;
  if (wait->removed) {
    wait_free(wait);
    waiter_unref(w);
    return;
  }
  gboolean transient = error && (g_error_matches(error, QV_ERROR, QV_ERROR_GONE) ||
                                 g_error_matches(error, QV_ERROR, QV_ERROR_TIMEOUT));
  gboolean ended = !transient && (error || (state != QV_JOB_WAITING && state != QV_JOB_ACTIVE));
  if (ended) {
    QvJobStateFunc func = wait->func;
    gpointer func_user = wait->user;
    g_hash_table_remove(w->waits, wait->id);
    func(state, text, len, error, func_user);
  } else {
    if (!transient && state == QV_JOB_ACTIVE && !wait->said_active) {
      wait->said_active = TRUE;
      wait->looking = TRUE; /* the callback may remove it */
      wait->func(state, NULL, 0, NULL, wait->user);
      wait->looking = FALSE;
    }
    if (wait->removed)
      wait_free(wait);
    else if (wait->look_again)
      look(wait);
  }
  waiter_unref(w);
}

static void look(Wait *wait)
{
  QvWaiter *w = wait->waiter;
  wait->look_again = wait->looking;
  if (wait->looking || w->freed)
    return;
  wait->looking = TRUE;
  w->refs++;
  qv_producer_state(w->producer, wait->id, w->text_max_bytes, on_looked, wait);
}

static void look_at_all(gpointer user)
{
  QvWaiter *w = user;
  GHashTableIter iter;
  gpointer value;
  g_hash_table_iter_init(&iter, w->waits);
  while (g_hash_table_iter_next(&iter, NULL, &value))
    look(value);
  qv_timer_arm_ms(w->look, LOOK_MS);
}

/* Events */

static const QvReply *field(const QvReply *fields, const char *name)
{
  for (gsize i = 0; i + 1 < fields->elements_n; i += 2)
    if (g_strcmp0(qv_reply_text(fields->elements[i]), name) == 0)
      return fields->elements[i + 1];
  return qv_reply_at(NULL, 0);
}

static void take_event(QvWaiter *w, const QvReply *entry)
{
  const char *id = qv_reply_text(qv_reply_at(entry, 0));
  const QvReply *fields = qv_reply_at(entry, 1);
  if (!id || strlen(id) > EVENT_ID_MAX || fields->type != QV_REPLY_ARRAY)
    return;
  g_free(w->last_id);
  w->last_id = g_strdup(id);
  const char *event = qv_reply_text(field(fields, "event")), *job = qv_reply_text(field(fields, "jobId"));
  Wait *wait = job ? g_hash_table_lookup(w->waits, job) : NULL;
  if (!event || !wait)
    return;
  if (g_str_equal(event, "progress")) {
    const QvReply *data = field(fields, "data");
    if (wait->progress && qv_reply_text(data))
      wait->progress(data->text, data->len, wait->progress_user);
  } else if (g_str_equal(event, "active") || g_str_equal(event, "completed") || g_str_equal(event, "failed") ||
             g_str_equal(event, "removed")) {
    look(wait);
  }
}

static void on_events(const QvReply *reply, const GError *error, gpointer user)
{
  QvWaiter *w = user;
  if (w->freed)
    return;
  w->reading = FALSE;
  w->refs++;
  const QvReply *entries = qv_reply_at(qv_reply_at(reply, 0), 1);
  gboolean gone = g_error_matches(error, QV_ERROR, QV_ERROR_GONE);
  g_autofree char *before = g_strdup(w->last_id);
  for (gsize i = 0; !w->freed && i < entries->elements_n; i++)
    take_event(w, entries->elements[i]);
  if (gone && !w->freed)
    look_at_all(w);
  /* An answer at once that brings nothing new would be asked for again at once, for ever. */
  gboolean idle = g_get_monotonic_time() - w->asked_us < HASTE_MS * 1000 && g_strcmp0(before, w->last_id) == 0;
  if (!w->freed && (error ? !gone : idle))
    qv_timer_arm_ms(w->retry, RETRY_MS); /* looking goes on without events */
  else if (!w->freed)
    read_events(w);
  waiter_unref(w);
}

static void on_last_id(const QvReply *reply, const GError *error, gpointer user)
{
  QvWaiter *w = user;
  if (w->freed)
    return;
  w->reading = FALSE;
  if (error) {
    qv_timer_arm_ms(w->retry, RETRY_MS);
    return;
  }
  const char *id = qv_reply_text(qv_reply_at(qv_reply_at(reply, 0), 0));
  w->last_id = g_strdup(id && strlen(id) <= EVENT_ID_MAX ? id : "0-0");
  w->refs++;
  look_at_all(w);
  read_events(w);
  waiter_unref(w);
}

static void read_events(QvWaiter *w)
{
  if (w->reading)
    return;
  w->reading = TRUE;
  w->asked_us = g_get_monotonic_time();
  if (!w->last_id)
    qv_conn_sendl(w->events, QV_SEND_AGAIN, 0, on_last_id, w, "XREVRANGE", w->events_key, "+", "-", "COUNT", "1", NULL);
  else
    qv_conn_sendl(w->events, QV_SEND_ONCE, 0, on_events, w, "XREAD", "COUNT", EVENTS_A_READ, "BLOCK", BLOCK_MS, "STREAMS",
                  w->events_key, w->last_id, NULL);
}

static void on_retry(gpointer user)
{
  read_events(user);
}

/* Public */

QvWaiter *qv_waiter_new(QvAddress *address, const char *prefix, gsize text_max_bytes)
{
  QvWaiter *w = g_new0(QvWaiter, 1);
  w->refs = 1;
  w->events_key = g_strconcat(prefix, ":sandbox:events", NULL);
  w->text_max_bytes = text_max_bytes;
  w->events = qv_conn_new(address, NULL);
  w->commands = qv_conn_new(address, NULL);
  w->producer = qv_producer_new(w->commands, prefix, 0);
  w->waits = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, drop_wait);
  w->look = qv_timer_new(look_at_all, w);
  w->retry = qv_timer_new(on_retry, w);
  read_events(w);
  return w;
}

void qv_waiter_free(QvWaiter *w)
{
  if (!w || w->freed)
    return;
  w->freed = TRUE;
  g_hash_table_remove_all(w->waits);
  g_clear_pointer(&w->events, qv_conn_free);
  g_clear_pointer(&w->commands, qv_conn_free);
  g_clear_pointer(&w->producer, qv_producer_free);
  g_clear_pointer(&w->look, qv_timer_free);
  g_clear_pointer(&w->retry, qv_timer_free);
  waiter_unref(w);
}

void qv_waiter_add(QvWaiter *w, const char *id, QvJobStateFunc func, gpointer user)
{
  Wait *wait = g_new0(Wait, 1);
  wait->waiter = w;
  wait->id = g_strdup(id);
  wait->func = func;
  wait->user = user;
  g_hash_table_replace(w->waits, wait->id, wait);
  look(wait);
  if (!qv_timer_is_armed(w->look))
    qv_timer_arm_ms(w->look, LOOK_MS);
}

void qv_waiter_set_progress(QvWaiter *w, const char *id, QvProgressFunc func, gpointer user)
{
  Wait *wait = g_hash_table_lookup(w->waits, id);
  if (!wait)
    return;
  wait->progress = func;
  wait->progress_user = user;
}

void qv_waiter_remove(QvWaiter *w, const char *id)
{
  g_hash_table_remove(w->waits, id);
}
