/* SPDX-License-Identifier: Apache-2.0 */
/* A name server (UDP, RFC 1035, one question a message) and listeners that
 * echo, keep silent, or send without end: one thread each, one poll a thread. */
#include "far.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "world.h"

enum { TYPE_A = 1, TYPE_CNAME = 5, TYPE_AAAA = 28, CLASS_IN = 1 };

static GMutex lock;

/* ---- names */

typedef struct {
  char *first, *later; /* "" no such name; NULL: no answer */
  guint asked;         /* A questions */
} Name;

static GHashTable *names; /* name to Name */

static Name *name_of(const char *name)
{
  Name *found = g_hash_table_lookup(names, name);
  if (found == NULL) {
    found = g_new0(Name, 1);
    found->first = g_strdup("");
    g_hash_table_insert(names, g_strdup(name), found);
  }
  return found;
}

void world_name(const char *name, const char *addresses, const char *later)
{
  g_mutex_lock(&lock);
  Name *known = name_of(name);
  g_free(known->first);
  g_free(known->later);
  known->first = g_strdup(addresses);
  known->later = g_strdup(later != NULL ? later : addresses);
  known->asked = 0;
  g_mutex_unlock(&lock);
}

void world_name_silent(const char *name)
{
  world_name(name, NULL, NULL);
}

guint world_lookups(const char *name)
{
  g_mutex_lock(&lock);
  const Name *known = g_hash_table_lookup(names, name);
  guint n = known != NULL ? known->asked : 0;
  g_mutex_unlock(&lock);
  return n;
}

static gint by_text(gconstpointer a, gconstpointer b)
{
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

char *world_asked(void)
{
  g_mutex_lock(&lock);
  g_autoptr(GPtrArray) all = g_ptr_array_new();
  GHashTableIter iter;
  gpointer key, value;
  g_hash_table_iter_init(&iter, names);
  while (g_hash_table_iter_next(&iter, &key, &value))
    if (((Name *)value)->asked > 0)
      g_ptr_array_add(all, key);
  g_ptr_array_sort(all, by_text);
  g_ptr_array_add(all, NULL);
  char *text = g_strjoinv(" ", (char **)all->pdata);
  g_mutex_unlock(&lock);
  return text;
}

static void put16(GByteArray *to, guint value)
{
  g_byte_array_append(to, (const guint8[2]){(guint8)(value >> 8), (guint8)value}, 2);
}

static void put_record(GByteArray *to, guint type, const void *bytes, guint n)
{
  put16(to, 0xc00c); /* the question's name */
  put16(to, type);
  put16(to, CLASS_IN);
  put16(to, 0);
  put16(to, 0); /* TTL 0 */
  put16(to, n);
  g_byte_array_append(to, bytes, n);
}

static void put_alias(GByteArray *to, const char *name)
{
  g_autoptr(GByteArray) bytes = g_byte_array_new();
  g_auto(GStrv) labels = g_strsplit(name, ".", -1);
  for (guint i = 0; labels[i] != NULL; i++) {
    g_byte_array_append(bytes, (const guint8[1]){(guint8)strlen(labels[i])}, 1);
    g_byte_array_append(bytes, (const guint8 *)labels[i], (guint)strlen(labels[i]));
  }
  g_byte_array_append(bytes, (const guint8 *)"", 1);
  put_record(to, TYPE_CNAME, bytes->data, bytes->len);
}

/* The addresses of the question's type, behind an alias under the target's own name. */
static guint put_addresses(GByteArray *to, const char *addresses, guint type, gboolean behind_alias, const char *alias)
{
  g_auto(GStrv) all = g_strsplit(addresses, " ", -1);
  guint n = 0;
  for (guint i = 0; all[i] != NULL && all[i][0] != '\0'; i++) {
    guint8 bytes[16];
    gboolean v6 = strchr(all[i], ':') != NULL;
    if (v6 != (type == TYPE_AAAA))
      continue;
    g_assert_cmpint(inet_pton(v6 ? AF_INET6 : AF_INET, all[i], bytes), ==, 1);
    if (behind_alias) {
      g_auto(GStrv) labels = g_strsplit(alias, ".", -1);
      for (guint j = 0; labels[j] != NULL; j++) {
        g_byte_array_append(to, (const guint8[1]){(guint8)strlen(labels[j])}, 1);
        g_byte_array_append(to, (const guint8 *)labels[j], (guint)strlen(labels[j]));
      }
      g_byte_array_append(to, (const guint8 *)"", 1);
      put16(to, type);
      put16(to, CLASS_IN);
      put16(to, 0);
      put16(to, 0);
      put16(to, v6 ? 16 : 4);
      g_byte_array_append(to, bytes, v6 ? 16 : 4);
    } else {
      put_record(to, type, bytes, v6 ? 16 : 4);
    }
    n++;
  }
  return n;
}

/* The answer to QUESTION, NULL for none. */
static GByteArray *answer_to(const guint8 *question, gsize n)
{
  g_autoptr(GString) name = g_string_new(NULL);
  gsize at = 12;
  while (at < n && question[at] != 0 && at + question[at] + 1 < n) {
    if (name->len > 0)
      g_string_append_c(name, '.');
    g_string_append_len(name, (const char *)question + at + 1, question[at]);
    at += question[at] + 1u;
  }
  if (at + 5 > n)
    return NULL;
  guint type = (guint)question[at + 1] << 8 | question[at + 2];
  g_mutex_lock(&lock);
  Name *known = name_of(name->str);
  known->asked += type == TYPE_A;
  /* A and AAAA of one look-up are asked together: the count of A questions tells the look-ups. */
  g_autofree char *addresses = g_strdup(known->asked > 1 ? known->later : known->first);
  g_autofree char *alias = addresses != NULL && g_str_has_prefix(addresses, "alias ") ? g_strdup(addresses + 6) : NULL;
  if (alias != NULL) {
    g_free(addresses);
    addresses = g_strdup(name_of(alias)->first);
  }
  g_mutex_unlock(&lock);
  if (addresses == NULL)
    return NULL;
  GByteArray *reply = g_byte_array_new();
  g_byte_array_append(reply, question, 2);
  put16(reply, 0x8180u | (addresses[0] == '\0' ? 3 : 0)); /* NXDOMAIN */
  put16(reply, 1);
  gsize count_at = reply->len;
  put16(reply, 0);
  put16(reply, 0);
  put16(reply, 0);
  g_byte_array_append(reply, question + 12, (guint)(at + 5 - 12));
  guint records = 0;
  if (alias != NULL) {
    put_alias(reply, alias);
    records++;
  }
  records += put_addresses(reply, addresses, type, alias != NULL, alias);
  reply->data[count_at + 1] = (guint8)records;
  return reply;
}

static gpointer serve_names(gpointer data)
{
  int fd = GPOINTER_TO_INT(data);
  for (;;) {
    guint8 question[512];
    struct sockaddr_in from;
    socklen_t from_n = sizeof from;
    ssize_t n = recvfrom(fd, question, sizeof question, 0, (struct sockaddr *)&from, &from_n);
    if (n < 17)
      continue;
    GByteArray *reply = answer_to(question, (gsize)n);
    if (reply == NULL)
      continue;
    sendto(fd, reply->data, reply->len, 0, (struct sockaddr *)&from, from_n);
    g_byte_array_unref(reply);
  }
  return NULL;
}

/* ---- the far side */

enum { ECHO_PORT = 443, OTHER_PORT = 8443, SILENT_PORT = 444, ENDLESS_PORT = 445, HELD_BYTES = 256 * 1024 };

typedef struct {
  int fd;
  gboolean listens, ended;
  guint16 port;
  gsize from, to;
  char held[HELD_BYTES];
} End;

static guint arrivals;
static GPtrArray *ends; /* all that are open: epoll alone would hold them */

static End *end_new(int fd, guint16 port)
{
  End *end = g_new(End, 1);
  memset(end, 0, offsetof(End, held));
  end->fd = fd;
  end->port = port;
  g_ptr_array_add(ends, end);
  return end;
}

static void watch(int epoll, End *end, guint32 events, int how)
{
  struct epoll_event event = {.events = events, .data.ptr = end};
  g_assert_cmpint(epoll_ctl(epoll, how, end->fd, &event), ==, 0);
}

static void accept_one(int epoll, const End *listener)
{
  int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0)
    return;
  g_atomic_int_inc((gint *)&arrivals);
  End *end = end_new(fd, listener->port);
  watch(epoll, end, end->port == SILENT_PORT ? 0 : EPOLLIN | (end->port == ENDLESS_PORT ? EPOLLOUT : 0), EPOLL_CTL_ADD);
}

static void end_close(int epoll, End *end)
{
  /* A program that is being started elsewhere in this process may hold a copy: the close alone would not take it out. */
  epoll_ctl(epoll, EPOLL_CTL_DEL, end->fd, NULL);
  close(end->fd);
  g_ptr_array_remove_fast(ends, end);
  g_free(end);
}

/* Echoes; what cannot be sent yet is held. FALSE: over. */
static gboolean echo(int epoll, End *end)
{
  if (end->from == end->to && !end->ended) {
    ssize_t n = recv(end->fd, end->held, sizeof end->held, 0);
    if (n < 0 && errno != EAGAIN)
      return FALSE;
    end->from = 0;
    end->to = n > 0 ? (gsize)n : 0;
    end->ended = n == 0;
  }
  while (end->from < end->to) {
    ssize_t n = send(end->fd, end->held + end->from, end->to - end->from, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN)
      return FALSE;
    if (n < 0)
      break;
    end->from += (gsize)n;
  }
  watch(epoll, end, end->from < end->to ? EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD);
  return !(end->ended && end->from == end->to);
}

static gboolean endless(End *end)
{
  static const char zeros[65536];
  char drop[4096];
  if (recv(end->fd, drop, sizeof drop, 0) == 0)
    return FALSE;
  return send(end->fd, zeros, sizeof zeros, MSG_NOSIGNAL) >= 0 || errno == EAGAIN;
}

static gpointer serve_ends(gpointer data)
{
  int epoll = GPOINTER_TO_INT(data);
  for (;;) {
    struct epoll_event events[64];
    int n = epoll_wait(epoll, events, G_N_ELEMENTS(events), -1);
    for (int i = 0; i < n; i++) {
      End *end = events[i].data.ptr;
      if (end->listens)
        accept_one(epoll, end);
      else if (end->port == SILENT_PORT ? (events[i].events & (EPOLLHUP | EPOLLERR)) != 0
               : end->port == ENDLESS_PORT ? !endless(end)
                                           : !echo(epoll, end))
        end_close(epoll, end);
    }
  }
  return NULL;
}

static void listen_at(int epoll, const char *address, guint16 port)
{
  const int yes = 1;
  gboolean v6 = strchr(address, ':') != NULL;
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
  struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
  inet_pton(v6 ? AF_INET6 : AF_INET, address, v6 ? (void *)&in6.sin6_addr : (void *)&in.sin_addr);
  int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(fd, v6 ? (struct sockaddr *)&in6 : (struct sockaddr *)&in, v6 ? sizeof in6 : sizeof in) != 0 || listen(fd, 4096) != 0)
    g_error("%s:%u: %s", address, port, g_strerror(errno));
  End *end = end_new(fd, port);
  end->listens = TRUE;
  watch(epoll, end, EPOLLIN, EPOLL_CTL_ADD);
}

/* A listener whose queue is full: who connects is not answered. */
static void stall_at(const char *address, guint16 port)
{
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = inet_addr(address)};
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listener, (struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 0) != 0)
    g_error("%s:%u: %s", address, port, g_strerror(errno));
  for (guint i = 0; i < 4; i++) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)!connect(fd, (struct sockaddr *)&at, sizeof at);
  }
}

static const char *const addresses[] = {W_PUBLIC, W_PUBLIC6, W_PRIVATE, "127.0.0.1", "fd00::7", "169.254.169.254"};
static guint barriers; /* connections of world_arrivals itself */

/* A listener accepts in order: when a connection of ours was accepted, all before it were. */
guint world_arrivals(void)
{
  for (gsize i = 0; i < G_N_ELEMENTS(addresses); i++) {
    char byte = 'b';
    gboolean v6 = strchr(addresses[i], ':') != NULL;
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(ECHO_PORT)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(ECHO_PORT)};
    inet_pton(v6 ? AF_INET6 : AF_INET, addresses[i], v6 ? (void *)&in6.sin6_addr : (void *)&in.sin_addr);
    int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, v6 ? (struct sockaddr *)&in6 : (struct sockaddr *)&in, v6 ? sizeof in6 : sizeof in) != 0 ||
        send(fd, &byte, 1, MSG_NOSIGNAL) != 1 || recv(fd, &byte, 1, 0) != 1)
      g_error("%s: %s", addresses[i], g_strerror(errno));
    close(fd);
    barriers++;
  }
  return (guint)g_atomic_int_get((gint *)&arrivals) - barriers;
}

void far_start(void)
{
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(53), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0)
    g_error("the name server's socket: %s", g_strerror(errno));
  names = g_hash_table_new(g_str_hash, g_str_equal);
  g_thread_unref(g_thread_new("names", serve_names, GINT_TO_POINTER(fd)));
  int epoll = epoll_create1(EPOLL_CLOEXEC);
  ends = g_ptr_array_new();
  static const guint16 ports[] = {ECHO_PORT, OTHER_PORT, SILENT_PORT, ENDLESS_PORT};
  for (gsize i = 0; i < G_N_ELEMENTS(addresses); i++)
    for (gsize j = 0; j < G_N_ELEMENTS(ports); j++)
      listen_at(epoll, addresses[i], ports[j]);
  stall_at(W_PUBLIC, W_STALLED_PORT);
  g_thread_unref(g_thread_new("far", serve_ends, GINT_TO_POINTER(epoll)));
}
