/* SPDX-License-Identifier: Apache-2.0 */
/* The relay between real sockets, and the settings and notes of egress. */
#include "runner/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <netinet/in.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/limits.h"
#include "runner/egress.h"
#include "support/loop.h"

typedef struct {
  char *folder, *path, *proxy_path;
  int listener; /* the proxy's */
} Fixture;

static int bind_unix(const char *path)
{
  struct sockaddr_un un = {.sun_family = AF_UNIX};
  g_strlcpy(un.sun_path, path, sizeof un.sun_path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  g_assert_cmpint(bind(fd, (struct sockaddr *)&un, sizeof un), ==, 0);
  g_assert_cmpint(listen(fd, 128), ==, 0);
  return fd;
}

static int connect_unix(const char *path)
{
  struct sockaddr_un un = {.sun_family = AF_UNIX};
  g_strlcpy(un.sun_path, path, sizeof un.sun_path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(connect(fd, (struct sockaddr *)&un, sizeof un), ==, 0);
  qv_io_set_nonblock(fd, true);
  return fd;
}

static void set_up(Fixture *f, gconstpointer unused)
{
  f->folder = g_dir_make_tmp("qv-relay-XXXXXX", NULL);
  f->path = g_build_filename(f->folder, "job.sock", NULL);
  f->proxy_path = g_build_filename(f->folder, "proxy.sock", NULL);
  f->listener = bind_unix(f->proxy_path);
}

static void tear_down(Fixture *f, gconstpointer unused)
{
  close(f->listener);
  g_assert_true(qv_fd_remove_tree(f->folder, NULL));
  g_free(f->folder);
  g_free(f->path);
  g_free(f->proxy_path);
}

static QvRelay *open_relay(Fixture *f, const char *proxy)
{
  g_autoptr(GError) error = NULL;
  QvRelay *relay = qv_relay_open(f->path, proxy, &error);
  g_assert_no_error(error);
  return relay;
}

static gboolean try_accept(int listener, int *fd)
{
  *fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  return *fd >= 0;
}

/* Sends a pattern of N bytes from A to B, both non-blocking, while the loop turns. */
static void carry(int a, int b, gsize n)
{
  g_autofree guint8 *in = g_malloc(n), *out = g_malloc0(n);
  gsize sent = 0, got = 0;
  for (gsize i = 0; i < n; i++)
    in[i] = (guint8)(i * 31 + i / 251);
  gint64 end = g_get_monotonic_time() + QV_TEST_DEADLINE_S * G_USEC_PER_SEC;
  while (got < n) {
    g_assert_cmpint(g_get_monotonic_time(), <, end);
    ssize_t put = sent < n ? send(a, in + sent, n - sent, MSG_NOSIGNAL) : 0;
    sent += put > 0 ? (gsize)put : 0;
    g_main_context_iteration(NULL, FALSE);
    ssize_t took = recv(b, out + got, MIN(n - got, 5000), 0); /* a slow reader */
    g_assert_cmpint(took, !=, 0);
    got += took > 0 ? (gsize)took : 0;
  }
  g_assert_cmpmem(in, n, out, n);
}

static gboolean at_end(int fd)
{
  char byte;
  ssize_t n = recv(fd, &byte, 1, 0);
  return n == 0 || (n < 0 && errno == ECONNRESET);
}

static void test_carry(Fixture *f, gconstpointer unused)
{
  g_autoptr(QvRelay) relay = open_relay(f, f->proxy_path);
  struct stat st;
  g_assert_cmpint(lstat(f->path, &st), ==, 0);
  g_assert_cmpuint(st.st_uid, ==, QV_SANDBOX_UID);
  g_assert_cmpuint(st.st_mode & 07777, ==, 0600);
  QV_AUTOFD int client = connect_unix(f->path);
  QV_AUTOFD int far = -1;
  QV_TEST_WAIT(try_accept(f->listener, &far));
  carry(client, far, 300000);
  carry(far, client, 300000);
  /* One half is shut, the other one goes on. */
  shutdown(client, SHUT_WR);
  QV_TEST_WAIT(at_end(far));
  carry(far, client, 70000);
  g_assert_cmpuint(qv_relay_conns_n(relay), ==, 1);
  shutdown(far, SHUT_WR);
  QV_TEST_WAIT(at_end(client));
  QV_TEST_WAIT(qv_relay_conns_n(relay) == 0);
}

static void test_tcp(Fixture *f, gconstpointer unused)
{
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof in;
  QV_AUTOFD int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  g_assert_cmpint(bind(listener, (struct sockaddr *)&in, sizeof in), ==, 0);
  g_assert_cmpint(listen(listener, 8), ==, 0);
  getsockname(listener, (struct sockaddr *)&in, &n);
  g_autofree char *proxy = g_strdup_printf("127.0.0.1:%u", ntohs(in.sin_port));
  g_autoptr(QvRelay) relay = open_relay(f, proxy);
  QV_AUTOFD int client = connect_unix(f->path);
  QV_AUTOFD int far = -1;
  QV_TEST_WAIT(try_accept(listener, &far));
  carry(client, far, 100000);
  carry(far, client, 100000);
}

/* More clients than the cap: the others wait, nobody is lost. */
static void test_cap(Fixture *f, gconstpointer unused)
{
  enum { CLIENTS = QV_RELAY_CONNS_MAX + 8 };
  int clients[CLIENTS], far[CLIENTS];
  g_autoptr(QvRelay) relay = open_relay(f, f->proxy_path);
  for (guint i = 0; i < CLIENTS; i++)
    clients[i] = connect_unix(f->path);
  for (guint i = 0; i < QV_RELAY_CONNS_MAX; i++)
    QV_TEST_WAIT(try_accept(f->listener, &far[i]));
  qv_test_turn_ms(100);
  g_assert_cmpuint(qv_relay_conns_n(relay), ==, QV_RELAY_CONNS_MAX);
  g_assert_false(try_accept(f->listener, &far[QV_RELAY_CONNS_MAX]));
  for (guint i = 0; i < QV_RELAY_CONNS_MAX; i++)
    close(far[i]);
  for (guint i = 0; i < QV_RELAY_CONNS_MAX; i++)
    close(clients[i]);
  for (guint i = QV_RELAY_CONNS_MAX; i < CLIENTS; i++) {
    QV_TEST_WAIT(try_accept(f->listener, &far[i]));
    close(far[i]);
    close(clients[i]);
  }
  QV_TEST_WAIT(qv_relay_conns_n(relay) == 0);
}

/* Sends all it can of N bytes. */
static void fill(int fd, gsize n)
{
  g_autofree char *bytes = g_malloc0(n);
  gsize sent = 0;
  for (ssize_t put = 1; put > 0 && sent < n; sent += put > 0 ? (gsize)put : 0)
    put = send(fd, bytes, n - sent, MSG_NOSIGNAL);
  g_assert_cmpuint(sent, >, 0);
}

/* FROM says its last word and closes while TO still sends to it: TO gets every byte of the word all the same. */
static void last_word(QvRelay *relay, int *from, int to)
{
  enum { WORD_BYTES = 100000 };
  g_autofree char *word = g_malloc(WORD_BYTES), *heard = g_malloc0(WORD_BYTES);
  for (gsize i = 0; i < WORD_BYTES; i++)
    word[i] = (char)(i * 7 + i / 253);
  g_assert_cmpint(send(*from, word, WORD_BYTES, MSG_NOSIGNAL), ==, WORD_BYTES);
  close(qv_io_steal(from));
  gsize n = 0;
  gint64 end = g_get_monotonic_time() + QV_TEST_DEADLINE_S * G_USEC_PER_SEC;
  for (;;) {
    g_assert_cmpint(g_get_monotonic_time(), <, end);
    (void)!send(to, "more", 4, MSG_NOSIGNAL); /* what it has left to say */
    g_main_context_iteration(NULL, FALSE);
    ssize_t got = recv(to, heard + n, MIN(WORD_BYTES - n, 3000), 0);
    if (n == WORD_BYTES || got == 0 || (got < 0 && errno != EAGAIN))
      break;
    n += got > 0 ? (gsize)got : 0;
  }
  g_assert_cmpmem(heard, n, word, WORD_BYTES);
  QV_TEST_WAIT(at_end(to));
}

/* A proxy that answers a head and hangs up without reading on, and a client that does so to a proxy that sends. */
static void test_early_end(Fixture *f, gconstpointer unused)
{
  g_autoptr(QvRelay) relay = open_relay(f, f->proxy_path);
  for (guint i = 0; i < 2; i++) {
    QV_AUTOFD int client = connect_unix(f->path);
    QV_AUTOFD int far = -1;
    QV_TEST_WAIT(try_accept(f->listener, &far));
    if (i == 0) {
      fill(client, 1000000);
      last_word(relay, &far, client);
      close(qv_io_steal(&client));
    } else {
      fill(far, 1000000);
      last_word(relay, &client, far);
      close(qv_io_steal(&far));
    }
    QV_TEST_WAIT(qv_relay_conns_n(relay) == 0);
  }
}

/* Sends all of N bytes while the loop turns. */
static void say(int fd, gsize n)
{
  g_autofree char *bytes = g_malloc0(n);
  gint64 end = g_get_monotonic_time() + QV_TEST_DEADLINE_S * G_USEC_PER_SEC;
  for (gsize sent = 0; sent < n; g_main_context_iteration(NULL, FALSE)) {
    g_assert_cmpint(g_get_monotonic_time(), <, end);
    ssize_t put = send(fd, bytes + sent, n - sent, MSG_NOSIGNAL);
    g_assert_true(put > 0 || errno == EAGAIN);
    sent += put > 0 ? (gsize)put : 0;
  }
}

/* A proxy that answers more than a socket holds and hangs up, and a client that says all of its own before it listens. */
static void test_deaf_client(Fixture *f, gconstpointer unused)
{
  g_autoptr(QvRelay) relay = open_relay(f, f->proxy_path);
  QV_AUTOFD int client = connect_unix(f->path);
  QV_AUTOFD int far = -1;
  QV_TEST_WAIT(try_accept(f->listener, &far));
  fill(client, 1000000);
  say(far, 300000);
  close(qv_io_steal(&far));
  say(client, 3000000);
  char bytes[5000];
  gsize heard = 0;
  ssize_t got = -1;
  QV_TEST_WAIT((got = recv(client, bytes, sizeof bytes, 0)) == 0 || (got > 0 && (heard += (gsize)got) == 0) ||
               (got < 0 && errno != EAGAIN));
  g_assert_cmpint(got, ==, 0); /* a clean end */
  g_assert_cmpuint(heard, ==, 300000);
  close(qv_io_steal(&client));
  QV_TEST_WAIT(qv_relay_conns_n(relay) == 0);
}

static void test_close(Fixture *f, gconstpointer unused)
{
  QvRelay *relay = open_relay(f, f->proxy_path);
  QV_AUTOFD int client = connect_unix(f->path);
  QV_AUTOFD int far = -1;
  QV_TEST_WAIT(try_accept(f->listener, &far));
  carry(client, far, 1000);
  qv_relay_close(relay);
  /* Without another turn of the loop. */
  g_assert_true(at_end(client));
  g_assert_true(at_end(far));
  g_assert_false(g_file_test(f->path, G_FILE_TEST_EXISTS));
  qv_relay_close(NULL);
}

static void expect_refusal(Fixture *f, const char *proxy)
{
  g_autoptr(QvRelay) relay = open_relay(f, proxy);
  QV_AUTOFD int client = connect_unix(f->path);
  static const char head[] = "CONNECT a:443 HTTP/1.1\r\n\r\n";
  g_assert_cmpint(send(client, head, sizeof head - 1, MSG_NOSIGNAL), ==, sizeof head - 1);
  char answer[512] = "";
  gsize n = 0;
  ssize_t got = -1;
  QV_TEST_WAIT((got = recv(client, answer + n, sizeof answer - 1 - n, 0)) == 0 || (got > 0 && (n += (gsize)got) == 0));
  g_assert_true(g_str_has_prefix(answer, "HTTP/1.1 502 Bad Gateway\r\nQuavon-Reason: proxy_unreachable\r\n"));
  close(qv_io_steal(&client));
  QV_TEST_WAIT(qv_relay_conns_n(relay) == 0);
}

static void test_no_proxy(Fixture *f, gconstpointer unused)
{
  g_autofree char *nowhere = g_build_filename(f->folder, "nowhere", NULL);
  expect_refusal(f, nowhere);
  /* A port that was just free. */
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof in;
  QV_AUTOFD int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(bind(taken, (struct sockaddr *)&in, sizeof in), ==, 0); /* bound, not listening */
  getsockname(taken, (struct sockaddr *)&in, &n);
  g_autofree char *proxy = g_strdup_printf("127.0.0.1:%u", ntohs(in.sin_port));
  expect_refusal(f, proxy);
}

static void test_addresses(void)
{
  static const char *const good[] = {"127.0.0.1:3128", "proxy:3128", "[::1]:3128", "/run/x.sock", "egress.example:1"};
  static const char *const bad[] = {"", "::1:3128", "[]:1", "a b:1", "proxy:+1", "proxy", "proxy:", "proxy:0", "proxy:70000", ":3128", "run/x.sock",
                                    "/run/0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345"};
  for (gsize i = 0; i < G_N_ELEMENTS(good); i++)
    g_assert_true(qv_relay_proxy_check(good[i], NULL));
  for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
    g_autoptr(GError) error = NULL;
    g_assert_false(qv_relay_proxy_check(bad[i], &error));
    g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
  }
}

static void expect_settings(const char *const *environment, const char *registries, const char *complaint)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvConfig) config = qv_config_load(environment, &error);
  g_assert_no_error(error);
  g_autoptr(QvRegistries) list = qv_registries_parse(registries, &error);
  g_assert_no_error(error);
  g_autofree char *pem = NULL;
  if (qv_egress_settings(config, list, &pem, &error)) {
    g_assert_null(complaint);
    g_assert_true((pem != NULL) == (config->ca_file != NULL));
  } else {
    g_assert_nonnull(complaint);
    g_assert_nonnull(strstr(error->message, complaint));
  }
}

static void test_settings(Fixture *f, gconstpointer unused)
{
  static const char pem[] = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
  g_autofree char *ca = g_build_filename(f->folder, "ca.pem", NULL), *none = g_build_filename(f->folder, "none.pem", NULL);
  g_assert_true(qv_fd_write_file(ca, pem, sizeof pem - 1, 0644, NULL));
  g_assert_true(qv_fd_write_file(none, "words\n", 6, 0644, NULL));
  g_autofree char *with_ca = g_strconcat("QUAVON_SANDBOX_CA_FILE=", ca, NULL);
  g_autofree char *with_none = g_strconcat("QUAVON_SANDBOX_CA_FILE=", none, NULL);
#define RUNSC "QUAVON_SANDBOX_BACKEND=runsc"
#define PROXY "QUAVON_SANDBOX_EGRESS_PROXY="
#define NETWORK "QUAVON_SANDBOX_EGRESS_NETWORK=net"
  expect_settings((const char *[]){RUNSC, NULL}, "", NULL);
  expect_settings((const char *[]){RUNSC, PROXY "/run/p.sock", with_ca, NULL}, "a.example", NULL);
  expect_settings((const char *[]){RUNSC, PROXY "proxy:3128", NULL}, "a.example", NULL);
  expect_settings((const char *[]){RUNSC, NULL}, "a.example", "QUAVON_SANDBOX_EGRESS_PROXY is not set");
  expect_settings((const char *[]){RUNSC, PROXY "proxy", NULL}, "a.example", "QUAVON_SANDBOX_EGRESS_PROXY: proxy is no address");
  expect_settings((const char *[]){RUNSC, with_none, NULL}, "", "QUAVON_SANDBOX_CA_FILE");
  expect_settings((const char *[]){RUNSC, "QUAVON_SANDBOX_CA_FILE=/nonexistent/ca", NULL}, "", "QUAVON_SANDBOX_CA_FILE");
  expect_settings((const char *[]){PROXY "192.0.2.1:3128", NULL}, "a.example", "QUAVON_SANDBOX_EGRESS_NETWORK is not set");
  expect_settings((const char *[]){NETWORK, NULL}, "a.example", "QUAVON_SANDBOX_EGRESS_PROXY is not set");
  expect_settings((const char *[]){NETWORK, PROXY "192.0.2.1:3128", NULL}, "a.example", NULL);
  expect_settings((const char *[]){NETWORK, PROXY "proxy:3128", NULL}, "a.example", "proxy:3128 is no IPv4 address with a port");
  expect_settings((const char *[]){NETWORK, PROXY "/run/p.sock", NULL}, "a.example", "is no IPv4 address with a port");
  expect_settings((const char *[]){NETWORK, PROXY "[::1]:3128", NULL}, "a.example", "is no IPv4 address with a port");
  expect_settings((const char *[]){NETWORK, PROXY "192.0.2.1:0", NULL}, "a.example", "is no IPv4 address with a port");
  expect_settings((const char *[]){PROXY "192.0.2.1:3128", NULL}, "", NULL);
}

static void test_folders(Fixture *f, gconstpointer unused)
{
  g_autofree char *hash = g_strnfill(64, 'a');
  g_autofree char *note = g_build_filename(f->folder, "tokens", hash, NULL);
  g_assert_false(qv_egress_note_add(f->folder, hash, NULL));
  g_assert_true(qv_egress_prepare(f->folder, NULL));
  g_assert_true(qv_egress_prepare(f->folder, NULL));
  g_assert_true(qv_egress_note_add(f->folder, hash, NULL));
  g_assert_true(g_file_test(note, G_FILE_TEST_EXISTS));
  qv_egress_note_remove(f->folder, hash);
  g_assert_false(g_file_test(note, G_FILE_TEST_EXISTS));
  g_autofree char *one = qv_egress_socket_path(f->folder, "one"), *two = qv_egress_socket_path(f->folder, "two");
  close(bind_unix(one));
  close(bind_unix(two));
  qv_egress_socket_sweep(f->folder, "one");
  g_assert_false(g_file_test(one, G_FILE_TEST_EXISTS));
  g_assert_true(g_file_test(two, G_FILE_TEST_EXISTS));
  qv_egress_socket_sweep(f->folder, NULL);
  g_assert_false(g_file_test(two, G_FILE_TEST_EXISTS));
}

static void add(const char *name, void (*func)(Fixture *, gconstpointer))
{
  if (geteuid() == 0) /* the socket is given to the sandbox's user */
    g_test_add(name, Fixture, NULL, set_up, func, tear_down);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  signal(SIGPIPE, SIG_IGN);
  add("/relay/carry", test_carry);
  add("/relay/tcp", test_tcp);
  add("/relay/cap", test_cap);
  add("/relay/early-end", test_early_end);
  add("/relay/deaf-client", test_deaf_client);
  add("/relay/close", test_close);
  add("/relay/no-proxy", test_no_proxy);
  g_test_add_func("/relay/addresses", test_addresses);
  g_test_add("/egress/settings", Fixture, NULL, set_up, test_settings, tear_down);
  g_test_add("/egress/folders", Fixture, NULL, set_up, test_folders, tear_down);
  return g_test_run();
}
