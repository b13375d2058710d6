/* SPDX-License-Identifier: Apache-2.0 */
/* rediss:// with a private CA, and what must not be accepted. */
#include <gio/gio.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "fixture.h"

typedef struct {
  guint n;
  gint code;
  gboolean is_pong;
  char message[512];
} Seen;

static void see(const QvReply *reply, const GError *error, gpointer user)
{
  Seen *seen = user;
  seen->n++;
  seen->code = error ? error->code : -1;
  seen->is_pong = reply && g_strcmp0(qv_reply_text(reply), "PONG") == 0;
  g_strlcpy(seen->message, error ? error->message : "", sizeof seen->message);
}

static Seen ping(const char *url, const char *ca_file)
{
  g_autoptr(QvAddress) address = fixture_address(url);
  g_autoptr(GError) error = NULL;
  if (ca_file)
    g_assert_true(qv_address_set_tls(address, ca_file, NULL, NULL, &error));
  g_autoptr(QvConn) conn = qv_conn_new(address, NULL);
  Seen seen = { 0 };
  qv_conn_set_fail_fast(conn, TRUE);
  qv_conn_sendl(conn, QV_SEND_AGAIN, 0, see, &seen, "PING", NULL);
  QV_TEST_WAIT(seen.n == 1);
  return seen;
}

static void test_private_ca(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_TLS);
  g_assert_true(ping(qv_test_valkey_tls_url(v, "worker"), qv_test_valkey_ca_file(v)).is_pong);
  /* Not the system's, so refused without the file. */
  Seen unknown = ping(qv_test_valkey_tls_url(v, "worker"), NULL);
  g_assert_cmpint(unknown.code, ==, QV_ERROR_AUTH);
  g_assert_nonnull(strstr(unknown.message, "TLS"));
  /* Another CA. */
  g_autoptr(QvTestValkey) other = qv_test_valkey_start(QV_TEST_VALKEY_TLS);
  g_assert_cmpint(ping(qv_test_valkey_tls_url(v, "worker"), qv_test_valkey_ca_file(other)).code, ==, QV_ERROR_AUTH);
  g_assert_cmpint(ping(qv_test_valkey_tls_url(v, "worker"), "/nonexistent/ca.pem").code, !=, -1);
}

static void test_wrong_name(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_TLS);
  /* The certificate is for localhost and 127.0.0.1, the address is another of the same machine. */
  g_autoptr(GString) url = g_string_new(qv_test_valkey_tls_url(v, "worker"));
  g_string_replace(url, "localhost", "127.0.0.1", 0);
  g_assert_true(ping(url->str, qv_test_valkey_ca_file(v)).is_pong);
  g_string_replace(url, "127.0.0.1", "ip6-localhost.invalid", 0);
  g_assert_cmpint(ping(url->str, qv_test_valkey_ca_file(v)).code, !=, -1);
}

/* A whole job over TLS, with data of the largest size, across a lost connection. */
static void test_job(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_TLS);
  g_autoptr(QvAddress) producer_address = fixture_address(qv_test_valkey_tls_url(v, "worker"));
  g_autoptr(QvAddress) worker_address = fixture_address(qv_test_valkey_tls_url(v, "sandbox"));
  g_assert_true(qv_address_set_tls(producer_address, qv_test_valkey_ca_file(v), NULL, NULL, NULL));
  g_assert_true(qv_address_set_tls(worker_address, qv_test_valkey_ca_file(v), NULL, NULL, NULL));
  g_autoptr(QvConn) conn = qv_conn_new(producer_address, NULL);
  g_autoptr(QvProducer) producer = qv_producer_new(conn, PREFIX, 0);
  g_autoptr(TestWorker) t = test_worker_new(worker_address, 1, 30000, 30000);
  gsize n = 1024 * 1024;
  g_autofree char *data = g_malloc(n + 1);
  memset(data, ' ', n);
  data[n] = '\0';
  fixture_add(producer, "big", data);
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  g_assert_cmpmem(g_bytes_get_data(job->data, NULL), g_bytes_get_size(job->data), data, n);
  g_free(qv_test_valkey_cli(v, "CLIENT", "KILL", "USER", "sandbox", NULL));
  data[0] = '"';
  data[n - 1] = '"';
  g_assert_cmpint(test_worker_complete(t, job, data), ==, QV_FINISH_DONE);
  g_autofree char *state = fixture_state(producer, "big");
  g_assert_cmpuint(strlen(state), ==, strlen("completed ") + n);
}

/* A server that speaks no TLS, and one that does where none is expected. */
static void test_mixed_up(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_TLS | QV_TEST_VALKEY_TCP);
  g_autofree char *tls_to_plain =
    g_strdup_printf("rediss://worker:%s@localhost:%u", qv_test_valkey_password(v), qv_test_valkey_port(v));
  g_assert_cmpint(ping(tls_to_plain, qv_test_valkey_ca_file(v)).code, !=, -1);
  g_autoptr(GString) plain_to_tls = g_string_new(qv_test_valkey_tls_url(v, "worker"));
  g_string_replace(plain_to_tls, "rediss", "redis", 1);
  g_assert_cmpint(ping(plain_to_tls->str, NULL).code, !=, -1);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  if (!g_tls_backend_supports_tls(g_tls_backend_get_default())) {
    g_print("1..0 # SKIP glib-networking is not installed\n");
    return 0;
  }
  g_test_add_func("/queue/tls/private-ca", test_private_ca);
  g_test_add_func("/queue/tls/wrong-name", test_wrong_name);
  g_test_add_func("/queue/tls/job", test_job);
  g_test_add_func("/queue/tls/mixed-up", test_mixed_up);
  int status = g_test_run();
  /* Without atexit: the leak checker's tracer crashes on the thread-local data of GnuTLS's modules. */
  fflush(NULL);
  _exit(status);
}
