/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the two connections. */
#include "egress/store.h"

#include <string.h>

#include "base/limits.h"
#include "base/log.h"
#include "queue/subscriber.h"

struct QvStore {
  QvConn *conn;
  QvSubscriber *subscriber;
  QvStoreEvents events;
  gpointer user;
  char *key_prefix, *channel, *usage_channel;
  guint publishing;
  gboolean up;
};

static void on_message(const char *channel, const char *text, gsize len, gpointer user)
{
  QvStore *store = user;
  if (strcmp(channel, store->channel) == 0 && strlen(text) == len)
    store->events.revoked(text, store->user);
}

static void on_state(QvConn *conn, QvConnState state, const GError *why, gpointer user)
{
  QvStore *store = user;
  gboolean up = state == QV_CONN_UP;
  if (up == store->up && (up || why == NULL))
    return;
  store->up = up;
  store->events.state(up, why, store->user);
}

static void on_failed(const GError *why, gpointer user)
{
  qv_log(QV_LOG_WARNING, "no messages of revocations for now; tokens are looked up all the same", "error", why->message, NULL);
}

QvStore *qv_store_new(QvAddress *address, const char *prefix, const QvStoreEvents *events, gpointer user)
{
  static const QvSubscriberEvents subscriber_events = {.message = on_message, .failed = on_failed};
  QvStore *store = g_new0(QvStore, 1);
  store->events = *events;
  store->user = user;
  store->key_prefix = g_strconcat(prefix, ":egress:", NULL);
  store->channel = g_strconcat(prefix, ":egress", NULL);
  store->usage_channel = g_strconcat(prefix, ":egress-usage", NULL);
  const char *channels[] = {store->channel, NULL};
  store->conn = qv_conn_new(address, NULL);
  qv_conn_set_state_func(store->conn, on_state, store);
  store->subscriber = qv_subscriber_new(address, NULL, channels, &subscriber_events, store);
  return store;
}

void qv_store_free(QvStore *store)
{
  if (store == NULL)
    return;
  qv_subscriber_free(store->subscriber);
  qv_conn_free(store->conn);
  g_free(store->key_prefix);
  g_free(store->channel);
  g_free(store->usage_channel);
  g_free(store);
}

guint64 qv_store_get(QvStore *store, const char *hash, gint64 deadline_ms, QvReplyFunc func, gpointer user, GDestroyNotify destroy)
{
  g_autofree char *key = g_strconcat(store->key_prefix, hash, NULL);
  const char *argv[] = {"GET", key};
  return qv_conn_send_full(store->conn, QV_SEND_AGAIN, deadline_ms, 2, argv, NULL, func, user, destroy);
}

GBytes *qv_store_record(const QvReply *reply)
{
  if (qv_reply_text(reply) == NULL || reply->len > QV_RECORD_JSON_BYTES_MAX)
    return NULL;
  return g_bytes_new(reply->text, reply->len);
}

void qv_store_cancel(QvStore *store, guint64 id)
{
  qv_conn_cancel(store->conn, id);
}

static void on_published(const QvReply *reply, const GError *error, gpointer user)
{
  QvStore *store = user;
  store->publishing--;
  if (error != NULL)
    qv_log(QV_LOG_WARNING, "a usage record could not be published", "error", error->message, NULL);
}

void qv_store_publish_usage(QvStore *store, const char *text, gsize n)
{
  const char *argv[] = {"PUBLISH", store->usage_channel, text};
  const gsize lens[] = {strlen("PUBLISH"), strlen(store->usage_channel), n};
  store->publishing++;
  qv_conn_send(store->conn, QV_SEND_PATIENT, QV_STORE_PUBLISH_MS, 3, argv, lens, on_published, store);
}

gboolean qv_store_is_quiet(const QvStore *store)
{
  return store->publishing == 0;
}
