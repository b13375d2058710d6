/* SPDX-License-Identifier: Apache-2.0 */
/* The worker's side of the runner's test world: jobs, their blobs, their results. */
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "format/gzip.h"
#include "format/tar.h"
#include "protocol/cancel.h"
#include "protocol/payload.h"
#include "world.h"

/* ---- synchronous calls */

typedef struct {
  gboolean done;
  gint64 number;
  char *text;
} Call;

static void call_wait(Call *call)
{
  gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;
  while (!call->done && qv_clock_mono_ms() < end)
    g_main_context_iteration(NULL, TRUE);
  g_assert_true(call->done);
}

static void on_done(const GError *error, gpointer user)
{
  g_assert_no_error(error);
  ((Call *)user)->done = TRUE;
}

static void on_added(QvAdd added, const GError *error, gpointer user)
{
  g_assert_no_error(error);
  Call *call = user;
  call->number = added;
  call->done = TRUE;
}

static void on_state(QvJobState state, const char *text, gsize n, const GError *error, gpointer user)
{
  g_assert_no_error(error);
  Call *call = user;
  call->number = state;
  call->text = text != NULL ? g_strndup(text, n) : NULL;
  call->done = TRUE;
}

/* ---- jobs */

void world_job_add_step(QvJob *job, const char *name, const char *script)
{
  job->run = g_renew(QvStep, job->run, job->run_n + 1);
  QvStep *step = &job->run[job->run_n++];
  const char *argv[] = {"/bin/sh", "-c", script, NULL};
  *step = (QvStep){.name = g_strdup(name), .argv = g_strdupv((char **)argv)};
}

QvJob *world_job(World *world, const char *script)
{
  QvJob *job = qv_job_new();
  qv_random_uuid(job->job_id);
  job->tenant_id = g_strdup("tenant");
  job->pool = g_strdup("default");
  job->kind = g_strdup("check");
  g_strfreev(job->backends);
  job->backends = g_strdupv((char *[]){(char *)row->name, NULL});
  job->image.name = g_strdup(world->image.name);
  job->image.digest = g_strdup(world->image.digest);
  world_job_add_step(job, "step", script);
  job->issued_at = qv_clock_unix_ms();
  job->not_after = job->issued_at + 600000;
  job->given = (QvLimits){.wall_ms = 300000, .memory_mib = 256, .work_mib = 64, .milli_cpus = 1000, .pids = 64};
  const char *files[] = {"hello.txt", "hello\n", NULL};
  g_autoptr(GBytes) plain = world_snapshot(files);
  world_put_base(world, job, plain);
  return job;
}

static void append(void *user, const guint8 *bytes, gsize n)
{
  g_byte_array_append(user, bytes, n);
}

GBytes *world_snapshot(const char *const *files)
{
  GByteArray *out = g_byte_array_new();
  QvGzipWriter *writer = qv_gzip_writer_new(append, out);
  for (; *files != NULL; files += 2) {
    guint8 header[QV_TAR_HEADER_BYTES_MAX];
    gsize n, size = strlen(files[1]);
    g_assert_cmpint(qv_tar_header(files[0], size, FALSE, header, &n), ==, QV_TAR_OK);
    qv_gzip_writer_add(writer, header, n);
    qv_gzip_writer_add(writer, files[1], size);
    qv_gzip_writer_add(writer, qv_tar_zeros, qv_tar_padding(size));
  }
  qv_gzip_writer_add(writer, qv_tar_zeros, QV_TAR_END_BYTES);
  qv_gzip_writer_finish(writer);
  qv_gzip_writer_free(writer);
  return g_byte_array_free_to_bytes(out);
}

static void put_blob(World *world, const QvJob *job, const char *part, GBytes *plain, QvBlobDescriptor *descriptor)
{
  guint8 salt[QV_SALT_BYTES], iv[QV_CHUNK_IV_BYTES];
  char blob_id[QV_BLOB_ID_CAP], tree[65];
  memset(tree, '0', 64);
  tree[64] = '\0';
  qv_random_bytes(salt, sizeof salt);
  qv_blob_id_format(job->job_id, part, blob_id);
  g_autoptr(QvSecret) key = qv_blob_key_derive(world->key, salt, job->tenant_id, blob_id);
  gsize size, at = 0;
  const guint8 *bytes = g_bytes_get_data(plain, &size);
  g_autoptr(QvBlobWriter) writer = qv_blob_writer_new(key, salt, job->tenant_id, blob_id, size);
  for (gint64 i; (i = qv_blob_writer_next(writer)) >= 0;) {
    gsize n = qv_blob_writer_want(writer);
    guint8 *sealed = g_malloc(n + 28);
    qv_random_bytes(iv, sizeof iv);
    qv_blob_writer_step(writer, iv, bytes + at, sealed);
    at += n;
    g_autoptr(GBytes) chunk = g_bytes_new_take(sealed, n + 28);
    Call call = {0};
    qv_blob_put(world->conn, WORLD_PREFIX, blob_id, i, chunk, 600000, 0, on_done, &call);
    call_wait(&call);
  }
  qv_blob_writer_describe(writer, tree, descriptor);
}

void world_put_base(World *world, QvJob *job, GBytes *plain)
{
  put_blob(world, job, "base", plain, &job->base);
}

void world_put_overlay(World *world, QvJob *job, GBytes *plain)
{
  if (job->overlay == NULL)
    job->overlay = g_new0(QvBlobDescriptor, 1);
  put_blob(world, job, "overlay", plain, job->overlay);
}

void world_add_raw(World *world, const char *id, const char *data, gsize n)
{
  Call call = {0};
  qv_producer_add(world->producer, id, "check", data, n, qv_clock_unix_ms(), on_added, &call);
  call_wait(&call);
  g_assert_cmpint(call.number, ==, QV_ADD_ADDED);
}

void world_add(World *world, const QvJob *job, char sha256[65])
{
  gsize n;
  g_autoptr(GError) error = NULL;
  g_autofree char *data = qv_job_sign(job, &world->policy, world->key, &n, sha256, &error);
  g_assert_no_error(error);
  world_add_raw(world, job->job_id, data, n);
}

void world_await_started(World *world, const QvJob *job)
{
  g_autofree char *input = g_strdup_printf("sandbox has its input jobId=%s", job->job_id);
  g_autofree char *runs = g_strdup_printf("sandbox runs jobId=%s", job->job_id);
  world_await_log(world, input);
  world_await_log(world, runs);
}

QvJob *world_started_job(World *world, const char *script, char sha256[65])
{
  QvJob *job = world_job(world, script);
  world_add(world, job, sha256);
  world_await_started(world, job);
  return job;
}

void world_cancel(World *world, const QvJob *job)
{
  gsize n;
  Call call = {0};
  g_autoptr(GError) error = NULL;
  g_autofree char *text = qv_cancel_sign(job, qv_clock_unix_ms(), world->key, &n, &error);
  g_assert_no_error(error);
  qv_cancel_put(world->conn, WORLD_PREFIX, job->job_id, text, n, 600000, 0, on_done, &call);
  call_wait(&call);
}

static QvJobState look(World *world, const char *id, char **text)
{
  Call call = {0};
  qv_producer_state(world->producer, id, 2 * 1024 * 1024, on_state, &call);
  call_wait(&call);
  g_free(*text);
  *text = call.text;
  return call.number;
}

void world_await_state(World *world, const char *id, QvJobState state)
{
  gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;
  g_autofree char *text = NULL;
  QvJobState now;
  while ((now = look(world, id, &text)) != state) {
    if (qv_clock_mono_ms() > end || now == QV_JOB_COMPLETED || now == QV_JOB_FAILED)
      world_fail(world, text != NULL ? text : "the job does not get there");
    g_usleep(20000);
  }
}

QvJobState world_wait(World *world, const char *id, char **text)
{
  gint64 end = qv_clock_mono_ms() + world->deadline_ms;
  QvJobState state;
  *text = NULL;
  while ((state = look(world, id, text)) != QV_JOB_COMPLETED && state != QV_JOB_FAILED) {
    if (qv_clock_mono_ms() > end)
      world_fail(world, "the job does not end");
    g_usleep(20000);
  }
  return state;
}

QvResult *world_result(World *world, const QvJob *job, const char *sha256)
{
  g_autofree char *text = NULL;
  if (world_wait(world, job->job_id, &text) != QV_JOB_COMPLETED)
    world_fail(world, text);
  g_autoptr(GError) error = NULL;
  QvResult *result = qv_result_verify(text, strlen(text), job, sha256, world->key, &error);
  g_assert_no_error(error);
  return result;
}

void world_expect_code(World *world, const QvJob *job, const char *sha256, const char *code)
{
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  const char *got = qv_code_text(result->code);
  if (g_strcmp0(got, code) != 0) {
    g_autofree char *text = g_strdup_printf("job %s: code %s, expected %s", job->job_id, got, code);
    world_fail(world, text);
  }
}

void world_expect(World *world, const QvJob *job, const char *code)
{
  char sha256[65];
  world_add(world, job, sha256);
  world_expect_code(world, job, sha256, code);
}

void world_expect_failed(World *world, const QvJob *job, const char *reason)
{
  char sha256[65];
  world_add(world, job, sha256);
  g_autofree char *text = NULL;
  QvJobState state = world_wait(world, job->job_id, &text);
  g_assert_cmpstr(text, ==, reason);
  g_assert_cmpint(state, ==, QV_JOB_FAILED);
}

/* ---- payload */

typedef struct {
  char *want;
  GString *found;
  gboolean inside;
} Member;

static gboolean member_begin(void *user, const char *path, gint64 size, gboolean executable, GError **error)
{
  Member *member = user;
  member->inside = strcmp(path, member->want) == 0;
  if (member->inside)
    member->found = g_string_new(NULL);
  return TRUE;
}

static gboolean member_bytes(void *user, const guint8 *bytes, gsize n, GError **error)
{
  Member *member = user;
  if (member->inside)
    g_string_append_len(member->found, (const char *)bytes, n);
  return TRUE;
}

static gboolean member_end(void *user, GError **error)
{
  ((Member *)user)->inside = FALSE;
  return TRUE;
}

static void on_bytes(GBytes *bytes, const GError *error, gpointer user)
{
  g_assert_no_error(error);
  g_assert_nonnull(bytes);
  Call *call = user;
  call->text = (char *)g_bytes_ref(bytes);
  call->done = TRUE;
}

char *world_payload_log(World *world, const QvJob *job, const QvResult *result, int step)
{
  static const QvPayloadSinkTable sink = {.begin = member_begin, .bytes = member_bytes, .end = member_end};
  const QvBlobDescriptor *payload = result->payload;
  g_assert_nonnull(payload);
  g_autoptr(QvSecret) key = qv_blob_key_derive(world->key, payload->salt, job->tenant_id, payload->blob_id);
  g_autoptr(QvBlobReader) blob = qv_blob_reader_new(key, job->tenant_id, payload);
  Member member = {.want = step < 0 ? g_strdup("logs/setup.log") : g_strdup_printf("logs/%d.log", step)};
  g_autoptr(QvPayloadReader) reader = qv_payload_reader_new(result, job, &sink, &member);
  g_autofree guint8 *plain = g_malloc(QV_CHUNK_BYTES);
  g_autoptr(GError) error = NULL;
  for (gint64 i; (i = qv_blob_reader_next(blob)) >= 0;) {
    Call call = {0};
    qv_blob_get(world->conn, WORLD_PREFIX, payload->blob_id, i, 0, on_bytes, &call);
    call_wait(&call);
    g_autoptr(GBytes) sealed = (GBytes *)call.text;
    gsize n, plain_n;
    const guint8 *bytes = g_bytes_get_data(sealed, &n);
    if (!qv_blob_reader_step(blob, bytes, n, plain, &plain_n, &error) ||
        !qv_payload_reader_feed(reader, plain, plain_n, &error))
      g_error("payload: %s", error->message);
  }
  if (!qv_payload_reader_finish(reader, &error))
    g_error("payload: %s", error->message);
  g_free(member.want);
  g_assert_nonnull(member.found);
  return g_string_free(member.found, FALSE);
}
