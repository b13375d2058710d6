/* SPDX-License-Identifier: Apache-2.0 */
/* Owns a connection from its start to its end, and the relay; see tunnel.h for the states. */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "egress/tunnel_private.h"

enum { LINGER_BYTES_MAX = 1024 * 1024, LINGER_MS = 2000, OPENINGS_KEPT_MAX = 32 };

static QvOpening *kept;
static guint kept_n;

static QvOpening *opening_new(void)
{
  QvOpening *opening = kept;
  if (opening != NULL) {
    kept = opening->next;
    kept_n--;
  } else {
    opening = g_new(QvOpening, 1);
  }
  memset(opening, 0, offsetof(QvOpening, head));
  qv_http_head_init(&opening->head);
  return opening;
}

static void opening_free(QvOpening *opening)
{
  if (opening == NULL)
    return;
  explicit_bzero(opening, offsetof(QvOpening, raw)); /* the token stood in the head */
  if (kept_n == OPENINGS_KEPT_MAX) {
    g_free(opening);
    return;
  }
  opening->next = kept;
  kept = opening;
  kept_n++;
}

void qv_tunnel_wait(QvTunnel *tunnel, QvWait wait, gint64 ms)
{
  if (tunnel->wait < QV_WAITS_N)
    g_queue_unlink(&tunnel->proxy->waits[tunnel->wait], &tunnel->in_wait);
  tunnel->wait = (guint8)wait;
  tunnel->wait_until_ms = qv_clock_mono_ms() + ms;
  if (wait < QV_WAITS_N)
    g_queue_push_tail_link(&tunnel->proxy->waits[wait], &tunnel->in_wait);
}

gint64 qv_tunnel_deadline_ms(const QvTunnel *tunnel)
{
  return tunnel->wait_until_ms;
}

gboolean qv_tunnel_holds_token(const QvTunnel *tunnel)
{
  return tunnel->token != NULL;
}

const char *qv_tunnel_host(const QvTunnel *tunnel)
{
  if (tunnel->host != NULL)
    return tunnel->host->host_port;
  return tunnel->opening != NULL && tunnel->opening->request.host_port[0] != '\0' ? tunnel->opening->request.host_port : NULL;
}

/* Takes back every question that would come back to it. */
static void forget_questions(QvTunnel *tunnel)
{
  if (tunnel->state == QV_TUNNEL_LOOKUP && tunnel->opening->lookup != 0)
    qv_store_cancel(tunnel->proxy->store, tunnel->opening->lookup);
  if (tunnel->state == QV_TUNNEL_RESOLVE)
    qv_resolver_forget(tunnel->proxy->resolver, tunnel);
}

static void release_token(QvTunnel *tunnel)
{
  if (tunnel->token == NULL)
    return;
  g_queue_unlink(&tunnel->token->tunnels, &tunnel->in_token);
  tunnel->token = NULL;
  tunnel->host = NULL;
  tunnel->proxy->tunnels--;
}

static void close_side(QvTunnel *tunnel, QvWatch *watch)
{
  if (tunnel->resets && watch->fd >= 0) {
    const struct linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(watch->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }
  qv_loop_close(tunnel->proxy->loop, watch);
}

void qv_tunnel_close_upstream(QvTunnel *tunnel)
{
  close_side(tunnel, &tunnel->upstream);
  qv_way_clear(&tunnel->up);
  qv_way_clear(&tunnel->down);
}

void qv_tunnel_drop(QvTunnel *tunnel)
{
  forget_questions(tunnel);
  release_token(tunnel);
  qv_tunnel_close_upstream(tunnel);
  close_side(tunnel, &tunnel->client);
  opening_free(tunnel->opening);
  qv_tunnel_wait(tunnel, QV_WAITS_N, 0);
  g_queue_unlink(&tunnel->proxy->all, &tunnel->in_all);
  g_free(tunnel);
}

static void log_end(QvTunnel *tunnel, QvReason why, gboolean refused)
{
  char peer[INET_ADDRSTRLEN] = "";
  if (refused && !qv_proxy_log_allows(tunnel->proxy))
    return;
  if (tunnel->has_peer)
    inet_ntop(AF_INET, tunnel->peer, peer, sizeof peer);
  g_autofree char *up = g_strdup_printf("%" G_GUINT64_FORMAT, tunnel->bytes_up);
  g_autofree char *down = g_strdup_printf("%" G_GUINT64_FORMAT, tunnel->bytes_down);
  qv_log(refused ? QV_LOG_INFO : QV_LOG_DEBUG, refused ? "refused" : "tunnel ended", "reason", qv_reason_code(why), "host",
         qv_tunnel_host(tunnel), "jobId", tunnel->token != NULL ? tunnel->token->record->job_id : NULL, "peer",
         tunnel->has_peer ? peer : NULL, "bytesUp", refused ? NULL : up, "bytesDown", refused ? NULL : down, NULL);
}

/* Says its last word and waits for the client to hang up: a close with unread bytes would take the word back. */
static void linger(QvTunnel *tunnel, const void *word, gsize n)
{
  (void)!send(tunnel->client.fd, word, n, MSG_DONTWAIT | MSG_NOSIGNAL);
  shutdown(tunnel->client.fd, SHUT_WR);
  forget_questions(tunnel);
  release_token(tunnel);
  qv_tunnel_close_upstream(tunnel);
  opening_free(g_steal_pointer(&tunnel->opening));
  tunnel->state = QV_TUNNEL_LINGER;
  qv_tunnel_wait(tunnel, QV_WAIT_LINGER, LINGER_MS);
  qv_tunnel_advance(tunnel);
}

/* What a token's end means to a CONNECT that was not answered yet. */
static QvReason as_refusal(QvReason why)
{
  switch (why) {
  case QV_REASON_REVOKED: return QV_REASON_TOKEN_UNKNOWN;
  case QV_REASON_EXPIRED: return QV_REASON_TOKEN_EXPIRED;
  case QV_REASON_UNCONFIRMED: return QV_REASON_STORE_AWAY;
  default: return why;
  }
}

void qv_tunnel_cut(QvTunnel *tunnel, QvReason why)
{
  guint8 alert[7];
  gsize n;
  if (tunnel->state == QV_TUNNEL_LINGER)
    return;
  gboolean opened = tunnel->state == QV_TUNNEL_HELLO || tunnel->state == QV_TUNNEL_RELAY;
  if (!opened)
    why = as_refusal(why);
  gboolean refused = tunnel->state != QV_TUNNEL_RELAY && why != QV_REASON_CLOSED;
  if (refused && tunnel->token != NULL && why != QV_REASON_FAILED)
    (tunnel->host ?: qv_token_host(tunnel->token, tunnel->opening->request.host_port))->refused++;
  log_end(tunnel, why, refused);
  if (!opened && qv_reason_status(why) != 0) {
    const char *answer = qv_reason_answer(why, &n);
    linger(tunnel, answer, n);
  } else if (tunnel->state == QV_TUNNEL_HELLO && (n = qv_reason_alert(why, alert)) > 0) {
    linger(tunnel, alert, n);
  } else {
    /* A reset drops what the kernel has not sent yet: right for a cut, wrong for an end. */
    tunnel->resets = opened && why != QV_REASON_CLOSED && why != QV_REASON_FAILED;
    qv_tunnel_drop(tunnel);
  }
}

/* ---- RELAY */

/* The end of one way, while the other goes on. */
static void tell_end(QvWay *way, QvSide *out)
{
  if (!way->done || way->shut)
    return;
  shutdown(out->fd, SHUT_WR);
  way->shut = TRUE;
}

/* A way that broke is over, and its writing side is told; the other one goes on: a server that answers and hangs up on what
 * the client still sends has answered all the same. */
static void note_broken(QvTunnel *tunnel, QvWay *way, QvSide *out, QvWayState state)
{
  if (state != QV_WAY_BROKEN)
    return;
  shutdown(out->fd, SHUT_WR);
  qv_way_clear(way);
  way->ended = way->done = way->shut = TRUE;
  tunnel->failed = TRUE;
}

static void pass_on(QvTunnel *tunnel, gboolean more)
{
  tell_end(&tunnel->up, &tunnel->u);
  tell_end(&tunnel->down, &tunnel->c);
  if (more)
    qv_loop_again(tunnel->proxy->loop, &tunnel->client);
}

static void relay(QvTunnel *tunnel)
{
  QvOpening *opening = tunnel->opening;
  guint64 up = 0, down = 0;
  if (opening != NULL && tunnel->u.writable) {
    ssize_t n = send(tunnel->u.fd, opening->raw + opening->raw_sent, opening->raw_n - opening->raw_sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
      qv_tunnel_cut(tunnel, QV_REASON_FAILED);
      return;
    }
    opening->raw_sent += n > 0 ? (guint)n : 0;
    tunnel->bytes_up += n > 0 ? (guint64)n : 0;
    tunnel->host->bytes_up += n > 0 ? n : 0;
    tunnel->token->bytes += n > 0 ? n : 0;
    tunnel->u.writable = opening->raw_sent == opening->raw_n;
    if (opening->raw_sent == opening->raw_n)
      opening_free(g_steal_pointer(&tunnel->opening));
  }
  QvWayState went_up = tunnel->opening != NULL ? QV_WAY_WAITS : qv_way_pump(&tunnel->up, &tunnel->c, &tunnel->u, &up);
  QvWayState went_down = qv_way_pump(&tunnel->down, &tunnel->u, &tunnel->c, &down);
  tunnel->bytes_up += up;
  tunnel->bytes_down += down;
  tunnel->host->bytes_up += (gint64)up;
  tunnel->host->bytes_down += (gint64)down;
  tunnel->token->bytes += (gint64)(up + down);
  if (up + down > 0)
    qv_tunnel_wait(tunnel, QV_WAIT_IDLE, tunnel->proxy->limits.idle_ms);
  note_broken(tunnel, &tunnel->up, &tunnel->u, went_up);
  note_broken(tunnel, &tunnel->down, &tunnel->c, went_down);
  if (tunnel->up.done && tunnel->down.done)
    qv_tunnel_cut(tunnel, tunnel->failed ? QV_REASON_FAILED : QV_REASON_CLOSED);
  else if (tunnel->token->bytes > tunnel->proxy->limits.token_bytes)
    qv_tunnel_cut(tunnel, QV_REASON_BYTES);
  else
    pass_on(tunnel, went_up == QV_WAY_MORE || went_down == QV_WAY_MORE);
}

/* ---- events */

static void discard(QvTunnel *tunnel)
{
  char bytes[16384];
  for (;;) {
    ssize_t n = recv(tunnel->c.fd, bytes, sizeof bytes, 0);
    if (n < 0 && errno == EAGAIN)
      return;
    tunnel->linger_bytes += n;
    if (n <= 0 || tunnel->linger_bytes > LINGER_BYTES_MAX) {
      qv_tunnel_drop(tunnel);
      return;
    }
  }
}

void qv_tunnel_advance(QvTunnel *tunnel)
{
  switch (tunnel->state) {
  case QV_TUNNEL_HEAD:
    if (tunnel->c.readable)
      qv_tunnel_read_head(tunnel);
    break;
  case QV_TUNNEL_HELLO:
    qv_tunnel_read_hello(tunnel);
    break;
  case QV_TUNNEL_RELAY:
    relay(tunnel);
    break;
  case QV_TUNNEL_LINGER:
    discard(tunnel);
    break;
  default:
    break;
  }
}

static void note(QvSide *side, guint32 events)
{
  side->hung_up |= (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  side->readable |= (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  side->writable |= (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
}

static void client_ready(QvWatch *watch, guint32 events)
{
  QvTunnel *tunnel = (QvTunnel *)watch;
  note(&tunnel->c, events);
  gboolean waits = tunnel->state == QV_TUNNEL_LOOKUP || tunnel->state == QV_TUNNEL_RESOLVE || tunnel->state == QV_TUNNEL_CONNECT;
  if (waits && (events & (EPOLLHUP | EPOLLERR)))
    qv_tunnel_drop(tunnel);
  else
    qv_tunnel_advance(tunnel);
}

static void upstream_ready(QvWatch *watch, guint32 events)
{
  QvTunnel *tunnel = (QvTunnel *)((char *)watch - offsetof(QvTunnel, upstream));
  note(&tunnel->u, events);
  if (tunnel->state == QV_TUNNEL_CONNECT && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)))
    qv_tunnel_connected(tunnel);
  else if (tunnel->state == QV_TUNNEL_RELAY)
    relay(tunnel);
}

void qv_tunnel_timeout(QvTunnel *tunnel)
{
  switch (tunnel->state) {
  case QV_TUNNEL_HEAD:
    /* Who never said a word is not told one. */
    if (tunnel->opening->head.used > 0)
      qv_tunnel_cut(tunnel, QV_REASON_HEAD_TIMEOUT);
    else
      qv_tunnel_drop(tunnel);
    break;
  case QV_TUNNEL_LOOKUP: qv_tunnel_cut(tunnel, QV_REASON_STORE_AWAY); break;
  case QV_TUNNEL_RESOLVE: qv_tunnel_cut(tunnel, QV_REASON_RESOLVE_TIMEOUT); break;
  case QV_TUNNEL_CONNECT:
    if (qv_clock_mono_ms() >= tunnel->opening->connect_until_ms)
      qv_tunnel_cut(tunnel, QV_REASON_CONNECT_TIMEOUT);
    else if (tunnel->opening->ip_at < tunnel->opening->ips.n)
      qv_tunnel_connect_next(tunnel);
    else
      qv_tunnel_wait(tunnel, QV_WAIT_ATTEMPT, tunnel->proxy->limits.connect_ms / 2);
    break;
  case QV_TUNNEL_HELLO: qv_tunnel_cut(tunnel, QV_REASON_HELLO_TIMEOUT); break;
  case QV_TUNNEL_RELAY: qv_tunnel_cut(tunnel, QV_REASON_IDLE); break;
  case QV_TUNNEL_LINGER: qv_tunnel_drop(tunnel); break;
  }
}

void qv_tunnel_start(QvProxy *proxy, int fd, const guint8 *peer_v4)
{
  QvTunnel *tunnel = g_new0(QvTunnel, 1);
  tunnel->proxy = proxy;
  tunnel->client = (QvWatch){.fd = fd, .ready = client_ready};
  tunnel->upstream = (QvWatch){.fd = -1, .ready = upstream_ready};
  tunnel->c = (QvSide){.fd = fd, .readable = TRUE, .writable = TRUE};
  tunnel->wait = QV_WAITS_N;
  tunnel->opening = opening_new();
  tunnel->in_wait = tunnel->in_all = tunnel->in_token = (GList){.data = tunnel};
  tunnel->has_peer = peer_v4 != NULL;
  if (peer_v4 != NULL)
    memcpy(tunnel->peer, peer_v4, 4);
  g_queue_push_tail_link(&proxy->all, &tunnel->in_all);
  qv_tunnel_wait(tunnel, QV_WAIT_HEAD, proxy->limits.head_ms);
  if (!qv_loop_add(proxy->loop, &tunnel->client, NULL)) {
    qv_tunnel_drop(tunnel);
    return;
  }
  qv_tunnel_read_head(tunnel);
}
