/* SPDX-License-Identifier: Apache-2.0 */
/* Owns quavon_submit (protocol section 2.2): pack, count, seal and write the chunks, add.
 * What it wrote it removes again where it cannot add the job. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/random.h"
#include "client/description.h"
#include "client/health.h"
#include "client/image.h"
#include "client/session.h"
#include "client/snapshot.h"
#include "protocol/blob.h"
#include "queue/stores.h"

typedef struct {
  QuavonClient *client;
  QuavonProgressFunction function;
  void *data;
  gint64 started_ms;
  GCancellable *cancellable;
} Reporter;

static void report(Reporter *reporter, QuavonStage stage, gint64 done, gint64 total, const char *detail)
{
  QuavonProgress progress = { .stage = stage, .done = done, .total = total, .detail = detail };
  progress.elapsed_ms = qv_clock_mono_ms() - reporter->started_ms;
  if (reporter->function != NULL && reporter->function(&progress, reporter->data) != 0)
    g_cancellable_cancel(reporter->cancellable);
}

static void on_packed(guint64 files_n, guint64 files_total, gpointer reporter)
{
  report(reporter, QUAVON_STAGE_PACKING, (gint64)files_n, (gint64)files_total, NULL);
}

static QvSnapshot *pack(Reporter *reporter, const QuavonJob *description, GError **error)
{
  QvSnapshotOptions options;
  qv_description_snapshot(description, &options);
  g_autoptr(QvSnapshot) snapshot = qv_snapshot_build(&options, on_packed, reporter, reporter->cancellable, error);
  if (snapshot == NULL)
    return NULL;
  gint64 max_bytes = reporter->client->policy.max_blob_bytes;
  if (snapshot->gzip_bytes > (guint64)max_bytes) {
    g_set_error(error, QV_ERROR, QV_ERROR_LIMIT,
                "%s: %" G_GUINT64_FORMAT " bytes packed, at most %" G_GINT64_FORMAT " (QUAVON_SANDBOX_MAX_BLOB_MIB)",
                options.dir, snapshot->gzip_bytes, max_bytes);
    return NULL;
  }
  g_autofree char *left_out = qv_left_out_describe(&snapshot->left_out);
  report(reporter, QUAVON_STAGE_PACKED, (gint64)snapshot->files_n, (gint64)snapshot->gzip_bytes, left_out);
  return g_steal_pointer(&snapshot);
}

/* Chunks on their way to Valkey. */
typedef struct {
  Reporter *reporter;
  guint in_flight;
  gint64 sent_bytes, total_bytes;
  GError *error;
} Upload;

typedef struct {
  Upload *upload;
  gsize n;
} Chunk;

static void on_chunk(const GError *error, gpointer user)
{
  Chunk *chunk = user;
  Upload *upload = chunk->upload;
  upload->in_flight--;
  upload->sent_bytes += (gint64)chunk->n;
  g_free(chunk);
  if (error != NULL && upload->error == NULL)
    upload->error = g_error_copy(error);
  else
    report(upload->reporter, QUAVON_STAGE_SENDING, upload->sent_bytes, upload->total_bytes, NULL);
}

static void drain(const Upload *upload, guint most)
{
  while (upload->in_flight > most)
    g_main_context_iteration(upload->reporter->client->context, TRUE);
}

static gboolean send_chunk(Upload *upload, int fd, QvBlobWriter *writer, const QvJob *job, const char *blob_id,
                           GError **error)
{
  QuavonClient *client = upload->reporter->client;
  gint64 i = qv_blob_writer_next(writer);
  gsize want = qv_blob_writer_want(writer);
  g_autofree guint8 *plain = g_malloc(want);
  if (qv_io_read_full(fd, plain, want) != (ssize_t)want)
    return qv_error_set_errno(error, errno != 0 ? errno : EIO, "the snapshot's temporary file");
  guint8 iv[QV_CHUNK_IV_BYTES];
  qv_random_bytes(iv, sizeof iv);
  gsize sealed_n = want + QV_CHUNK_IV_BYTES + QV_CHUNK_TAG_BYTES;
  guint8 *sealed = g_malloc(sealed_n);
  qv_blob_writer_step(writer, iv, plain, sealed);
  g_autoptr(GBytes) bytes = g_bytes_new_take(sealed, sealed_n);
  gint64 ttl_ms = MAX(1, job->not_after - qv_clock_unix_ms() + QV_KEY_TTL_EXTRA_MS);
  Chunk *chunk = g_new(Chunk, 1);
  *chunk = (Chunk){ .upload = upload, .n = want };
  upload->in_flight++;
  qv_blob_put(client->conn, client->prefix, blob_id, (guint)i, bytes, ttl_ms, QV_CALL_DEADLINE_MS, on_chunk, chunk);
  return TRUE;
}

/* Writes the blob of a job whose ids and times are set, and its descriptor. */
static gboolean send_base(Reporter *reporter, const QvSnapshot *snapshot, const QvKey *key, QvJob *job, GError **error)
{
  char blob_id[QV_BLOB_ID_CAP];
  guint8 salt[QV_SALT_BYTES];
  qv_blob_id_format(job->job_id, "base", blob_id);
  qv_random_bytes(salt, sizeof salt);
  g_autoptr(QvSecret) blob_key = qv_blob_key_derive(key, salt, job->tenant_id, blob_id);
  g_autoptr(QvBlobWriter) writer =
      qv_blob_writer_new(blob_key, salt, job->tenant_id, blob_id, (gint64)snapshot->gzip_bytes);
  Upload upload = { .reporter = reporter, .total_bytes = (gint64)snapshot->gzip_bytes };
  gboolean ok = TRUE;
  while (ok && upload.error == NULL && qv_blob_writer_next(writer) >= 0) {
    ok = send_chunk(&upload, snapshot->fd, writer, job, blob_id, error);
    drain(&upload, QV_CHUNKS_IN_MEMORY_MAX - 1);
    if (ok && g_cancellable_is_cancelled(reporter->cancellable)) {
      g_set_error_literal(error, QV_ERROR, QV_ERROR_CANCELLED, "cancelled while sending");
      ok = FALSE;
    }
  }
  drain(&upload, 0);
  if (ok && upload.error != NULL) {
    g_propagate_error(error, g_steal_pointer(&upload.error));
    ok = FALSE;
  }
  g_clear_error(&upload.error);
  if (ok)
    qv_blob_writer_describe(writer, snapshot->tree_sha256, &job->base);
  return ok;
}

typedef struct {
  QvCall call;
  QvAdd added;
} AddCall;

static void on_add(QvAdd added, const GError *error, gpointer user)
{
  AddCall *add = user;
  add->added = added;
  qv_call_finish(&add->call, error);
}

static void on_remove(gboolean removed, const GError *error, gpointer user)
{
  qv_call_finish(user, error);
}

/* Best effort: what stays ends with its TTL. */
static void clean_up(QuavonClient *client, const QvJob *job, gint64 chunks, gboolean maybe_added)
{
  char blob_id[QV_BLOB_ID_CAP];
  qv_blob_id_format(job->job_id, "base", blob_id);
  if (maybe_added) {
    QvCall removal = { 0 };
    qv_producer_remove(client->producer, job->job_id, on_remove, &removal);
    qv_session_wait(client, &removal, NULL);
  }
  QvCall call = { 0 };
  qv_blob_unlink(client->conn, client->prefix, blob_id, (guint)chunks, QV_CALL_DEADLINE_MS / 3, qv_call_done, &call);
  qv_session_wait(client, &call, NULL);
}

static gboolean sign_and_add(QuavonClient *client, QvTicket *ticket, gboolean *maybe_added, GError **error)
{
  gsize n = 0;
  QvJob *job = ticket->job;
  g_autofree char *text = qv_job_sign(job, &client->policy, ticket->key, &n, ticket->job_sha256, error);
  if (text == NULL)
    return FALSE;
  AddCall add = { 0 };
  *maybe_added = TRUE;
  qv_producer_add(client->producer, job->job_id, job->kind, text, n, qv_clock_unix_ms(), on_add, &add);
  if (!qv_session_wait(client, &add.call, error))
    return FALSE;
  if (add.added == QV_ADD_ADDED)
    return TRUE;
  *maybe_added = FALSE;
  g_set_error(error, QV_ERROR, QV_ERROR_BUG, "there is a job %s already", job->job_id);
  return FALSE;
}

/* A digest for the image's name, and somebody who can run it. */
static gboolean choose_image(QuavonClient *client, QvJob *job, QuavonErrorCode *code, GError **error)
{
  const char *name = job->image.name;
  g_autoptr(GError) cause = NULL;
  g_autofree char *local = job->image.digest == NULL ? qv_image_current_digest(client->config, name, &cause) : NULL;
  if (client->unattended) {
    if (job->image.digest == NULL)
      job->image.digest = g_steal_pointer(&local);
    if (cause != NULL)
      g_propagate_error(error, g_steal_pointer(&cause));
    return job->image.digest != NULL;
  }
  *code = 0;
  g_autoptr(GPtrArray) runners = qv_session_runners(client, error);
  if (runners == NULL)
    return FALSE;
  QvRunnerWant want = { .backends = job->backends, .pool = client->config->pool, .image = name,
                        .digest = job->image.digest, .preferred = local,
                        .development = strcmp(client->config->environment, "development") == 0 &&
                                       strcmp(client->config->edition, "community") == 0 };
  char *digest = qv_runners_choose(runners, &want, qv_clock_unix_ms(), error);
  if (digest == NULL) {
    *code = QUAVON_ERROR_NO_RUNNER;
    return FALSE;
  }
  *code = QUAVON_ERROR_CONFIG;
  g_free(job->image.digest);
  job->image.digest = digest;
  return TRUE;
}

/* Ids, pool, image, times: what makes a description a job of this client. */
static gboolean complete(QuavonClient *client, const QuavonJob *description, QvJob *job, QuavonErrorCode *code,
                         GError **error)
{
  if (!choose_image(client, job, code, error))
    return FALSE;
  qv_random_uuid(job->job_id);
  job->pool = g_strdup(client->config->pool);
  qv_limits_resolve(&client->policy, &job->given, &job->limits);
  job->issued_at = qv_clock_unix_ms();
  job->not_after = job->issued_at + description->admission_ms;
  return TRUE;
}

/* The rules of the parser, before anything is packed: a blob as good as any stands in for the base. */
static gboolean rehearse(QuavonClient *client, QvJob *job, GError **error)
{
  gsize n = 0;
  qv_blob_id_format(job->job_id, "base", job->base.blob_id);
  job->base.size = 1;
  job->base.chunks = 1;
  memset(job->base.sha256, '0', 64);
  memset(job->base.tree_sha256, '0', 64);
  g_autofree char *text = qv_job_sign(job, &client->policy, qv_keyring_current(client->ring), &n, NULL, error);
  const char *over = qv_limits_over(&client->policy, &job->limits);
  if (text != NULL && over != NULL)
    g_set_error(error, QV_ERROR, QV_ERROR_POLICY, "limits.%s is above its ceiling", over);
  return text != NULL && over == NULL;
}

/* Refuses where as many jobs wait as may. */
static gboolean check_queue(QuavonClient *client, QuavonErrorCode *code, GError **error)
{
  gint64 count;
  if (!qv_session_count(client, &count, error))
    return FALSE;
  if (count < client->config->max_waiting)
    return TRUE;
  *code = QUAVON_ERROR_QUEUE_FULL;
  g_set_error(error, QV_ERROR, QV_ERROR_LIMIT,
              "queue_full: %" G_GINT64_FORMAT " jobs wait (QUAVON_SANDBOX_MAX_WAITING=%" G_GINT64_FORMAT ")",
              count, client->config->max_waiting);
  return FALSE;
}

static gboolean submit(Reporter *reporter, const QuavonJob *description, QvTicket *ticket, QuavonErrorCode *code,
                       GError **error)
{
  QuavonClient *client = reporter->client;
  QvJob *job = ticket->job;
  g_autoptr(QvSnapshot) snapshot = pack(reporter, description, error);
  if (snapshot == NULL || !check_queue(client, code, error))
    return FALSE;
  job->issued_at = qv_clock_unix_ms();
  job->not_after = job->issued_at + description->admission_ms;
  gboolean maybe_added = FALSE;
  if (send_base(reporter, snapshot, ticket->key, job, error) &&
      sign_and_add(client, ticket, &maybe_added, error))
    return TRUE;
  clean_up(client, job, qv_blob_chunks((gint64)snapshot->gzip_bytes), maybe_added);
  return FALSE;
}

/* Nobody can wait for these any more. */
static gboolean is_over(gpointer job_id, gpointer ticket, gpointer now_ms)
{
  const QvJob *job = ((QvTicket *)ticket)->job;
  return job->not_after + job->limits.wall_ms + 2 * QV_LOST_EXTRA_MS < *(gint64 *)now_ms;
}

static void remember(QuavonClient *client, QvTicket *ticket)
{
  gint64 now_ms = qv_clock_unix_ms();
  g_hash_table_foreach_remove(client->tickets, is_over, &now_ms);
  g_hash_table_replace(client->tickets, g_strdup(ticket->job->job_id), qv_ticket_ref(ticket));
}

int quavon_submit(QuavonClient *client, const QuavonJob *description, QuavonProgressFunction progress, void *data,
                  char job_id[QUAVON_JOB_ID_SIZE], QuavonError **error)
{
  g_autoptr(QvSessionScope) scope G_GNUC_UNUSED = qv_session_enter(client);
  g_autoptr(GCancellable) cancellable = g_cancellable_new();
  Reporter reporter = { .client = client, .function = progress, .data = data, .cancellable = cancellable };
  reporter.started_ms = qv_clock_mono_ms();
  GError *cause = NULL;
  QvJob *job = qv_description_build(description, &cause);
  if (job == NULL) {
    qv_api_error_take_as(error, QUAVON_ERROR_CONFIG, cause);
    return -1;
  }
  g_autoptr(QvTicket) ticket = g_rc_box_new0(QvTicket);
  ticket->job = job;
  qv_session_reload_keys(client);
  ticket->key = qv_key_ref(qv_keyring_current(client->ring));
  QuavonErrorCode code = QUAVON_ERROR_CONFIG;
  gboolean ok = complete(client, description, job, &code, &cause) && rehearse(client, job, &cause);
  if (ok)
    code = 0;
  if (!ok || !submit(&reporter, description, ticket, &code, &cause)) {
    if (code != 0)
      qv_api_error_take_as(error, code, cause);
    else
      qv_api_error_take(error, cause);
    return -1;
  }
  memcpy(job_id, job->job_id, QUAVON_JOB_ID_SIZE);
  remember(client, ticket);
  return 0;
}
