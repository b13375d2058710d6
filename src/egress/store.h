/* SPDX-License-Identifier: Apache-2.0 */
/* The proxy's side of Valkey, as user `egress`: look-ups of tokens, their
 * revocations, usage records. */
#pragma once

#include "queue/conn.h"

enum {
  QV_STORE_ADMIT_MS = 2000,  /* a CONNECT waits so long for its look-up */
  QV_STORE_CONFIRM_MS = 2000,
  QV_STORE_PUBLISH_MS = 2000,
};

typedef struct QvStore QvStore;

typedef struct {
  /* HASH was revoked. */
  void (*revoked)(const char *hash, gpointer user);
  /* UP: commands are answered; else WHY. Said on change. */
  void (*state)(gboolean up, const GError *why, gpointer user);
} QvStoreEvents;

QvStore *qv_store_new(QvAddress *address, const char *prefix, const QvStoreEvents *events, gpointer user);
void qv_store_free(QvStore *store);

/* GET, whose answer is for qv_store_record. The id is for qv_store_cancel. */
guint64 qv_store_get(QvStore *store, const char *hash, gint64 deadline_ms, QvReplyFunc func, gpointer user, GDestroyNotify destroy);
/* A token's record, not parsed yet; NULL: there is none, or it is no text, or longer than a record may be. */
GBytes *qv_store_record(const QvReply *reply);
void qv_store_cancel(QvStore *store, guint64 id);
void qv_store_publish_usage(QvStore *store, const char *text, gsize n);
/* Nothing that was sent waits for its answer any more. */
gboolean qv_store_is_quiet(const QvStore *store);
