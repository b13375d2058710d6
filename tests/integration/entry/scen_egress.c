/* SPDX-License-Identifier: Apache-2.0 */
/* The way out during setup, against a proxy of our own behind a unix socket. */
#include <errno.h>
#include <gio/gio.h>
#include <gio/gunixsocketaddress.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>

#include "harness.h"
#include "scenarios.h"

#define TOKEN "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"
/* Matches the token, but not its own text in the script. */
#define PATTERN "abcdefghijklmnop[q]rstuvw"
/* base64 of "job:" TOKEN */
#define CREDENTIALS "am9iOmFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6MDEyMzQ1Njc4OUFCQ0RFRkc="

typedef struct {
  char *folder, *path;
  GSocketListener *listener;
  GThread *thread;
  GString *heard;    /* heads, joined by the end of the thread */
  guint connections; /* to serve */
  guint stays_ms;    /* behind the last one */
  gint closed;
} Proxy;

static gint64 closed_us; /* the last proxy's end, Unix time */

/* Reads to the end of the head and five bytes more, answers, and closes. */
static void serve(Proxy *proxy, GSocketConnection *connection)
{
  GInputStream *in = g_io_stream_get_input_stream(G_IO_STREAM(connection));
  GOutputStream *out = g_io_stream_get_output_stream(G_IO_STREAM(connection));
  g_autoptr(GString) head = g_string_new(NULL);
  char bytes[1024];
  const char *end = NULL;
  while (!end || strlen(end) < 9) {
    gssize got = g_input_stream_read(in, bytes, sizeof bytes, NULL, NULL);
    if (got <= 0)
      break;
    g_string_append_len(head, bytes, got);
    end = strstr(head->str, "\r\n\r\n");
  }
  static const char answer[] = "HTTP/1.1 200 OK\r\n\r\nhello from far";
  g_output_stream_write_all(out, answer, sizeof answer - 1, NULL, NULL, NULL);
  g_string_append(proxy->heard, head->str);
  g_io_stream_close(G_IO_STREAM(connection), NULL, NULL);
}

static gpointer proxy_main(gpointer data)
{
  Proxy *proxy = data;
  for (guint i = 0; i < proxy->connections; i++) {
    g_autoptr(GSocketConnection) connection = g_socket_listener_accept(proxy->listener, NULL, NULL, NULL);
    if (connection)
      serve(proxy, connection);
  }
  /* As the runner closes it: no step runs before that. */
  g_usleep(proxy->stays_ms * 1000);
  g_socket_listener_close(proxy->listener);
  closed_us = g_get_real_time();
  g_atomic_int_set(&proxy->closed, TRUE);
  return NULL;
}

static Proxy *proxy_start(guint connections, guint stays_ms)
{
  Proxy *proxy = g_new0(Proxy, 1);
  proxy->stays_ms = stays_ms;
  proxy->folder = g_dir_make_tmp("quavon-proxy-XXXXXX", NULL);
  g_assert_nonnull(proxy->folder);
  g_assert_cmpint(g_chmod(proxy->folder, 0755), ==, 0);
  proxy->path = g_build_filename(proxy->folder, "s", NULL);
  proxy->heard = g_string_new(NULL);
  proxy->connections = connections;
  proxy->listener = g_socket_listener_new();
  g_autoptr(GSocketAddress) address = g_unix_socket_address_new(proxy->path);
  g_assert_true(g_socket_listener_add_address(proxy->listener, address, G_SOCKET_TYPE_STREAM,
                                              G_SOCKET_PROTOCOL_DEFAULT, NULL, NULL, NULL));
  g_assert_cmpint(g_chmod(proxy->path, 0666), ==, 0);
  proxy->thread = g_thread_new("proxy", proxy_main, proxy);
  return proxy;
}

/* What it heard; a connection that never came is made here, so that the thread ends. */
static char *proxy_finish(Proxy *proxy)
{
  for (guint i = 0; i < proxy->connections; i++) {
    g_autoptr(GSocketClient) client = g_socket_client_new();
    g_autoptr(GSocketAddress) address = g_unix_socket_address_new(proxy->path);
    g_autoptr(GSocketConnection) connection =
      g_socket_client_connect(client, G_SOCKET_CONNECTABLE(address), NULL, NULL);
    if (connection)
      g_io_stream_close(G_IO_STREAM(connection), NULL, NULL);
  }
  g_thread_join(proxy->thread);
  g_socket_listener_close(proxy->listener);
  g_object_unref(proxy->listener);
  g_unlink(proxy->path);
  g_rmdir(proxy->folder);
  char *heard = g_string_free(proxy->heard, FALSE);
  g_free(proxy->path);
  g_free(proxy->folder);
  g_free(proxy);
  return heard;
}

static json_t *egress_request(gsize base_bytes, const char *setup, const char *step)
{
  json_t *request = request_new(base_bytes, json_pack("[o]", step_sh("step", step, 0)));
  json_object_set_new(request, "setup", step_sh("setup", setup, 0));
  json_object_set_new(request, "proxy", json_pack("{ss sn ss ss}", "token", TOKEN, "address", "socket",
                                                  "/run/quavon/egress.sock", "caPem", "the certificates\n"));
  return request;
}

static void test_forwarding(void)
{
  HARNESS_OR_SKIP();
  Proxy *proxy = proxy_start(2, 0);
  const HarnessOptions options = {.socket = proxy->path};
  g_autoptr(GByteArray) base = snapshot_new(NULL, TRUE);
  json_t *request = egress_request(
    base->len,
    "zz/hostile dial ''; zz/hostile dial 'proxy-AUTHORIZATION: Basic bm8=';"
    "echo $HTTP_PROXY > port; test \"$HTTP_PROXY\" = \"$https_proxy\" && head -qn 1 $SSL_CERT_FILE $npm_config_cafile;"
    "env | grep -c " PATTERN "; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | grep -c " PATTERN "; exit 0",
    "echo \"proxy=$HTTP_PROXY$https_proxy$SSL_CERT_FILE\"; HTTPS_PROXY=$(cat port) zz/hostile dial ''; "
    "ls /workspace; exit 0");
  g_autoptr(Outcome) outcome = harness_run(&options, request, base);
  g_autofree char *heard = proxy_finish(proxy);
  outcome_assert_complete(outcome);
  g_test_message("heard: %s", heard);
  static const char head[] = "CONNECT pkg.example:443 HTTP/1.1\r\nProxy-Authorization: Basic " CREDENTIALS
                             "\r\nHost: pkg.example:443\r\n";
  g_assert_true(g_str_has_prefix(heard, head));
  g_assert_nonnull(strstr(heard + 1, head));
  g_assert_nonnull(strstr(heard, "\r\n\r\nearly"));
  g_assert_null(strstr(heard, "bm8="));
  const char *log = outcome_log(outcome, -1);
  g_assert_true(g_str_has_prefix(log, "dial: HTTP/1.1 200 OK\r\n\r\nhello from far\n"));
  g_assert_true(g_str_has_suffix(log, "the certificates\nthe certificates\n0\n0\n"));
  g_assert_cmpstr(outcome_log(outcome, 0), ==, "proxy=\ndial: connect: Connection refused\nhome\nrepo\n");
}

/* Nobody behind the socket: the client hears it at once. */
static void test_no_proxy(void)
{
  HARNESS_OR_SKIP();
  Proxy *proxy = proxy_start(0, 0);
  const HarnessOptions options = {.socket = proxy->path};
  while (!g_atomic_int_get(&proxy->closed))
    g_usleep(1000);
  g_autoptr(GByteArray) base = snapshot_new(NULL, TRUE);
  g_autoptr(Outcome) outcome =
    harness_run(&options, egress_request(base->len, "zz/hostile dial ''", "true"), base);
  g_autofree char *heard = proxy_finish(proxy);
  outcome_assert_complete(outcome);
  g_assert_nonnull(strstr(outcome_log(outcome, -1), "dial: HTTP/1.1 502 Bad Gateway\r\nQuavon-Reason: proxy_unreachable\r\n"));
  g_assert_nonnull(strstr(outcome_log(outcome, -1), "quavon: pkg.example:443 refused: proxy_unreachable\n"));
  g_assert_cmpstr(heard, ==, "");
}

/* A connection that setup leaves open is cut, and its end is not waited for. */
static void test_open_at_the_end(void)
{
  HARNESS_OR_SKIP();
  Proxy *proxy = proxy_start(0, 0);
  const HarnessOptions options = {.socket = proxy->path};
  g_autoptr(GByteArray) base = snapshot_new(NULL, TRUE);
  json_t *request = egress_request(
    base->len, "port=${HTTP_PROXY##*:}; bash -c \"exec 3<>/dev/tcp/127.0.0.1/$port; echo -n CONNECT >&3; sleep 1000\" & sleep 1",
    "echo next");
  g_autoptr(Outcome) outcome = harness_run(&options, request, base);
  g_autofree char *heard = proxy_finish(proxy);
  outcome_assert_complete(outcome);
  g_assert_cmpstr(outcome_log(outcome, 0), ==, "next\n");
}

/* The way out stays for a while behind setup's end, and so long no step runs. */
static void test_held(void)
{
  enum { STAYS_MS = 2000, CLOCKS_MS = 500 };
  HARNESS_OR_SKIP();
  Proxy *proxy = proxy_start(1, STAYS_MS);
  const HarnessOptions options = {.socket = proxy->path};
  g_autoptr(GByteArray) base = snapshot_new(NULL, TRUE);
  g_autoptr(Outcome) outcome = harness_run(&options, egress_request(base->len, "zz/hostile dial ''", "date +%s%3N"), base);
  g_free(proxy_finish(proxy));
  outcome_assert_complete(outcome);
  gint64 ran_ms = g_ascii_strtoll(outcome_log(outcome, 0), NULL, 10);
  gint64 closed_ms = closed_us / 1000;
  g_test_message("the step ran %d ms behind the end of the way out", (int)(ran_ms - closed_ms));
  g_assert_cmpint(ran_ms, >=, closed_ms - CLOCKS_MS);
}

void add_egress_scenarios(void)
{
  g_test_add_func("/entry/egress/held", test_held);
  g_test_add_func("/entry/egress/forwarding", test_forwarding);
  g_test_add_func("/entry/egress/no-proxy", test_no_proxy);
  g_test_add_func("/entry/egress/open-at-the-end", test_open_at_the_end);
}
