/* SPDX-License-Identifier: Apache-2.0 */
/* One way of a tunnel between real sockets: every byte in order, whoever is slow; what is held; how it ends. */
#include "egress/relay.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/io.h"
#include "support/loop.h"

/* from - (in way out) - to */
typedef struct {
  int from, to;
  QvSide in, out;
  QvWay way;
} Fixture;

static void make_tcp(int pair[2])
{
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof at;
  QV_AUTOFD int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(bind(listener, (struct sockaddr *)&at, sizeof at), ==, 0);
  g_assert_cmpint(listen(listener, 1), ==, 0);
  getsockname(listener, (struct sockaddr *)&at, &n);
  pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(connect(pair[0], (struct sockaddr *)&at, sizeof at), ==, 0);
  pair[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
}

static void set_up(Fixture *f, gconstpointer tcp)
{
  int in[2], out[2];
  for (guint i = 0; i < 2; i++) {
    int *pair = i == 0 ? in : out;
    if (tcp != NULL)
      make_tcp(pair);
    else
      g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), ==, 0);
    for (guint j = 0; j < 2; j++)
      qv_io_set_nonblock(pair[j], true);
  }
  *f = (Fixture){.from = in[0], .to = out[1], .in = {.fd = in[1], .readable = TRUE, .writable = TRUE},
                 .out = {.fd = out[0], .readable = TRUE, .writable = TRUE}};
}

static void tear_down(Fixture *f, gconstpointer unused)
{
  qv_way_clear(&f->way);
  close(f->in.fd);
  close(f->out.fd);
  qv_io_close_cleanup(&f->from);
  qv_io_close_cleanup(&f->to);
}

/* As epoll would tell, but for the edges. */
static QvWayState pump(Fixture *f, guint64 *sum)
{
  struct pollfd fds[2] = {{.fd = f->in.fd, .events = POLLIN}, {.fd = f->out.fd, .events = POLLOUT}};
  guint64 moved;
  poll(fds, 2, 0);
  f->in.readable |= fds[0].revents != 0;
  f->out.writable |= fds[1].revents != 0;
  QvWayState state = qv_way_pump(&f->way, &f->in, &f->out, &moved);
  g_assert_cmpuint(f->way.to - f->way.from, <=, QV_WAY_HELD_BYTES_MAX);
  g_assert_cmpuint(moved, <=, QV_WAY_TURN_BYTES + QV_WAY_SHIFT_BYTES_MAX);
  *sum += moved;
  return state;
}

static guint8 at(guint64 i)
{
  return (guint8)(i * 31 + i / 4093);
}

/* Sends N bytes of the pattern; the reader takes READ bytes at a time, every REST turns. */
static void carry(Fixture *f, guint64 n, gsize read_n, guint rest)
{
  g_autofree guint8 *bytes = g_malloc(1000000);
  guint64 sent = 0, got = 0, moved = 0;
  gint64 end = g_get_monotonic_time() + QV_TEST_DEADLINE_S * G_USEC_PER_SEC;
  for (guint turn = 0; got < n; turn++) {
    g_assert_cmpint(g_get_monotonic_time(), <, end);
    gsize part = MIN(n - sent, 300000);
    for (gsize i = 0; i < part; i++)
      bytes[i] = at(sent + i);
    ssize_t put = part > 0 ? send(f->from, bytes, part, MSG_NOSIGNAL) : 0;
    sent += (guint64)MAX(put, 0);
    g_assert_cmpint(pump(f, &moved), !=, QV_WAY_BROKEN);
    if (turn % rest != 0)
      continue;
    ssize_t took = recv(f->to, bytes, MIN(read_n, 1000000), 0);
    for (ssize_t i = 0; i < took; i++)
      if (bytes[i] != at(got + (guint64)i))
        g_error("byte %" G_GUINT64_FORMAT " is another", got + (guint64)i);
    got += (guint64)MAX(took, 0);
  }
  g_assert_cmpuint(got, ==, n);
  g_assert_cmpuint(moved, ==, n);
}

static void test_carry(Fixture *f, gconstpointer unused)
{
  carry(f, 100, 1000, 1);
  carry(f, 10000000, 1000000, 1);
  carry(f, 2000000, 50000, 1); /* a slow reader */
  carry(f, 10000000, 1000000, 7); /* one that comes now and then */
  carry(f, 1, 1000, 1);
  guint64 moved = 0;
  shutdown(f->from, SHUT_WR);
  QV_TEST_WAIT(pump(f, &moved) == QV_WAY_WAITS && f->way.done);
  g_assert_cmpuint(moved, ==, 0);
  g_assert_null(f->way.held);
}

/* Nobody reads: it stops, and holds no more than it may; the end comes behind all that was sent. */
static void test_blocked(Fixture *f, gconstpointer unused)
{
  g_autofree char *bytes = g_malloc0(1000000);
  guint64 sent = 0, moved = 0, got = 0;
  for (guint idle = 0; idle < 50;) {
    ssize_t put = send(f->from, bytes, 1000000, MSG_NOSIGNAL);
    guint64 before = moved;
    sent += (guint64)MAX(put, 0);
    g_assert_cmpint(pump(f, &moved), !=, QV_WAY_BROKEN);
    idle = put > 0 || moved > before ? 0 : idle + 1;
  }
  g_assert_cmpuint(moved, <, sent);
  shutdown(f->from, SHUT_WR);
  gint64 end = g_get_monotonic_time() + QV_TEST_DEADLINE_S * G_USEC_PER_SEC;
  while (!f->way.done || got < sent) {
    g_assert_cmpint(g_get_monotonic_time(), <, end);
    ssize_t took = recv(f->to, bytes, 1000000, 0);
    got += (guint64)MAX(took, 0);
    g_assert_cmpint(pump(f, &moved), !=, QV_WAY_BROKEN);
  }
  g_assert_cmpuint(got, ==, sent);
  g_assert_cmpuint(moved, ==, sent);
}

/* The reader is gone in the middle of much: broken, and the next way starts with nothing of it. */
static void test_broken(Fixture *f, gconstpointer tcp)
{
  g_autofree char *bytes = g_malloc0(1000000);
  guint64 moved = 0;
  for (guint i = 0; i < 20; i++) {
    (void)!send(f->from, bytes, 1000000, MSG_NOSIGNAL);
    pump(f, &moved);
    (void)!recv(f->to, bytes, 100000, 0);
  }
  qv_io_close_cleanup(&f->to);
  QV_TEST_WAIT(send(f->from, bytes, 1000000, MSG_NOSIGNAL) != 0 && pump(f, &moved) == QV_WAY_BROKEN);
  Fixture next;
  set_up(&next, tcp);
  carry(&next, 3000000, 1000000, 1);
  tear_down(&next, NULL);
}

/* What a bounded pair takes while nobody reads: the system's own limits leave room for 36 MiB on both sides. */
static void test_bounded(void)
{
  g_autofree char *bytes = g_malloc0(1000000);
  int pair[2];
  gsize sent = 0;
  make_tcp(pair);
  g_assert_true(qv_side_is_near(pair[0], G_MAXUINT32)); /* how far it is depends on the machine's load */
  g_assert_false(qv_side_is_near(pair[0], 0));
  for (guint i = 0; i < 2; i++) {
    int size = 0;
    socklen_t n = sizeof size;
    qv_side_bound(pair[i]);
    qv_io_set_nonblock(pair[i], true);
    g_assert_cmpint(getsockopt(pair[i], SOL_SOCKET, SO_RCVBUF, &size, &n), ==, 0);
    g_assert_cmpint(size, <=, QV_SIDE_KERNEL_BYTES_MAX);
    g_assert_cmpint(getsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, &n), ==, 0);
    g_assert_cmpint(size, <=, QV_SIDE_KERNEL_BYTES_MAX);
  }
  for (ssize_t n; (n = send(pair[0], bytes, 1000000, MSG_NOSIGNAL)) > 0;)
    sent += (gsize)n;
  g_assert_cmpuint(sent, >, 0);
  g_assert_cmpuint(sent, <, 4 * QV_SIDE_KERNEL_BYTES_MAX);
  close(pair[0]);
  close(pair[1]);
}

/* A socket that is not connected, or is none of TCP's, is not near. */
static void test_not_near(void)
{
  int pair[2];
  QV_AUTOFD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), ==, 0);
  g_assert_false(qv_side_is_near(fd, G_MAXUINT32));
  g_assert_false(qv_side_is_near(pair[0], G_MAXUINT32));
  close(pair[0]);
  close(pair[1]);
}

static void add(const char *name, void (*func)(Fixture *, gconstpointer))
{
  g_autofree char *local = g_strconcat("/relay/unix/", name, NULL), *tcp = g_strconcat("/relay/tcp/", name, NULL);
  g_test_add(local, Fixture, NULL, set_up, func, tear_down);
  g_test_add(tcp, Fixture, "tcp", set_up, func, tear_down);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  signal(SIGPIPE, SIG_IGN);
  add("carry", test_carry);
  add("blocked", test_blocked);
  add("broken", test_broken);
  g_test_add_func("/relay/bounded", test_bounded);
  g_test_add_func("/relay/not-near", test_not_near);
  return g_test_run();
}
