/* SPDX-License-Identifier: Apache-2.0 */
/* libquavon against a real Valkey: what it does not open or submit, and what it picks before it submits. */
#include <glib/gstdio.h>
#include <string.h>

#include "client/key_file.h"
#include "client_fixture.h"
#include "support/health.h"
#include "../../unit/client/tree.h"

static void test_queue_full(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  fixture_set(f, "QUAVON_SANDBOX_MAX_WAITING", "2");
  quavon_client_close(f->client);
  f->client = fixture_open(f);
  fixture_submit(f, "succeed", job_id);
  fixture_submit(f, "succeed", job_id);
  QuavonJob *job = fixture_job(f, "succeed");
  g_assert_cmpint(quavon_submit(f->client, job, NULL, NULL, job_id, &error), ==, -1);
  fixture_expect(&error, QUAVON_ERROR_QUEUE_FULL, "queue_full");
  quavon_job_free(job);
}

/* 5 MiB of noise do not pack into 1 MiB: nothing is sent. */
static void test_blob_too_big(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  Watch seen = { 0 };
  fixture_set(f, "QUAVON_SANDBOX_MAX_BLOB_MIB", "1");
  quavon_client_close(f->client);
  f->client = fixture_open(f);
  QuavonJob *job = fixture_job(f, "succeed");
  g_assert_cmpint(quavon_submit(f->client, job, fixture_watch, &seen, job_id, &error), ==, -1);
  fixture_expect(&error, QUAVON_ERROR_LIMIT, "at most 1048576 (QUAVON_SANDBOX_MAX_BLOB_MIB)");
  quavon_job_free(job);
  g_assert_cmpuint(seen.stages & (1u << QUAVON_STAGE_SENDING), ==, 0);
  g_autofree char *left = fixture_keys(f, "quavon-sandbox:blob:*");
  g_assert_cmpstr(left, ==, "");
}

static void test_bad_descriptions(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  QuavonJob *jobs[4];
  for (guint i = 0; i < G_N_ELEMENTS(jobs); i++)
    jobs[i] = fixture_job(f, "succeed");
  quavon_job_set_tenant(jobs[0], "no blanks");
  quavon_job_set_limit(jobs[1], "wallClock", 1);
  quavon_job_set_limit(jobs[2], "memoryMiB", 1 << 30);
  quavon_job_add_artefact(jobs[3], "[");
  static const char *const texts[] = { "tenantId", "wallClock", "memoryMiB", "artefacts" };
  for (guint i = 0; i < G_N_ELEMENTS(jobs); i++) {
    g_assert_cmpint(quavon_submit(f->client, jobs[i], NULL, NULL, job_id, &error), ==, -1);
    fixture_expect(&error, QUAVON_ERROR_CONFIG, texts[i]);
    quavon_job_free(jobs[i]);
  }
  QuavonJob *no_image = quavon_job_new();
  quavon_job_set_folder(no_image, f->repo);
  quavon_job_add_step(no_image, "run", (const char *const[]){ "true", NULL });
  /* Who does not ask the runners needs a lock of its own. */
  quavon_client_set_need_runner(f->client, 0);
  g_assert_cmpint(quavon_submit(f->client, no_image, NULL, NULL, job_id, &error), ==, -1);
  fixture_expect(&error, QUAVON_ERROR_CONFIG, "quavon images build base");
  quavon_client_set_need_runner(f->client, 1);
  quavon_job_free(no_image);
  g_assert_null(quavon_wait(f->client, "not-an-id", NULL, NULL, &error));
  fixture_expect(&error, QUAVON_ERROR_NOT_FOUND, "UUID");
  g_assert_null(quavon_wait(f->client, "00000000-0000-4000-8000-000000000000", NULL, NULL, &error));
  fixture_expect(&error, QUAVON_ERROR_NOT_FOUND, "no job");
}

/* Its time was over long ago: there can be no result any more. */
/* Refused with a line for each runner, and nothing is left in Valkey. */
static void expect_no_runner(Fixture *f, const QuavonJob *job, const char *text)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  g_assert_cmpint(quavon_submit(f->client, job, NULL, NULL, job_id, &error), ==, -1);
  fixture_expect(&error, QUAVON_ERROR_NO_RUNNER, text);
  g_autofree char *queued = fixture_keys(f, "quavon-sandbox:sandbox:*"), *blobs = fixture_keys(f, "quavon-sandbox:blob:*");
  g_assert_cmpstr(queued, ==, "");
  g_assert_cmpstr(blobs, ==, "");
}

static void test_no_runner(Fixture *f, gconstpointer data)
{
  QuavonJob *job = fixture_job(f, "succeed");
  g_free(qv_test_valkey_cli(f->valkey, "FLUSHALL", NULL));
  expect_no_runner(f, job, "none has reported in the last 90 s");
  g_autoptr(QvHealth) health = qv_test_health_new("r1", "base", fixture_digest);
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

/* A name alone: the fixture_digest that every live runner has; a lock of its own is not needed. */
static void test_common_digest(Fixture *f, gconstpointer data)
{
  static const char other_digest[] = "sha256:2222222222222222222222222222222222222222222222222222222222222222";
  QuavonError *error = NULL;
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonJob *job = fixture_job(f, "succeed"); /* and a runner `peer` with one fixture_digest */
  quavon_job_set_image(job, "base", NULL);
  g_autoptr(QvHealth) health = qv_test_health_new("newer", "base", other_digest);
  qv_test_health_put(f->valkey, f->key, health);
  g_assert_cmpint(quavon_submit(f->client, job, NULL, NULL, job_id, &error), ==, -1);
  fixture_expect(&error, QUAVON_ERROR_NO_RUNNER, "the runners have no common digest of image base");
  /* The newer one still has the previous image. */
  health->images = g_renew(QvImageRef, health->images, 2);
  health->images[health->images_n++] = (QvImageRef){ .name = g_strdup("base"), .digest = g_strdup(fixture_digest) };
  qv_test_health_put(f->valkey, f->key, health);
  if (quavon_submit(f->client, job, NULL, NULL, job_id, &error) != 0)
    g_error("%s", quavon_error_message(error));
  QuavonResult *result = quavon_wait(f->client, job_id, NULL, NULL, &error);
  g_assert_nonnull(result);
  g_assert_nonnull(strstr(quavon_result_json(result), fixture_digest));
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
    g_assert_cmpstr(runner->image_digests[runner->images_n - 1], ==, fixture_digest);
  }
  g_assert_null(quavon_runners_get(runners, 2));
  quavon_runners_free(runners);
}

/* The client was opened before there was a next key; a runner that signs with it is known all the same. */
static void test_next_key(Fixture *f, gconstpointer data)
{
  QuavonJob *job = fixture_job(f, "succeed");
  g_autofree char *next = g_strconcat(f->key, ".next", NULL);
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  qv_key_unref(qv_key_file_create(next, NULL));
  qv_test_healthy_runner(f->valkey, next, "base", fixture_digest);
  if (quavon_submit(f->client, job, NULL, NULL, job_id, &error) != 0)
    g_error("%s", quavon_error_message(error));
  quavon_job_free(job);
}

static void cannot_open(Fixture *f, QuavonErrorCode code, const char *text)
{
  QuavonError *error = NULL;
  g_assert_null(quavon_client_open((const char *const *)f->settings->pdata, &error));
  fixture_expect(&error, code, text);
}

static void test_open(Fixture *f, gconstpointer data)
{
  fixture_set(f, "QUAVON_SANDBOX_SINGING_KEY_FILE", "x");
  cannot_open(f, QUAVON_ERROR_CONFIG, "QUAVON_SANDBOX_SIGNING_KEY_FILE");
  g_ptr_array_remove_index(f->settings, 0);
  g_autofree char *absent = tree_path(f->dir, "absent");
  fixture_set(f, "QUAVON_SANDBOX_SIGNING_KEY_FILE", absent);
  cannot_open(f, QUAVON_ERROR_CONFIG, "absent");
  g_ptr_array_remove_index(f->settings, 0);
  g_assert_cmpint(g_chmod(f->key, 0644), ==, 0);
  cannot_open(f, QUAVON_ERROR_CONFIG, "chmod");
  g_assert_cmpint(g_chmod(f->key, 0600), ==, 0);
  fixture_set(f, "VALKEY_URL", "ftp://x");
  cannot_open(f, QUAVON_ERROR_CONFIG, "VALKEY_URL");
  g_autofree char *wrong = g_strdup_printf("unix://worker:wrong@%s", qv_test_valkey_socket(f->valkey));
  fixture_set(f, "VALKEY_URL", wrong);
  cannot_open(f, QUAVON_ERROR_UNAVAILABLE, "WRONGPASS");
  g_autofree char *nobody = g_strdup_printf("unix://worker:x@%s/no.sock", f->dir);
  fixture_set(f, "VALKEY_URL", nobody);
  cannot_open(f, QUAVON_ERROR_UNAVAILABLE, "no.sock");
}

#define ADD(name, with_peer, function) \
  g_test_add("/client/refuses/" name, Fixture, with_peer ? "peer" : NULL, fixture_set_up, function, fixture_tear_down)

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  ADD("queue-full", FALSE, test_queue_full);
  ADD("no-runner", FALSE, test_no_runner);
  ADD("common-digest", TRUE, test_common_digest);
  ADD("next-key", FALSE, test_next_key);
  ADD("blob-too-big", FALSE, test_blob_too_big);
  ADD("bad-descriptions", FALSE, test_bad_descriptions);
  ADD("open", FALSE, test_open);
  return g_test_run();
}
