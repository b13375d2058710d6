/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the relay. A connection's life:
 *
 *   DIAL     the proxy is dialled (a unix socket whose queue is full is tried again)
 *   RELAY    bytes both ways, half-close passed on, until both ways are shut. Who answered and hung up has answered: the
 *            other side hears all of it, and what that still says is read and thrown away, for it may say all of it before it
 *            listens, and a close on top of unread bytes is no clean end. So too where the proxy is not there, and the client
 *            was told
 *
 * A way is only read when its buffer is empty: memory is bounded by the number of
 * connections, and a slow side slows the other one. */
#include "runner/relay.h"

#include <errno.h>
#include <glib-unix.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/io.h"
#include "base/limits.h"
#include "base/log.h"

enum { BACKLOG = 128, RETRY_MS = 20, PRIORITY = G_PRIORITY_DEFAULT + 10 };

typedef enum { STATE_DIAL, STATE_RELAY } State;

typedef struct {
  int fd;
  guint source;
  GIOCondition wanted;
} Side;

typedef struct {
  gsize from, to;
  gboolean ended; /* no more will be read */
  gboolean shut;  /* and the other side was told */
  gboolean lost;  /* the other side takes nothing any more: what is read is thrown away */
  char bytes[QV_RELAY_WAY_BYTES];
} Way;

typedef struct {
  QvRelay *relay;
  State state;
  Side client, proxy;
  guint retry; /* timer source */
  Way up, down;
} Conn;

struct QvRelay {
  char *path;
  int listener;
  guint source;
  struct sockaddr_storage to;
  socklen_t to_n;
  GPtrArray *conns; /* of Conn, owned */
  gboolean said;    /* that the proxy cannot be reached: once a job, for the guest decides how often it asks */
};

/* ---- the proxy's address */

static gboolean parse_unix(const char *path, struct sockaddr_storage *to, socklen_t *to_n)
{
  struct sockaddr_un *un = (struct sockaddr_un *)to;
  if (strlen(path) >= sizeof un->sun_path)
    return FALSE;
  un->sun_family = AF_UNIX;
  strcpy(un->sun_path, path);
  *to_n = sizeof *un;
  return TRUE;
}

/* The host of "host:port" or "[v6]:port", and the port's text in *PORT; NULL where it is neither. */
static char *parse_tcp(const char *proxy, const char **port)
{
  const char *colon = strrchr(proxy, ':');
  guint64 number;
  if (colon == NULL || !g_ascii_string_to_unsigned(colon + 1, 10, 1, 65535, &number, NULL))
    return NULL;
  *port = colon + 1;
  gboolean brackets = *proxy == '[' && colon - proxy > 2 && colon[-1] == ']';
  g_autofree char *host = brackets ? g_strndup(proxy + 1, colon - proxy - 2) : g_strndup(proxy, colon - proxy);
  if (*host == '\0' || strpbrk(host, "[]/ ") != NULL || (strchr(host, ':') != NULL) != brackets)
    return NULL;
  return g_steal_pointer(&host);
}

gboolean qv_relay_proxy_check(const char *proxy, GError **error)
{
  struct sockaddr_storage to;
  socklen_t to_n;
  if (*proxy == '/' && parse_unix(proxy, &to, &to_n))
    return TRUE;
  const char *port;
  g_autofree char *host = *proxy != '/' ? parse_tcp(proxy, &port) : NULL;
  if (host != NULL)
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_FORMAT,
              "%s is no address of a proxy: host:port, [IPv6]:port, or the absolute path of a unix socket (at most %zu bytes)",
              proxy, sizeof ((struct sockaddr_un *)NULL)->sun_path - 1);
  return FALSE;
}

static gboolean resolve(QvRelay *relay, const char *proxy, GError **error)
{
  if (!qv_relay_proxy_check(proxy, error))
    return FALSE;
  if (*proxy == '/')
    return parse_unix(proxy, &relay->to, &relay->to_n);
  const char *port;
  g_autofree char *host = parse_tcp(proxy, &port);
  const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
  struct addrinfo *found = NULL;
  int why = getaddrinfo(host, port, &hints, &found);
  if (why != 0) {
    g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "the egress proxy %s: %s", proxy, gai_strerror(why));
    return FALSE;
  }
  memcpy(&relay->to, found->ai_addr, found->ai_addrlen);
  relay->to_n = found->ai_addrlen;
  freeaddrinfo(found);
  return TRUE;
}

/* ---- one connection */

static void listen_again(QvRelay *relay);
static void update(Conn *conn);

static void side_close(Side *side)
{
  g_clear_handle_id(&side->source, g_source_remove);
  qv_io_close_cleanup(&side->fd);
}

static void conn_free(gpointer data)
{
  Conn *conn = data;
  side_close(&conn->client);
  side_close(&conn->proxy);
  g_clear_handle_id(&conn->retry, g_source_remove);
  explicit_bzero(conn, sizeof *conn); /* the first head held the token */
  g_free(conn);
}

static void conn_end(Conn *conn)
{
  QvRelay *relay = conn->relay;
  g_ptr_array_remove_fast(relay->conns, conn);
  listen_again(relay);
}

static void refuse(Conn *conn)
{
  static const char answer[] = "HTTP/1.1 502 Bad Gateway\r\nQuavon-Reason: proxy_unreachable\r\n"
                               "Connection: close\r\nContent-Length: 0\r\n\r\n";
  conn->state = STATE_RELAY;
  conn->up.lost = conn->down.ended = conn->down.shut = TRUE;
  side_close(&conn->proxy);
  (void)!send(conn->client.fd, answer, sizeof answer - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  shutdown(conn->client.fd, SHUT_WR);
}

static gboolean on_retry(gpointer data);

static void dial(Conn *conn)
{
  QvRelay *relay = conn->relay;
  if (conn->proxy.fd < 0)
    conn->proxy.fd = socket(relay->to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (conn->proxy.fd >= 0 && connect(conn->proxy.fd, (struct sockaddr *)&relay->to, relay->to_n) == 0)
    conn->state = STATE_RELAY;
  else if (conn->proxy.fd >= 0 && errno == EAGAIN)
    conn->retry = g_timeout_add_full(PRIORITY, RETRY_MS, on_retry, conn, NULL);
  else if (conn->proxy.fd < 0 || errno != EINPROGRESS) {
    if (!relay->said)
      qv_log(QV_LOG_WARNING, "the egress proxy cannot be reached", "error", g_strerror(errno), NULL);
    relay->said = TRUE;
    refuse(conn);
  }
}

static gboolean on_retry(gpointer data)
{
  Conn *conn = data;
  conn->retry = 0;
  dial(conn);
  update(conn);
  return G_SOURCE_REMOVE;
}

static void dialled(Conn *conn)
{
  int err = 0;
  socklen_t n = sizeof err;
  if (getsockopt(conn->proxy.fd, SOL_SOCKET, SO_ERROR, &err, &n) == 0 && err == 0)
    conn->state = STATE_RELAY;
  else
    refuse(conn);
}

/* What was read of IN: GOT bytes, its end (0), or that it broke. */
static void way_fill(Way *way, ssize_t got)
{
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  way->from = 0;
  way->to = got > 0 ? (gsize)got : 0;
  way->ended = got <= 0;
}

static void way_push(Way *way, int out)
{
  ssize_t put = way->lost ? -1 : send(out, way->bytes + way->from, way->to - way->from, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (put >= 0) {
    way->from += (gsize)put;
  } else if (way->lost || (errno != EAGAIN && errno != EINTR)) {
    way->lost = TRUE;
    way->from = way->to;
  }
}

static gboolean way_wants(const Way *way)
{
  return !way->ended && way->from == way->to;
}

/* One way, from IN to OUT. */
static void way_step(Way *way, int in, int out, gboolean readable)
{
  if (readable && way_wants(way))
    way_fill(way, recv(in, way->bytes, sizeof way->bytes, MSG_DONTWAIT));
  if (way->from < way->to)
    way_push(way, out);
  if (way->ended && way->from == way->to && !way->shut) {
    shutdown(out, SHUT_WR);
    way->shut = TRUE;
  }
}

static void conn_step(Conn *conn, gboolean from_client)
{
  if (conn->state == STATE_DIAL) {
    dialled(conn);
  } else {
    way_step(&conn->up, conn->client.fd, conn->proxy.fd, from_client);
    way_step(&conn->down, conn->proxy.fd, conn->client.fd, !from_client);
  }
  if (conn->up.shut && (conn->down.shut || conn->down.lost))
    conn_end(conn);
  else
    update(conn);
}

static gboolean on_client(int fd, GIOCondition condition, gpointer data)
{
  conn_step(data, TRUE);
  return G_SOURCE_CONTINUE;
}

static gboolean on_proxy(int fd, GIOCondition condition, gpointer data)
{
  conn_step(data, FALSE);
  return G_SOURCE_CONTINUE;
}

/* Nothing asked for is no source at all: a hang-up would be reported without end. */
static void want(Conn *conn, Side *side, GIOCondition wanted, GUnixFDSourceFunc func)
{
  if (side->wanted == wanted)
    return;
  g_clear_handle_id(&side->source, g_source_remove);
  side->wanted = wanted;
  if (wanted != 0)
    side->source = g_unix_fd_add_full(PRIORITY, side->fd, wanted, func, conn, NULL);
}

static GIOCondition relay_wants(const Way *in, const Way *out)
{
  GIOCondition wanted = 0;
  if (way_wants(in))
    wanted |= G_IO_IN;
  if (out->from < out->to)
    wanted |= G_IO_OUT;
  return wanted;
}

static void update(Conn *conn)
{
  GIOCondition client = 0, proxy = 0;
  if (conn->state == STATE_DIAL) {
    proxy = conn->retry == 0 ? G_IO_OUT : 0;
  } else {
    client = relay_wants(&conn->up, &conn->down);
    proxy = relay_wants(&conn->down, &conn->up);
  }
  want(conn, &conn->client, client, on_client);
  if (conn->proxy.fd >= 0)
    want(conn, &conn->proxy, proxy, on_proxy);
}

/* ---- the listener */

static gboolean on_accept(int fd, GIOCondition condition, gpointer data)
{
  QvRelay *relay = data;
  while (relay->conns->len < QV_RELAY_CONNS_MAX) {
    int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0)
      return G_SOURCE_CONTINUE;
    Conn *conn = g_new0(Conn, 1);
    conn->relay = relay;
    conn->client.fd = client;
    conn->proxy.fd = -1;
    g_ptr_array_add(relay->conns, conn);
    dial(conn);
    update(conn);
  }
  relay->source = 0; /* the next end listens again */
  return G_SOURCE_REMOVE;
}

static void listen_again(QvRelay *relay)
{
  if (relay->source == 0)
    relay->source = g_unix_fd_add_full(PRIORITY, relay->listener, G_IO_IN, on_accept, relay, NULL);
}

static gboolean make_listener(QvRelay *relay, GError **error)
{
  struct sockaddr_storage self = {0};
  socklen_t n;
  if (!parse_unix(relay->path, &self, &n)) {
    g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "the path of the egress socket is too long: %s", relay->path);
    return FALSE;
  }
  unlink(relay->path);
  relay->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (relay->listener >= 0 && bind(relay->listener, (struct sockaddr *)&self, n) == 0 &&
      chown(relay->path, QV_SANDBOX_UID, QV_SANDBOX_GID) == 0 && chmod(relay->path, 0600) == 0 &&
      listen(relay->listener, BACKLOG) == 0)
    return TRUE;
  return qv_error_set_errno(error, errno, "the egress socket %s", relay->path);
}

QvRelay *qv_relay_open(const char *path, const char *proxy, GError **error)
{
  g_autoptr(QvRelay) relay = g_new0(QvRelay, 1);
  relay->path = g_strdup(path);
  relay->listener = -1;
  relay->conns = g_ptr_array_new_with_free_func(conn_free);
  if (!resolve(relay, proxy, error) || !make_listener(relay, error))
    return NULL;
  listen_again(relay);
  return g_steal_pointer(&relay);
}

void qv_relay_close(QvRelay *relay)
{
  if (relay == NULL)
    return;
  g_clear_handle_id(&relay->source, g_source_remove);
  g_ptr_array_unref(relay->conns);
  if (relay->listener >= 0) {
    unlink(relay->path);
    close(relay->listener);
  }
  g_free(relay->path);
  g_free(relay);
}

guint qv_relay_conns_n(const QvRelay *relay)
{
  return relay->conns->len;
}
