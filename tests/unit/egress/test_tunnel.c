/* SPDX-License-Identifier: Apache-2.0 */
/* The way to the upstream: how long it may take in all. And who is not let in at all. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "egress/proxy.h"
#include "egress/tunnel_private.h"

enum { LONG_MS = 120000, ADDRESSES_N = 3 };

/* What the client is answered where every address refuses, and LEFT_MS are left for them. */
static char *answer_of(gint64 left_ms)
{
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof at;
  int pair[2];
  /* A port that somebody has and nobody listens at. */
  QV_AUTOFD int refuses = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(bind(refuses, (struct sockaddr *)&at, sizeof at), ==, 0);
  g_assert_cmpint(getsockname(refuses, (struct sockaddr *)&at, &n), ==, 0);
  g_assert_cmpint(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), ==, 0);
  QvProxy proxy = {.limits = {.head_ms = LONG_MS, .connect_ms = LONG_MS}, .ports = g_array_new(FALSE, FALSE, sizeof(guint16))};
  proxy.loop = qv_loop_new(NULL);
  qv_tunnel_start(&proxy, pair[1], NULL);
  QvTunnel *tunnel = proxy.all.head->data;
  QvOpening *opening = tunnel->opening;
  opening->request.port = ntohs(at.sin_port);
  opening->ips.n = ADDRESSES_N;
  for (guint i = 0; i < ADDRESSES_N; i++)
    memcpy(opening->ips.ips[i].bytes, &at.sin_addr, 4);
  opening->connect_until_ms = qv_clock_mono_ms() + left_ms;
  qv_tunnel_connect_next(tunnel);
  while (proxy.all.head != NULL && tunnel->state == QV_TUNNEL_CONNECT)
    g_main_context_iteration(NULL, TRUE);
  char bytes[1024] = "";
  g_assert_cmpint(recv(pair[0], bytes, sizeof bytes - 1, 0), >, 0);
  close(pair[0]);
  qv_tunnel_drop(tunnel);
  qv_loop_free(proxy.loop);
  g_array_unref(proxy.ports);
  return g_strdup(bytes);
}

static void test_refusing(void)
{
  g_autofree char *in_time = answer_of(LONG_MS), *late = answer_of(0);
  g_assert_nonnull(strstr(in_time, "connect_failed"));
  g_assert_nonnull(strstr(late, "connect_timeout"));
}

static char *read_stderr(int file)
{
  gsize n;
  g_assert_cmpint(lseek(file, 0, SEEK_SET), ==, 0);
  return qv_fd_read_all(file, "stderr", 65536, &n, NULL);
}

/* Without a place, and nobody who could give one up: the connection is closed, and that is told. */
static void test_no_place(void)
{
  QvProxy proxy = {.limits = {.opening = 0}, .ports = g_array_new(FALSE, FALSE, sizeof(guint16)), .listeners = g_ptr_array_new()};
  proxy.loop = qv_loop_new(NULL);
  g_assert_true(qv_proxy_listen(&proxy, "127.0.0.1:0", NULL));
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(qv_proxy_port(&proxy, 0))};
  QV_AUTOFD int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(connect(client, (struct sockaddr *)&at, sizeof at), ==, 0);
  g_assert_cmpint(send(client, "C", 1, MSG_NOSIGNAL), ==, 1);
  QV_AUTOFD int kept = dup(STDERR_FILENO);
  QV_AUTOFD int file = memfd_create("stderr", MFD_CLOEXEC);
  g_assert_cmpint(dup2(file, STDERR_FILENO), ==, STDERR_FILENO);
  char byte;
  gint64 until_ms = qv_clock_mono_ms() + LONG_MS;
  while (recv(client, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN && qv_clock_mono_ms() < until_ms) {
    g_main_context_iteration(NULL, FALSE);
    g_usleep(1000);
  }
  g_assert_cmpint(dup2(kept, STDERR_FILENO), ==, STDERR_FILENO);
  g_autofree char *said = read_stderr(file);
  g_assert_nonnull(strstr(said, "closed unheard"));
  g_assert_null(proxy.all.head);
  qv_loop_close(proxy.loop, proxy.listeners->pdata[0]);
  g_free(proxy.listeners->pdata[0]);
  g_ptr_array_unref(proxy.listeners);
  qv_loop_free(proxy.loop);
  g_array_unref(proxy.ports);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/egress/tunnel/refusing", test_refusing);
  g_test_add_func("/egress/tunnel/no-place", test_no_place);
  return g_test_run();
}
