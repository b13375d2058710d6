/* SPDX-License-Identifier: Apache-2.0 */
/* Theory of operation. A command is in one of three lists:
 *   waiting: to be written as soon as a link is up, in this order
 *   sent:    written to the present link, its replies come in this order
 *   resting: answered "not now", goes back to waiting at its time
 * While a link is up and nothing waits, a command goes to `sent` at once; the link gathers
 * what one turn of the loop brings. A lost link moves the AGAIN commands of `sent` back to the front of `waiting`
 * and fails the ONCE ones. Completing a command unlinks it first and then calls
 * back, so that a callback may do anything, also free the connection. */
#include "queue/conn.h"

#include <string.h>

#include "base/error.h"
#include "queue/link.h"
#include "queue/resp.h"
#include "queue/timer.h"

#define RECONNECT_MIN_MS 50
#define RECONNECT_MAX_MS 2000
#define REST_MIN_MS 50
#define REST_MAX_MS 2000

typedef struct {
  GList node; /* data is the command itself */
  GQueue *list;
  guint64 id;
  QvSend send;
  gint64 deadline_us; /* 0: none */
  gint64 rest_until_us;
  gint64 rest_ms;
  GBytes *bytes;
  QvReplyFunc func;
  gpointer user;
  GDestroyNotify destroy;
} Command;

struct QvConn {
  guint refs;
  gboolean freed;
  QvAddress *address;
  char *client_name;
  QvLink *link;
  QvConnState state;
  GError *last_error;
  gboolean fail_fast;
  gboolean moving; /* the link is given up as soon as its reply is handed over: nothing goes to it any more */
  QvConnStateFunc state_func;
  gpointer state_user;
  GQueue waiting, sent, resting;
  GHashTable *by_id;
  guint64 next_id;
  QvTimer *reconnect, *housekeeping, *flush;
  gint64 pause_ms;
};

static void open_link(gpointer user);
static void on_lost(QvLink *link, const GError *why, gpointer user);

static void conn_unref(QvConn *conn)
{
  if (--conn->refs)
    return;
  g_clear_error(&conn->last_error);
  g_hash_table_unref(conn->by_id);
  qv_address_unref(conn->address);
  g_free(conn->client_name);
  g_free(conn);
}

static void move_to(Command *c, GQueue *list, gboolean front)
{
  if (c->list)
    g_queue_unlink(c->list, &c->node);
  c->list = list;
  if (list && front)
    g_queue_push_head_link(list, &c->node);
  else if (list)
    g_queue_push_tail_link(list, &c->node);
}

/* Unlinks, calls back, frees. */
static void complete(QvConn *conn, Command *c, const QvReply *reply, const GError *error)
{
  move_to(c, NULL, FALSE);
  g_hash_table_remove(conn->by_id, &c->id);
  if (c->func)
    c->func(reply, error, c->user);
  if (c->destroy)
    c->destroy(c->user);
  g_bytes_unref(c->bytes);
  g_free(c);
}

static void set_state(QvConn *conn, QvConnState state, const GError *why)
{
  if (why) {
    g_clear_error(&conn->last_error);
    conn->last_error = g_error_copy(why);
  }
  gboolean changed = conn->state != state;
  conn->state = state;
  if ((changed || why) && conn->state_func && !conn->freed)
    conn->state_func(conn, state, why, conn->state_user);
}

/* Deadlines and rests */

static void plan_housekeeping(QvConn *conn, gint64 at_us)
{
  if (at_us > 0)
    qv_timer_arm_before_us(conn->housekeeping, at_us);
}

static GError *deadline_error(const QvConn *conn)
{
  const char *why = conn->state != QV_CONN_UP && conn->last_error ? conn->last_error->message : NULL;
  return g_error_new(QV_ERROR, QV_ERROR_TIMEOUT, why ? "no answer from Valkey in time (%s)" : "no answer from Valkey in time",
                     why);
}

/* The first command of the list whose deadline has passed, else NULL; plans for the others. */
static Command *find_overdue(QvConn *conn, GQueue *list, gint64 now_us)
{
  for (GList *l = list->head; l; l = l->next) {
    Command *c = l->data;
    if (c->deadline_us && c->deadline_us <= now_us && (c->func || list != &conn->sent))
      return c;
  }
  return NULL;
}

static void plan_list(QvConn *conn, const GQueue *list)
{
  for (GList *l = list->head; l; l = l->next) {
    const Command *c = l->data;
    if (c->func || list != &conn->sent)
      plan_housekeeping(conn, c->deadline_us);
    if (list == &conn->resting)
      plan_housekeeping(conn, c->rest_until_us);
  }
}

/* A sent command keeps its place in the pipeline: its reply still comes and is thrown away. */
static void expire(QvConn *conn, Command *c)
{
  g_autoptr(GError) error = deadline_error(conn);
  if (c->list != &conn->sent) {
    complete(conn, c, NULL, error);
    return;
  }
  QvReplyFunc func = c->func;
  gpointer user = c->user;
  c->func = NULL;
  c->send = QV_SEND_ONCE;
  GDestroyNotify destroy = g_steal_pointer(&c->destroy);
  g_hash_table_remove(conn->by_id, &c->id);
  func(NULL, error, user);
  if (destroy)
    destroy(user);
}

static void on_housekeeping(gpointer user)
{
  QvConn *conn = user;
  gint64 now_us = g_get_monotonic_time();
  GQueue *lists[] = { &conn->waiting, &conn->sent, &conn->resting };
  conn->refs++;
  for (gsize i = 0; i < G_N_ELEMENTS(lists) && !conn->freed; i++)
    for (Command *c; !conn->freed && (c = find_overdue(conn, lists[i], now_us));)
      expire(conn, c);
  if (!conn->freed) {
    for (GList *l = conn->resting.head, *next; l; l = next) {
      next = l->next;
      Command *c = l->data;
      if (c->rest_until_us <= now_us)
        move_to(c, &conn->waiting, FALSE);
    }
    for (gsize i = 0; i < G_N_ELEMENTS(lists); i++)
      plan_list(conn, lists[i]);
    if (!g_queue_is_empty(&conn->waiting))
      qv_timer_arm_before_us(conn->flush, 0);
  }
  conn_unref(conn);
}

/* The link's events */

static void write_command(QvConn *conn, Command *c)
{
  move_to(c, &conn->sent, FALSE);
  qv_link_write(conn->link, c->bytes, 1);
}

static void on_flush(gpointer user)
{
  QvConn *conn = user;
  if (conn->state != QV_CONN_UP)
    return;
  for (Command *c; (c = g_queue_peek_head(&conn->waiting));)
    write_command(conn, c);
}

static void on_up(QvLink *link, gpointer user)
{
  QvConn *conn = user;
  conn->refs++;
  set_state(conn, QV_CONN_UP, NULL);
  if (!conn->freed)
    on_flush(conn);
  conn_unref(conn);
}

static void rest(QvConn *conn, Command *c)
{
  c->rest_ms = CLAMP(c->rest_ms * 2, REST_MIN_MS, REST_MAX_MS);
  c->rest_until_us = g_get_monotonic_time() + c->rest_ms * 1000;
  move_to(c, &conn->resting, FALSE);
  plan_housekeeping(conn, c->rest_until_us);
}

static void on_reply(QvLink *link, const QvReply *reply, gpointer user)
{
  QvConn *conn = user;
  Command *c = g_queue_peek_head(&conn->sent);
  if (!c) {
    /* Nobody can tell any more which answer belongs to what. */
    g_autoptr(GError) odd = g_error_new_literal(QV_ERROR, QV_ERROR_FORMAT, "a reply that nobody asked for");
    on_lost(link, odd, conn);
    return;
  }
  conn->pause_ms = RECONNECT_MIN_MS; /* to be let in is not enough: what is behind may break each time */
  /* The address may lead to another server by now: a replica must not be asked again on the same socket. */
  gboolean moved = qv_reply_is_error(reply, "READONLY") || qv_reply_is_error(reply, "UNBLOCKED");
  gboolean moving = conn->moving; /* this may be a loop inside of a callback */
  conn->refs++;
  conn->moving = moving || moved;
  g_autoptr(GError) error = NULL;
  if (c->send != QV_SEND_ONCE && qv_reply_is_transient(reply))
    rest(conn, c);
  else if (qv_reply_check(reply, &error))
    complete(conn, c, reply, NULL);
  else
    complete(conn, c, NULL, error);
  conn->moving = moving;
  if (moved && !conn->freed && conn->link == link)
    qv_conn_reset(conn);
  conn_unref(conn);
}

static void on_idle(QvLink *link, gpointer user)
{
  qv_conn_sendl(user, QV_SEND_ONCE, 0, NULL, NULL, "PING", NULL);
}

static void fail_list(QvConn *conn, GQueue *list, const GError *error)
{
  /* Only those that are there now: callbacks may send new ones. */
  GQueue doomed = G_QUEUE_INIT;
  for (Command *c; (c = g_queue_peek_head(list));)
    move_to(c, &doomed, FALSE);
  for (Command *c; (c = g_queue_peek_head(&doomed));)
    complete(conn, c, NULL, error);
}

static void on_lost(QvLink *link, const GError *why, gpointer user)
{
  QvConn *conn = user;
  GQueue doomed = G_QUEUE_INIT;
  gboolean was_up = conn->state == QV_CONN_UP, nonsense = g_error_matches(why, QV_ERROR, QV_ERROR_FORMAT);
  conn->refs++;
  qv_link_close(g_steal_pointer(&conn->link));
  for (GList *l = conn->sent.tail, *prev; l; l = prev) {
    prev = l->prev;
    Command *c = l->data;
    move_to(c, c->send == QV_SEND_AGAIN ? &conn->waiting : &doomed, TRUE);
  }
  if (nonsense)
    conn->pause_ms = RECONNECT_MAX_MS; /* it will hardly speak sense a moment later */
  qv_timer_arm_ms(conn->reconnect, conn->pause_ms + g_random_int_range(0, conn->pause_ms));
  conn->pause_ms = MIN(conn->pause_ms * 2, RECONNECT_MAX_MS);
  set_state(conn, QV_CONN_DOWN, why);
  /* `doomed` is ours: qv_conn_free in a callback must find it empty of callbacks later on, so they are called now in any
   * case, and with GONE as they were lost and not cancelled. */
  g_autoptr(GError) gone = g_error_new(QV_ERROR, QV_ERROR_GONE, "connection to Valkey lost: %s", why->message);
  for (Command *c; (c = g_queue_peek_head(&doomed));)
    complete(conn, c, NULL, gone);
  if (!conn->freed && conn->fail_fast && (!was_up || nonsense)) {
    g_autoptr(GError) copy = g_error_copy(why);
    fail_list(conn, &conn->waiting, copy);
  }
  conn_unref(conn);
}

static void open_link(gpointer user)
{
  static const QvLinkEvents events = { .up = on_up, .reply = on_reply, .idle = on_idle, .lost = on_lost };
  QvConn *conn = user;
  conn->refs++;
  set_state(conn, QV_CONN_CONNECTING, NULL);
  if (!conn->freed)
    conn->link = qv_link_open(conn->address, conn->client_name, &events, conn);
  conn_unref(conn);
}

/* Public */

QvConn *qv_conn_new(QvAddress *address, const char *client_name)
{
  QvConn *conn = g_new0(QvConn, 1);
  conn->refs = 1;
  conn->address = qv_address_ref(address);
  conn->client_name = g_strdup(client_name);
  conn->by_id = g_hash_table_new(g_int64_hash, g_int64_equal);
  conn->pause_ms = RECONNECT_MIN_MS;
  conn->reconnect = qv_timer_new(open_link, conn);
  conn->housekeeping = qv_timer_new(on_housekeeping, conn);
  conn->flush = qv_timer_new(on_flush, conn);
  qv_timer_arm_ms(conn->reconnect, 0);
  return conn;
}

void qv_conn_free(QvConn *conn)
{
  if (!conn || conn->freed)
    return;
  conn->freed = TRUE;
  qv_link_close(g_steal_pointer(&conn->link));
  conn->state = QV_CONN_DOWN;
  g_clear_pointer(&conn->reconnect, qv_timer_free);
  g_clear_pointer(&conn->housekeeping, qv_timer_free);
  g_clear_pointer(&conn->flush, qv_timer_free);
  g_autoptr(GError) error = g_error_new_literal(QV_ERROR, QV_ERROR_CANCELLED, "the connection was closed");
  while (conn->sent.head || conn->waiting.head || conn->resting.head) {
    fail_list(conn, &conn->sent, error);
    fail_list(conn, &conn->waiting, error);
    fail_list(conn, &conn->resting, error);
  }
  conn_unref(conn);
}

void qv_conn_set_state_func(QvConn *conn, QvConnStateFunc func, gpointer user)
{
  conn->state_func = func;
  conn->state_user = user;
}

void qv_conn_set_fail_fast(QvConn *conn, gboolean fail_fast)
{
  conn->fail_fast = fail_fast;
}

gboolean qv_conn_fail_fast(const QvConn *conn)
{
  return conn->fail_fast;
}

QvConnState qv_conn_state(const QvConn *conn)
{
  return conn->state;
}

const GError *qv_conn_last_error(const QvConn *conn)
{
  return conn->last_error;
}

guint64 qv_conn_send(QvConn *conn, QvSend send, gint64 deadline_ms, int argc, const char *const *argv, const gsize *lens,
                     QvReplyFunc func, gpointer user)
{
  return qv_conn_send_full(conn, send, deadline_ms, argc, argv, lens, func, user, NULL);
}

guint64 qv_conn_send_full(QvConn *conn, QvSend send, gint64 deadline_ms, int argc, const char *const *argv,
                          const gsize *lens, QvReplyFunc func, gpointer user, GDestroyNotify destroy)
{
  Command *c = g_new0(Command, 1);
  c->node.data = c;
  c->id = ++conn->next_id;
  c->send = send;
  c->bytes = qv_resp_format(argc, argv, lens);
  c->func = func;
  c->user = user;
  c->destroy = destroy;
  if (deadline_ms > 0)
    c->deadline_us = g_get_monotonic_time() + deadline_ms * 1000;
  if (conn->freed) {
    /* Only a callback of qv_conn_free can get here; it must not wait for ever. */
    move_to(c, &conn->waiting, FALSE);
    return c->id;
  }
  g_hash_table_insert(conn->by_id, &c->id, c);
  plan_housekeeping(conn, c->deadline_us);
  if (conn->state == QV_CONN_UP && !conn->moving && g_queue_is_empty(&conn->waiting)) {
    write_command(conn, c);
    return c->id;
  }
  move_to(c, &conn->waiting, FALSE);
  if (conn->state == QV_CONN_UP)
    qv_timer_arm_before_us(conn->flush, 0);
  return c->id;
}

guint64 qv_conn_sendl(QvConn *conn, QvSend send, gint64 deadline_ms, QvReplyFunc func, gpointer user, ...)
{
  const char *argv[32];
  int argc = 0;
  va_list args;
  va_start(args, user);
  for (const char *a; (a = va_arg(args, const char *));) {
    g_assert(argc < (int)G_N_ELEMENTS(argv));
    argv[argc++] = a;
  }
  va_end(args);
  return qv_conn_send(conn, send, deadline_ms, argc, argv, NULL, func, user);
}

void qv_conn_cancel(QvConn *conn, guint64 id)
{
  Command *c = g_hash_table_lookup(conn->by_id, &id);
  if (!c)
    return;
  c->func = NULL;
  c->send = QV_SEND_ONCE;
  if (c->list == &conn->sent) {
    GDestroyNotify destroy = g_steal_pointer(&c->destroy);
    g_hash_table_remove(conn->by_id, &c->id);
    if (destroy)
      destroy(c->user);
  } else {
    complete(conn, c, NULL, NULL);
  }
}

void qv_conn_reset(QvConn *conn)
{
  if (!conn->link)
    return;
  conn->pause_ms = RECONNECT_MIN_MS;
  g_autoptr(GError) why = g_error_new_literal(QV_ERROR, QV_ERROR_GONE, "the connection was reset");
  on_lost(conn->link, why, conn);
}
