/* SPDX-License-Identifier: Apache-2.0 */
#include "client_fixture.h"

#include <string.h>

#include "client/key_file.h"
#include "support/health.h"
#include "../../unit/client/tree.h"

const char fixture_digest[] = "sha256:1111111111111111111111111111111111111111111111111111111111111111";

void fixture_set(Fixture *f, const char *name, const char *value)
{
  g_ptr_array_insert(f->settings, 0, g_strconcat(name, "=", value, NULL));
}

QuavonClient *fixture_open(Fixture *f)
{
  QuavonError *error = NULL;
  QuavonClient *client = quavon_client_open((const char *const *)f->settings->pdata, &error);
  if (client == NULL)
    g_error("%s", quavon_error_message(error));
  return client;
}

void fixture_set_up(Fixture *f, gconstpointer data)
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
  fixture_set(f, "VALKEY_URL", qv_test_valkey_url(f->valkey, "worker"));
  fixture_set(f, "QUAVON_SANDBOX_SIGNING_KEY_FILE", f->key);
  fixture_set(f, "QUAVON_SANDBOX_STATE_DIR", f->dir);
  f->client = fixture_open(f);
  if (data != NULL)
    f->peer = peer_start(qv_test_valkey_url(f->valkey, "sandbox"), f->key, f->other);
}

void fixture_tear_down(Fixture *f, gconstpointer data)
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

QuavonJob *fixture_job(const Fixture *f, const char *mode)
{
  qv_test_healthy_runner(f->valkey, f->key, "base", fixture_digest);
  QuavonJob *job = quavon_job_new();
  quavon_job_set_folder(job, f->repo);
  quavon_job_set_image(job, "base", fixture_digest);
  quavon_job_add_step(job, "run", (const char *const[]){ mode, NULL });
  quavon_job_add_artefact(job, "out/*");
  return job;
}

void fixture_submit(Fixture *f, const char *mode, char job_id[QUAVON_JOB_ID_SIZE])
{
  QuavonError *error = NULL;
  QuavonJob *job = fixture_job(f, mode);
  if (quavon_submit(f->client, job, NULL, NULL, job_id, &error) != 0)
    g_error("%s", quavon_error_message(error));
  quavon_job_free(job);
}

QuavonResult *fixture_run(Fixture *f, const char *mode)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  fixture_submit(f, mode, job_id);
  QuavonResult *result = quavon_wait(f->client, job_id, NULL, NULL, &error);
  if (result == NULL)
    g_error("%s", quavon_error_message(error));
  g_assert_cmpstr(quavon_result_job_id(result), ==, job_id);
  return result;
}

void fixture_expect(QuavonError **error, QuavonErrorCode code, const char *text)
{
  g_assert_nonnull(*error);
  if (quavon_error_code(*error) != code || strstr(quavon_error_message(*error), text) == NULL)
    g_error("wanted an error %d with \"%s\", not %d \"%s\"", code, text, quavon_error_code(*error),
            quavon_error_message(*error));
  quavon_error_free(*error);
  *error = NULL;
}

char *fixture_keys(Fixture *f, const char *pattern)
{
  return qv_test_valkey_cli(f->valkey, "KEYS", pattern, NULL);
}

int fixture_watch(const QuavonProgress *progress, void *data)
{
  Watch *seen = data;
  seen->calls++;
  seen->stages |= 1u << progress->stage;
  return progress->stage >= seen->answer_from ? seen->answer : QUAVON_GO_ON;
}
