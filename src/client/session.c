/* SPDX-License-Identifier: Apache-2.0 */
/* Owns QuavonClient. */
#include "client/session.h"

#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "client/key_file.h"
#include "protocol/envelope.h"
#include "queue/worker.h"

static void ticket_clear(gpointer data)
{
  QvTicket *ticket = data;
  qv_job_free(ticket->job);
  qv_key_unref(ticket->key);
}

QvTicket *qv_ticket_ref(QvTicket *ticket)
{
  return g_rc_box_acquire(ticket);
}

void qv_ticket_unref(QvTicket *ticket)
{
  g_rc_box_release_full(ticket, ticket_clear);
}

QvSessionScope *qv_session_enter(QuavonClient *client)
{
  g_main_context_push_thread_default(client->context);
  return client->context;
}

void qv_session_leave(QvSessionScope *scope)
{
  g_main_context_pop_thread_default(scope);
}

void qv_call_finish(QvCall *call, const GError *error)
{
  if (error != NULL && call->error == NULL)
    call->error = g_error_copy(error);
  call->done = TRUE;
}

void qv_call_done(const GError *error, gpointer call)
{
  qv_call_finish(call, error);
}

gboolean qv_session_wait(QuavonClient *client, QvCall *call, GError **error)
{
  while (!call->done)
    g_main_context_iteration(client->context, TRUE);
  if (call->error == NULL)
    return TRUE;
  g_propagate_error(error, g_steal_pointer(&call->error));
  return FALSE;
}

static void policy_fill(QvLimitsPolicy *policy, const QvConfig *config)
{
  qv_limits_policy_standard(policy, (guint)sysconf(_SC_NPROCESSORS_ONLN));
#define TAKE(field, name) \
  policy->defaults.field = config->default_##field; \
  policy->ceilings.field = config->max_##field;
  QV_LIMITS_TABLE(TAKE)
#undef TAKE
  policy->max_blob_bytes = config->max_blob_mib << 20;
}

static gboolean session_configure(QuavonClient *client, const char *const *settings, GError **error)
{
  g_auto(GStrv) environment = settings == NULL ? g_get_environ() : NULL;
  client->config = qv_config_load(settings != NULL ? settings : (const char *const *)environment, error);
  if (client->config == NULL)
    return FALSE;
  const QvConfig *config = client->config;
  if (config->valkey_url == NULL || config->signing_key_file == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_POLICY, "%s is not set",
                config->valkey_url == NULL ? "VALKEY_URL" : "QUAVON_SANDBOX_SIGNING_KEY_FILE");
    return FALSE;
  }
  client->prefix = qv_config_prefix(config->pool);
  policy_fill(&client->policy, config);
  client->keys_stamp = qv_key_files_stamp(config->signing_key_file, (const char *const *)config->signing_key_previous_files);
  client->ring = qv_key_files_read(config->signing_key_file, (const char *const *)config->signing_key_previous_files,
                                   error);
  if (client->ring == NULL)
    return FALSE;
  client->address = qv_address_of_config(config, error);
  return client->address != NULL;
}

gboolean qv_session_reload_keys(QuavonClient *client)
{
  const char *current = client->config->signing_key_file;
  const char *const *previous = (const char *const *)client->config->signing_key_previous_files;
  g_autofree char *stamp = qv_key_files_stamp(current, previous);
  if (strcmp(stamp, client->keys_stamp) == 0)
    return FALSE;
  QvKeyring *ring = qv_key_files_read(current, previous, NULL);
  if (ring == NULL)
    return FALSE;
  qv_keyring_unref(client->ring);
  client->ring = ring;
  g_free(client->keys_stamp);
  client->keys_stamp = g_steal_pointer(&stamp);
  return TRUE;
}

typedef struct {
  QvCall call;
  gint64 count;
} CountCall;

static void on_count(gint64 count, const GError *error, gpointer user)
{
  CountCall *counted = user;
  counted->count = count;
  qv_call_finish(&counted->call, error);
}

gboolean qv_session_count(QuavonClient *client, gint64 *count, GError **error)
{
  CountCall counted = { 0 };
  qv_producer_count(client->producer, on_count, &counted);
  if (!qv_session_wait(client, &counted.call, error))
    return FALSE;
  *count = counted.count;
  return TRUE;
}

/* Whether the server is there and lets us in: the first question is one that every submit asks. */
static gboolean session_connect(QuavonClient *client, GError **error)
{
  client->conn = qv_conn_new(client->address, "quavon");
  client->producer = qv_producer_new(client->conn, client->prefix, QV_CALL_DEADLINE_MS);
  gint64 count;
  qv_conn_set_fail_fast(client->conn, TRUE);
  gboolean ok = qv_session_count(client, &count, error);
  qv_conn_set_fail_fast(client->conn, FALSE);
  if (!ok)
    g_prefix_error(error, "Valkey at %s: ", qv_address_display(client->address));
  return ok;
}

QuavonClient *quavon_client_open(const char *const *settings, QuavonError **error)
{
  QuavonClient *client = g_new0(QuavonClient, 1);
  client->context = g_main_context_new();
  client->tickets = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, (GDestroyNotify)qv_ticket_unref);
  GError *cause = NULL;
  QuavonErrorCode code = QUAVON_ERROR_CONFIG;
  gboolean ok = session_configure(client, settings, &cause);
  if (ok) {
    g_autoptr(QvSessionScope) scope = qv_session_enter(client);
    code = QUAVON_ERROR_UNAVAILABLE;
    ok = session_connect(client, &cause);
    (void)scope;
  }
  if (ok)
    return client;
  qv_api_error_take_as(error, code, cause);
  quavon_client_close(client);
  return NULL;
}

void quavon_client_close(QuavonClient *client)
{
  if (client == NULL)
    return;
  {
    g_autoptr(QvSessionScope) scope = qv_session_enter(client);
    g_clear_pointer(&client->producer, qv_producer_free);
    g_clear_pointer(&client->conn, qv_conn_free);
    while (g_main_context_iteration(client->context, FALSE))
      ;
    (void)scope;
  }
  g_clear_pointer(&client->address, qv_address_unref);
  g_clear_pointer(&client->ring, qv_keyring_unref);
  g_clear_pointer(&client->config, qv_config_free);
  g_hash_table_unref(client->tickets);
  g_main_context_unref(client->context);
  g_free(client->keys_stamp);
  g_free(client->prefix);
  g_free(client);
}

const char *quavon_version(void)
{
  return QV_VERSION;
}

typedef struct {
  QvCall call;
  char *text;
  gsize len;
} DataCall;

static void on_data(const QvReply *reply, const GError *error, gpointer user)
{
  DataCall *data = user;
  const char *text = reply != NULL ? qv_reply_text(reply) : NULL;
  if (text != NULL) {
    data->text = g_memdup2(text, reply->len + 1);
    data->len = reply->len;
  }
  qv_call_finish(&data->call, error);
}

typedef struct {
  QvCall call;
  gint64 bytes;
} LengthCall;

static void on_length(const QvReply *reply, const GError *error, gpointer user)
{
  LengthCall *length = user;
  length->bytes = reply != NULL ? qv_reply_int(reply, 0) : 0;
  qv_call_finish(&length->call, error);
}

static QvTicket *ticket_verify(QuavonClient *client, const char *job_id, const char *text, gsize len, GError **error)
{
  json_t *body = NULL;
  g_autoptr(QvKey) key = NULL;
  if (qv_envelope_verify(QV_ENVELOPE_JOB, client->ring, text, len, &body, &key, error) != QV_ENVELOPE_OK)
    return NULL;
  char sha256[65];
  g_autoptr(QvJob) job = qv_job_parse(body, &client->policy, error);
  gboolean ok = job != NULL && qv_envelope_body_sha256(body, sha256, error);
  json_decref(body);
  if (!ok)
    return NULL;
  if (strcmp(job->job_id, job_id) != 0 || strcmp(job->pool, client->config->pool) != 0) {
    g_set_error_literal(error, QV_ERROR, QV_ERROR_AUTH, "its data is that of another job or pool");
    return NULL;
  }
  QvTicket *ticket = g_rc_box_new0(QvTicket);
  ticket->job = g_steal_pointer(&job);
  ticket->key = g_steal_pointer(&key);
  memcpy(ticket->job_sha256, sha256, sizeof ticket->job_sha256);
  return ticket;
}

static gboolean job_id_valid(const char *job_id)
{
  for (gsize i = 0; i < QV_JOB_ID_BYTES; i++) {
    gboolean dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? job_id[i] != '-' : (!g_ascii_isxdigit(job_id[i]) || g_ascii_isupper(job_id[i])))
      return FALSE;
  }
  return job_id[QV_JOB_ID_BYTES] == '\0';
}

QvTicket *qv_session_ticket(QuavonClient *client, const char *job_id, GError **error)
{
  QvTicket *own = g_hash_table_lookup(client->tickets, job_id);
  if (own != NULL)
    return qv_ticket_ref(own);
  if (!job_id_valid(job_id)) {
    g_set_error_literal(error, QV_ERROR, QV_ERROR_NOT_FOUND, "a job id is a lower-case UUID");
    return NULL;
  }
  g_autofree char *hash = g_strdup_printf("%s:%s:%s", client->prefix, QV_WORKER_QUEUE, job_id);
  DataCall data = { 0 };
  LengthCall length = { 0 };
  qv_conn_sendl(client->conn, QV_SEND_AGAIN, QV_CALL_DEADLINE_MS, on_length, &length, "HSTRLEN", hash, "data", NULL);
  gboolean answered = qv_session_wait(client, &length.call, error);
  if (answered && length.bytes > QV_JOB_JSON_BYTES_MAX) {
    g_set_error(error, QV_ERROR, QV_ERROR_AUTH, "job %s is not one of ours: its data has %" G_GINT64_FORMAT " bytes", job_id,
                length.bytes);
    return NULL;
  }
  if (answered) {
    qv_conn_sendl(client->conn, QV_SEND_AGAIN, QV_CALL_DEADLINE_MS, on_data, &data, "HGET", hash, "data", NULL);
    answered = qv_session_wait(client, &data.call, error);
  }
  g_autofree char *text = data.text;
  if (!answered)
    return NULL;
  if (text == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND, "there is no job %s in pool %s", job_id, client->config->pool);
    return NULL;
  }
  g_autoptr(GError) cause = NULL;
  QvTicket *ticket = ticket_verify(client, job_id, text, data.len, &cause);
  /* Another program of ours may have signed it with a key that is newer than our reading of the files. */
  if (ticket == NULL && cause->code == QV_ERROR_AUTH && qv_session_reload_keys(client)) {
    g_clear_error(&cause);
    ticket = ticket_verify(client, job_id, text, data.len, &cause);
  }
  if (cause != NULL)
    g_propagate_error(error, g_steal_pointer(&cause));
  if (ticket == NULL)
    g_prefix_error(error, "job %s is not one of ours: ", job_id);
  return ticket;
}
