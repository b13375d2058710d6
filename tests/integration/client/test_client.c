/* SPDX-License-Identifier: Apache-2.0 */
/* libquavon against a real Valkey: jobs from their submission to their end; what answers is peer.c. */
#include <string.h>

#include "client/key_file.h"
#include "client/session.h"
#include "client_fixture.h"
#include "protocol/envelope.h"
#include "../../unit/client/tree.h"

static void test_succeed(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  Watch seen = { 0 };
  QuavonJob *job = fixture_job(f, "succeed");
  g_assert_cmpint(quavon_submit(f->client, job, fixture_watch, &seen, job_id, &error), ==, 0);
  quavon_job_free(job);
  g_assert_cmpuint(g_hash_table_size(f->client->tickets), ==, 1);
  QuavonResult *result = quavon_wait(f->client, job_id, fixture_watch, &seen, &error);
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
  g_autofree char *before = fixture_keys(f, "quavon-sandbox:blob:*");
  g_assert_nonnull(strstr(before, ".result:0"));
  g_assert_null(strstr(before, ".base:"));
  g_assert_cmpint(quavon_payload_unlink(f->client, result, &error), ==, 0);
  g_autofree char *after = fixture_keys(f, "quavon-sandbox:blob:*");
  g_assert_cmpstr(after, ==, "");
  g_assert_null(quavon_payload_fetch(f->client, result, &error));
  fixture_expect(&error, QUAVON_ERROR_NOT_FOUND, "15 minutes");
  quavon_result_free(result);
}

/* Another process knows nothing but the id. */
static void test_another_client(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  fixture_submit(f, "fail", job_id);
  QuavonClient *second = fixture_open(f);
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
  fixture_set(f, "QUAVON_SANDBOX_SIGNING_KEY_FILE", f->other);
  second = fixture_open(f);
  g_assert_null(quavon_wait(second, job_id, NULL, NULL, &error));
  fixture_expect(&error, QUAVON_ERROR_AUTH, "not one of ours");
  quavon_client_close(second);
  /* As a previous key it does. */
  fixture_set(f, "QUAVON_SANDBOX_SIGNING_KEY_PREVIOUS_FILES", f->key);
  second = fixture_open(f);
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
    fixture_submit(f, modes[i], job_id);
    g_assert_null(quavon_wait(f->client, job_id, NULL, NULL, &error));
    fixture_expect(&error, QUAVON_ERROR_AUTH, "bad_result");
  }
  QuavonError *error = NULL;
  QuavonResult *corrupt = fixture_run(f, "corrupt");
  g_assert_null(quavon_payload_fetch(f->client, corrupt, &error));
  fixture_expect(&error, QUAVON_ERROR_AUTH, "");
  quavon_result_free(corrupt);
  QuavonResult *absent = fixture_run(f, "absent");
  g_assert_null(quavon_payload_fetch(f->client, absent, &error));
  fixture_expect(&error, QUAVON_ERROR_NOT_FOUND, "gone");
  quavon_result_free(absent);
  /* A good one after them. */
  QuavonResult *good = fixture_run(f, "succeed");
  quavon_result_free(good);
}

/* A result of one job does not pass for another's. */
static void test_result_of_another_job(Fixture *f, gconstpointer data)
{
  char first[QUAVON_JOB_ID_SIZE], second[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  fixture_submit(f, "succeed", first);
  fixture_submit(f, "succeed", second);
  QuavonResult *result = quavon_wait(f->client, first, NULL, NULL, &error);
  g_assert_nonnull(result);
  quavon_result_free(result);
  g_autofree char *hash = g_strconcat("quavon-sandbox:sandbox:", first, NULL);
  g_autofree char *text = qv_test_valkey_cli(f->valkey, "HGET", hash, "returnvalue", NULL);
  result = quavon_result_verify(f->client, first, text, strlen(text), &error);
  g_assert_nonnull(result);
  quavon_result_free(result);
  g_assert_null(quavon_result_verify(f->client, second, text, strlen(text), &error));
  fixture_expect(&error, QUAVON_ERROR_AUTH, "bad_result");
  text[strlen(text) / 2] ^= 1;
  g_assert_null(quavon_result_verify(f->client, first, text, strlen(text), &error));
  fixture_expect(&error, QUAVON_ERROR_AUTH, "bad_result");
}

static void test_rejected(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  fixture_submit(f, "reject", job_id);
  g_assert_null(quavon_wait(f->client, job_id, NULL, NULL, &error));
  fixture_expect(&error, QUAVON_ERROR_REJECTED, "rejected: unknown_image");
}

static void test_cancel_running(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  Watch seen = { .answer = QUAVON_CANCEL, .answer_from = QUAVON_STAGE_PREPARING };
  fixture_submit(f, "hang", job_id);
  QuavonResult *result = quavon_wait(f->client, job_id, fixture_watch, &seen, &error);
  g_assert_nonnull(result);
  g_assert_cmpstr(quavon_result_status(result), ==, "cancelled");
  quavon_result_free(result);
}

static void test_cancel_from_elsewhere(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  fixture_submit(f, "hang", job_id);
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
  fixture_submit(f, "succeed", job_id);
  g_autofree char *before = fixture_keys(f, "quavon-sandbox:blob:*");
  g_assert_nonnull(strstr(before, ".base:4"));
  g_assert_null(quavon_wait(f->client, job_id, fixture_watch, &seen, &error));
  fixture_expect(&error, QUAVON_ERROR_CANCELLED, "before a runner");
  g_autofree char *after = fixture_keys(f, "quavon-sandbox:blob:*");
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
  fixture_submit(f, "succeed", job_id);
  g_assert_null(quavon_wait(f->client, job_id, fixture_watch, &seen, &error));
  fixture_expect(&error, QUAVON_ERROR_CANCELLED, "abandoned");
  g_assert_null(quavon_result_get(f->client, job_id, &error)); /* it still waits */
  g_assert_null(error);
}

static void test_cancel_while_sending(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  Watch seen = { .answer = QUAVON_CANCEL, .answer_from = QUAVON_STAGE_SENDING };
  QuavonJob *job = fixture_job(f, "succeed");
  g_assert_cmpint(quavon_submit(f->client, job, fixture_watch, &seen, job_id, &error), ==, -1);
  fixture_expect(&error, QUAVON_ERROR_CANCELLED, "sending");
  quavon_job_free(job);
  g_autofree char *left = fixture_keys(f, "quavon-sandbox:blob:*");
  g_assert_cmpstr(left, ==, "");
}

static void test_lost(Fixture *f, gconstpointer data)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  fixture_submit(f, "succeed", job_id);
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
  QuavonClient *second = fixture_open(f);
  g_assert_null(quavon_wait(second, job_id, NULL, NULL, &error));
  fixture_expect(&error, QUAVON_ERROR_LOST, "lost");
  quavon_client_close(second);
  /* Data that nobody signed is nobody's job. */
  char *notch = strstr(old, "\"check\"");
  memcpy(notch, "\"scan\" ", 7);
  g_free(qv_test_valkey_cli(f->valkey, "HSET", hash, "data", old, NULL));
  second = fixture_open(f);
  g_assert_null(quavon_wait(second, job_id, NULL, NULL, &error));
  fixture_expect(&error, QUAVON_ERROR_AUTH, "not one of ours");
  quavon_client_close(second);
}

/* Valkey goes away and comes back while a job is waited for. */
static void test_valkey_restart(Fixture *f, gconstpointer data)
{
  qv_test_valkey_free(f->valkey);
  f->valkey = qv_test_valkey_start(QV_TEST_VALKEY_PERSIST);
  fixture_set(f, "VALKEY_URL", qv_test_valkey_url(f->valkey, "worker"));
  quavon_client_close(f->client);
  f->client = fixture_open(f);
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  fixture_submit(f, "succeed", job_id);
  qv_test_valkey_kill(f->valkey);
  qv_test_valkey_restart(f->valkey);
  f->peer = peer_start(qv_test_valkey_url(f->valkey, "sandbox"), f->key, f->other);
  QuavonResult *result = quavon_wait(f->client, job_id, NULL, NULL, &error);
  if (result == NULL)
    g_error("%s", quavon_error_message(error));
  quavon_result_free(result);
}

#define ADD(name, with_peer, function) \
  g_test_add("/client/" name, Fixture, with_peer ? "peer" : NULL, fixture_set_up, function, fixture_tear_down)

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
  ADD("lost", FALSE, test_lost);
  ADD("valkey-restart", FALSE, test_valkey_restart);
  return g_test_run();
}
