/* SPDX-License-Identifier: Apache-2.0 */
/* The forwarder, driven by its own poll loop; client and proxy are sockets of the test. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/io.h"
#include "entry/forward.h"

enum { PATIENCE_MS = 60000 };

typedef struct {
  char *folder, *path;
  int listener; /* the proxy's */
  QvEntryForward *forward;
} Fixture;

static void set_up(Fixture *fixture, gconstpointer unused)
{
  struct sockaddr_un self = {.sun_family = AF_UNIX};
  fixture->folder = g_dir_make_tmp("quavon-forward-XXXXXX", NULL);
  fixture->path = g_build_filename(fixture->folder, "s", NULL);
  g_strlcpy(self.sun_path, fixture->path, sizeof self.sun_path);
  fixture->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  g_assert_cmpint(bind(fixture->listener, (struct sockaddr *)&self, sizeof self), ==, 0);
  g_assert_cmpint(listen(fixture->listener, 2), ==, 0);
  fixture->forward = qv_entry_forward_open("the-token", NULL, fixture->path);
  g_assert_nonnull(fixture->forward);
}

static void tear_down(Fixture *fixture, gconstpointer unused)
{
  qv_entry_forward_close(fixture->forward);
  close(fixture->listener);
  g_unlink(fixture->path);
  g_rmdir(fixture->folder);
  g_free(fixture->path);
  g_free(fixture->folder);
}

/* One round of the loop that a step runs in. */
static void turn(Fixture *fixture)
{
  struct pollfd fds[QV_ENTRY_FORWARD_FDS_MAX];
  size_t n = qv_entry_forward_fds(fixture->forward, fds);
  int timeout = qv_entry_forward_timeout_ms(fixture->forward);
  poll(fds, n, timeout < 0 || timeout > 1 ? 1 : timeout);
  qv_entry_forward_step(fixture->forward, fds, n);
}

static int dial(const Fixture *fixture)
{
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(qv_entry_forward_port(fixture->forward))};
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(connect(fd, (struct sockaddr *)&to, sizeof to), ==, 0);
  g_assert_true(qv_io_set_nonblock(fd, true));
  return fd;
}

static int accept_proxy(Fixture *fixture)
{
  for (int i = 0; i < PATIENCE_MS; i++) {
    int fd = accept4(fixture->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
      return fd;
    turn(fixture);
  }
  g_error("nobody dialled the proxy");
}

/* Reads from FD until N bytes (or the end, where N is 0) are there. */
static char *read_some(Fixture *fixture, int fd, gsize n)
{
  GString *text = g_string_new(NULL);
  for (int i = 0; i < PATIENCE_MS && (n == 0 || text->len < n); i++) {
    char bytes[4096];
    ssize_t got = read(fd, bytes, n == 0 ? sizeof bytes : MIN(sizeof bytes, n - text->len));
    if (got == 0 || (got < 0 && errno != EAGAIN))
      break;
    if (got > 0)
      g_string_append_len(text, bytes, got);
    else
      turn(fixture);
  }
  return g_string_free(text, FALSE);
}

static void put(int fd, const char *text)
{
  g_assert_cmpint(write(fd, text, strlen(text)), ==, (ssize_t)strlen(text));
}

#define INSERTED "Proxy-Authorization: Basic am9iOnRoZS10b2tlbg==\r\n"

static void test_head(void)
{
  static const struct {
    const char *head, *wanted;
  } rows[] = {
    {"CONNECT a:1 HTTP/1.1\r\n\r\n", "CONNECT a:1 HTTP/1.1\r\nProxy-Authorization: Basic C\r\n\r\n"},
    {"GET / HTTP/1.0\r\nA: b\r\n\r\n", "GET / HTTP/1.0\r\nProxy-Authorization: Basic C\r\nA: b\r\n\r\n"},
    {"X\r\nproxy-authorization: Basic mine\r\nA: b\r\nProxy-Authorization:x\r\n\r\n",
     "X\r\nProxy-Authorization: Basic C\r\nA: b\r\n\r\n"},
    {"X\r\nProxy-Authorization-Not: x\r\n\r\n", "X\r\nProxy-Authorization: Basic C\r\nProxy-Authorization-Not: x\r\n\r\n"},
    {"\r\n\r\n", "\r\nProxy-Authorization: Basic C\r\n\r\n"},
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    char out[256];
    size_t n = qv_entry_forward_head(rows[i].head, strlen(rows[i].head), "C", out);
    g_assert_cmpmem(out, n, rows[i].wanted, strlen(rows[i].wanted));
  }
}

static void test_bad_targets(void)
{
  static const char *const addresses[] = {"10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:1x",
                                          "localhost:1", "::1:80", "10.0.0.1.1.1.1.1.1:1", ":1"};
  for (gsize i = 0; i < G_N_ELEMENTS(addresses); i++)
    g_assert_null(qv_entry_forward_open("t", addresses[i], NULL));
  g_autofree char *path = g_strnfill(200, 'x');
  g_assert_null(qv_entry_forward_open("t", NULL, path));
  g_autofree char *token = g_strnfill(QV_ENTRY_FORWARD_TOKEN_BYTES_MAX + 1, 'x');
  g_assert_null(qv_entry_forward_open(token, "10.0.0.1:1", NULL));
  QvEntryForward *forward = qv_entry_forward_open("t", "10.0.0.1:1", NULL);
  g_assert_nonnull(forward);
  qv_entry_forward_close(forward);
  qv_entry_forward_close(NULL);
}

/* The head in single bytes, then both ways, then half-close both ways. */
static void test_relay(Fixture *fixture, gconstpointer unused)
{
  QV_AUTOFD int client = dial(fixture);
  static const char head[] = "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n";
  for (const char *at = head; *at; at++) {
    g_assert_cmpint(write(client, at, 1), ==, 1);
    turn(fixture);
  }
  QV_AUTOFD int proxy = accept_proxy(fixture);
  static const char wanted[] = "CONNECT a:443 HTTP/1.1\r\n" INSERTED "Host: a:443\r\n\r\n";
  g_autofree char *heard = read_some(fixture, proxy, sizeof wanted - 1);
  g_assert_cmpstr(heard, ==, wanted);
  put(proxy, "HTTP/1.1 200 OK\r\n\r\n");
  g_autofree char *answer = read_some(fixture, client, 19);
  g_assert_cmpstr(answer, ==, "HTTP/1.1 200 OK\r\n\r\n");
  put(client, "to the far side, Proxy-Authorization: untouched\r\n\r\n");
  shutdown(client, SHUT_WR);
  g_autofree char *rest = read_some(fixture, proxy, 0);
  g_assert_cmpstr(rest, ==, "to the far side, Proxy-Authorization: untouched\r\n\r\n");
  put(proxy, "and back");
  shutdown(proxy, SHUT_WR);
  g_autofree char *back = read_some(fixture, client, 0);
  g_assert_cmpstr(back, ==, "and back");
}

/* A refusal is told once, on a line of its own, and reaches the client as it is. */
static void test_refusal_told(Fixture *fixture, gconstpointer unused)
{
  static const char answer[] = "HTTP/1.1 403 Forbidden\r\nQuavon-Reason: host_not_listed\r\nContent-Length: 3\r\n\r\nno\n";
  char bytes[4096] = "";
  QvEntryRing log;
  qv_entry_ring_init(&log, bytes, sizeof bytes);
  qv_entry_ring_append(&log, "half a li", 9);
  qv_entry_forward_set_log(fixture->forward, &log);
  for (int i = 0; i < 3; i++) {
    QV_AUTOFD int client = dial(fixture);
    put(client, i < 2 ? "CONNECT a:443 HTTP/1.1\r\n\r\n" : "CONNECT b:443 HTTP/1.1\r\n\r\n");
    QV_AUTOFD int proxy = accept_proxy(fixture);
    g_assert_cmpint(write(proxy, answer, 40), ==, 40);
    for (int k = 0; k < 20; k++)
      turn(fixture);
    put(proxy, answer + 40);
    close(qv_io_steal(&proxy));
    g_autofree char *back = read_some(fixture, client, 0);
    g_assert_cmpstr(back, ==, answer);
  }
  g_assert_cmpstr(bytes, ==, "half a li\nquavon: a:443 refused: host_not_listed: no\nquavon: b:443 refused: host_not_listed: no\n");
  /* What was half heard is told at the end. */
  QV_AUTOFD int client = dial(fixture);
  put(client, "CONNECT c:443 HTTP/1.1\r\n\r\n");
  QV_AUTOFD int proxy = accept_proxy(fixture);
  put(proxy, "HTTP/1.1 502 Bad Gateway\r\n");
  g_autofree char *some = read_some(fixture, client, 26);
  qv_entry_forward_flush_log(fixture->forward);
  g_assert_nonnull(strstr(bytes, "\nquavon: c:443 refused: http_502\n"));
}

/* Megabytes each way at once, through buffers of a few KiB. */
static void test_bulk(Fixture *fixture, gconstpointer unused)
{
  enum { BULK = 4 << 20 };
  QV_AUTOFD int client = dial(fixture);
  put(client, "X\r\n\r\n");
  QV_AUTOFD int proxy = accept_proxy(fixture);
  g_autofree char *head = read_some(fixture, proxy, strlen("X\r\n" INSERTED "\r\n"));
  gsize sent[2] = {0}, got[2] = {0};
  const int fds[2] = {client, proxy};
  while (got[0] < BULK || got[1] < BULK) {
    char bytes[65536];
    for (int i = 0; i < 2; i++) {
      memset(bytes, 'a' + i, sizeof bytes);
      ssize_t n = sent[i] < BULK ? write(fds[i], bytes, MIN(sizeof bytes, BULK - sent[i])) : 0;
      sent[i] += n > 0 ? (gsize)n : 0;
      n = read(fds[1 - i], bytes, sizeof bytes);
      for (ssize_t k = 0; k < n; k++)
        g_assert_cmpint(bytes[k], ==, 'a' + i);
      g_assert_true(n > 0 || errno == EAGAIN);
      got[i] += n > 0 ? (gsize)n : 0;
    }
    turn(fixture);
  }
}

/* A proxy that answers and hangs up with unread bytes before it, while the client goes on sending and reads slowly. */
static void test_early_end(Fixture *fixture, gconstpointer unused)
{
  enum { WORD_BYTES = 100000 };
  QV_AUTOFD int client = dial(fixture);
  put(client, "X\r\n\r\n");
  QV_AUTOFD int proxy = accept_proxy(fixture);
  g_autofree char *head = read_some(fixture, proxy, strlen("X\r\n" INSERTED "\r\n"));
  g_autofree char *word = g_malloc(WORD_BYTES), *heard = g_malloc0(WORD_BYTES), *more = g_malloc0(300000);
  for (gsize i = 0; i < WORD_BYTES; i++)
    word[i] = (char)(i * 7 + i / 253);
  g_assert_cmpint(write(client, more, 300000), >, 0);
  for (int i = 0; i < 200; i++)
    turn(fixture);
  g_assert_cmpint(write(proxy, word, WORD_BYTES), ==, WORD_BYTES);
  close(qv_io_steal(&proxy));
  gsize n = 0;
  for (int i = 0; i < PATIENCE_MS; i++) {
    turn(fixture);
    if (i % 100 < 50)
      g_assert_true(write(client, more, 1000) > 0 || errno == EAGAIN);
    ssize_t got = recv(client, heard + n, MIN(WORD_BYTES - n, 1000), 0);
    if (n == WORD_BYTES || got == 0 || (got < 0 && errno != EAGAIN))
      break;
    n += got > 0 ? (gsize)got : 0;
  }
  g_assert_cmpmem(heard, n, word, WORD_BYTES);
  char byte;
  for (int i = 0; i < PATIENCE_MS && read(client, &byte, 1) != 0; i++)
    turn(fixture);
  g_assert_cmpint(read(client, &byte, 1), ==, 0);
}

/* A client that is gone, and a proxy that never stops: the connection is over. */
static void test_gone_client(Fixture *fixture, gconstpointer unused)
{
  QV_AUTOFD int client = dial(fixture);
  put(client, "X\r\n\r\n");
  QV_AUTOFD int proxy = accept_proxy(fixture);
  g_autofree char *head = read_some(fixture, proxy, strlen("X\r\n" INSERTED "\r\n"));
  g_assert_cmpint(setsockopt(client, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger)), ==, 0);
  close(qv_io_steal(&client));
  char bytes[1000] = {0};
  for (int i = 0; i < PATIENCE_MS; i++) {
    turn(fixture);
    if (send(proxy, bytes, sizeof bytes, MSG_NOSIGNAL) < 0 && errno != EAGAIN)
      return;
  }
  g_error("the connection lives on");
}

static void test_long_head(Fixture *fixture, gconstpointer unused)
{
  QV_AUTOFD int client = dial(fixture);
  g_autofree char *line = g_strnfill(QV_ENTRY_FORWARD_HEAD_BYTES_MAX, 'x');
  put(client, line);
  g_autofree char *answer = read_some(fixture, client, 12);
  g_assert_cmpstr(answer, ==, "HTTP/1.1 431");
}

static void test_nobody(Fixture *fixture, gconstpointer unused)
{
  close(fixture->listener);
  fixture->listener = -1;
  QV_AUTOFD int client = dial(fixture);
  put(client, "X\r\n\r\n");
  g_autofree char *answer = read_some(fixture, client, 12);
  g_assert_cmpstr(answer, ==, "HTTP/1.1 502");
}

/* The proxy's queue (3 here) is full: the rest are dialled again, and all are served. */
static void test_full_queue(Fixture *fixture, gconstpointer unused)
{
  enum { CLIENTS = 20 };
  int clients[CLIENTS];
  for (int i = 0; i < CLIENTS; i++) {
    clients[i] = dial(fixture);
    put(clients[i], "X\r\n\r\n");
  }
  for (int i = 0; i < 200; i++)
    turn(fixture);
  for (int i = 0; i < CLIENTS; i++) {
    QV_AUTOFD int proxy = accept_proxy(fixture);
    g_autofree char *head = read_some(fixture, proxy, strlen("X\r\n" INSERTED "\r\n"));
    g_assert_cmpstr(head, ==, "X\r\n" INSERTED "\r\n");
  }
  for (int i = 0; i < CLIENTS; i++)
    close(clients[i]);
}

/* More clients than there is room for, which send nothing; when they go, the next is served. */
static void test_many(Fixture *fixture, gconstpointer unused)
{
  enum { CLIENTS = QV_ENTRY_FORWARD_CONNS_MAX + 10 };
  int clients[CLIENTS];
  for (int i = 0; i < CLIENTS; i++)
    clients[i] = dial(fixture);
  for (int i = 0; i < 200; i++)
    turn(fixture);
  for (int i = 0; i < CLIENTS; i++)
    close(clients[i]);
  QV_AUTOFD int client = dial(fixture);
  put(client, "X\r\n\r\n");
  QV_AUTOFD int proxy = accept_proxy(fixture);
  g_autofree char *head = read_some(fixture, proxy, 3);
  g_assert_cmpstr(head, ==, "X\r\n");
}

/* Open connections end with the forwarder. */
static void test_close(Fixture *fixture, gconstpointer unused)
{
  QV_AUTOFD int client = dial(fixture);
  put(client, "X\r\n\r\n");
  QV_AUTOFD int proxy = accept_proxy(fixture);
  g_autofree char *head = read_some(fixture, proxy, strlen("X\r\n" INSERTED "\r\n"));
  qv_entry_forward_close(fixture->forward);
  fixture->forward = NULL;
  char byte;
  g_assert_cmpint(read(proxy, &byte, 1), <=, 0);
  g_assert_true(qv_io_set_nonblock(client, false));
  g_assert_cmpint(read(client, &byte, 1), <=, 0);
}

#define ADD(name, func) g_test_add("/entry/forward/" name, Fixture, NULL, set_up, func, tear_down)

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/entry/forward/head", test_head);
  g_test_add_func("/entry/forward/bad-targets", test_bad_targets);
  ADD("relay", test_relay);
  ADD("refusal-told", test_refusal_told);
  ADD("bulk", test_bulk);
  ADD("early-end", test_early_end);
  ADD("gone-client", test_gone_client);
  ADD("long-head", test_long_head);
  ADD("nobody", test_nobody);
  ADD("full-queue", test_full_queue);
  ADD("many", test_many);
  ADD("close", test_close);
  return g_test_run();
}
