/* SPDX-License-Identifier: Apache-2.0 */
/* Owns QuavonPayload: the chunks of a result's payload, unsealed and held against the result by the strict reader.
 *
 * It is kept in memory: the job's own caps (64 MiB of artefacts, 17 MiB of logs) bound it, and what the
 * result says was checked against them before. */
#include <string.h>

#include "base/error.h"
#include "base/limits.h"
#include "client/payload.h"
#include "client/result.h"
#include "protocol/blob.h"
#include "protocol/payload.h"
#include "queue/stores.h"

static void member_free(gpointer data)
{
  QvPayloadMember *member = data;
  g_free(member->path);
  g_byte_array_unref(member->bytes);
  g_free(member);
}

static QuavonPayload *payload_new(void)
{
  QuavonPayload *payload = g_new0(QuavonPayload, 1);
  payload->members = g_ptr_array_new_with_free_func(member_free);
  return payload;
}

void quavon_payload_free(QuavonPayload *payload)
{
  if (payload == NULL)
    return;
  g_ptr_array_unref(payload->members);
  g_free(payload);
}

static gboolean on_begin(void *user, const char *path, gint64 size, gboolean executable, GError **error)
{
  QuavonPayload *payload = user;
  QvPayloadMember *member = g_new0(QvPayloadMember, 1);
  member->path = g_strdup(path);
  member->executable = executable;
  member->bytes = g_byte_array_sized_new((guint)size); /* the reader holds it against the result first */
  g_ptr_array_add(payload->members, member);
  return TRUE;
}

static gboolean on_bytes(void *user, const guint8 *bytes, gsize n, GError **error)
{
  const QuavonPayload *payload = user;
  QvPayloadMember *member = g_ptr_array_index(payload->members, payload->members->len - 1);
  g_byte_array_append(member->bytes, bytes, (guint)n);
  return TRUE;
}

static gboolean on_end(void *user, GError **error)
{
  return TRUE;
}

typedef struct {
  QvCall call;
  GBytes *bytes;
} ChunkCall;

static void on_chunk(GBytes *bytes, const GError *error, gpointer user)
{
  ChunkCall *chunk = user;
  chunk->bytes = bytes != NULL ? g_bytes_ref(bytes) : NULL;
  qv_call_finish(&chunk->call, error);
}

/* One chunk from Valkey through both readers. */
static gboolean fetch_chunk(QuavonClient *client, const char *blob_id, QvBlobReader *blob, QvPayloadReader *reader,
                            guint8 *plain, GError **error)
{
  gint64 i = qv_blob_reader_next(blob);
  ChunkCall chunk = { 0 };
  qv_blob_get(client->conn, client->prefix, blob_id, (guint)i, QV_CALL_DEADLINE_MS, on_chunk, &chunk);
  if (!qv_session_wait(client, &chunk.call, error))
    return FALSE;
  if (chunk.bytes == NULL) {
    g_set_error_literal(error, QV_ERROR, QV_ERROR_NOT_FOUND,
                        "logs and artefacts are gone: they are kept 15 minutes, until they were fetched");
    return FALSE;
  }
  g_autoptr(GBytes) sealed = chunk.bytes;
  gsize sealed_n = 0, plain_n = 0;
  const guint8 *bytes = g_bytes_get_data(sealed, &sealed_n);
  return qv_blob_reader_step(blob, bytes, sealed_n, plain, &plain_n, error) &&
         qv_payload_reader_feed(reader, plain, plain_n, error);
}

static gboolean fetch(QuavonClient *client, const QuavonResult *result, QuavonPayload *payload, GError **error)
{
  static const QvPayloadSinkTable sink = { .begin = on_begin, .bytes = on_bytes, .end = on_end };
  const QvTicket *ticket = result->ticket;
  const QvBlobDescriptor *descriptor = result->result->payload;
  g_autoptr(QvSecret) key =
      qv_blob_key_derive(ticket->key, descriptor->salt, ticket->job->tenant_id, descriptor->blob_id);
  g_autoptr(QvBlobReader) blob = qv_blob_reader_new(key, ticket->job->tenant_id, descriptor);
  g_autoptr(QvPayloadReader) reader = qv_payload_reader_new(result->result, ticket->job, &sink, payload);
  g_autofree guint8 *plain = g_malloc(QV_CHUNK_BYTES);
  while (qv_blob_reader_next(blob) >= 0) {
    if (!fetch_chunk(client, descriptor->blob_id, blob, reader, plain, error))
      return FALSE;
  }
  return qv_payload_reader_finish(reader, error);
}

QuavonPayload *quavon_payload_fetch(QuavonClient *client, const QuavonResult *result, QuavonError **error)
{
  g_autoptr(QvSessionScope) scope G_GNUC_UNUSED = qv_session_enter(client);
  const QvBlobDescriptor *descriptor = result->result->payload;
  QuavonPayload *payload = payload_new();
  if (descriptor == NULL)
    return payload;
  GError *cause = NULL;
  if (!fetch(client, result, payload, &cause)) {
    qv_api_error_take(error, cause);
    quavon_payload_free(payload);
    return NULL;
  }
  return payload;
}

typedef struct {
  QvCall call;
  guint n;
} CountCall;

static void on_live_count(guint n, const GError *error, gpointer user)
{
  CountCall *count = user;
  count->n = n;
  qv_call_finish(&count->call, error);
}

/* The logs are in the payload, whole: nobody needs what was heard of them before. Best effort: they expire. */
static void unlink_live(QuavonClient *client, const char *job_id)
{
  CountCall count = { 0 };
  qv_live_count(client->conn, client->prefix, job_id, QV_CALL_DEADLINE_MS, on_live_count, &count);
  if (!qv_session_wait(client, &count.call, NULL) || count.n == 0)
    return;
  QvCall call = { 0 };
  qv_live_unlink(client->conn, client->prefix, job_id, count.n, QV_CALL_DEADLINE_MS, qv_call_done, &call);
  qv_session_wait(client, &call, NULL);
}

int quavon_payload_unlink(QuavonClient *client, const QuavonResult *result, QuavonError **error)
{
  g_autoptr(QvSessionScope) scope G_GNUC_UNUSED = qv_session_enter(client);
  const QvBlobDescriptor *descriptor = result->result->payload;
  if (descriptor == NULL)
    return 0;
  unlink_live(client, result->result->job_id);
  QvCall call = { 0 };
  GError *cause = NULL;
  qv_blob_unlink(client->conn, client->prefix, descriptor->blob_id, (guint)descriptor->chunks, QV_CALL_DEADLINE_MS,
                 qv_call_done, &call);
  if (qv_session_wait(client, &call, &cause))
    return 0;
  qv_api_error_take(error, cause);
  return -1;
}

static const char *find(const QuavonPayload *payload, const char *path, size_t *len)
{
  for (guint i = 0; i < payload->members->len; i++) {
    const QvPayloadMember *member = g_ptr_array_index(payload->members, i);
    if (strcmp(member->path, path) == 0) {
      *len = member->bytes->len;
      return member->bytes->len > 0 ? (const char *)member->bytes->data : "";
    }
  }
  return NULL;
}

const char *quavon_payload_setup_log(const QuavonPayload *payload, size_t *len)
{
  return find(payload, "logs/setup.log", len);
}

const char *quavon_payload_log(const QuavonPayload *payload, size_t step, size_t *len)
{
  g_autofree char *path = g_strdup_printf("logs/%zu.log", step);
  return find(payload, path, len);
}

const char *quavon_payload_artefact(const QuavonPayload *payload, const char *path, size_t *len)
{
  g_autofree char *name = g_strconcat(QV_PAYLOAD_ARTEFACTS, path, NULL);
  return find(payload, name, len);
}
