/* SPDX-License-Identifier: Apache-2.0 */
/* rediss:// with a private CA, and what must not be accepted. */
#include <gio/gio.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "fixture.h"
#include "queue/ask.h"

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

static Seen ping_at(QvAddress *address)
{
  g_autoptr(QvConn) conn = qv_conn_new(address, NULL);
  Seen seen = { 0 };
  qv_conn_set_fail_fast(conn, TRUE);
  qv_conn_sendl(conn, QV_SEND_AGAIN, 0, see, &seen, "PING", NULL);
  QV_TEST_WAIT(seen.n == 1);
  return seen;
}

static Seen ping(const char *url, const char *ca_file)
{
  g_autoptr(QvAddress) address = fixture_address(url);
  g_autoptr(GError) error = NULL;
  if (ca_file)
    g_assert_true(qv_address_set_tls(address, ca_file, NULL, NULL, &error));
  return ping_at(address);
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

typedef struct {
  QvConn *conn;
  Seen behind;
  gboolean asked;
} Inside;

static void ask_inside(const QvReply *reply, const GError *error, gpointer user)
{
  Inside *inside = user;
  g_autoptr(GError) asked = NULL;
  g_assert_no_error(error);
  inside->asked = qv_conn_ask(inside->conn, 0, &asked, "PING", NULL);
  g_assert_no_error(asked);
  g_assert_cmpuint(inside->behind.n, ==, 1);
}

/* A callback that turns the loop itself: both directions go on there. */
static void test_loop_in_callback(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_TLS);
  g_autoptr(QvAddress) address = fixture_address(qv_test_valkey_tls_url(v, "worker"));
  g_assert_true(qv_address_set_tls(address, qv_test_valkey_ca_file(v), NULL, NULL, NULL));
  g_autoptr(QvConn) conn = qv_conn_new(address, NULL);
  for (int i = 0; i < 3; i++) {
    Inside inside = { .conn = conn };
    qv_conn_sendl(conn, QV_SEND_AGAIN, 0, ask_inside, &inside, "PING", NULL);
    qv_conn_sendl(conn, QV_SEND_AGAIN, 0, see, &inside.behind, "PING", NULL);
    QV_TEST_WAIT(inside.asked);
    g_assert_true(inside.behind.is_pong);
  }
}

static guint16 tls_port(QvTestValkey *v)
{
  const char *url = qv_test_valkey_tls_url(v, "worker");
  return (guint16)g_ascii_strtoull(strrchr(url, ':') + 1, NULL, 10);
}

/* The certificate is for localhost and 127.0.0.1; another address of the same machine leads to the same server. */
static void test_wrong_name(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_TLS);
  const char *hosts[] = { "127.0.0.1", "127.0.0.2" };
  for (gsize i = 0; i < G_N_ELEMENTS(hosts); i++) {
    g_autoptr(QvTestProxy) relay = qv_test_proxy_start_tcp(hosts[i], "127.0.0.1", tls_port(v));
    g_autofree char *url =
      g_strdup_printf("rediss://worker:%s@%s:%u", qv_test_valkey_password(v), hosts[i], qv_test_proxy_port(relay));
    Seen seen = ping(url, qv_test_valkey_ca_file(v));
    g_assert_cmpint(seen.is_pong, ==, i == 0);
    if (i > 0) {
      g_assert_cmpint(seen.code, ==, QV_ERROR_AUTH);
      g_assert_nonnull(strstr(seen.message, "TLS"));
    }
  }
}

static void run(QvTestValkey *v, const char *command)
{
  g_autoptr(GError) error = NULL;
  g_auto(GStrv) argv = NULL;
  int status;
  g_assert_true(g_shell_parse_argv(command, NULL, &argv, &error));
  g_spawn_sync(qv_test_valkey_dir(v), argv, NULL,
               G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL | G_SPAWN_STDERR_TO_DEV_NULL, NULL, NULL, NULL, NULL, &status,
               &error);
  g_assert_no_error(error);
  g_assert_true(g_spawn_check_wait_status(status, NULL));
}

/* The certificate runs out under a server that is connected to, and is renewed. */
static void test_expired(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_TLS);
  const char *days[] = { "-1", "30" };
  for (gsize i = 0; i < G_N_ELEMENTS(days); i++) {
    g_autofree char *command = g_strconcat("openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial "
                                           "-extfile ext -out server.pem -days ", days[i], NULL);
    run(v, command);
    qv_test_valkey_kill(v);
    qv_test_valkey_restart(v);
    Seen seen = ping(qv_test_valkey_tls_url(v, "worker"), qv_test_valkey_ca_file(v));
    g_assert_cmpint(seen.code, ==, i == 0 ? (int)QV_ERROR_AUTH : -1);
  }
}

/* A server that wants to know its clients: none, a stranger's, the right certificate. */
static void test_client_certificate(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_TLS), other = qv_test_valkey_start(QV_TEST_VALKEY_TLS);
  const char *strict[] = { "--tls-auth-clients", "yes", NULL };
  qv_test_valkey_kill(v);
  qv_test_valkey_set_options(v, strict);
  qv_test_valkey_restart(v);
  g_assert_cmpint(ping(qv_test_valkey_tls_url(v, "worker"), qv_test_valkey_ca_file(v)).code, !=, -1);
  QvTestValkey *signers[] = { other, v };
  for (gsize i = 0; i < G_N_ELEMENTS(signers); i++) {
    g_autofree char *cert = g_build_filename(qv_test_valkey_dir(signers[i]), "server.pem", NULL);
    g_autofree char *key = g_build_filename(qv_test_valkey_dir(signers[i]), "server.key", NULL);
    g_autoptr(QvAddress) address = fixture_address(qv_test_valkey_tls_url(v, "worker"));
    g_assert_true(qv_address_set_tls(address, qv_test_valkey_ca_file(v), cert, key, NULL));
    Seen seen = ping_at(address);
    g_assert_cmpint(seen.is_pong, ==, i == 1);
  }
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
  g_test_add_func("/queue/tls/loop-in-callback", test_loop_in_callback);
  g_test_add_func("/queue/tls/wrong-name", test_wrong_name);
  g_test_add_func("/queue/tls/expired", test_expired);
  g_test_add_func("/queue/tls/client-certificate", test_client_certificate);
  g_test_add_func("/queue/tls/job", test_job);
  g_test_add_func("/queue/tls/mixed-up", test_mixed_up);
  int status = g_test_run();
  /* Without atexit: the leak checker's tracer crashes on the thread-local data of GnuTLS's modules. */
  fflush(NULL);
  _exit(status);
}
