/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the following of live logs.
 *
 * `next` is the chunk that is wanted; `end` is one behind the newest that we know of. While next < end, one GETRANGE after the
 * other; what is absent was dropped or has expired. Messages raise `end`. One can be lost, and there were none before the
 * subscription stood: so after each (re)subscription, and at the end, the count beside the chunks is read. A reader who comes
 * late to an old job begins with the chunks that can still be there. */
#include "client/live.h"

#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "protocol/live.h"
#include "queue/stores.h"
#include "queue/subscriber.h"

enum {
  BACKLOG_MAX = QV_LIVE_TTL_MS / QV_LIVE_EVERY_MS + 100, /* older ones have expired */
  DRAIN_MS = 5000,
};

struct QvLive {
  QuavonClient *client;
  QuavonLogFunction function;
  void *data;
  char *job_id;
  char blob_id[QV_BLOB_ID_CAP];
  QvBlobCipher *cipher;
  QvSubscriber *subscriber;
  guint next, end;
  gboolean counting; /* the count is to be read before the next chunk */
  guint64 command;   /* 0: none under way */
};

static void ask(QvLive *live);

static void take(QvLive *live, GBytes *sealed)
{
  gsize n = 0;
  const guint8 *bytes = g_bytes_get_data(sealed, &n);
  const gsize extra = QV_CHUNK_IV_BYTES + QV_CHUNK_TAG_BYTES;
  if (n < extra || n > extra + QV_LIVE_BYTES_MAX)
    return;
  g_autofree guint8 *plain = g_malloc(n);
  if (qv_blob_cipher_unseal(live->cipher, live->next, bytes, n, plain, NULL) && n > extra)
    live->function((const char *)plain, n - extra, live->next, live->data);
}

static void on_chunk(GBytes *bytes, const GError *error, gpointer user)
{
  QvLive *live = user;
  /* Under way until the function has returned: it may turn the loop, where nothing asks for this chunk again. */
  if (error == NULL && bytes != NULL)
    take(live, bytes);
  live->command = 0;
  if (error != NULL)
    return; /* the next message, or the next subscription, asks again */
  live->next++;
  ask(live);
}

static void on_count(guint n, const GError *error, gpointer user)
{
  QvLive *live = user;
  live->command = 0;
  live->counting = FALSE;
  live->end = MAX(live->end, n);
  if (error == NULL)
    ask(live);
}

static void ask(QvLive *live)
{
  if (live->command == 0 && live->counting)
    live->command = qv_live_count(live->client->conn, live->client->prefix, live->job_id, QV_CALL_DEADLINE_MS, on_count, live);
  if (live->command != 0 || live->next >= live->end)
    return;
  if (live->end > BACKLOG_MAX)
    live->next = MAX(live->next, live->end - BACKLOG_MAX);
  live->command = qv_blob_get(live->client->conn, live->client->prefix, live->blob_id, live->next, QV_CALL_DEADLINE_MS,
                              on_chunk, live);
}

static void on_message(const char *channel, const char *text, gsize len, gpointer user)
{
  QvLive *live = user;
  guint n = 0;
  if (!qv_live_message_parse(text, len, live->job_id, &n))
    return;
  live->end = MAX(live->end, n + 1);
  ask(live);
}

static void on_ready(gpointer user)
{
  QvLive *live = user;
  live->counting = TRUE;
  ask(live);
}

QvLive *qv_live_follow(QuavonClient *client, const QvTicket *ticket, QuavonLogFunction function, void *data)
{
  static const QvSubscriberEvents events = { on_message, on_ready, NULL };
  const QvJob *job = ticket->job;
  QvLive *live = g_new0(QvLive, 1);
  live->client = client;
  live->function = function;
  live->data = data;
  live->job_id = g_strdup(job->job_id);
  qv_blob_id_format(job->job_id, QV_LIVE_PART, live->blob_id);
  g_autoptr(QvSecret) key = qv_live_key_derive(ticket->key, ticket->job_sha256, job->tenant_id, job->job_id);
  live->cipher = qv_live_cipher_new(key, job->tenant_id, job->job_id);
  g_autofree char *channel = qv_live_channel(client->prefix);
  live->subscriber = qv_subscriber_new(client->address, "quavon", (const char *const[]){ channel, NULL }, &events, live);
  return live;
}

void qv_live_free(QvLive *live)
{
  if (live == NULL)
    return;
  qv_subscriber_free(live->subscriber);
  if (live->command != 0)
    qv_conn_cancel(live->client->conn, live->command);
  qv_blob_cipher_free(live->cipher);
  g_free(live->job_id);
  g_free(live);
}

static gboolean on_patience_over(gpointer over)
{
  *(gboolean *)over = TRUE;
  return G_SOURCE_REMOVE;
}

void qv_live_drain(QvLive *live)
{
  gboolean over = FALSE;
  GSource *timer = g_timeout_source_new(DRAIN_MS);
  g_source_set_callback(timer, on_patience_over, &over, NULL);
  g_source_attach(timer, live->client->context);
  live->counting = TRUE;
  ask(live);
  while (live->command != 0 && !over)
    g_main_context_iteration(live->client->context, TRUE);
  g_source_destroy(timer);
  g_source_unref(timer);
}

void quavon_client_follow_logs(QuavonClient *client, QuavonLogFunction function, void *data)
{
  client->log_function = function;
  client->log_data = data;
}

int quavon_logs_read(QuavonClient *client, const char *job_id, QuavonLogFunction function, void *data,
                     QuavonError **error)
{
  g_autoptr(QvSessionScope) scope G_GNUC_UNUSED = qv_session_enter(client);
  GError *cause = NULL;
  g_autoptr(QvTicket) ticket = qv_session_ticket(client, job_id, &cause);
  if (ticket == NULL) {
    qv_api_error_take(error, cause);
    return -1;
  }
  g_autoptr(QvLive) live = qv_live_follow(client, ticket, function, data);
  qv_live_drain(live);
  return 0;
}
