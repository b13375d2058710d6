/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to Valkey that is kept up for as long as it lives.
 *
 * Everything happens on the thread-default main context at the time of
 * qv_conn_new; no call blocks and no callback runs inside the call that it
 * belongs to. Commands are pipelined in the order of the calls; before the
 * connection is up they wait.
 *
 * Lost connections: reconnect with pauses (50 ms to 2 s, with jitter) that grow until a command was
 * answered, for ever; 2 s at once after a peer that talked nonsense. Who is silent for too long is dropped, also while commands
 * go on being written: half-open connections are found within 10 s (silence.h).
 *
 * No answer and an answer are two things. AGAIN commands that got no answer are
 * sent at once on the next connection; those that were answered "not now"
 * (LOADING, OOM, READONLY, ...) are sent again after a pause. ONCE commands fail
 * with GONE or PEER instead and the caller decides; PATIENT ones only with GONE. */
#pragma once

#include "queue/address.h"
#include "queue/reply.h"
#include "queue/silence.h"

typedef enum {
  QV_CONN_DOWN, /* not connected, waiting for the next attempt */
  QV_CONN_CONNECTING,
  QV_CONN_UP, /* authenticated; commands are being sent */
} QvConnState;

typedef enum {
  QV_SEND_ONCE,    /* at most once on the wire; lost after that: GONE */
  QV_SEND_PATIENT, /* the same, but sent again after an answer that says "not now" */
  QV_SEND_AGAIN,   /* until it is answered or its deadline passed; only for what may be done twice */
} QvSend;

typedef struct QvConn QvConn;

/* Called exactly once a command, unless it was cancelled. Exactly one of reply and error is not NULL, both are borrowed
 * for the call; an ERROR reply arrives as error (PEER or AUTH, see qv_reply_check) with reply NULL. Other errors: GONE,
 * TIMEOUT (the deadline; the text holds the last reason for not being connected), CANCELLED (qv_conn_free). */
typedef void (*QvReplyFunc)(const QvReply *reply, const GError *error, gpointer user);
/* why is not NULL when a connection or an attempt failed. AUTH: user, password or certificate were refused. */
typedef void (*QvConnStateFunc)(QvConn *conn, QvConnState state, const GError *why, gpointer user);
/* Results without a value. */
typedef void (*QvDoneFunc)(const GError *error, gpointer user);
/* bytes and error both NULL: there is no such key. bytes is borrowed (g_bytes_ref to keep). */
typedef void (*QvBytesFunc)(GBytes *bytes, const GError *error, gpointer user);

/* client_name: for CLIENT LIST, without blanks; NULL for none. Starts connecting at once. */
QvConn *qv_conn_new(QvAddress *address, const char *client_name);
/* Calls what is pending with CANCELLED, then closes. NULL is fine. */
void qv_conn_free(QvConn *conn);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvConn, qv_conn_free)

void qv_conn_set_state_func(QvConn *conn, QvConnStateFunc func, gpointer user);
/* For programs that rather end than wait: while set, a failed attempt to connect, or a peer that talks nonsense, fails
 * everything that is waiting (GONE, AUTH or FORMAT). Default FALSE. */
void qv_conn_set_fail_fast(QvConn *conn, gboolean fail_fast);
gboolean qv_conn_fail_fast(const QvConn *conn);
QvConnState qv_conn_state(const QvConn *conn);
/* The reason for the last failure, or NULL. Borrowed until the next main loop iteration. */
const GError *qv_conn_last_error(const QvConn *conn);

/* Sends argv (argc strings; lens NULL: they end at NUL). Everything is copied. deadline_ms: from now, over all
 * attempts; 0: none. func may be NULL. Returns an id for qv_conn_cancel, never 0. */
guint64 qv_conn_send(QvConn *conn, QvSend send, gint64 deadline_ms, int argc, const char *const *argv,
                     const gsize *lens, QvReplyFunc func, gpointer user);
/* qv_conn_send; destroy(user) is called when the command is done with, also when it was cancelled. */
guint64 qv_conn_send_full(QvConn *conn, QvSend send, gint64 deadline_ms, int argc, const char *const *argv,
                          const gsize *lens, QvReplyFunc func, gpointer user, GDestroyNotify destroy);
/* qv_conn_send with a NULL-terminated list of strings. */
guint64 qv_conn_sendl(QvConn *conn, QvSend send, gint64 deadline_ms, QvReplyFunc func, gpointer user, ...)
  G_GNUC_NULL_TERMINATED;
/* The callback will not be called. The server may carry out the command all the same. Unknown ids are ignored. */
void qv_conn_cancel(QvConn *conn, guint64 id);
/* Drops the present connection, if any, as if it had been lost; callbacks run inside this call. */
void qv_conn_reset(QvConn *conn);
