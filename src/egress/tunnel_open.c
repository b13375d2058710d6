/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the way from a connection to an open tunnel. The functions stand in
 * the reverse order of the states: each ends by calling the one above. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "egress/policy.h"
#include "egress/tunnel_private.h"

/* ---- HELLO */

static QvReason judge_hello(QvTunnel *tunnel, QvTlsVerdict verdict)
{
  const QvOpening *opening = tunnel->opening;
  switch (verdict) {
  case QV_TLS_MORE: return opening->raw_n == QV_OPENING_RAW_BYTES ? QV_REASON_BAD_HELLO : QV_REASON_NONE;
  case QV_TLS_NOT_TLS: return QV_REASON_NOT_TLS;
  case QV_TLS_NO_NAME: return QV_REASON_NO_SERVER_NAME;
  case QV_TLS_ENCRYPTED: return QV_REASON_ENCRYPTED_HELLO;
  case QV_TLS_DONE:
    return opening->hello.name_n == opening->request.host_n &&
                   g_ascii_strncasecmp(opening->hello.name, opening->request.host_port, opening->request.host_n) == 0
             ? QV_REASON_NONE
             : QV_REASON_SERVER_NAME;
  default: return QV_REASON_BAD_HELLO;
  }
}

void qv_tunnel_read_hello(QvTunnel *tunnel)
{
  QvOpening *opening = tunnel->opening;
  for (;;) {
    gsize taken;
    QvTlsVerdict verdict = qv_tls_hello_feed(&opening->hello, opening->raw + opening->raw_fed, opening->raw_n - opening->raw_fed, &taken);
    opening->raw_fed = opening->raw_n;
    QvReason why = judge_hello(tunnel, verdict);
    if (why != QV_REASON_NONE) {
      qv_tunnel_cut(tunnel, why);
      return;
    }
    if (verdict == QV_TLS_DONE)
      break;
    if (!tunnel->c.readable)
      return;
    ssize_t n = recv(tunnel->c.fd, opening->raw + opening->raw_n, QV_OPENING_RAW_BYTES - opening->raw_n, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      tunnel->c.readable = errno == EINTR;
      return;
    }
    if (n <= 0) {
      qv_tunnel_cut(tunnel, QV_REASON_CLOSED);
      return;
    }
    opening->raw_n += (guint)n;
  }
  tunnel->state = QV_TUNNEL_RELAY;
  qv_tunnel_wait(tunnel, QV_WAIT_IDLE, tunnel->proxy->limits.idle_ms);
  qv_tunnel_advance(tunnel);
}

/* ---- CONNECT */

typedef union {
  struct sockaddr any;
  struct sockaddr_in in;
  struct sockaddr_in6 in6;
} Address;

/* Would the tunnel lead back to us? Only asked where the port is one of ours. */
static gboolean is_own(const QvTunnel *tunnel)
{
  const GArray *ports = tunnel->proxy->ports;
  Address own, far;
  gboolean ours = FALSE;
  for (guint i = 0; i < ports->len; i++)
    ours |= g_array_index(ports, guint16, i) == tunnel->opening->request.port;
  socklen_t own_n = sizeof own, far_n = sizeof far;
  if (!ours || getsockname(tunnel->u.fd, &own.any, &own_n) != 0 || getpeername(tunnel->u.fd, &far.any, &far_n) != 0)
    return FALSE;
  return own.any.sa_family == AF_INET ? own.in.sin_addr.s_addr == far.in.sin_addr.s_addr
                                      : memcmp(&own.in6.sin6_addr, &far.in6.sin6_addr, 16) == 0;
}

void qv_tunnel_connected(QvTunnel *tunnel)
{
  gsize n;
  int err = 0;
  socklen_t err_n = sizeof err;
  if (getsockopt(tunnel->u.fd, SOL_SOCKET, SO_ERROR, &err, &err_n) != 0 || err != 0) {
    qv_tunnel_connect_next(tunnel);
    return;
  }
  if (is_own(tunnel)) {
    qv_tunnel_cut(tunnel, QV_REASON_OWN_ADDRESS);
    return;
  }
  if (qv_side_is_near(tunnel->u.fd, QV_SIDE_NEAR_US))
    qv_side_bound(tunnel->u.fd);
  const char *answer = qv_reason_answer(QV_REASON_NONE, &n);
  if (send(tunnel->c.fd, answer, n, MSG_NOSIGNAL) != (ssize_t)n) {
    qv_tunnel_drop(tunnel); /* the first bytes to this client: there is room, or it is gone */
    return;
  }
  qv_tls_hello_init(&tunnel->opening->hello);
  tunnel->host->connections++;
  tunnel->state = QV_TUNNEL_HELLO;
  qv_tunnel_wait(tunnel, QV_WAIT_HELLO, tunnel->proxy->limits.head_ms);
  qv_tunnel_advance(tunnel);
}

/* -1: not to be connected to. *DONE: it already is. */
static int dial(const QvIp *ip, guint16 port, gboolean *done)
{
  const int yes = 1;
  Address to = {0};
  if (ip->v6) {
    to.in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
    memcpy(&to.in6.sin6_addr, ip->bytes, 16);
  } else {
    to.in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    memcpy(&to.in.sin_addr, ip->bytes, 4);
  }
  int fd = socket(to.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return -1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  *done = connect(fd, &to.any, ip->v6 ? sizeof to.in6 : sizeof to.in) == 0;
  if (*done || errno == EINPROGRESS)
    return fd;
  close(fd);
  return -1;
}

void qv_tunnel_connect_next(QvTunnel *tunnel)
{
  QvOpening *opening = tunnel->opening;
  gboolean done;
  qv_tunnel_close_upstream(tunnel);
  tunnel->state = QV_TUNNEL_CONNECT;
  while (opening->ip_at < opening->ips.n) {
    /* A name with many addresses that refuse late has no more time than others. */
    if (qv_clock_mono_ms() >= opening->connect_until_ms) {
      qv_tunnel_cut(tunnel, QV_REASON_CONNECT_TIMEOUT);
      return;
    }
    QvIp ip = qv_ip_unwrap(&opening->ips.ips[opening->ip_at++]);
    int fd = dial(&ip, opening->request.port, &done);
    if (fd < 0)
      continue;
    tunnel->upstream.fd = fd;
    tunnel->u = (QvSide){.fd = fd, .writable = done};
    if (!qv_loop_add(tunnel->proxy->loop, &tunnel->upstream, NULL))
      break;
    qv_tunnel_wait(tunnel, QV_WAIT_ATTEMPT, tunnel->proxy->limits.connect_ms / 2);
    if (done)
      qv_tunnel_connected(tunnel);
    return;
  }
  qv_tunnel_cut(tunnel, QV_REASON_CONNECT_FAILED);
}

/* ---- RESOLVE */

static void on_resolved(const QvIps *ips, gpointer user)
{
  QvTunnel *tunnel = user;
  QvOpening *opening = tunnel->opening;
  const char *row = NULL;
  tunnel->state = QV_TUNNEL_CONNECT; /* no question is out any more */
  const QvRegistry *registry = qv_registries_find(tunnel->proxy->registries, opening->request.host_port);
  QvReason why = QV_REASON_ADDRESS_REFUSED;
  if (registry == NULL)
    why = QV_REASON_HOST_NOT_LISTED;
  else if (ips->n > QV_RESOLVER_IPS_MAX)
    row = "more addresses than are checked";
  else
    why = qv_policy_addresses(ips->ips, ips->n, registry, &row);
  if (why != QV_REASON_NONE) {
    if (row != NULL && qv_proxy_log_allows(tunnel->proxy))
      qv_log(QV_LOG_WARNING, "a listed name leads to an address that is not allowed", "host", opening->request.host_port, "range",
             row, NULL);
    qv_tunnel_cut(tunnel, why);
    return;
  }
  opening->ips = *ips;
  opening->ip_at = 0;
  opening->connect_until_ms = qv_clock_mono_ms() + tunnel->proxy->limits.connect_ms;
  qv_tunnel_connect_next(tunnel);
}

/* Where an open tunnel goes. FALSE: nowhere any more. */
static gboolean far_ip(const QvTunnel *tunnel, QvIp *ip)
{
  Address far;
  socklen_t n = sizeof far;
  if (getpeername(tunnel->u.fd, &far.any, &n) != 0)
    return FALSE;
  *ip = (QvIp){.v6 = far.any.sa_family == AF_INET6};
  if (ip->v6)
    memcpy(ip->bytes, &far.in6.sin6_addr, 16);
  else
    memcpy(ip->bytes, &far.in.sin_addr, 4);
  return TRUE;
}

QvReason qv_tunnel_review(const QvTunnel *tunnel)
{
  const QvOpening *opening = tunnel->opening;
  const char *host = qv_tunnel_host(tunnel);
  const QvRegistry *registry = host != NULL ? qv_registries_find(tunnel->proxy->registries, host) : NULL;
  QvIp ip;
  if (registry == NULL)
    return QV_REASON_HOST_NOT_LISTED;
  if (opening != NULL) /* without addresses yet: they will be judged when they come */
    return opening->ips.n > 0 ? qv_policy_addresses(opening->ips.ips, opening->ips.n, registry, NULL) : QV_REASON_NONE;
  return far_ip(tunnel, &ip) ? qv_policy_addresses(&ip, 1, registry, NULL) : QV_REASON_NONE;
}

/* ---- LOOKUP */

/* How many: NONE, or the limit that is reached. */
static QvReason judge_limits(const QvProxy *proxy, const QvToken *token)
{
  if (proxy->draining)
    return QV_REASON_DRAINING;
  if (token->tunnels.length > proxy->limits.tunnels_per_token)
    return QV_REASON_TUNNELS_TOKEN;
  if (proxy->tunnels > proxy->limits.tunnels)
    return QV_REASON_TUNNELS_ALL;
  return token->bytes >= proxy->limits.token_bytes ? QV_REASON_BYTES : QV_REASON_NONE;
}

static void admitted(QvTunnel *tunnel, QvToken *token)
{
  QvProxy *proxy = tunnel->proxy;
  QvRequest *request = &tunnel->opening->request;
  char source[INET_ADDRSTRLEN];
  const QvRegistry *registry = NULL;
  QvReason why = qv_policy_token(token->record, tunnel->has_peer ? inet_ntop(AF_INET, tunnel->peer, source, sizeof source) : NULL,
                                 qv_clock_unix_ms());
  if (why != QV_REASON_NONE) { /* another's token: nothing is counted on it */
    qv_tunnel_cut(tunnel, why);
    return;
  }
  tunnel->token = token;
  g_queue_push_tail_link(&token->tunnels, &tunnel->in_token);
  proxy->tunnels++;
  if ((why = judge_limits(proxy, token)) != QV_REASON_NONE ||
      (why = qv_policy_host(request, token->record, proxy->registries, &registry)) != QV_REASON_NONE) {
    qv_tunnel_cut(tunnel, why);
    return;
  }
  tunnel->host = qv_token_host(token, request->host_port);
  tunnel->state = QV_TUNNEL_RESOLVE;
  qv_tunnel_wait(tunnel, QV_WAIT_SETUP, proxy->limits.connect_ms);
  g_autofree char *name = g_strndup(request->host_port, request->host_n);
  qv_resolver_ask(proxy->resolver, name, qv_clock_mono_ms(), on_resolved, tunnel);
}

static void on_looked_up(const QvReply *reply, const GError *error, gpointer user)
{
  QvTunnel *tunnel = user;
  QvOpening *opening = tunnel->opening;
  QvReason why = QV_REASON_STORE_AWAY;
  QvToken *token = NULL;
  opening->lookup = 0;
  if (error == NULL) {
    g_autoptr(GBytes) text = qv_store_record(reply);
    token = qv_tokens_answer(tunnel->proxy->tokens, opening->hash, text, TRUE, opening->asked_ms, qv_clock_mono_ms(),
                             qv_clock_unix_ms(), &why);
  }
  if (token != NULL)
    admitted(tunnel, token);
  else
    qv_tunnel_cut(tunnel, why);
}

static void look_up(QvTunnel *tunnel)
{
  QvOpening *opening = tunnel->opening;
  QvReason why = qv_request_parse(&opening->head, &opening->request);
  if (why != QV_REASON_NONE) {
    qv_tunnel_cut(tunnel, why);
    return;
  }
  qv_token_hash(opening->request.token, opening->hash);
  explicit_bzero(opening->request.token, sizeof opening->request.token);
  tunnel->state = QV_TUNNEL_LOOKUP;
  qv_tunnel_wait(tunnel, QV_WAIT_SETUP, tunnel->proxy->limits.connect_ms);
  opening->asked_ms = qv_clock_mono_ms();
  opening->lookup = qv_store_get(tunnel->proxy->store, opening->hash, QV_STORE_ADMIT_MS, on_looked_up, tunnel, NULL);
}

/* ---- HEAD */

void qv_tunnel_read_head(QvTunnel *tunnel)
{
  QvOpening *opening = tunnel->opening;
  char bytes[4096];
  QvHttpVerdict verdict = QV_HTTP_MORE;
  while (verdict == QV_HTTP_MORE) {
    gsize taken;
    if (!tunnel->c.readable)
      return;
    ssize_t n = recv(tunnel->c.fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      tunnel->c.readable = errno == EINTR;
      return;
    }
    if (n <= 0) {
      qv_tunnel_drop(tunnel);
      return;
    }
    tunnel->c.readable = n == sizeof bytes || tunnel->c.hung_up;
    verdict = qv_http_head_feed(&opening->head, bytes, (gsize)n, &taken);
    memcpy(opening->raw, bytes + taken, (gsize)n - taken);
    opening->raw_n = (guint)((gsize)n - taken);
    explicit_bzero(bytes, (gsize)n);
  }
  if (verdict == QV_HTTP_DONE)
    look_up(tunnel);
  else
    qv_tunnel_cut(tunnel, verdict == QV_HTTP_TOO_LONG ? QV_REASON_HEAD_TOO_LONG : QV_REASON_BAD_HEAD);
}

