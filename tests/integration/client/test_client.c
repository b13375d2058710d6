/* SPDX-License-Identifier: Apache-2.0 */
/* libquavon against a real Valkey; what answers is peer.c. */
#include <glib/gstdio.h>
#include <string.h>

#include "client/key_file.h"
#include "client/quavon.h"
#include "client/session.h"
#include "peer.h"
#include "protocol/envelope.h"
#include "support/health.h"
#include "support/valkey.h"
#include "../../unit/client/tree.h"

static const char digest[] = "sha256:1111111111111111111111111111111111111111111111111111111111111111";

typedef struct {
  QvTestValkey *valkey;
  char *dir, *repo, *key, *other;
  GPtrArray *settings;
  QuavonClient *client;
  Peer *peer;
} Fixture;

static void set(Fixture *f, const char *name, const char *value)
{
  g_ptr_array_insert(f->settings, 0, g_strconcat(name, "=", value, NULL));
}

static QuavonClient *open_client(Fixture *f)
{
  QuavonError *error = NULL;
  QuavonClient *client = quavon_client_open((const char *const *)f->settings->pdata, &error);
  if (client == NULL)
    g_error("%s", quavon_error_message(error));
  return client;
}

static void set_up(Fixture *f, gconstpointer data)
{
  f->valkey = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  f->dir = tree_new();
  f->repo = tree_path(f->dir, "repo");
  f->key = tree_path(f->dir, "key");
  f->other = tree_path(f->dir, "other");
  qv_key_unref(qv_key_file_create(f->key, NULL));
  qv_key_unref(qv_key_file_create(f->other, NULL));
  g_autofree guint8 *noise = g_malloc(5 << 20);
  guint32 state = 1;
  for (gsize i = 0; i < 5 << 20; i++)
    noise[i] = (guint8)((state = state * 1664525 + 1013904223) >> 24);
  tree_write_bytes(f->repo, "noise", noise, 5 << 20); /* several chunks */
  tree_write(f->repo, "src/a.c", "int a;\n", 0644);
  f->settings = g_ptr_array_new_with_free_func(g_free);
  g_ptr_array_add(f->settings, NULL);
  set(f, "VALKEY_URL", qv_test_valkey_url(f->valkey, "worker"));
  set(f, "QUAVON_SANDBOX_SIGNING_KEY_FILE", f->key);
  set(f, "QUAVON_SANDBOX_STATE_DIR", f->dir);
  f->client = open_client(f);
  if (data != NULL)
    f->peer = peer_start(qv_test_valkey_url(f->valkey, "sandbox"), f->key, f->other);
}

static void tear_down(Fixture *f, gconstpointer data)
{
  if (f->peer != NULL)
    peer_stop(f->peer);
  quavon_client_close(f->client);
  qv_test_valkey_free(f->valkey);
  g_ptr_array_unref(f->settings);
  g_free(f->repo);
  g_free(f->key);
  g_free(f->other);
  tree_free(f->dir);
}

static QuavonJob *job_new(const Fixture *f, const char *mode)
{
  qv_test_healthy_runner(f->valkey, f->key, "base", digest);
  QuavonJob *job = quavon_job_new();
  quavon_job_set_folder(job, f->repo);
  quavon_job_set_image(job, "base", digest);
  quavon_job_add_step(job, "run", (const char *const[]){ mode, NULL });
  quavon_job_add_artefact(job, "out/*");
  return job;
}

static void submit(Fixture *f, const char *mode, char job_id[QUAVON_JOB_ID_SIZE])
{
  QuavonError *error = NULL;
  QuavonJob *job = job_new(f, mode);
  if (quavon_submit(f->client, job, NULL, NULL, job_id, &error) != 0)
    g_error("%s", quavon_error_message(error));
  quavon_job_free(job);
}

static QuavonResult *run(Fixture *f, const char *mode)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  submit(f, mode, job_id);
  QuavonResult *result = quavon_wait(f->client, job_id, NULL, NULL, &error);
  if (result == NULL)
    g_error("%s", quavon_error_message(error));
  g_assert_cmpstr(quavon_result_job_id(result), ==, job_id);
  return result;
}

static void expect(QuavonError **error, QuavonErrorCode code, const char *text)
{
  g_assert_nonnull(*error);
  if (quavon_error_code(*error) != code || strstr(quavon_error_message(*error), text) == NULL)
    g_error("wanted an error %d with \"%s\", not %d \"%s\"", code, text, quavon_error_code(*error),
            quavon_error_message(*error));
  quavon_error_free(*error);
  *error = NULL;
}

/* Names of keys that match, of the whole server. */
static char *keys(Fixture *f, const char *pattern)
{
  return qv_test_valkey_cli(f->valkey, "KEYS", pattern, NULL);
}

typedef struct {
  guint calls, stages; /* bits */
  int answer;
  QuavonStage answer_from;
} Watch;

static int watch(const QuavonProgress *progress, void *data)
{
  Watch *seen = data;
  seen->calls++;
  seen->stages |= 1u << progress->stage;
  return progress->stage >= seen->answer_from ? seen->answer : QUAVON_GO_ON;
}

static void test_succeed(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  Watch seen = { 0 };
  QuavonJob *job = job_new(f, "succeed");
  g_assert_cmpint(quavon_submit(f->client, job, watch, &seen, job_id, &error), ==, 0);
  quavon_job_free(job);
  g_assert_cmpuint(g_hash_table_size(f->client->tickets), ==, 1);
  QuavonResult *result = quavon_wait(f->client, job_id, watch, &seen, &error);
  g_assert_nonnull(result);
  g_assert_cmpuint(g_hash_table_size(f->client->tickets), ==, 0); /* a client may live for years */
  guint always = 1u << QUAVON_STAGE_PACKING | 1u << QUAVON_STAGE_PACKED | 1u << QUAVON_STAGE_SENDING |
                 1u << QUAVON_STAGE_WAITING;
  g_assert_cmpuint(seen.stages & always, ==, always);
  g_assert_cmpstr(quavon_result_status(result), ==, "succeeded");
  g_assert_null(quavon_result_code(result));
  g_assert_cmpstr(quavon_result_runner_id(result), ==, "peer");
  QuavonStepRecord record;
  g_assert_cmpuint(quavon_result_steps_n(result), ==, 1);
  g_assert_cmpint(quavon_result_step(result, 0, &record), ==, 0);
  g_assert_cmpint(record.exit_code, ==, 0);
  g_assert_cmpint(quavon_result_step(result, 1, &record), ==, -1);
  g_assert_cmpint(quavon_result_setup(result, &record), ==, -1);
  g_autofree char *base = peer_last_base(f->peer);
  g_assert_cmpstr(base, ==, "noise 5242880;src/a.c 7;");

  QuavonPayload *payload = quavon_payload_fetch(f->client, result, &error);
  g_assert_nonnull(payload);
  size_t n = 0;
  const char *log = quavon_payload_log(payload, 0, &n);
  g_assert_cmpmem(log, 6, "\x1b[31mh", 6);
  g_assert_null(quavon_payload_setup_log(payload, &n));
  g_assert_cmpmem(quavon_payload_artefact(payload, "out/x", &n), n, "content", 7);
  g_autofree char *out = tree_path(f->dir, "saved");
  g_assert_cmpint(quavon_payload_save(payload, out, 0, &error), ==, 0);
  g_autofree char *saved = tree_path(out, "out/x");
  g_assert_true(g_file_test(saved, G_FILE_TEST_IS_REGULAR));
  quavon_payload_free(payload);
  g_autofree char *before = keys(f, "quavon-sandbox:blob:*");
  g_assert_nonnull(strstr(before, ".result:0"));
  g_assert_null(strstr(before, ".base:"));
  g_assert_cmpint(quavon_payload_unlink(f->client, result, &error), ==, 0);
  g_autofree char *after = keys(f, "quavon-sandbox:blob:*");
  g_assert_cmpstr(after, ==, "");
  g_assert_null(quavon_payload_fetch(f->client, result, &error));
  expect(&error, QUAVON_ERROR_NOT_FOUND, "15 minutes");
  quavon_result_free(result);
}

/* Another process knows nothing but the id. */
static void test_another_client(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  submit(f, "fail", job_id);
  QuavonClient *second = open_client(f);
  QuavonResult *result = quavon_wait(second, job_id, NULL, NULL, &error);
  g_assert_nonnull(result);
  g_assert_cmpstr(quavon_result_status(result), ==, "failed");
  g_assert_cmpstr(quavon_result_code(result), ==, "step_failed");
  g_autofree char *json = g_strdup(quavon_result_json(result));
  quavon_result_free(result);
  result = quavon_result_get(second, job_id, &error);
  g_assert_cmpstr(quavon_result_json(result), ==, json);
  quavon_result_free(result);
  g_assert_cmpint(quavon_cancel(second, job_id, &error), ==, 0); /* too late, and no error */
  quavon_client_close(second);
  /* A key that did not sign the job learns nothing. */
  set(f, "QUAVON_SANDBOX_SIGNING_KEY_FILE", f->other);
  second = open_client(f);
  g_assert_null(quavon_wait(second, job_id, NULL, NULL, &error));
  expect(&error, QUAVON_ERROR_AUTH, "not one of ours");
  quavon_client_close(second);
  /* As a previous key it does. */
  set(f, "QUAVON_SANDBOX_SIGNING_KEY_PREVIOUS_FILES", f->key);
  second = open_client(f);
  result = quavon_wait(second, job_id, NULL, NULL, &error);
  g_assert_nonnull(result);
  quavon_result_free(result);
  quavon_client_close(second);
}

static void test_bad_results(Fixture *f, gconstpointer data)
{
  static const char *const modes[] = { "forge", "swap" };
  for (guint i = 0; i < G_N_ELEMENTS(modes); i++) {
    char job_id[QUAVON_JOB_ID_SIZE];
    QuavonError *error = NULL;
    submit(f, modes[i], job_id);
    g_assert_null(quavon_wait(f->client, job_id, NULL, NULL, &error));
    expect(&error, QUAVON_ERROR_AUTH, "bad_result");
  }
  QuavonError *error = NULL;
  QuavonResult *corrupt = run(f, "corrupt");
  g_assert_null(quavon_payload_fetch(f->client, corrupt, &error));
  expect(&error, QUAVON_ERROR_AUTH, "");
  quavon_result_free(corrupt);
  QuavonResult *absent = run(f, "absent");
  g_assert_null(quavon_payload_fetch(f->client, absent, &error));
  expect(&error, QUAVON_ERROR_NOT_FOUND, "gone");
  quavon_result_free(absent);
  /* A good one after them. */
  QuavonResult *good = run(f, "succeed");
  quavon_result_free(good);
}

/* A result of one job does not pass for another's. */
static void test_result_of_another_job(Fixture *f, gconstpointer data)
{
  char first[QUAVON_JOB_ID_SIZE], second[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  submit(f, "succeed", first);
  submit(f, "succeed", second);
  QuavonResult *result = quavon_wait(f->client, first, NULL, NULL, &error);
  g_assert_nonnull(result);
  quavon_result_free(result);
  g_autofree char *hash = g_strconcat("quavon-sandbox:sandbox:", first, NULL);
  g_autofree char *text = qv_test_valkey_cli(f->valkey, "HGET", hash, "returnvalue", NULL);
  result = quavon_result_verify(f->client, first, text, strlen(text), &error);
  g_assert_nonnull(result);
  quavon_result_free(result);
  g_assert_null(quavon_result_verify(f->client, second, text, strlen(text), &error));
  expect(&error, QUAVON_ERROR_AUTH, "bad_result");
  text[strlen(text) / 2] ^= 1;
  g_assert_null(quavon_result_verify(f->client, first, text, strlen(text), &error));
  expect(&error, QUAVON_ERROR_AUTH, "bad_result");
}

static void test_rejected(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  submit(f, "reject", job_id);
  g_assert_null(quavon_wait(f->client, job_id, NULL, NULL, &error));
  expect(&error, QUAVON_ERROR_REJECTED, "rejected: unknown_image");
}

static void test_cancel_running(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  Watch seen = { .answer = QUAVON_CANCEL, .answer_from = QUAVON_STAGE_PREPARING };
  submit(f, "hang", job_id);
  QuavonResult *result = quavon_wait(f->client, job_id, watch, &seen, &error);
  g_assert_nonnull(result);
  g_assert_cmpstr(quavon_result_status(result), ==, "cancelled");
  quavon_result_free(result);
}

static void test_cancel_from_elsewhere(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  submit(f, "hang", job_id);
  g_assert_null(quavon_result_get(f->client, job_id, &error));
  g_assert_null(error);
  g_assert_cmpint(quavon_cancel(f->client, job_id, &error), ==, 0);
  QuavonResult *result = quavon_wait(f->client, job_id, NULL, NULL, &error);
  g_assert_nonnull(result);
  g_assert_cmpstr(quavon_result_status(result), ==, "cancelled");
  quavon_result_free(result);
}

/* No runner: the job is taken back, and nothing of it stays. */
static void test_cancel_waiting(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  Watch seen = { .answer = QUAVON_CANCEL, .answer_from = QUAVON_STAGE_WAITING };
  submit(f, "succeed", job_id);
  g_autofree char *before = keys(f, "quavon-sandbox:blob:*");
  g_assert_nonnull(strstr(before, ".base:4"));
  g_assert_null(quavon_wait(f->client, job_id, watch, &seen, &error));
  expect(&error, QUAVON_ERROR_CANCELLED, "before a runner");
  g_autofree char *after = keys(f, "quavon-sandbox:blob:*");
  g_assert_cmpstr(after, ==, "");
  g_assert_null(quavon_result_get(f->client, job_id, &error));
  g_assert_nonnull(error);
  quavon_error_free(error);
}

static void test_abandon(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  Watch seen = { .answer = QUAVON_ABANDON, .answer_from = QUAVON_STAGE_WAITING };
  submit(f, "succeed", job_id);
  g_assert_null(quavon_wait(f->client, job_id, watch, &seen, &error));
  expect(&error, QUAVON_ERROR_CANCELLED, "abandoned");
  g_assert_null(quavon_result_get(f->client, job_id, &error)); /* it still waits */
  g_assert_null(error);
}

static void test_cancel_while_sending(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  Watch seen = { .answer = QUAVON_CANCEL, .answer_from = QUAVON_STAGE_SENDING };
  QuavonJob *job = job_new(f, "succeed");
  g_assert_cmpint(quavon_submit(f->client, job, watch, &seen, job_id, &error), ==, -1);
  expect(&error, QUAVON_ERROR_CANCELLED, "sending");
  quavon_job_free(job);
  g_autofree char *left = keys(f, "quavon-sandbox:blob:*");
  g_assert_cmpstr(left, ==, "");
}

static void test_queue_full(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  set(f, "QUAVON_SANDBOX_MAX_WAITING", "2");
  quavon_client_close(f->client);
  f->client = open_client(f);
  submit(f, "succeed", job_id);
  submit(f, "succeed", job_id);
  QuavonJob *job = job_new(f, "succeed");
  g_assert_cmpint(quavon_submit(f->client, job, NULL, NULL, job_id, &error), ==, -1);
  expect(&error, QUAVON_ERROR_QUEUE_FULL, "queue_full");
  quavon_job_free(job);
}

/* 5 MiB of noise do not pack into 1 MiB: nothing is sent. */
static void test_blob_too_big(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  Watch seen = { 0 };
  set(f, "QUAVON_SANDBOX_MAX_BLOB_MIB", "1");
  quavon_client_close(f->client);
  f->client = open_client(f);
  QuavonJob *job = job_new(f, "succeed");
  g_assert_cmpint(quavon_submit(f->client, job, watch, &seen, job_id, &error), ==, -1);
  expect(&error, QUAVON_ERROR_LIMIT, "at most 1048576 (QUAVON_SANDBOX_MAX_BLOB_MIB)");
  quavon_job_free(job);
  g_assert_cmpuint(seen.stages & (1u << QUAVON_STAGE_SENDING), ==, 0);
  g_autofree char *left = keys(f, "quavon-sandbox:blob:*");
  g_assert_cmpstr(left, ==, "");
}

static void test_bad_descriptions(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  QuavonJob *jobs[4];
  for (guint i = 0; i < G_N_ELEMENTS(jobs); i++)
    jobs[i] = job_new(f, "succeed");
  quavon_job_set_tenant(jobs[0], "no blanks");
  quavon_job_set_limit(jobs[1], "wallClock", 1);
  quavon_job_set_limit(jobs[2], "memoryMiB", 1 << 30);
  quavon_job_add_artefact(jobs[3], "[");
  static const char *const texts[] = { "tenantId", "wallClock", "memoryMiB", "artefacts" };
  for (guint i = 0; i < G_N_ELEMENTS(jobs); i++) {
    g_assert_cmpint(quavon_submit(f->client, jobs[i], NULL, NULL, job_id, &error), ==, -1);
    expect(&error, QUAVON_ERROR_CONFIG, texts[i]);
    quavon_job_free(jobs[i]);
  }
  QuavonJob *no_image = quavon_job_new();
  quavon_job_set_folder(no_image, f->repo);
  quavon_job_add_step(no_image, "run", (const char *const[]){ "true", NULL });
  /* Who does not ask the runners needs a lock of its own. */
  quavon_client_set_need_runner(f->client, 0);
  g_assert_cmpint(quavon_submit(f->client, no_image, NULL, NULL, job_id, &error), ==, -1);
  expect(&error, QUAVON_ERROR_CONFIG, "quavon images build base");
  quavon_client_set_need_runner(f->client, 1);
  quavon_job_free(no_image);
  g_assert_null(quavon_wait(f->client, "not-an-id", NULL, NULL, &error));
  expect(&error, QUAVON_ERROR_NOT_FOUND, "UUID");
  g_assert_null(quavon_wait(f->client, "00000000-0000-4000-8000-000000000000", NULL, NULL, &error));
  expect(&error, QUAVON_ERROR_NOT_FOUND, "no job");
}

/* Its time was over long ago: there can be no result any more. */
/* Refused with a line for each runner, and nothing is left in Valkey. */
static void expect_no_runner(Fixture *f, const QuavonJob *job, const char *text)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  g_assert_cmpint(quavon_submit(f->client, job, NULL, NULL, job_id, &error), ==, -1);
  expect(&error, QUAVON_ERROR_NO_RUNNER, text);
  g_autofree char *queued = keys(f, "quavon-sandbox:sandbox:*"), *blobs = keys(f, "quavon-sandbox:blob:*");
  g_assert_cmpstr(queued, ==, "");
  g_assert_cmpstr(blobs, ==, "");
}

static void test_no_runner(Fixture *f, gconstpointer data)
{
  QuavonJob *job = job_new(f, "succeed");
  g_free(qv_test_valkey_cli(f->valkey, "FLUSHALL", NULL));
  expect_no_runner(f, job, "none has reported in the last 90 s");
  g_autoptr(QvHealth) health = qv_test_health_new("r1", "base", digest);
  health->smoke->passed = FALSE;
  g_strfreev(health->smoke->failed);
  health->smoke->failed = g_strsplit("mount ptrace", " ", -1);
  g_strfreev(health->problems);
  health->problems = g_strsplit("smoke: it failed", "|", -1);
  qv_test_health_put(f->valkey, f->key, health);
  expect_no_runner(f, job, "did not pass its smoke test (failed: mount, ptrace); smoke: it failed");
  qv_test_health_put(f->valkey, f->other, health);
  expect_no_runner(f, job, "runner r1: ");
  g_free(qv_test_valkey_cli(f->valkey, "DEL", "quavon-sandbox:health:r1", NULL));
  expect_no_runner(f, job, "runner r1: its health record has expired");
  quavon_job_free(job);
}

/* A name alone: the digest that every live runner has; a lock of its own is not needed. */
static void test_common_digest(Fixture *f, gconstpointer data)
{
  static const char other_digest[] = "sha256:2222222222222222222222222222222222222222222222222222222222222222";
  QuavonError *error = NULL;
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonJob *job = job_new(f, "succeed"); /* and a runner `peer` with one digest */
  quavon_job_set_image(job, "base", NULL);
  g_autoptr(QvHealth) health = qv_test_health_new("newer", "base", other_digest);
  qv_test_health_put(f->valkey, f->key, health);
  g_assert_cmpint(quavon_submit(f->client, job, NULL, NULL, job_id, &error), ==, -1);
  expect(&error, QUAVON_ERROR_NO_RUNNER, "the runners have no common digest of image base");
  /* The newer one still has the previous image. */
  health->images = g_renew(QvImageRef, health->images, 2);
  health->images[health->images_n++] = (QvImageRef){ .name = g_strdup("base"), .digest = g_strdup(digest) };
  qv_test_health_put(f->valkey, f->key, health);
  if (quavon_submit(f->client, job, NULL, NULL, job_id, &error) != 0)
    g_error("%s", quavon_error_message(error));
  QuavonResult *result = quavon_wait(f->client, job_id, NULL, NULL, &error);
  g_assert_nonnull(result);
  g_assert_nonnull(strstr(quavon_result_json(result), digest));
  quavon_result_free(result);
  quavon_job_free(job);
  QuavonRunners *runners = quavon_runners_read(f->client, &error);
  g_assert_nonnull(runners);
  g_assert_cmpuint(quavon_runners_n(runners), ==, 2);
  for (size_t i = 0; i < 2; i++) {
    const QuavonRunner *runner = quavon_runners_get(runners, i);
    g_assert_null(runner->trouble);
    g_assert_cmpstr(runner->backend, ==, "runsc");
    g_assert_cmpint(runner->smoke_passed, ==, 1);
    g_assert_cmpuint(runner->images_n, ==, g_str_equal(runner->runner_id, "newer") ? 2 : 1);
    g_assert_cmpstr(runner->image_digests[runner->images_n - 1], ==, digest);
  }
  g_assert_null(quavon_runners_get(runners, 2));
  quavon_runners_free(runners);
}

/* The client was opened before there was a next key; a runner that signs with it is known all the same. */
static void test_next_key(Fixture *f, gconstpointer data)
{
  QuavonJob *job = job_new(f, "succeed");
  g_autofree char *next = g_strconcat(f->key, ".next", NULL);
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  qv_key_unref(qv_key_file_create(next, NULL));
  qv_test_healthy_runner(f->valkey, next, "base", digest);
  if (quavon_submit(f->client, job, NULL, NULL, job_id, &error) != 0)
    g_error("%s", quavon_error_message(error));
  quavon_job_free(job);
}

static void test_lost(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  submit(f, "succeed", job_id);
  g_autofree char *hash = g_strconcat("quavon-sandbox:sandbox:", job_id, NULL);
  g_autofree char *text = qv_test_valkey_cli(f->valkey, "HGET", hash, "data", NULL);
  g_autoptr(QvKey) key = qv_key_file_read(f->key, NULL);
  g_autoptr(QvKeyring) ring = qv_keyring_new(key);
  json_t *body = NULL;
  g_assert_cmpint(qv_envelope_verify(QV_ENVELOPE_JOB, ring, text, strlen(text), &body, NULL, NULL), ==, QV_ENVELOPE_OK);
  json_object_set_new(body, "issuedAt", json_integer(1600000000000));
  json_object_set_new(body, "notAfter", json_integer(1600000900000));
  gsize old_n = 0;
  g_autofree char *old = qv_envelope_sign(QV_ENVELOPE_JOB, key, body, &old_n, NULL);
  json_decref(body);
  g_assert_nonnull(old);
  g_free(qv_test_valkey_cli(f->valkey, "HSET", hash, "data", old, NULL));
  QuavonClient *second = open_client(f);
  g_assert_null(quavon_wait(second, job_id, NULL, NULL, &error));
  expect(&error, QUAVON_ERROR_LOST, "lost");
  quavon_client_close(second);
  /* Data that nobody signed is nobody's job. */
  char *notch = strstr(old, "\"check\"");
  memcpy(notch, "\"scan\" ", 7);
  g_free(qv_test_valkey_cli(f->valkey, "HSET", hash, "data", old, NULL));
  second = open_client(f);
  g_assert_null(quavon_wait(second, job_id, NULL, NULL, &error));
  expect(&error, QUAVON_ERROR_AUTH, "not one of ours");
  quavon_client_close(second);
}

static void cannot_open(Fixture *f, QuavonErrorCode code, const char *text)
{
  QuavonError *error = NULL;
  g_assert_null(quavon_client_open((const char *const *)f->settings->pdata, &error));
  expect(&error, code, text);
}

static void test_open(Fixture *f, gconstpointer data)
{
  set(f, "QUAVON_SANDBOX_SINGING_KEY_FILE", "x");
  cannot_open(f, QUAVON_ERROR_CONFIG, "QUAVON_SANDBOX_SIGNING_KEY_FILE");
  g_ptr_array_remove_index(f->settings, 0);
  g_autofree char *absent = tree_path(f->dir, "absent");
  set(f, "QUAVON_SANDBOX_SIGNING_KEY_FILE", absent);
  cannot_open(f, QUAVON_ERROR_CONFIG, "absent");
  g_ptr_array_remove_index(f->settings, 0);
  g_assert_cmpint(g_chmod(f->key, 0644), ==, 0);
  cannot_open(f, QUAVON_ERROR_CONFIG, "chmod");
  g_assert_cmpint(g_chmod(f->key, 0600), ==, 0);
  set(f, "VALKEY_URL", "ftp://x");
  cannot_open(f, QUAVON_ERROR_CONFIG, "VALKEY_URL");
  g_autofree char *wrong = g_strdup_printf("unix://worker:wrong@%s", qv_test_valkey_socket(f->valkey));
  set(f, "VALKEY_URL", wrong);
  cannot_open(f, QUAVON_ERROR_UNAVAILABLE, "WRONGPASS");
  g_autofree char *nobody = g_strdup_printf("unix://worker:x@%s/no.sock", f->dir);
  set(f, "VALKEY_URL", nobody);
  cannot_open(f, QUAVON_ERROR_UNAVAILABLE, "no.sock");
}

/* Valkey goes away and comes back while a job is waited for. */
static void test_valkey_restart(Fixture *f, gconstpointer data)
{
  qv_test_valkey_free(f->valkey);
  f->valkey = qv_test_valkey_start(QV_TEST_VALKEY_PERSIST);
  set(f, "VALKEY_URL", qv_test_valkey_url(f->valkey, "worker"));
  quavon_client_close(f->client);
  f->client = open_client(f);
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  submit(f, "succeed", job_id);
  qv_test_valkey_kill(f->valkey);
  qv_test_valkey_restart(f->valkey);
  f->peer = peer_start(qv_test_valkey_url(f->valkey, "sandbox"), f->key, f->other);
  QuavonResult *result = quavon_wait(f->client, job_id, NULL, NULL, &error);
  if (result == NULL)
    g_error("%s", quavon_error_message(error));
  quavon_result_free(result);
}

#define ADD(name, with_peer, function) \
  g_test_add("/client/" name, Fixture, with_peer ? "peer" : NULL, set_up, function, tear_down)

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  ADD("succeed", TRUE, test_succeed);
  ADD("another-client", TRUE, test_another_client);
  ADD("bad-results", TRUE, test_bad_results);
  ADD("result-of-another-job", TRUE, test_result_of_another_job);
  ADD("rejected", TRUE, test_rejected);
  ADD("cancel-running", TRUE, test_cancel_running);
  ADD("cancel-from-elsewhere", TRUE, test_cancel_from_elsewhere);
  ADD("cancel-waiting", FALSE, test_cancel_waiting);
  ADD("cancel-while-sending", FALSE, test_cancel_while_sending);
  ADD("abandon", FALSE, test_abandon);
  ADD("queue-full", FALSE, test_queue_full);
  ADD("no-runner", FALSE, test_no_runner);
  ADD("common-digest", TRUE, test_common_digest);
  ADD("next-key", FALSE, test_next_key);
  ADD("blob-too-big", FALSE, test_blob_too_big);
  ADD("lost", FALSE, test_lost);
  ADD("bad-descriptions", FALSE, test_bad_descriptions);
  ADD("open", FALSE, test_open);
  ADD("valkey-restart", FALSE, test_valkey_restart);
  return g_test_run();
}
