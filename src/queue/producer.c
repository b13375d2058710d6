/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/producer.h"

#include <string.h>

#include "base/error.h"
#include "queue/script.h"

/* Section 2 of protocol.md; jobId as Queue.add of BullMQ writes it. */
#define OPTIONS                                                                                  \
  "{\"attempts\":1,\"removeOnComplete\":{\"age\":3600,\"count\":1000},\"removeOnFail\":{\"age\":86400,\"count\":1000}," \
  "\"jobId\":\"%s\"}"

struct QvProducer {
  QvConn *conn;
  char *queue;
  gint64 deadline_ms;
};

typedef struct {
  QvCountFunc count;
  QvRemoveFunc remove;
  QvJobStateFunc state;
  gsize text_max_bytes;
  gpointer user;
} Call;

/* The odd answer to WHAT as an error, unless there is one or the answer is a number. */
static GError *check_number(const QvReply *reply, const GError *error, const char *what)
{
  return !error && reply->type != QV_REPLY_INTEGER ? qv_reply_odd(what) : NULL;
}

static void on_count(const QvReply *reply, const GError *error, gpointer user)
{
  g_autofree Call *call = user;
  g_autoptr(GError) odd = check_number(reply, error, "the count of jobs");
  error = odd ? odd : error;
  call->count(reply ? qv_reply_int(reply, 0) : 0, error, call->user);
}

void qv_producer_count(QvProducer *p, QvCountFunc func, gpointer user)
{
  Call *call = g_new0(Call, 1);
  call->count = func;
  call->user = user;
  const char *args[] = { p->queue };
  qv_script_call(p->conn, &qv_script_count, QV_SEND_AGAIN, p->deadline_ms, G_N_ELEMENTS(args), args, NULL, on_count, call);
}

/* Adding is ONCE for the connection, since a second try must say that it is one. */
typedef struct {
  QvConn *conn;
  char *queue, *id, *name, *data, *opts, *timestamp;
  gsize len;
  gboolean again;
  guint lost_n;
  gint64 deadline_us; /* 0: none */
  QvAddFunc func;
  gpointer user;
} Add;

static void add_free(Add *a)
{
  g_free(a->queue);
  g_free(a->id);
  g_free(a->name);
  g_free(a->data);
  g_free(a->opts);
  g_free(a->timestamp);
  g_free(a);
}

static void send_add(Add *a);

static void on_added(const QvReply *reply, const GError *error, gpointer user)
{
  Add *a = user;
  g_autoptr(GError) odd = check_number(reply, error, "the adding of a job");
  error = odd ? odd : error;
  gboolean in_time = a->deadline_us == 0 || g_get_monotonic_time() < a->deadline_us;
  if (error && in_time && g_error_matches(error, QV_ERROR, QV_ERROR_GONE) &&
      (a->lost_n++ == 0 || !qv_conn_fail_fast(a->conn))) {
    a->again = TRUE;
    send_add(a);
    return;
  }
  a->func(reply && qv_reply_int(reply, 0) == 1 ? QV_ADD_ADDED : QV_ADD_DUPLICATE, error, a->user);
  add_free(a);
}

static void send_add(Add *a)
{
  const char *args[] = { a->queue, a->id, a->name, a->data, a->opts, a->timestamp, a->again ? "1" : "0" };
  gsize lens[G_N_ELEMENTS(args)];
  for (gsize i = 0; i < G_N_ELEMENTS(args); i++)
    lens[i] = args[i] == a->data ? a->len : strlen(args[i]);
  gint64 left_ms = a->deadline_us ? MAX((a->deadline_us - g_get_monotonic_time()) / 1000, 1) : 0;
  qv_script_call(a->conn, &qv_script_add, QV_SEND_PATIENT, left_ms, G_N_ELEMENTS(args), args, lens, on_added, a);
}

QvProducer *qv_producer_new(QvConn *conn, const char *prefix, gint64 deadline_ms)
{
  QvProducer *p = g_new0(QvProducer, 1);
  p->conn = conn;
  p->queue = qv_queue_prefix(prefix);
  p->deadline_ms = deadline_ms;
  return p;
}

void qv_producer_free(QvProducer *p)
{
  if (!p)
    return;
  g_free(p->queue);
  g_free(p);
}

void qv_producer_add(QvProducer *p, const char *id, const char *name, const char *data, gsize len, gint64 now_ms,
                     QvAddFunc func, gpointer user)
{
  Add *a = g_new0(Add, 1);
  a->conn = p->conn;
  a->queue = g_strdup(p->queue);
  a->id = g_strdup(id);
  a->name = g_strdup(name);
  a->data = g_malloc(len + 1);
  memcpy(a->data, data, len);
  a->data[len] = '\0';
  a->len = len;
  a->opts = g_strdup_printf(OPTIONS, id);
  a->timestamp = g_strdup_printf("%" G_GINT64_FORMAT, now_ms);
  a->deadline_us = p->deadline_ms > 0 ? g_get_monotonic_time() + p->deadline_ms * 1000 : 0;
  a->func = func;
  a->user = user;
  send_add(a);
}

static void on_removed(const QvReply *reply, const GError *error, gpointer user)
{
  g_autofree Call *call = user;
  g_autoptr(GError) odd = check_number(reply, error, "the removal of a job");
  error = odd ? odd : error;
  call->remove(reply && qv_reply_int(reply, 0) == 1, error, call->user);
}

void qv_producer_remove(QvProducer *p, const char *id, QvRemoveFunc func, gpointer user)
{
  Call *call = g_new0(Call, 1);
  call->remove = func;
  call->user = user;
  const char *args[] = { p->queue, id };
  qv_script_call(p->conn, &qv_script_remove, QV_SEND_AGAIN, p->deadline_ms, G_N_ELEMENTS(args), args, NULL, on_removed,
                 call);
}

static gboolean is_state(const QvReply *reply)
{
  const QvReply *state = qv_reply_at(reply, 0);
  return state->type == QV_REPLY_INTEGER && state->integer >= 0 && state->integer <= 4 && reply->elements_n == 3 &&
         qv_reply_at(reply, 2)->type == QV_REPLY_INTEGER && qv_reply_at(reply, 2)->integer >= 0;
}

static void on_state(const QvReply *reply, const GError *error, gpointer user)
{
  g_autofree Call *call = user;
  g_autoptr(GError) odd = !error && !is_state(reply) ? qv_reply_odd("the question for a job's state") : NULL;
  error = odd ? odd : error;
  if (error) {
    call->state(QV_JOB_UNKNOWN, NULL, 0, error, call->user);
    return;
  }
  static const QvJobState states[] = { QV_JOB_UNKNOWN, QV_JOB_WAITING, QV_JOB_ACTIVE, QV_JOB_COMPLETED, QV_JOB_FAILED };
  QvJobState state = states[qv_reply_at(reply, 0)->integer];
  const QvReply *text = qv_reply_at(reply, 1);
  gint64 bytes = MAX(qv_reply_at(reply, 2)->integer, (gint64)text->len);
  if (bytes > (gint64)call->text_max_bytes) {
    g_autoptr(GError) too_long = g_error_new(QV_ERROR, QV_ERROR_LIMIT, "the job's outcome has %" G_GINT64_FORMAT
                                             " bytes, more than %" G_GSIZE_FORMAT, bytes, call->text_max_bytes);
    call->state(state, NULL, 0, too_long, call->user);
    return;
  }
  call->state(state, qv_reply_text(text), qv_reply_text(text) ? text->len : 0, NULL, call->user);
}

void qv_producer_state(QvProducer *p, const char *id, gsize text_max_bytes, QvJobStateFunc func, gpointer user)
{
  Call *call = g_new0(Call, 1);
  call->state = func;
  call->text_max_bytes = text_max_bytes;
  call->user = user;
  g_autofree char *max = g_strdup_printf("%" G_GSIZE_FORMAT, text_max_bytes);
  const char *args[] = { p->queue, id, max };
  qv_script_call(p->conn, &qv_script_state, QV_SEND_AGAIN, p->deadline_ms, G_N_ELEMENTS(args), args, NULL, on_state, call);
}
