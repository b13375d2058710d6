/* SPDX-License-Identifier: Apache-2.0 */
/* libquavon on one side, a BullMQ Worker of Node on the other: it takes the job, checks signature, options and snapshot by the
 * contract, and libquavon verifies its answer and fetches its payload. */
#include <glib/gstdio.h>
#include <string.h>

#include "client/quavon.h"
#include "node.h"
#include "support/health.h"

static const char digest[] = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static void write_text(const char *dir, const char *name, const char *text, int mode)
{
  g_autofree char *path = g_build_filename(dir, name, NULL);
  g_assert_true(g_file_set_contents_full(path, text, -1, G_FILE_SET_CONTENTS_NONE, mode, NULL));
}

static QuavonJob *make_job(const char *folder, const char *word)
{
  QuavonJob *job = quavon_job_new();
  quavon_job_set_image(job, "base", digest);
  quavon_job_add_backend(job, "runsc");
  quavon_job_set_folder(job, folder);
  quavon_job_set_all(job, 1);
  quavon_job_add_step(job, "step", (const char *[]){ word, "\xc3\xbc \xf0\x9f\x98\x80", NULL });
  quavon_job_add_artefact(job, "*.txt");
  return job;
}

static void assert_ok(QuavonError *error)
{
  if (error)
    g_error("libquavon: %s", quavon_error_message(error));
}

static void run_job(QuavonClient *client, const char *folder)
{
  char id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  QuavonJob *job = make_job(folder, "list");
  quavon_submit(client, job, NULL, NULL, id, &error);
  assert_ok(error);
  QuavonResult *result = quavon_wait(client, id, NULL, NULL, &error);
  assert_ok(error);
  g_assert_cmpstr(quavon_result_status(result), ==, "succeeded");
  g_assert_cmpstr(quavon_result_runner_id(result), ==, "node-runner");
  QuavonPayload *payload = quavon_payload_fetch(client, result, &error);
  assert_ok(error);
  size_t n;
  const char *log = quavon_payload_log(payload, 0, &n);
  const char *expected = "6 a.txt\n5 sub/b.txt\n";
  g_assert_cmpmem(log, n, expected, strlen(expected));
  log = quavon_payload_artefact(payload, "listing.txt", &n);
  g_assert_cmpmem(log, n, expected, strlen(expected));
  g_assert_cmpint(quavon_payload_unlink(client, result, &error), ==, 0);
  quavon_payload_free(payload);
  quavon_result_free(result);
  quavon_job_free(job);
}

static void run_rejected(QuavonClient *client, const char *folder)
{
  char id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  QuavonJob *job = make_job(folder, "reject");
  quavon_submit(client, job, NULL, NULL, id, &error);
  assert_ok(error);
  g_assert_null(quavon_wait(client, id, NULL, NULL, &error));
  g_assert_cmpint(quavon_error_code(error), ==, QUAVON_ERROR_REJECTED);
  g_assert_nonnull(strstr(quavon_error_message(error), "unsupported"));
  quavon_error_free(error);
  quavon_job_free(job);
}

static void run_major(gconstpointer major)
{
  if (!node_folder())
    return;
  g_autoptr(QvTestValkey) valkey = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  const char *dir = qv_test_valkey_dir(valkey);
  g_autofree char *folder = g_build_filename(dir, "tree", NULL), *sub = g_build_filename(folder, "sub", NULL);
  g_assert_cmpint(g_mkdir_with_parents(sub, 0700), ==, 0);
  write_text(folder, "a.txt", "hello\n", 0644);
  write_text(sub, "b.txt", "deep\n", 0644);
  write_text(dir, "key", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n", 0600);
  g_autofree char *url = g_strconcat("VALKEY_URL=", qv_test_valkey_url(valkey, "worker"), NULL);
  g_autofree char *key = g_strdup_printf("QUAVON_SANDBOX_SIGNING_KEY_FILE=%s/key", dir);
  g_autofree char *node_key = g_strdup_printf("QV_KEY_FILE=%s/key", dir);
  /* Node's worker needs commands that ours does not: it is the admin of this test's server. */
  NodeProgram *node = node_start(valkey, "admin", "worker.mjs", major, (const char *[]){ "2", NULL },
                                 (const char *[]){ node_key, NULL });
  g_autofree char *key_file = g_build_filename(dir, "key", NULL);
  qv_test_healthy_runner(valkey, key_file, "base", digest);
  QuavonError *error = NULL;
  QuavonClient *client = quavon_client_open((const char *[]){ url, key, NULL }, &error);
  assert_ok(error);
  run_job(client, folder);
  run_rejected(client, folder);
  quavon_client_close(client);
  node_finish(node);
  g_autofree char *left = qv_test_valkey_cli(valkey, "KEYS", "quavon-sandbox:blob:*", NULL);
  g_assert_true(g_str_equal(left, "") || g_str_has_suffix(left, ".base:0"));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_data_func("/interop/client/bullmq-5", "5", run_major);
  g_test_add_data_func("/interop/client/bullmq-6", "6", run_major);
  return g_test_run();
}
