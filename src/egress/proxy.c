/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the listeners, the ticks and the tokens' ends. */
#include "egress/proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "egress/relay.h"
#include "egress/tunnel.h"

enum { BACKLOG = 1024, ACCEPTS_A_TURN = 64, ACCEPT_REST_MS = 100, LOG_LINES_A_SECOND = 20, DEFER_ACCEPT_S = 1 };

typedef union {
  struct sockaddr any;
  struct sockaddr_in in;
  struct sockaddr_in6 in6;
  struct sockaddr_un un;
} Address;

typedef struct {
  QvWatch watch; /* first: it is the listener */
  QvProxy *proxy;
  char *path; /* of a unix socket: removed at the end */
  guint16 port;
} Listener;

/* ---- tokens' ends */

static void log_usage(const QvToken *token, QvReason why)
{
  for (guint i = 0; i < token->hosts->len; i++) {
    const QvTokenHost *host = g_ptr_array_index(token->hosts, i);
    g_autofree char *connections = g_strdup_printf("%" G_GINT64_FORMAT, host->connections);
    g_autofree char *up = g_strdup_printf("%" G_GINT64_FORMAT, host->bytes_up);
    g_autofree char *down = g_strdup_printf("%" G_GINT64_FORMAT, host->bytes_down);
    g_autofree char *refused = g_strdup_printf("%" G_GINT64_FORMAT, host->refused);
    qv_log(QV_LOG_INFO, "usage", "jobId", token->record->job_id, "host", host->host_port, "connections", connections, "bytesUp", up,
           "bytesDown", down, "refused", refused, "end", qv_reason_code(why), NULL);
  }
}

static void say_usage(QvProxy *proxy, const QvToken *token, QvReason why)
{
  gsize n;
  g_autofree char *text = qv_token_usage_format(token, &n);
  qv_store_publish_usage(proxy->store, text, n);
  log_usage(token, why);
}

static void on_cut(QvToken *token, QvReason why, gpointer user)
{
  QvProxy *proxy = user;
  if (why == QV_REASON_UNCONFIRMED)
    qv_log(QV_LOG_WARNING, "tunnels are cut: their token cannot be confirmed", "jobId", token->record->job_id, NULL);
  while (token->tunnels.head != NULL)
    qv_tunnel_cut(token->tunnels.head->data, why);
  if (why != QV_REASON_UNCONFIRMED)
    say_usage(proxy, token, why);
}

typedef struct {
  QvProxy *proxy;
  gint64 asked_ms;
  char hash[65];
} Question;

static void on_confirmed(const QvReply *reply, const GError *error, gpointer user)
{
  Question *question = user;
  QvReason why;
  if (error != NULL)
    return; /* no answer confirms nothing */
  g_autoptr(GBytes) text = qv_store_record(reply);
  qv_tokens_answer(question->proxy->tokens, question->hash, text, FALSE, question->asked_ms, qv_clock_mono_ms(), qv_clock_unix_ms(),
                   &why);
}

static void on_ask(const char *hash, gint64 now_ms, gpointer user)
{
  QvProxy *proxy = user;
  Question *question = g_new(Question, 1);
  *question = (Question){.proxy = proxy, .asked_ms = now_ms};
  g_strlcpy(question->hash, hash, sizeof question->hash);
  qv_store_get(proxy->store, hash, QV_STORE_CONFIRM_MS, on_confirmed, question, g_free);
}

static void on_revoked(const char *hash, gpointer user)
{
  qv_tokens_revoke(((QvProxy *)user)->tokens, hash, qv_clock_mono_ms(), qv_clock_unix_ms());
}

static void on_store_state(gboolean up, const GError *why, gpointer user)
{
  if (up)
    qv_logf(QV_LOG_INFO, "connected to Valkey");
  else
    qv_log(QV_LOG_ERROR, "Valkey is away: nothing is admitted", "error", why != NULL ? why->message : NULL, NULL);
}

gboolean qv_proxy_log_allows(QvProxy *proxy)
{
  gint64 second = qv_clock_mono_ms() / 1000;
  if (second != proxy->log_second) {
    if (proxy->log_withheld > 0) {
      g_autofree char *n = g_strdup_printf("%u", proxy->log_withheld);
      qv_log(QV_LOG_INFO, "more refusals than are logged; they are counted all the same", "withheld", n, NULL);
    }
    proxy->log_second = second;
    proxy->log_withheld = 0;
    proxy->log_allowance = LOG_LINES_A_SECOND;
  }
  if (proxy->log_allowance == 0) {
    proxy->log_withheld++;
    return FALSE;
  }
  proxy->log_allowance--;
  return TRUE;
}

/* ---- the clock */

static gboolean on_tick(gpointer user)
{
  QvProxy *proxy = user;
  gint64 now_ms = qv_clock_mono_ms();
  qv_tokens_tick(proxy->tokens, now_ms, qv_clock_unix_ms());
  for (guint i = 0; i < QV_WAITS_N; i++) {
    /* Who waits anew goes to the end: no more turns than there are now. */
    for (guint n = proxy->waits[i].length; n > 0 && proxy->waits[i].head != NULL; n--) {
      QvTunnel *tunnel = proxy->waits[i].head->data;
      if (qv_tunnel_deadline_ms(tunnel) > now_ms)
        break;
      qv_tunnel_timeout(tunnel);
    }
  }
  return G_SOURCE_CONTINUE;
}

/* ---- listeners */

static gboolean peer_v4(const Address *peer, guint8 bytes[4])
{
  if (peer->any.sa_family == AF_INET) {
    memcpy(bytes, &peer->in.sin_addr, 4);
    return TRUE;
  }
  if (peer->any.sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&peer->in6.sin6_addr))
    return FALSE;
  memcpy(bytes, peer->in6.sin6_addr.s6_addr + 12, 4);
  return TRUE;
}

static gboolean on_accept_again(gpointer user)
{
  QvProxy *proxy = user;
  proxy->accept_again = 0;
  for (guint i = 0; i < proxy->listeners->len; i++)
    qv_loop_again(proxy->loop, g_ptr_array_index(proxy->listeners, i));
  return G_SOURCE_REMOVE;
}

/* Room for one more connection without a token: first goes who was answered, then who has been without a whole head the
 * longest. Who waits for Valkey stays. FALSE: all do. */
static gboolean make_room(QvProxy *proxy)
{
  static const QvWait order[] = {QV_WAIT_LINGER, QV_WAIT_HEAD};
  if (proxy->all.length - proxy->tunnels < proxy->limits.opening)
    return TRUE;
  for (gsize i = 0; i < G_N_ELEMENTS(order); i++) {
    if (proxy->waits[order[i]].head == NULL)
      continue;
    qv_tunnel_drop(proxy->waits[order[i]].head->data);
    return TRUE;
  }
  return FALSE;
}

static void on_connection(QvWatch *watch, guint32 events)
{
  QvProxy *proxy = ((Listener *)watch)->proxy;
  for (guint i = 0; i < ACCEPTS_A_TURN; i++) {
    Address peer = {0};
    guint8 bytes[4];
    socklen_t n = sizeof peer;
    int fd = accept4(watch->fd, &peer.any, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EAGAIN || proxy->draining))
      return;
    if (fd < 0 && errno != ECONNABORTED && errno != EINTR) {
      /* No descriptor or no memory left: others will be given back. */
      if (proxy->accept_again == 0)
        proxy->accept_again = g_timeout_add(ACCEPT_REST_MS, on_accept_again, proxy);
      return;
    }
    if (fd < 0)
      continue;
    if (make_room(proxy)) {
      qv_tunnel_start(proxy, fd, peer_v4(&peer, bytes) ? bytes : NULL);
    } else {
      if (qv_proxy_log_allows(proxy))
        qv_log(QV_LOG_WARNING, "a connection is closed unheard: all that may wait without a token wait for Valkey", NULL);
      close(fd);
    }
  }
  qv_loop_again(proxy->loop, watch);
}

static gboolean parse_where(const char *where, Address *address, socklen_t *n, GError **error)
{
  *address = (Address){0};
  if (g_str_has_prefix(where, "unix:/") && strlen(where + 5) < sizeof address->un.sun_path) {
    address->un.sun_family = AF_UNIX;
    strcpy(address->un.sun_path, where + 5);
    *n = sizeof address->un;
    return TRUE;
  }
  const char *colon = strrchr(where, ':');
  g_autofree char *host = colon != NULL ? g_strndup(where, (gsize)(colon - where)) : NULL;
  guint64 port;
  if (host != NULL && g_ascii_string_to_unsigned(colon + 1, 10, 0, 65535, &port, NULL)) {
    gsize host_n = strlen(host);
    address->in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((guint16)port)};
    *n = sizeof address->in;
    if (inet_pton(AF_INET, host, &address->in.sin_addr) == 1)
      return TRUE;
    if (host_n > 2 && host[0] == '[' && host[host_n - 1] == ']') {
      host[host_n - 1] = '\0';
      *address = (Address){.in6 = {.sin6_family = AF_INET6, .sin6_port = htons((guint16)port)}};
      *n = sizeof address->in6;
      if (inet_pton(AF_INET6, host + 1, &address->in6.sin6_addr) == 1)
        return TRUE;
    }
  }
  g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "'%s' is none of ADDRESS:PORT, [ADDRESS]:PORT, unix:/PATH", where);
  return FALSE;
}

gboolean qv_proxy_where_valid(const char *where, GError **error)
{
  Address address;
  socklen_t n;
  return parse_where(where, &address, &n, error);
}

/* A socket file that nobody listens at any more is in the way of the next one. */
static void remove_stale(const Address *address, socklen_t n)
{
  struct stat info;
  QV_AUTOFD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (lstat(address->un.sun_path, &info) == 0 && S_ISSOCK(info.st_mode) && connect(fd, &address->any, n) != 0 && errno == ECONNREFUSED)
    unlink(address->un.sun_path);
}

static int open_listener(const Address *address, socklen_t n)
{
  const int yes = 1, defer_s = DEFER_ACCEPT_S;
  gboolean local = address->any.sa_family == AF_UNIX;
  QV_AUTOFD int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return -1;
  if (local) {
    remove_stale(address, n);
  } else {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes); /* those that are accepted have it too */
    setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &defer_s, sizeof defer_s);
    qv_side_bound(fd); /* sandboxes are on this host, or beside it */
  }
  /* Who connects needs a token. The runner's job processes have given up what would let root past a mode. */
  if (bind(fd, &address->any, n) != 0 || (local && chmod(address->un.sun_path, 0666) != 0) || listen(fd, BACKLOG) != 0)
    return -1;
  return qv_io_steal(&fd);
}

static void listener_free(gpointer data)
{
  Listener *listener = data;
  qv_loop_close(listener->proxy->loop, &listener->watch);
  if (listener->path != NULL)
    unlink(listener->path);
  g_free(listener->path);
  g_free(listener);
}

gboolean qv_proxy_listen(QvProxy *proxy, const char *where, GError **error)
{
  Address address;
  socklen_t n;
  if (!parse_where(where, &address, &n, error))
    return FALSE;
  int fd = open_listener(&address, n);
  if (fd < 0)
    return qv_error_set_errno(error, errno, "%s", where);
  Listener *listener = g_new0(Listener, 1);
  listener->watch = (QvWatch){.fd = fd, .ready = on_connection};
  listener->proxy = proxy;
  g_ptr_array_add(proxy->listeners, listener);
  if (address.any.sa_family == AF_UNIX) {
    listener->path = g_strdup(address.un.sun_path);
  } else {
    n = sizeof address;
    if (getsockname(fd, &address.any, &n) != 0)
      return qv_error_set_errno(error, errno, "%s", where);
    listener->port = ntohs(address.in.sin_port); /* at the same place in both */
    g_array_append_val(proxy->ports, listener->port);
  }
  return qv_loop_add(proxy->loop, &listener->watch, error);
}

guint16 qv_proxy_port(const QvProxy *proxy, guint i)
{
  return ((Listener *)g_ptr_array_index(proxy->listeners, i))->port;
}

/* ---- life */

QvProxy *qv_proxy_new(const QvProxyLimits *limits, QvRegistries *registries, QvAddress *valkey, const char *prefix,
                      const char *role, GError **error)
{
  static const QvTokensEvents tokens_events = {.cut = on_cut, .ask = on_ask};
  static const QvStoreEvents store_events = {.revoked = on_revoked, .state = on_store_state};
  QvProxy *proxy = g_new0(QvProxy, 1);
  proxy->limits = *limits;
  proxy->registries = registries;
  proxy->ports = g_array_new(FALSE, FALSE, sizeof(guint16));
  proxy->listeners = g_ptr_array_new_with_free_func(listener_free);
  for (guint i = 0; i < QV_WAITS_N; i++)
    g_queue_init(&proxy->waits[i]);
  g_queue_init(&proxy->all);
  proxy->loop = qv_loop_new(error);
  if (proxy->loop != NULL)
    proxy->resolver = qv_resolver_new(proxy->loop, role, error);
  if (proxy->resolver == NULL) {
    qv_proxy_free(proxy);
    return NULL;
  }
  proxy->tokens = qv_tokens_new(&tokens_events, proxy);
  proxy->store = qv_store_new(valkey, prefix, &store_events, proxy);
  proxy->tick = g_timeout_add(QV_TOKEN_TICK_MS, on_tick, proxy);
  return proxy;
}

void qv_proxy_free(QvProxy *proxy)
{
  if (proxy == NULL)
    return;
  while (proxy->all.head != NULL)
    qv_tunnel_drop(proxy->all.head->data);
  if (proxy->tick != 0)
    g_source_remove(proxy->tick);
  if (proxy->accept_again != 0)
    g_source_remove(proxy->accept_again);
  g_ptr_array_unref(proxy->listeners);
  qv_store_free(proxy->store);
  qv_resolver_free(proxy->resolver);
  qv_tokens_free(proxy->tokens);
  qv_registries_free(proxy->registries);
  g_array_unref(proxy->ports);
  qv_loop_free(proxy->loop);
  g_free(proxy);
}

guint qv_proxy_reload(QvProxy *proxy, QvRegistries *registries)
{
  guint n = 0;
  qv_registries_free(proxy->registries);
  proxy->registries = registries;
  for (GList *at = proxy->all.head, *next; at != NULL; at = next) {
    next = at->next;
    QvReason why = qv_tunnel_holds_token(at->data) ? qv_tunnel_review(at->data) : QV_REASON_NONE;
    if (why == QV_REASON_NONE)
      continue;
    qv_tunnel_cut(at->data, why);
    n++;
  }
  return n;
}

void qv_proxy_drain(QvProxy *proxy)
{
  proxy->draining = TRUE;
  g_ptr_array_set_size(proxy->listeners, 0);
}

static void end_token(QvToken *token, gpointer user)
{
  while (token->tunnels.head != NULL)
    qv_tunnel_cut(token->tunnels.head->data, QV_REASON_DRAINING);
  say_usage(user, token, QV_REASON_DRAINING);
}

void qv_proxy_end(QvProxy *proxy)
{
  qv_tokens_foreach(proxy->tokens, end_token, proxy);
  while (proxy->all.head != NULL)
    qv_tunnel_drop(proxy->all.head->data);
}

gboolean qv_proxy_is_idle(const QvProxy *proxy)
{
  return proxy->all.length == 0;
}
