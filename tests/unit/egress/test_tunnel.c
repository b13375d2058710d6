/* SPDX-License-Identifier: Apache-2.0 */
/* The way to the upstream: how long it may take in all. */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
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

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/egress/tunnel/refusing", test_refusing);
  return g_test_run();
}
