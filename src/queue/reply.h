/* SPDX-License-Identifier: Apache-2.0 */
/* One answer of the server as a value. resp.c builds it with hiredis's reader;
 * nobody else knows hiredis. Bytes may hold NUL and are always followed by one
 * that is not counted in len. One allocation: text and elements stand behind it, a long text in `bytes`. */
#pragma once

#include <glib.h>

typedef enum { QV_REPLY_NIL, QV_REPLY_INTEGER, QV_REPLY_STRING, QV_REPLY_STATUS, QV_REPLY_ERROR, QV_REPLY_ARRAY } QvReplyType;

typedef struct QvReply QvReply;
struct QvReply {
  QvReplyType type;
  gint64 integer;     /* INTEGER */
  char *text;         /* STRING, STATUS, ERROR */
  gsize len;          /* bytes of text */
  GBytes *bytes;      /* of a long text, which is its own; else NULL */
  QvReply **elements; /* ARRAY; no NULL among them */
  gsize elements_n;
};

void qv_reply_free(QvReply *reply);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvReply, qv_reply_free)

/* The i-th element of an array, or a nil reply when there is none (never NULL). */
const QvReply *qv_reply_at(const QvReply *reply, gsize i);
/* The text of a STRING or STATUS, else NULL. Borrowed from reply. */
const char *qv_reply_text(const QvReply *reply);
/* The text of a STRING as bytes, of a long one without a copy; NULL for anything else. The caller's. */
GBytes *qv_reply_bytes(const QvReply *reply);
/* The value of an INTEGER or of a STRING that is a decimal, else fallback. */
gint64 qv_reply_int(const QvReply *reply, gint64 fallback);
/* True for an ERROR whose first word is word ("NOSCRIPT"). */
gboolean qv_reply_is_error(const QvReply *reply, const char *word);
/* True for an answer that only says "not now" (LOADING, OOM, READONLY, BUSY, MASTERDOWN, TRYAGAIN, CLUSTERDOWN,
 * MISCONF, NOREPLICAS): the same command may work after a pause. */
gboolean qv_reply_is_transient(const QvReply *reply);
/* The same of an error that qv_reply_check made. */
gboolean qv_reply_error_is_transient(const GError *error);
/* FORMAT: the answer to WHAT ("fetch") is none that this command has. The caller's. */
GError *qv_reply_odd(const char *what);
/* Turns an ERROR reply into a GError: AUTH for NOPERM, NOAUTH, WRONGPASS and denied commands of a script, else PEER.
 * Its text is cut and made printable.
 * Returns FALSE in that case and TRUE for every other reply. */
gboolean qv_reply_check(const QvReply *reply, GError **error);
