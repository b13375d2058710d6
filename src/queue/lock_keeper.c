/* SPDX-License-Identifier: Apache-2.0 */
/* Theory of operation. The table and the notices are shared under one mutex. The
 * thread renews every entry each tick in scripts of up to BATCH jobs; a renewal that
 * is not answered by the next tick is given up, and the next one is on its way. A
 * lock that was not confirmed for its whole life must be taken for lost: the
 * clock of that is local and starts when the command that set the lock was sent, so it
 * can only run out too early. */
#include "queue/lock_keeper.h"

#include <string.h>

#include "base/error.h"
#include "queue/conn.h"
#include "queue/script.h"
#include "queue/timer.h"

#define BATCH 100
#define TICK_MAX_MS 5000 /* section 2.3: a cancel key is looked at every 5 s at least */

typedef struct {
  char *job_id;
  gint64 confirmed_us;
  gboolean hushed;
} Entry;

typedef struct {
  char *token;
  char *why; /* NULL: cancel seen */
} Notice;

struct QvLockKeeper {
  QvAddress *address;
  char *queue, *cancel_start;
  gint64 lock_ms, tick_ms;
  QvLockKeeperEvents events;
  gpointer user;
  QvTimer *notify; /* on the owner's context */

  GMutex mutex; /* entries, notices */
  GHashTable *entries; /* token > Entry */
  GQueue notices;

  GThread *thread;
  GMainContext *context;
  GMainLoop *loop;
  /* Only the thread touches these. */
  QvConn *conn;
  QvTimer *tick, *expiry;
};

typedef struct {
  QvLockKeeper *keeper;
  GPtrArray *tokens;
  gint64 sent_us;
} Batch;

static void entry_free(gpointer data)
{
  Entry *e = data;
  g_free(e->job_id);
  g_free(e);
}

static void notice_free(gpointer data)
{
  Notice *n = data;
  g_free(n->token);
  g_free(n->why);
  g_free(n);
}

/* Under the mutex. */
static void tell(QvLockKeeper *k, const char *token, const char *why)
{
  Notice *n = g_new0(Notice, 1);
  n->token = g_strdup(token);
  n->why = g_strdup(why);
  g_queue_push_tail(&k->notices, n);
  qv_timer_arm_at_us(k->notify, 0);
}

static void on_notify(gpointer user)
{
  QvLockKeeper *k = user;
  GQueue mine;
  g_mutex_lock(&k->mutex);
  mine = k->notices;
  g_queue_init(&k->notices);
  g_mutex_unlock(&k->mutex);
  for (Notice *n; (n = g_queue_pop_head(&mine)); notice_free(n)) {
    g_mutex_lock(&k->mutex);
    Entry *e = g_hash_table_lookup(k->entries, n->token);
    gboolean wanted = e && !e->hushed;
    if (wanted && n->why)
      g_hash_table_remove(k->entries, n->token);
    g_mutex_unlock(&k->mutex);
    if (wanted && n->why)
      k->events.lost(n->token, n->why, k->user);
    else if (wanted)
      k->events.cancel_seen(n->token, k->user);
  }
}

/* The thread */

static void on_expiry(gpointer user)
{
  QvLockKeeper *k = user;
  GHashTableIter iter;
  gpointer token, value;
  gint64 now_us = g_get_monotonic_time();
  g_mutex_lock(&k->mutex);
  g_hash_table_iter_init(&iter, k->entries);
  while (g_hash_table_iter_next(&iter, &token, &value)) {
    Entry *e = value;
    gint64 end_us = e->confirmed_us + k->lock_ms * 1000;
    if (end_us > now_us) {
      qv_timer_arm_before_us(k->expiry, end_us);
    } else if (!e->hushed) {
      tell(k, token, "it could not be renewed for its whole life");
      /* Said once: a notice that finds no entry is dropped, and this entry goes with it. */
      e->confirmed_us = G_MAXINT64 / 2;
    }
  }
  g_mutex_unlock(&k->mutex);
}

static void on_renewed(const QvReply *reply, const GError *error, gpointer user)
{
  Batch *batch = user;
  QvLockKeeper *k = batch->keeper;
  g_mutex_lock(&k->mutex);
  for (guint i = 0; reply && i < batch->tokens->len; i++) {
    const char *token = batch->tokens->pdata[i];
    Entry *e = g_hash_table_lookup(k->entries, token);
    gint64 answer = qv_reply_int(qv_reply_at(reply, i), -1);
    if (!e)
      continue;
    if (answer == 0 && !e->hushed)
      tell(k, token, "another holds it, or it ran out");
    if (answer >= 1)
      e->confirmed_us = MAX(e->confirmed_us, batch->sent_us);
    if (answer == 2)
      tell(k, token, NULL);
  }
  g_mutex_unlock(&k->mutex);
  g_ptr_array_unref(batch->tokens);
  g_free(batch);
}

static void send_batch(QvLockKeeper *k, GPtrArray *args, GPtrArray *take_tokens)
{
  Batch *batch = g_new0(Batch, 1);
  batch->keeper = k;
  batch->tokens = take_tokens;
  batch->sent_us = g_get_monotonic_time();
  qv_script_call(k->conn, &qv_script_renew, QV_SEND_AGAIN, k->tick_ms, args->len, (const char *const *)args->pdata, NULL,
                 on_renewed, batch);
}

static void on_tick(gpointer user)
{
  QvLockKeeper *k = user;
  g_autofree char *lock_ms = g_strdup_printf("%" G_GINT64_FORMAT, k->lock_ms);
  g_autoptr(GPtrArray) all = g_ptr_array_new();
  GHashTableIter iter;
  gpointer token, value;
  /* Copies: the calls below must not run under the mutex, and the owner may remove entries meanwhile. */
  g_mutex_lock(&k->mutex);
  g_hash_table_iter_init(&iter, k->entries);
  while (g_hash_table_iter_next(&iter, &token, &value)) {
    g_ptr_array_add(all, g_strdup(((Entry *)value)->job_id));
    g_ptr_array_add(all, g_strdup(token));
  }
  g_mutex_unlock(&k->mutex);
  for (guint from = 0; from < all->len; from += 2 * BATCH) {
    g_autoptr(GPtrArray) args = g_ptr_array_new();
    GPtrArray *tokens = g_ptr_array_new_with_free_func(g_free);
    g_ptr_array_add(args, k->queue);
    g_ptr_array_add(args, lock_ms);
    g_ptr_array_add(args, k->cancel_start);
    for (guint i = from; i < MIN(all->len, from + 2 * BATCH); i++) {
      g_ptr_array_add(args, all->pdata[i]);
      if (i % 2)
        g_ptr_array_add(tokens, g_strdup(all->pdata[i]));
    }
    send_batch(k, args, tokens);
  }
  g_ptr_array_set_free_func(all, g_free);
  qv_timer_arm_ms(k->tick, k->tick_ms);
  on_expiry(k);
}

static gpointer run_thread(gpointer user)
{
  QvLockKeeper *k = user;
  g_main_context_push_thread_default(k->context);
  k->conn = qv_conn_new(k->address, NULL);
  k->tick = qv_timer_new(on_tick, k);
  k->expiry = qv_timer_new(on_expiry, k);
  qv_timer_arm_ms(k->tick, 0);
  g_main_loop_run(k->loop);
  qv_timer_free(k->tick);
  qv_timer_free(k->expiry);
  qv_conn_free(k->conn);
  g_main_context_pop_thread_default(k->context);
  return NULL;
}

/* The owner's side */

QvLockKeeper *qv_lock_keeper_new(QvAddress *address, const char *queue, const char *cancel_start, gint64 lock_ms,
                                 const QvLockKeeperEvents *events, gpointer user)
{
  QvLockKeeper *k = g_new0(QvLockKeeper, 1);
  k->address = qv_address_ref(address);
  k->queue = g_strdup(queue);
  k->cancel_start = g_strdup(cancel_start);
  k->lock_ms = lock_ms;
  k->tick_ms = MIN(lock_ms / 4, TICK_MAX_MS);
  k->events = *events;
  k->user = user;
  k->notify = qv_timer_new(on_notify, k);
  g_mutex_init(&k->mutex);
  k->entries = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, entry_free);
  k->context = g_main_context_new();
  k->loop = g_main_loop_new(k->context, FALSE);
  k->thread = g_thread_new("qv-locks", run_thread, k);
  return k;
}

static gboolean quit(gpointer loop)
{
  g_main_loop_quit(loop);
  return G_SOURCE_REMOVE;
}

void qv_lock_keeper_free(QvLockKeeper *k)
{
  if (!k)
    return;
  /* Through the loop: a quit before the thread runs it would be forgotten. */
  g_autoptr(GSource) source = g_idle_source_new();
  g_source_set_callback(source, quit, k->loop, NULL);
  g_source_attach(source, k->context);
  g_thread_join(k->thread);
  qv_timer_free(k->notify);
  g_main_loop_unref(k->loop);
  g_main_context_unref(k->context);
  g_queue_clear_full(&k->notices, notice_free);
  g_hash_table_unref(k->entries);
  g_mutex_clear(&k->mutex);
  qv_address_unref(k->address);
  g_free(k->queue);
  g_free(k->cancel_start);
  g_free(k);
}

void qv_lock_keeper_add(QvLockKeeper *k, const char *token, const char *job_id, gint64 locked_us)
{
  Entry *e = g_new0(Entry, 1);
  e->job_id = g_strdup(job_id);
  e->confirmed_us = locked_us;
  g_mutex_lock(&k->mutex);
  g_hash_table_replace(k->entries, g_strdup(token), e);
  g_mutex_unlock(&k->mutex);
}

void qv_lock_keeper_hush(QvLockKeeper *k, const char *token)
{
  g_mutex_lock(&k->mutex);
  Entry *e = g_hash_table_lookup(k->entries, token);
  if (e)
    e->hushed = TRUE;
  g_mutex_unlock(&k->mutex);
}

void qv_lock_keeper_remove(QvLockKeeper *k, const char *token)
{
  g_mutex_lock(&k->mutex);
  g_hash_table_remove(k->entries, token);
  g_mutex_unlock(&k->mutex);
}
