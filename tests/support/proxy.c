/* SPDX-License-Identifier: Apache-2.0 */
#include "support/proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PAIRS_MAX 64
#define TURN_MS 20
/* To the end of the block. */
#define LOCK(p) G_GNUC_UNUSED g_autoptr(GMutexLocker) locker = g_mutex_locker_new(&(p)->mutex)

/* One direction. Nobody is waited for: a slow reader holds up his own way alone, and it is read on when he has taken all. */
typedef struct {
  GString *held; /* read, and not yet taken */
  gboolean ended, shut; /* no more will come; the other side was told */
} Way;

typedef struct {
  int client, server;
  Way up, down; /* from the client, from the server */
  gboolean client_spoke;
  const QvTestAnswer *answer; /* for the next bytes of the server; NULL: none */
  gboolean hushed;            /* for good */
  GString *heard;  /* NULL: it is not kept */
  gboolean losing; /* the next bytes of the server are thrown away, and then both are closed */
} Pair;

struct QvTestProxy {
  char *path, *target; /* unix */
  char *source;        /* TCP: where its connections come from; NULL for unix */
  guint16 port, target_port;
  int listener;
  GThread *thread;
  GMutex mutex;
  gboolean quit, frozen, cut, trickle;
  char *lose_text, *alter_text, *alter_other, *freeze_text, *first_words;
  guint lose_times, lost_n;
  char *answer_text;
  const QvTestAnswer *answer;
  guint answer_times, answered_n;
  GPtrArray *heard; /* of GString: what each client that has gone said; NULL: it is not kept */
  Pair pairs[PAIRS_MAX];
  guint pairs_n;
};

static struct sockaddr_un address_of(const char *path)
{
  struct sockaddr_un un = { .sun_family = AF_UNIX };
  g_assert_cmpuint(strlen(path), <, sizeof un.sun_path);
  g_strlcpy(un.sun_path, path, sizeof un.sun_path);
  return un;
}

static void close_pair(QvTestProxy *p, guint i)
{
  close(p->pairs[i].client);
  if (p->pairs[i].server >= 0)
    close(p->pairs[i].server);
  g_string_free(p->pairs[i].up.held, TRUE);
  g_string_free(p->pairs[i].down.held, TRUE);
  if (p->pairs[i].heard != NULL)
    g_ptr_array_add(p->heard, p->pairs[i].heard);
  p->pairs[i] = p->pairs[--p->pairs_n];
}

static struct sockaddr_in tcp_address(const char *host, guint16 port)
{
  struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };
  g_assert_cmpint(inet_pton(AF_INET, host, &in.sin_addr), ==, 1);
  return in;
}

/* A descriptor, connected or not: what cannot be reached is closed by the caller. */
static int connect_to_target(QvTestProxy *p, gboolean *connected)
{
  int fd = socket(p->source ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (p->source) {
    struct sockaddr_in from = tcp_address(p->source, 0), to = tcp_address("127.0.0.1", p->target_port);
    *connected = bind(fd, (struct sockaddr *)&from, sizeof from) == 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0;
  } else {
    struct sockaddr_un un = address_of(p->target);
    *connected = connect(fd, (struct sockaddr *)&un, sizeof un) == 0;
  }
  return fd;
}

static void accept_one(QvTestProxy *p)
{
  gboolean connected;
  int client = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
  if (client < 0)
    return;
  int server = connect_to_target(p, &connected);
  if (p->pairs_n == PAIRS_MAX || !connected) {
    close(client);
    close(server);
    return;
  }
  p->pairs[p->pairs_n++] = (Pair){ .client = client, .server = server, .up.held = g_string_new(NULL), .down.held = g_string_new(NULL),
                                   .heard = p->heard != NULL ? g_string_new(NULL) : NULL };
}

static gboolean write_all(int fd, const char *bytes, gsize n)
{
  while (n > 0) {
    gssize w = send(fd, bytes, n, MSG_NOSIGNAL);
    if (w < 0 && errno == EINTR)
      continue;
    if (w <= 0)
      return FALSE;
    bytes += w;
    n -= w;
  }
  return TRUE;
}

/* Unlocked: the client may be the thread that calls us. FALSE: close the pair. */
static gboolean answer_instead(QvTestProxy *p, Pair *pair)
{
  enum { BLOCK_BYTES = 1 << 16 };
  const QvTestAnswer *a = pair->answer;
  pair->answer = NULL;
  p->answered_n++;
  g_mutex_unlock(&p->mutex);
  gboolean fine = write_all(pair->client, a->bytes, a->bytes_n ? a->bytes_n : strlen(a->bytes));
  gsize unit = a->again ? strlen(a->again) : 0, per_block = unit ? BLOCK_BYTES / unit : 0;
  g_autofree char *many = g_malloc(BLOCK_BYTES);
  for (gsize i = 0; i < per_block; i++)
    memcpy(many + i * unit, a->again, unit);
  gboolean quit = FALSE;
  for (guint64 left = unit ? a->again_n : 0; fine && left > 0 && !quit;) {
    guint64 now = MIN(left, per_block);
    fine = write_all(pair->client, many, now * unit);
    left -= now;
    g_mutex_lock(&p->mutex);
    quit = p->quit;
    g_mutex_unlock(&p->mutex);
  }
  g_mutex_lock(&p->mutex);
  pair->hushed = a->after == QV_TEST_AFTER_HUSH;
  return fine && !quit && a->after != QV_TEST_AFTER_HANG_UP;
}

static void alter(QvTestProxy *p, char *bytes, gsize n)
{
  gsize text_n = p->alter_text != NULL ? strlen(p->alter_text) : 0;
  for (char *at = bytes; text_n > 0 && (at = memmem(at, n - (gsize)(at - bytes), p->alter_text, text_n)) != NULL; at += text_n)
    memcpy(at, p->alter_other, text_n);
}

/* Gives what is held, all that is taken now. FALSE: close the pair. */
static gboolean hand_on(QvTestProxy *p, Pair *pair, gboolean from_client)
{
  Way *way = from_client ? &pair->up : &pair->down;
  int to = from_client ? pair->server : pair->client;
  gsize at = 0;
  while (at < way->held->len) {
    gssize n = send(to, way->held->str + at, p->trickle && !from_client ? 1 : way->held->len - at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
      break;
    if (n < 0 && errno != EINTR)
      return FALSE;
    at += (gsize)MAX(n, 0);
  }
  g_string_erase(way->held, 0, (gssize)at);
  if (way->held->len > 0)
    return TRUE;
  if (way->ended && !way->shut)
    shutdown(to, SHUT_WR);
  way->shut = way->ended;
  return !(pair->up.shut && pair->down.shut);
}

static gboolean holds(const char *bytes, gssize n, const char *text)
{
  return text != NULL && memmem(bytes, (gsize)n, text, strlen(text)) != NULL;
}

/* FALSE: close the pair. */
static gboolean move(QvTestProxy *p, Pair *pair, gboolean from_client)
{
  char buffer[1 << 16]; /* there may be several relays */
  int from = from_client ? pair->client : pair->server;
  Way *way = from_client ? &pair->up : &pair->down;
  gssize n = recv(from, buffer, sizeof buffer, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    return TRUE;
  if (n < 0 || (n == 0 && (pair->losing || pair->answer != NULL)))
    return FALSE;
  if (n == 0) {
    way->ended = TRUE;
    return hand_on(p, pair, from_client);
  }
  if (from_client && !pair->client_spoke) {
    g_free(p->first_words);
    p->first_words = g_strndup(buffer, (gsize)n);
    pair->client_spoke = TRUE;
  }
  if (from_client && pair->heard != NULL)
    g_string_append_len(pair->heard, buffer, n);
  if (from_client && holds(buffer, n, p->freeze_text))
    p->frozen = pair->hushed = TRUE;
  if (pair->hushed)
    return TRUE;
  if (!from_client && p->answer_times > 0 && *p->answer_text == '\0') {
    p->answer_times--;
    pair->answer = p->answer;
  }
  if (!from_client && pair->answer)
    return answer_instead(p, pair);
  if (from_client && p->answer_times > 0 && *p->answer_text != '\0' && holds(buffer, n, p->answer_text)) {
    p->answer_times--;
    pair->answer = p->answer;
  }
  if (!from_client && pair->losing) {
    p->lost_n++;
    return FALSE;
  }
  if (from_client && p->lose_times > 0 && holds(buffer, n, p->lose_text)) {
    p->lose_times--;
    pair->losing = TRUE;
  }
  if (!from_client)
    alter(p, buffer, (gsize)n);
  g_string_append_len(way->held, buffer, n);
  return hand_on(p, pair, from_client);
}

/* A side that neither is read nor takes is not asked: its hang-up would be reported without end. */
static struct pollfd listen_to(int fd, const Way *from, const Way *to)
{
  short events = (from->ended || from->held->len > 0 ? 0 : POLLIN) | (to->held->len > 0 ? POLLOUT : 0);
  return (struct pollfd){ events != 0 ? fd : -1, events, 0 };
}

/* What a side of a pair is ready for. FALSE: close the pair. */
static gboolean step(QvTestProxy *p, Pair *pair, gboolean client, short ready)
{
  const Way *from = client ? &pair->up : &pair->down, *to = client ? &pair->down : &pair->up;
  if (p->frozen || ready == 0)
    return TRUE;
  if (to->held->len > 0 && !hand_on(p, pair, !client))
    return FALSE;
  return from->ended || from->held->len > 0 || move(p, pair, client);
}

static gpointer run(gpointer user)
{
  QvTestProxy *p = user;
  for (;;) {
    struct pollfd fds[1 + 2 * PAIRS_MAX] = { { p->listener, POLLIN, 0 } };
    g_mutex_lock(&p->mutex);
    guint n = p->pairs_n;
    for (guint i = 0; i < n; i++) {
      const Pair *pair = &p->pairs[i];
      fds[1 + 2 * i] = listen_to(pair->client, &pair->up, &pair->down);
      fds[2 + 2 * i] = listen_to(pair->server, &pair->down, &pair->up);
    }
    gboolean frozen = p->frozen;
    g_mutex_unlock(&p->mutex);
    if (frozen)
      g_usleep(TURN_MS * 1000);
    else
      poll(fds, 1 + 2 * n, TURN_MS);
    g_mutex_lock(&p->mutex);
    if (p->quit)
      break;
    gboolean cut = p->cut; /* one that comes while an answer is written is the next turn's: some pairs are behind us then */
    p->cut = FALSE;
    for (guint i = n; i-- > 0;)
      if (cut || !step(p, &p->pairs[i], TRUE, fds[1 + 2 * i].revents) || !step(p, &p->pairs[i], FALSE, fds[2 + 2 * i].revents))
        close_pair(p, i);
    if (!p->frozen && fds[0].revents)
      accept_one(p);
    g_mutex_unlock(&p->mutex);
  }
  while (p->pairs_n > 0)
    close_pair(p, 0);
  g_mutex_unlock(&p->mutex);
  return NULL;
}

QvTestProxy *qv_test_proxy_start(const char *dir, const char *target)
{
  QvTestProxy *p = g_new0(QvTestProxy, 1);
  p->path = g_build_filename(dir, "proxy.sock", NULL);
  p->target = g_strdup(target);
  g_mutex_init(&p->mutex);
  struct sockaddr_un un = address_of(p->path);
  p->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(bind(p->listener, (struct sockaddr *)&un, sizeof un), ==, 0);
  g_assert_cmpint(listen(p->listener, 64), ==, 0);
  p->thread = g_thread_new("proxy", run, p);
  return p;
}

QvTestProxy *qv_test_proxy_start_tcp(const char *host, const char *source, guint16 target_port)
{
  QvTestProxy *p = g_new0(QvTestProxy, 1);
  struct sockaddr_in in = tcp_address(host, 0);
  socklen_t len = sizeof in;
  p->source = g_strdup(source);
  p->target_port = target_port;
  g_mutex_init(&p->mutex);
  p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(bind(p->listener, (struct sockaddr *)&in, sizeof in), ==, 0);
  g_assert_cmpint(getsockname(p->listener, (struct sockaddr *)&in, &len), ==, 0);
  g_assert_cmpint(listen(p->listener, 64), ==, 0);
  p->port = ntohs(in.sin_port);
  p->thread = g_thread_new("proxy", run, p);
  return p;
}

void qv_test_proxy_aim(QvTestProxy *p, guint16 target_port)
{
  LOCK(p);
  p->target_port = target_port;
  p->cut = TRUE;
}

guint16 qv_test_proxy_port(const QvTestProxy *p)
{
  return p->port;
}

void qv_test_proxy_free(QvTestProxy *p)
{
  if (!p)
    return;
  g_mutex_lock(&p->mutex);
  p->quit = TRUE;
  g_mutex_unlock(&p->mutex);
  g_thread_join(p->thread);
  close(p->listener);
  if (p->path)
    unlink(p->path);
  g_mutex_clear(&p->mutex);
  g_free(p->path);
  g_free(p->target);
  g_free(p->source);
  g_free(p->lose_text);
  g_free(p->answer_text);
  g_free(p->alter_text);
  g_free(p->alter_other);
  g_free(p->freeze_text);
  g_free(p->first_words);
  g_clear_pointer(&p->heard, g_ptr_array_unref);
  g_free(p);
}

const char *qv_test_proxy_socket(const QvTestProxy *p)
{
  return p->path;
}

void qv_test_proxy_lose_reply_to(QvTestProxy *p, const char *text, guint times)
{
  LOCK(p);
  g_free(p->lose_text);
  p->lose_text = g_strdup(text);
  p->lose_times = times;
}

void qv_test_proxy_alter(QvTestProxy *p, const char *text, const char *other)
{
  g_assert_true(text == NULL || strlen(text) == strlen(other));
  LOCK(p);
  g_free(p->alter_text);
  g_free(p->alter_other);
  p->alter_text = g_strdup(text);
  p->alter_other = g_strdup(other);
}

void qv_test_proxy_trickle(QvTestProxy *p, gboolean trickle)
{
  LOCK(p);
  p->trickle = trickle;
}

guint qv_test_proxy_lost_n(QvTestProxy *p)
{
  LOCK(p);
  return p->lost_n;
}

void qv_test_proxy_answer(QvTestProxy *p, const char *text, const QvTestAnswer *answer, guint times)
{
  LOCK(p);
  g_free(p->answer_text);
  p->answer_text = g_strdup(text);
  p->answer = answer;
  p->answer_times = times;
}

guint qv_test_proxy_answered_n(QvTestProxy *p)
{
  LOCK(p);
  return p->answered_n;
}

void qv_test_proxy_freeze(QvTestProxy *p, gboolean frozen)
{
  LOCK(p);
  p->frozen = frozen;
}

char *qv_test_proxy_first_words(QvTestProxy *p)
{
  LOCK(p);
  return g_strdup(p->first_words);
}

static void free_heard(gpointer heard)
{
  g_string_free(heard, TRUE);
}

void qv_test_proxy_listen(QvTestProxy *p)
{
  LOCK(p);
  p->heard = g_ptr_array_new_with_free_func(free_heard);
}

GPtrArray *qv_test_proxy_heard(QvTestProxy *p)
{
  LOCK(p);
  GPtrArray *all = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
  for (guint i = 0; i < p->heard->len; i++) {
    const GString *heard = p->heard->pdata[i];
    g_ptr_array_add(all, g_bytes_new(heard->str, heard->len));
  }
  for (guint i = 0; i < p->pairs_n; i++)
    if (p->pairs[i].heard != NULL)
      g_ptr_array_add(all, g_bytes_new(p->pairs[i].heard->str, p->pairs[i].heard->len));
  return all;
}

void qv_test_proxy_freeze_at(QvTestProxy *p, const char *text)
{
  LOCK(p);
  g_free(p->freeze_text);
  p->freeze_text = g_strdup(text);
}

gboolean qv_test_proxy_frozen(QvTestProxy *p)
{
  LOCK(p);
  return p->frozen;
}

void qv_test_proxy_cut(QvTestProxy *p)
{
  LOCK(p);
  p->cut = TRUE;
}
