/* SPDX-License-Identifier: Apache-2.0 */
/* Live logs against a real Valkey: a function that gets them calls the client that calls it. No runner: the test stores what
 * one would. */
#include <string.h>

#include "base/random.h"
#include "client/key_file.h"
#include "client/quavon.h"
#include "client/session.h"
#include "protocol/live.h"
#include "queue/stores.h"
#include "support/health.h"
#include "support/loop.h"
#include "support/valkey.h"
#include "../../unit/client/tree.h"

static const char digest[] = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
static const char *const texts[] = { "zero", "one", "two" };

typedef struct {
  QvTestValkey *valkey;
  char *dir, *key, *channel;
  QuavonClient *client;
  char job_id[QUAVON_JOB_ID_SIZE];
  gboolean inside;
  GString *seen;
} Fixture;

static void submit(Fixture *f)
{
  g_autofree char *repo = tree_path(f->dir, "repo");
  QuavonError *error = NULL;
  tree_write(f->dir, "repo/a.c", "int a;\n", 0644);
  qv_test_healthy_runner(f->valkey, f->key, "base", digest);
  QuavonJob *job = quavon_job_new();
  quavon_job_set_folder(job, repo);
  quavon_job_set_image(job, "base", digest);
  quavon_job_add_step(job, "run", (const char *const[]){ "true", NULL });
  if (quavon_submit(f->client, job, NULL, NULL, f->job_id, &error) != 0)
    g_error("%s", quavon_error_message(error));
  quavon_job_free(job);
}

static void on_stored(const GError *error, gpointer user)
{
  g_assert_no_error(error);
  ++*(guint *)user;
}

static void store_chunks(Fixture *f)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvTicket) ticket = qv_session_ticket(f->client, f->job_id, &error);
  g_assert_no_error(error);
  const char *tenant = ticket->job->tenant_id;
  g_autoptr(QvSecret) key = qv_live_key_derive(ticket->key, ticket->job_sha256, tenant, f->job_id);
  g_autoptr(QvBlobCipher) cipher = qv_live_cipher_new(key, tenant, f->job_id);
  g_autoptr(QvAddress) address = qv_address_parse(qv_test_valkey_url(f->valkey, "admin"), &error);
  g_autoptr(QvConn) conn = qv_conn_new(address, NULL);
  guint stored_n = 0;
  for (guint i = 0; i < G_N_ELEMENTS(texts); i++) {
    guint8 iv[QV_CHUNK_IV_BYTES];
    gsize n = strlen(texts[i]), sealed_n = n + QV_CHUNK_IV_BYTES + QV_CHUNK_TAG_BYTES;
    guint8 *sealed = g_malloc(sealed_n);
    qv_random_bytes(iv, sizeof iv);
    qv_blob_cipher_seal(cipher, i, iv, texts[i], n, sealed);
    g_autoptr(GBytes) bytes = g_bytes_new_take(sealed, sealed_n);
    qv_live_put(conn, f->client->prefix, f->job_id, i, bytes, 0, on_stored, &stored_n, NULL);
  }
  QV_TEST_WAIT(stored_n == G_N_ELEMENTS(texts));
}

static void set_up(Fixture *f, gconstpointer data)
{
  QuavonError *error = NULL;
  f->valkey = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  f->dir = tree_new();
  f->key = tree_path(f->dir, "key");
  qv_key_unref(qv_key_file_create(f->key, NULL));
  g_autofree char *url = g_strconcat("VALKEY_URL=", qv_test_valkey_url(f->valkey, "worker"), NULL);
  g_autofree char *key = g_strconcat("QUAVON_SANDBOX_SIGNING_KEY_FILE=", f->key, NULL);
  g_autofree char *state = g_strconcat("QUAVON_SANDBOX_STATE_DIR=", f->dir, NULL);
  f->client = quavon_client_open((const char *const[]){ url, key, state, NULL }, &error);
  if (f->client == NULL)
    g_error("%s", quavon_error_message(error));
  f->channel = qv_live_channel(f->client->prefix);
  f->seen = g_string_new(NULL);
  submit(f);
  store_chunks(f);
}

static void tear_down(Fixture *f, gconstpointer data)
{
  quavon_client_close(f->client);
  qv_test_valkey_free(f->valkey);
  g_free(f->channel);
  g_free(f->key);
  tree_free(f->dir);
  g_string_free(f->seen, TRUE);
}

/* Each is a loop of its own that ends with an answer. */
static void call_client(Fixture *f)
{
  QuavonError *error = NULL;
  g_assert_cmpint(quavon_cancel(f->client, f->job_id, &error), ==, 0);
  g_assert_null(quavon_result_get(f->client, f->job_id, &error)); /* it waits */
  g_assert_null(error);
}

/* Returns when a message was sent to the subscription that stands by then. */
static void tell(Fixture *f)
{
  g_autofree char *message = g_strdup_printf("%s 2", f->job_id);
  gint64 end = g_get_monotonic_time() + QV_TEST_DEADLINE_S * G_USEC_PER_SEC;
  for (gboolean told = FALSE; !told;) {
    g_assert_cmpint(g_get_monotonic_time(), <, end);
    call_client(f);
    g_autofree char *reached = qv_test_valkey_cli(f->valkey, "PUBLISH", f->channel, message, NULL);
    told = strcmp(reached, "1") == 0;
  }
}

static void on_log(const char *bytes, size_t len, int64_t chunk, void *data)
{
  Fixture *f = data;
  g_assert_false(f->inside);
  f->inside = TRUE;
  if (chunk == 0)
    tell(f);
  for (int i = 0; i < 5; i++)
    call_client(f);
  g_string_append_printf(f->seen, "%d:%.*s ", (int)chunk, (int)len, bytes);
  f->inside = FALSE;
}

/* Each chunk comes once and in order, also where the function's own calls bring the message of one, and one function is not
 * called inside of itself. */
static void test_function_that_calls(Fixture *f, gconstpointer data)
{
  QuavonError *error = NULL;
  g_assert_cmpint(quavon_logs_read(f->client, f->job_id, on_log, f, &error), ==, 0);
  g_assert_cmpstr(f->seen->str, ==, "0:zero 1:one 2:two ");
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add("/client/live/function-that-calls", Fixture, NULL, set_up, test_function_that_calls, tear_down);
  return g_test_run();
}
