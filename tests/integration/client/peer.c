/* SPDX-License-Identifier: Apache-2.0 */
#include "peer.h"

#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "client/key_file.h"
#include "format/inflate.h"
#include "format/tar.h"
#include "protocol/blob.h"
#include "protocol/cancel.h"
#include "protocol/envelope.h"
#include "protocol/payload.h"
#include "protocol/progress.h"
#include "protocol/result.h"
#include "queue/stores.h"
#include "queue/worker.h"

static const char prefix[] = "quavon-sandbox";
static const char log_text[] = "\x1b[31mhello\x1b[0m\n\x1b]0;title\a::set-env name=X::y\n";

struct Peer {
  char *url, *key_file, *other_key_file;
  GThread *thread;
  GMainContext *context;
  gint stop, taken;
  GMutex lock;
  char *base;
  /* of the thread */
  QvWorker *worker;
  GQueue jobs;
  QvKeyring *ring;
  QvKey *other;
};

typedef struct {
  gboolean done;
  GBytes *bytes;
} Answer;

static void on_bytes(GBytes *bytes, const GError *error, gpointer user)
{
  Answer *answer = user;
  g_assert_no_error(error);
  answer->bytes = bytes != NULL ? g_bytes_ref(bytes) : NULL;
  answer->done = TRUE;
}

static void on_done(const GError *error, gpointer user)
{
  g_assert_no_error(error);
  ((Answer *)user)->done = TRUE;
}

static void on_finish(QvFinish finish, const GError *error, gpointer user)
{
  g_assert_no_error(error);
  g_assert_cmpint(finish, ==, QV_FINISH_DONE);
  ((Answer *)user)->done = TRUE;
}

static void await(Peer *peer, const Answer *answer)
{
  while (!answer->done)
    g_main_context_iteration(peer->context, TRUE);
}

static GBytes *get_blob(Peer *peer, const QvBlobDescriptor *descriptor, const QvJob *job, const QvKey *key)
{
  QvConn *conn = qv_worker_conn(peer->worker);
  g_autoptr(QvSecret) secret = qv_blob_key_derive(key, descriptor->salt, job->tenant_id, descriptor->blob_id);
  g_autoptr(QvBlobReader) reader = qv_blob_reader_new(secret, job->tenant_id, descriptor);
  GByteArray *plain = g_byte_array_new();
  g_autofree guint8 *buffer = g_malloc(QV_CHUNK_BYTES);
  for (gint64 i; (i = qv_blob_reader_next(reader)) >= 0;) {
    Answer answer = { 0 };
    g_autoptr(GError) error = NULL;
    gsize n = 0, plain_n = 0;
    qv_blob_get(conn, prefix, descriptor->blob_id, (guint)i, 60000, on_bytes, &answer);
    await(peer, &answer);
    g_assert_nonnull(answer.bytes);
    const guint8 *sealed = g_bytes_get_data(answer.bytes, &n);
    qv_blob_reader_step(reader, sealed, n, buffer, &plain_n, &error);
    g_assert_no_error(error);
    g_byte_array_append(plain, buffer, (guint)plain_n);
    g_bytes_unref(answer.bytes);
  }
  Answer unlinked = { 0 };
  qv_blob_unlink(conn, prefix, descriptor->blob_id, (guint)descriptor->chunks, 60000, on_done, &unlinked);
  await(peer, &unlinked);
  return g_byte_array_free_to_bytes(plain);
}

static char *list_tar(GBytes *gzip)
{
  g_autoptr(GString) listed = g_string_new(NULL);
  QvTarCaps caps = { .entries_max = 1000, .total_bytes_max = 1 << 28, .file_bytes_max = 1 << 28 };
  QvTarReader reader;
  QvGunzip *gunzip = qv_gunzip_new(1 << 28);
  static guint8 out[65536];
  qv_tar_reader_init(&reader, &caps);
  size_t left = 0, n = 0;
  const guint8 *at = g_bytes_get_data(gzip, &left);
  QvGunzipStatus status;
  do {
    status = qv_gunzip_step(gunzip, &at, &left, out, sizeof out, &n);
    const guint8 *bytes = out;
    QvTarEvent event;
    while ((event = qv_tar_reader_step(&reader, &bytes, &n)) != QV_TAR_MORE) {
      g_assert_cmpint(event, !=, QV_TAR_BAD);
      if (event == QV_TAR_ENTRY)
        g_string_append_printf(listed, "%s %d;", reader.entry.path, (int)reader.entry.size);
    }
  } while (status == QV_GUNZIP_OUTPUT);
  g_assert_cmpint(qv_gunzip_finish(gunzip), ==, QV_GZIP_OK);
  g_assert_cmpint(qv_tar_reader_finish(&reader), ==, QV_TAR_OK);
  qv_gunzip_free(gunzip);
  qv_tar_reader_clear(&reader);
  return g_string_free(g_steal_pointer(&listed), FALSE);
}

static void to_array(void *user, const guint8 *bytes, gsize n)
{
  g_byte_array_append(user, bytes, (guint)n);
}

static void put_payload(Peer *peer, const QvJob *job, const QvKey *key, const char *mode, QvResult *result)
{
  g_autoptr(GByteArray) gzip = g_byte_array_new();
  g_autoptr(QvPayloadWriter) writer = qv_payload_writer_new(to_array, gzip);
  char tree_sha256[65], blob_id[QV_BLOB_ID_CAP];
  guint8 salt[QV_SALT_BYTES], iv[QV_CHUNK_IV_BYTES];
  qv_payload_writer_artefact_begin(writer, "out/x", 7, FALSE);
  qv_payload_writer_artefact_bytes(writer, (const guint8 *)"content", 7);
  qv_payload_writer_artefact_end(writer);
  qv_payload_writer_log(writer, 0, log_text, strlen(log_text));
  g_assert_true(qv_payload_writer_finish(writer, tree_sha256));
  qv_random_bytes(salt, sizeof salt);
  qv_random_bytes(iv, sizeof iv);
  qv_blob_id_format(job->job_id, "result", blob_id);
  g_autoptr(QvSecret) secret = qv_blob_key_derive(key, salt, job->tenant_id, blob_id);
  g_autoptr(QvBlobWriter) blob = qv_blob_writer_new(secret, salt, job->tenant_id, blob_id, gzip->len);
  g_assert_cmpuint(qv_blob_writer_want(blob), ==, gzip->len);
  guint8 *sealed = g_malloc(gzip->len + 28);
  qv_blob_writer_step(blob, iv, gzip->data, sealed);
  if (g_str_equal(mode, "corrupt"))
    sealed[20] ^= 1;
  g_autoptr(GBytes) bytes = g_bytes_new_take(sealed, gzip->len + 28);
  result->payload = g_new0(QvBlobDescriptor, 1);
  qv_blob_writer_describe(blob, tree_sha256, result->payload);
  if (g_str_equal(mode, "absent"))
    return;
  Answer answer = { 0 };
  qv_blob_put(qv_worker_conn(peer->worker), prefix, blob_id, 0, bytes, 900000, 60000, on_done, &answer);
  await(peer, &answer);
}

static void fill_facts(QvEntryFacts *facts, const QvJob *job, const char *mode)
{
  memset(facts, 0, sizeof *facts);
  facts->steps = g_new0(QvStepRecord, 1);
  facts->steps_n = 1;
  facts->steps[0] = (QvStepRecord){ .name = g_strdup(job->run[0].name), .has_exit_code = TRUE, .duration_ms = 5,
                                    .exit_code = g_str_equal(mode, "fail") ? 3 : 0,
                                    .log_total_bytes = (gint64)strlen(log_text) };
  facts->artefacts = g_new0(QvArtefact, 1);
  facts->artefacts_n = 1;
  facts->artefacts[0].path = g_strdup("out/x");
  facts->artefacts[0].size = 7;
  g_autofree char *sha256 = g_compute_checksum_for_string(G_CHECKSUM_SHA256, "content", 7);
  g_strlcpy(facts->artefacts[0].sha256, sha256, sizeof facts->artefacts[0].sha256);
}

static void wait_for_cancel(Peer *peer, const QvJob *job, QvKey *key)
{
  for (;;) {
    Answer answer = { 0 };
    qv_cancel_get(qv_worker_conn(peer->worker), prefix, job->job_id, 60000, on_bytes, &answer);
    await(peer, &answer);
    if (answer.bytes != NULL) {
      g_autoptr(GError) error = NULL;
      gsize n = 0;
      const char *text = g_bytes_get_data(answer.bytes, &n);
      g_assert_true(qv_cancel_verify(text, n, job, key, &error));
      g_bytes_unref(answer.bytes);
      return;
    }
    g_usleep(20000);
  }
}

static char *answer_job(Peer *peer, QvFetchedJob *fetched, const QvJob *job, const char *job_sha256, QvKey *key,
                        gsize *n)
{
  const char *mode = job->run[0].argv[0];
  g_autoptr(GBytes) base = get_blob(peer, &job->base, job, key);
  g_mutex_lock(&peer->lock);
  g_free(peer->base);
  peer->base = list_tar(base);
  g_mutex_unlock(&peer->lock);
  QvRunProgress step = { .stage = QV_RUN_STAGE_STEP, .step = 1, .steps_n = job->run_n, .name = job->run[0].name };
  g_autofree char *progress = qv_run_progress_format(&step);
  qv_worker_progress(peer->worker, fetched, progress);
  g_autoptr(QvResult) result = qv_result_new(job, job_sha256, "peer", "runsc");
  QvEntryFacts *facts = qv_entry_facts_new();
  QvRunFacts run = { .end = QV_RUN_COMPLETE, .facts = facts };
  if (g_str_equal(mode, "hang")) {
    wait_for_cancel(peer, job, key);
    run.end = QV_RUN_CANCELLED;
    run.facts = NULL;
  } else {
    fill_facts(facts, job, mode);
  }
  qv_result_apply(result, job, &run);
  result->started_at = qv_clock_unix_ms();
  result->finished_at = result->started_at + 1;
  if (run.facts != NULL)
    put_payload(peer, job, key, mode, result);
  if (g_str_equal(mode, "swap"))
    result->tenant_id[0] ^= 1;
  g_autoptr(GError) error = NULL;
  json_t *body = qv_result_build(result);
  char *text = qv_envelope_sign(QV_ENVELOPE_RESULT, g_str_equal(mode, "forge") ? peer->other : key, body, n, &error);
  g_assert_no_error(error);
  json_decref(body);
  qv_entry_facts_free(facts);
  return text;
}

static void handle(Peer *peer, QvFetchedJob *fetched)
{
  g_autoptr(GError) error = NULL;
  json_t *body = NULL;
  g_autoptr(QvKey) key = NULL;
  gsize n = 0;
  char job_sha256[65];
  QvLimitsPolicy policy;
  g_atomic_int_inc(&peer->taken);
  qv_limits_policy_standard(&policy, 2);
  const char *data = g_bytes_get_data(fetched->data, &n);
  qv_envelope_verify(QV_ENVELOPE_JOB, peer->ring, data, n, &body, &key, &error);
  g_assert_no_error(error);
  g_autoptr(QvJob) job = qv_job_parse(body, &policy, &error);
  g_assert_no_error(error);
  g_assert_true(qv_envelope_body_sha256(body, job_sha256, NULL));
  json_decref(body);
  g_assert_cmpstr(job->job_id, ==, fetched->id);
  g_assert_cmpstr(job->kind, ==, fetched->name);
  Answer finished = { 0 };
  if (g_str_equal(job->run[0].argv[0], "reject")) {
    qv_worker_fail(peer->worker, fetched, "rejected: unknown_image", on_finish, &finished);
  } else {
    g_autofree char *text = answer_job(peer, fetched, job, job_sha256, key, &n);
    qv_worker_complete(peer->worker, fetched, text, n, on_finish, &finished);
  }
  await(peer, &finished);
}

static void on_job(QvWorker *worker, QvFetchedJob *job, gpointer user)
{
  Peer *peer = user;
  g_queue_push_tail(&peer->jobs, job);
}

static void on_lock_lost(QvWorker *worker, QvFetchedJob *job, const char *why, gpointer user)
{
  g_error("the peer lost a lock: %s", why);
}

static gpointer run(gpointer data)
{
  Peer *peer = data;
  g_autoptr(GError) error = NULL;
  g_main_context_push_thread_default(peer->context);
  peer->ring = qv_key_files_read(peer->key_file, NULL, &error);
  g_assert_no_error(error);
  peer->other = qv_key_file_read(peer->other_key_file, &error);
  g_assert_no_error(error);
  g_autoptr(QvAddress) address = qv_address_parse(peer->url, &error);
  g_assert_no_error(error);
  QvWorkerOptions options = { .address = address, .prefix = prefix, .name = "peer", .concurrency = 1, .lock_ms = 120000,
                              .stalled_ms = 120000, .data_max_bytes = QV_JOB_JSON_BYTES_MAX };
  QvWorkerEvents events = { .job = on_job, .lock_lost = on_lock_lost };
  peer->worker = qv_worker_new(&options, &events, peer);
  qv_worker_resume(peer->worker);
  while (!g_atomic_int_get(&peer->stop)) {
    g_main_context_iteration(peer->context, TRUE);
    QvFetchedJob *job = g_queue_pop_head(&peer->jobs);
    if (job != NULL)
      handle(peer, job);
  }
  qv_worker_free(peer->worker);
  qv_keyring_unref(peer->ring);
  qv_key_unref(peer->other);
  while (g_main_context_iteration(peer->context, FALSE))
    ;
  g_main_context_pop_thread_default(peer->context);
  return NULL;
}

Peer *peer_start(const char *url, const char *key_file, const char *other_key_file)
{
  Peer *peer = g_new0(Peer, 1);
  peer->url = g_strdup(url);
  peer->key_file = g_strdup(key_file);
  peer->other_key_file = g_strdup(other_key_file);
  peer->context = g_main_context_new();
  g_mutex_init(&peer->lock);
  g_queue_init(&peer->jobs);
  peer->thread = g_thread_new("peer", run, peer);
  return peer;
}

void peer_stop(Peer *peer)
{
  g_atomic_int_set(&peer->stop, 1);
  g_main_context_wakeup(peer->context);
  g_thread_join(peer->thread);
  g_main_context_unref(peer->context);
  g_mutex_clear(&peer->lock);
  g_free(peer->url);
  g_free(peer->key_file);
  g_free(peer->other_key_file);
  g_free(peer->base);
  g_free(peer);
}

char *peer_last_base(Peer *peer)
{
  g_mutex_lock(&peer->lock);
  char *base = g_strdup(peer->base);
  g_mutex_unlock(&peer->lock);
  return base;
}

guint peer_taken(Peer *peer)
{
  return (guint)g_atomic_int_get(&peer->taken);
}
