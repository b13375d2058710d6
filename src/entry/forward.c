/* SPDX-License-Identifier: Apache-2.0 */
/* A connection's life:
 *
 *   HEAD      the client's first head is read, up to its empty line
 *   CONNECT   the proxy is dialled (a unix socket whose queue is full is tried again)
 *   RELAY     bytes both ways, half-close passed on, until both ways are shut. A proxy that answered and hung up has
 *             answered: the client hears all of it, and what the client still says is read and thrown away, for a
 *             close on top of unread bytes would take the answer back
 *
 * Every socket is non-blocking: a slow client or proxy never holds up the loop
 * that watches the step's clock. A way is only read when its buffer is
 * empty, so memory is bounded by the number of connections. */
#include "entry/forward.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/base64.h"
#include "base/io.h"
#include "entry/answer.h"

enum {
  WAY_BYTES = QV_ENTRY_FORWARD_HEAD_BYTES_MAX + 1024, /* a head and what is put into it */
  RETRY_MS = 20,
  CREDENTIALS_BYTES = QV_BASE64_LEN(QV_ENTRY_FORWARD_TOKEN_BYTES_MAX + 8) + 1,
};

typedef enum { STATE_HEAD, STATE_DIAL, STATE_CONNECT, STATE_RELAY, STATE_DEAD } State;

typedef struct {
  size_t from, to;
  bool ended; /* no more will be read */
  bool shut;  /* and the other side was told */
  bool lost;  /* the other side takes nothing any more: what is read is thrown away */
  char bytes[WAY_BYTES];
} Way;

typedef struct {
  State state;
  int client, proxy;
  Way up, down;
  QvEntryAnswer answer;
} Conn;

struct QvEntryForward {
  int listener;
  uint16_t port;
  union {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_un un;
  } to;
  socklen_t to_n;
  char credentials[CREDENTIALS_BYTES];
  QvEntryRing *log; /* or NULL */
  size_t notes_n;
  char *notes[QV_ENTRY_FORWARD_NOTES_MAX];
  size_t conns_n;
  Conn *conns[QV_ENTRY_FORWARD_CONNS_MAX];
};

static bool set_address(QvEntryForward *forward, const char *address)
{
  const char *colon = strrchr(address, ':');
  char host[INET_ADDRSTRLEN];
  if (!colon || (size_t)(colon - address) >= sizeof host)
    return false;
  memcpy(host, address, (size_t)(colon - address));
  host[colon - address] = '\0';
  char *end;
  unsigned long port = strtoul(colon + 1, &end, 10);
  if (colon[1] < '1' || colon[1] > '9' || *end != '\0' || port > 65535)
    return false;
  forward->to.in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  forward->to_n = sizeof forward->to.in;
  return inet_pton(AF_INET, host, &forward->to.in.sin_addr) == 1;
}

static bool set_socket(QvEntryForward *forward, const char *path)
{
  forward->to.un = (struct sockaddr_un){.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof forward->to.un.sun_path)
    return false;
  strcpy(forward->to.un.sun_path, path);
  forward->to_n = sizeof forward->to.un;
  return true;
}

static int listen_loopback(uint16_t *port)
{
  QV_AUTOFD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  struct sockaddr_in self = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof self;
  if (fd < 0 || bind(fd, (struct sockaddr *)&self, sizeof self) != 0 || listen(fd, 128) != 0 ||
      getsockname(fd, (struct sockaddr *)&self, &n) != 0)
    return -1;
  *port = ntohs(self.sin_port);
  return qv_io_steal(&fd);
}

QvEntryForward *qv_entry_forward_open(const char *token, const char *address, const char *socket_path)
{
  char login[QV_ENTRY_FORWARD_TOKEN_BYTES_MAX + 8];
  QvEntryForward *forward = calloc(1, sizeof *forward);
  if (!forward)
    return NULL;
  forward->listener = -1;
  bool valid = (address ? set_address(forward, address) : set_socket(forward, socket_path)) &&
               strlen(token) <= QV_ENTRY_FORWARD_TOKEN_BYTES_MAX;
  if (valid) {
    int n = snprintf(login, sizeof login, "job:%s", token);
    qv_base64_encode(login, (size_t)n, forward->credentials);
    explicit_bzero(login, sizeof login);
    forward->listener = listen_loopback(&forward->port);
  } else {
    errno = EINVAL;
  }
  if (forward->listener < 0) {
    int saved = errno;
    qv_entry_forward_close(forward);
    errno = saved;
    return NULL;
  }
  return forward;
}

uint16_t qv_entry_forward_port(const QvEntryForward *forward)
{
  return forward->port;
}

socklen_t qv_entry_forward_to(const QvEntryForward *forward, struct sockaddr_storage *to)
{
  memcpy(to, &forward->to, forward->to_n);
  return forward->to_n;
}

/* ---- what is told of refusals */

void qv_entry_forward_set_log(QvEntryForward *forward, QvEntryRing *log)
{
  forward->log = log;
}

/* On a line of its own, whatever the step printed last. */
static void note(QvEntryForward *forward, const char *line)
{
  QvEntryRing *log = forward->log;
  for (size_t i = 0; i < forward->notes_n; i++)
    if (strcmp(forward->notes[i], line) == 0)
      return;
  if (!log || forward->notes_n == QV_ENTRY_FORWARD_NOTES_MAX)
    return;
  char *copy = strdup(line);
  if (!copy)
    return;
  forward->notes[forward->notes_n++] = copy;
  if (log->total > 0 && log->bytes[(log->total - 1) % log->cap] != '\n')
    qv_entry_ring_append(log, "\n", 1);
  qv_entry_ring_append(log, line, strlen(line));
}

static void hear(QvEntryForward *forward, Conn *conn, const char *bytes, size_t n)
{
  char line[QV_ENTRY_ANSWER_LINE_MAX];
  if (qv_entry_answer_feed(&conn->answer, bytes, n, line))
    note(forward, line);
}

static void hear_end(QvEntryForward *forward, Conn *conn)
{
  char line[QV_ENTRY_ANSWER_LINE_MAX];
  if (*conn->answer.target && qv_entry_answer_end(&conn->answer, line))
    note(forward, line);
}

void qv_entry_forward_flush_log(QvEntryForward *forward)
{
  for (size_t i = 0; i < forward->conns_n; i++)
    hear_end(forward, forward->conns[i]);
}

static void conn_free(Conn *conn)
{
  qv_io_close_cleanup(&conn->client);
  qv_io_close_cleanup(&conn->proxy);
  explicit_bzero(conn, sizeof *conn);
  free(conn);
}

void qv_entry_forward_close(QvEntryForward *forward)
{
  if (!forward)
    return;
  for (size_t i = 0; i < forward->conns_n; i++)
    conn_free(forward->conns[i]);
  for (size_t i = 0; i < forward->notes_n; i++)
    free(forward->notes[i]);
  qv_io_close_cleanup(&forward->listener);
  explicit_bzero(forward, sizeof *forward);
  free(forward);
}

size_t qv_entry_forward_head(const char *head, size_t head_n, const char *credentials, char *out)
{
  static const char name[] = "Proxy-Authorization:";
  char *to = out;
  const char *end = head + head_n;
  bool first = true;
  while (head < end) {
    const char *lf = memchr(head, '\n', (size_t)(end - head));
    size_t n = lf ? (size_t)(lf - head) + 1 : (size_t)(end - head);
    bool theirs = !first && n >= sizeof name - 1 && strncasecmp(head, name, sizeof name - 1) == 0;
    if (!theirs) {
      memcpy(to, head, n);
      to += n;
    }
    if (first)
      to += sprintf(to, "%s Basic %s\r\n", name, credentials);
    first = false;
    head += n;
  }
  return (size_t)(to - out);
}

/* What the client hears where the proxy cannot be reached, or sent no head. */
static void refuse(QvEntryForward *forward, Conn *conn, const char *status, const char *code)
{
  char answer[160];
  int n = snprintf(answer, sizeof answer, "HTTP/1.1 %s\r\nQuavon-Reason: %s\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
                   status, code);
  if (*conn->answer.target)
    hear(forward, conn, answer, (size_t)n);
  (void)!send(conn->client, answer, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
  conn->state = STATE_DEAD;
}

static void dial(QvEntryForward *forward, Conn *conn)
{
  if (conn->proxy < 0)
    conn->proxy = socket(forward->to.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (conn->proxy >= 0 && connect(conn->proxy, &forward->to.any, forward->to_n) == 0)
    conn->state = STATE_RELAY;
  else if (conn->proxy >= 0 && errno == EINPROGRESS)
    conn->state = STATE_CONNECT;
  else if (conn->proxy >= 0 && errno == EAGAIN)
    conn->state = STATE_DIAL;
  else
    refuse(forward, conn, "502 Bad Gateway", "proxy_unreachable");
}

static void dialled(QvEntryForward *forward, Conn *conn)
{
  int err = 0;
  socklen_t n = sizeof err;
  if (getsockopt(conn->proxy, SOL_SOCKET, SO_ERROR, &err, &n) == 0 && err == 0)
    conn->state = STATE_RELAY;
  else
    refuse(forward, conn, "502 Bad Gateway", "proxy_unreachable");
}

static void head_step(QvEntryForward *forward, Conn *conn)
{
  Way *up = &conn->up;
  ssize_t got = recv(conn->client, up->bytes + up->to, QV_ENTRY_FORWARD_HEAD_BYTES_MAX - up->to, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (got <= 0) {
    conn->state = STATE_DEAD;
    return;
  }
  up->to += (size_t)got;
  const char *end = memmem(up->bytes, up->to, "\r\n\r\n", 4);
  if (!end) {
    if (up->to == QV_ENTRY_FORWARD_HEAD_BYTES_MAX)
      refuse(forward, conn, "431 Request Header Fields Too Large", "head_too_long");
    return;
  }
  char whole[WAY_BYTES];
  size_t head_n = (size_t)(end - up->bytes) + 4;
  qv_entry_answer_init(&conn->answer, up->bytes, head_n);
  size_t n = qv_entry_forward_head(up->bytes, head_n, forward->credentials, whole);
  size_t rest = up->to - head_n;
  memcpy(whole + n, up->bytes + head_n, rest);
  memcpy(up->bytes, whole, n + rest);
  up->to = n + rest;
  explicit_bzero(whole, sizeof whole);
  conn->state = STATE_DIAL;
  dial(forward, conn);
}

/* What was in it may hold the token: it does not stay. */
static void way_wipe(Way *way, size_t n)
{
  explicit_bzero(way->bytes + way->from, n);
  way->from += n;
}

static void way_push(Way *way, int out)
{
  ssize_t put = way->lost ? -1 : send(out, way->bytes + way->from, way->to - way->from, MSG_NOSIGNAL);
  if (put >= 0) {
    way_wipe(way, (size_t)put);
  } else if (way->lost || (errno != EAGAIN && errno != EINTR)) {
    way->lost = true;
    way_wipe(way, way->to - way->from);
  }
}

/* What was read of IN: GOT bytes, its end (0), or that it broke. */
static void way_fill(Way *way, ssize_t got)
{
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  way->from = 0;
  way->to = got > 0 ? (size_t)got : 0;
  way->ended = got <= 0;
}

static bool way_wants(const Way *way)
{
  return !way->ended && way->from == way->to;
}

/* One way, from IN to OUT. */
static void way_step(Way *way, int in, int out, bool readable)
{
  if (readable && way_wants(way))
    way_fill(way, recv(in, way->bytes, sizeof way->bytes, 0));
  if (way->from < way->to)
    way_push(way, out);
  if (way->ended && way->from == way->to && !way->shut) {
    shutdown(out, SHUT_WR);
    way->shut = true;
  }
}

static void down_step(QvEntryForward *forward, Conn *conn, bool readable)
{
  Way *down = &conn->down;
  /* Heard before it is passed on: a client may end its step at once. */
  if (!conn->answer.decided && readable && way_wants(down)) {
    way_fill(down, recv(conn->proxy, down->bytes, sizeof down->bytes, 0));
    readable = false;
    if (down->from < down->to)
      hear(forward, conn, down->bytes, down->to);
    else if (down->ended)
      hear_end(forward, conn);
  }
  way_step(down, conn->proxy, conn->client, readable);
}

static void conn_step(QvEntryForward *forward, Conn *conn, short client, short proxy)
{
  const short ready = POLLIN | POLLHUP | POLLERR;
  switch (conn->state) {
  case STATE_HEAD:
    if (client & ready)
      head_step(forward, conn);
    break;
  case STATE_DIAL:
    dial(forward, conn);
    break;
  case STATE_CONNECT:
    if (proxy)
      dialled(forward, conn);
    break;
  case STATE_RELAY:
    way_step(&conn->up, conn->client, conn->proxy, client & ready);
    down_step(forward, conn, proxy & ready);
    if (conn->up.shut && (conn->down.shut || conn->down.lost))
      conn->state = STATE_DEAD;
    break;
  case STATE_DEAD:
    break;
  }
}

static void accept_all(QvEntryForward *forward)
{
  while (forward->conns_n < QV_ENTRY_FORWARD_CONNS_MAX) {
    QV_AUTOFD int fd = accept4(forward->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    Conn *conn = fd >= 0 ? calloc(1, sizeof *conn) : NULL;
    if (!conn)
      return;
    conn->client = qv_io_steal(&fd);
    conn->proxy = -1;
    forward->conns[forward->conns_n++] = conn;
  }
}

/* Nothing asked for is a negative descriptor: poll would report a hang-up
 * of it without end. */
static struct pollfd want(int fd, short events)
{
  return (struct pollfd){.fd = events ? fd : -1, .events = events};
}

static short relay_events(const Way *in, const Way *out)
{
  short events = 0;
  if (way_wants(in))
    events |= POLLIN;
  if (out->from < out->to)
    events |= POLLOUT;
  return events;
}

size_t qv_entry_forward_fds(QvEntryForward *forward, struct pollfd *fds)
{
  size_t n = 0;
  fds[n++] = want(forward->listener, forward->conns_n < QV_ENTRY_FORWARD_CONNS_MAX ? POLLIN : 0);
  for (size_t i = 0; i < forward->conns_n; i++) {
    const Conn *conn = forward->conns[i];
    short client = 0, proxy = 0;
    if (conn->state == STATE_HEAD) {
      client = POLLIN;
    } else if (conn->state == STATE_CONNECT) {
      proxy = POLLOUT;
    } else if (conn->state == STATE_RELAY) {
      client = relay_events(&conn->up, &conn->down);
      proxy = relay_events(&conn->down, &conn->up);
    }
    fds[n++] = want(conn->client, client);
    fds[n++] = want(conn->proxy, proxy);
  }
  return n;
}

int qv_entry_forward_timeout_ms(const QvEntryForward *forward)
{
  for (size_t i = 0; i < forward->conns_n; i++)
    if (forward->conns[i]->state == STATE_DIAL)
      return RETRY_MS;
  return -1;
}

void qv_entry_forward_step(QvEntryForward *forward, const struct pollfd *fds, size_t n)
{
  size_t polled = (n - 1) / 2;
  for (size_t i = 0; i < polled; i++)
    conn_step(forward, forward->conns[i], fds[1 + 2 * i].revents, fds[2 + 2 * i].revents);
  size_t kept = 0;
  for (size_t i = 0; i < forward->conns_n; i++) {
    Conn *conn = forward->conns[i];
    if (conn->state == STATE_DEAD) {
      hear_end(forward, conn);
      conn_free(conn);
    } else {
      forward->conns[kept++] = conn;
    }
  }
  forward->conns_n = kept;
  if (fds[0].revents)
    accept_all(forward);
}
