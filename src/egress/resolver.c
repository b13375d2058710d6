/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the resolver processes and the answers. Questions and answers are one
 * message each on a SEQPACKET pair, whose other end all processes share: whoever is free takes the next one. */
#include "egress/resolver.h"

#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"

enum { NAME_BYTES = 256, RESPAWN_MS = 1000 };

typedef struct {
  guint32 id;
  char name[NAME_BYTES];
} Question;

typedef struct {
  guint32 id;
  QvIps ips;
} Answer;

typedef struct {
  QvResolverFunc func;
  gpointer user;
} Waiter;

typedef struct {
  char *name;
  guint32 id;        /* of the question in flight, 0: none */
  gint64 asked_ms, answered_ms;
  QvIps ips;
  GArray *waiters;
} Entry;

struct QvResolver {
  QvWatch watch; /* first: it is the resolver */
  QvLoop *loop;
  char *role;
  int others; /* the processes' end, for new ones */
  GPid pids[QV_RESOLVER_PROCESSES];
  guint children[QV_RESOLVER_PROCESSES], respawns[QV_RESOLVER_PROCESSES];
  GHashTable *by_name, *by_id, *by_user;
  guint32 last_id;
};

static void entry_free(gpointer data)
{
  Entry *entry = data;
  g_array_unref(entry->waiters);
  g_free(entry->name);
  g_free(entry);
}

/* ---- the processes */

static void start(QvResolver *resolver, guint i);

typedef struct {
  QvResolver *resolver;
  guint i;
} Child;

static gboolean on_respawn(gpointer data)
{
  Child *child = data;
  child->resolver->respawns[child->i] = 0;
  start(child->resolver, child->i);
  return G_SOURCE_REMOVE;
}

static void respawn_later(QvResolver *resolver, guint i)
{
  Child *child = g_new(Child, 1);
  *child = (Child){resolver, i};
  resolver->respawns[i] = g_timeout_add_full(G_PRIORITY_DEFAULT, RESPAWN_MS, on_respawn, child, g_free);
}

static void on_child_end(GPid pid, int status, gpointer data)
{
  Child *child = data;
  QvResolver *resolver = child->resolver;
  g_autofree char *text = g_strdup_printf("%d", status);
  qv_log(QV_LOG_WARNING, "a resolver process ended and is started again", "waitStatus", text, NULL);
  resolver->children[child->i] = 0;
  resolver->pids[child->i] = 0;
  respawn_later(resolver, child->i);
}

static void start(QvResolver *resolver, guint i)
{
  /* No variable of ours goes along: VALKEY_URL has a password. An empty LOCALDOMAIN is an empty search list. */
  const char *options = g_getenv("RES_OPTIONS");
  g_autofree char *res_options = g_strconcat("RES_OPTIONS=", options != NULL ? options : "timeout:2 attempts:2", NULL);
  const char *environment[] = {"LOCALDOMAIN=", res_options, "LC_ALL=C", NULL};
  const char *argv[] = {"/proc/self/exe", resolver->role, NULL};
  const int to = QV_RESOLVER_FD;
  g_autoptr(GError) error = NULL;
  if (!g_spawn_async_with_pipes_and_fds(NULL, argv, environment, G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_STDOUT_TO_DEV_NULL, NULL,
                                        NULL, -1, -1, -1, &resolver->others, &to, 1, &resolver->pids[i], NULL, NULL, NULL,
                                        &error)) {
    qv_log(QV_LOG_ERROR, "a resolver process cannot be started", "error", error->message, NULL);
    resolver->pids[i] = 0;
    respawn_later(resolver, i);
    return;
  }
  Child *child = g_new(Child, 1);
  *child = (Child){resolver, i};
  resolver->children[i] = g_child_watch_add_full(G_PRIORITY_DEFAULT, resolver->pids[i], on_child_end, child, g_free);
}

static void lookup(const char *name, QvIps *ips)
{
  const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  struct addrinfo *found = NULL;
  ips->n = 0;
  if (getaddrinfo(name, NULL, &hints, &found) != 0)
    return;
  for (const struct addrinfo *one = found; one != NULL; one = one->ai_next) {
    if (ips->n == QV_RESOLVER_IPS_MAX) {
      ips->n++;
      break;
    }
    QvIp *ip = &ips->ips[ips->n];
    *ip = (QvIp){.v6 = one->ai_family == AF_INET6};
    if (one->ai_family == AF_INET)
      memcpy(ip->bytes, &((const struct sockaddr_in *)one->ai_addr)->sin_addr, 4);
    else if (one->ai_family == AF_INET6)
      memcpy(ip->bytes, &((const struct sockaddr_in6 *)one->ai_addr)->sin6_addr, 16);
    else
      continue;
    ips->n++;
  }
  freeaddrinfo(found);
}

int qv_resolver_role_main(void)
{
  Question question;
  const struct rlimit none = {0, 0};
  prctl(PR_SET_NAME, "quavon-resolver");
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  setrlimit(RLIMIT_CORE, &none);
  signal(SIGHUP, SIG_IGN);
  signal(SIGTERM, SIG_IGN); /* to the whole group: the proxy still drains; it closes the socket at its end */
  signal(SIGINT, SIG_IGN);
  for (;;) {
    ssize_t n = recv(QV_RESOLVER_FD, &question, sizeof question, 0);
    if (n < 0 && errno == EINTR)
      continue;
    if (n != sizeof question)
      return n == 0 ? 0 : 1;
    Answer answer = {.id = question.id};
    question.name[NAME_BYTES - 1] = '\0';
    lookup(question.name, &answer.ips);
    if (send(QV_RESOLVER_FD, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer)
      return 1;
  }
}

/* ---- questions and answers */

static void answer(QvResolver *resolver, Entry *entry)
{
  GArray *waiters = g_steal_pointer(&entry->waiters);
  QvIps ips = entry->ips;
  entry->waiters = g_array_new(FALSE, FALSE, sizeof(Waiter));
  /* A callback may ask again, and may forget others of this list: who is not in by_user is not called. */
  for (guint i = 0; i < waiters->len; i++) {
    Waiter waiter = g_array_index(waiters, Waiter, i);
    if (g_hash_table_remove(resolver->by_user, waiter.user))
      waiter.func(&ips, waiter.user);
  }
  g_array_unref(waiters);
}

static void on_answers(QvWatch *watch, guint32 events)
{
  QvResolver *resolver = (QvResolver *)watch;
  Answer got;
  for (;;) {
    ssize_t n = recv(watch->fd, &got, sizeof got, 0);
    if (n < 0 && errno == EINTR)
      continue;
    if (n != sizeof got || got.ips.n > QV_RESOLVER_IPS_MAX + 1)
      return;
    Entry *entry = g_hash_table_lookup(resolver->by_id, GUINT_TO_POINTER(got.id));
    if (entry == NULL)
      continue;
    g_hash_table_remove(resolver->by_id, GUINT_TO_POINTER(got.id));
    entry->id = 0;
    entry->ips = got.ips;
    entry->answered_ms = g_get_monotonic_time() / 1000;
    answer(resolver, entry);
  }
}

/* A question that cannot be sent is one without an answer: its askers' deadlines end them. */
static void question_send(QvResolver *resolver, Entry *entry, gint64 now_ms)
{
  Question question = {0};
  if (entry->id != 0)
    g_hash_table_remove(resolver->by_id, GUINT_TO_POINTER(entry->id));
  if (++resolver->last_id == 0)
    resolver->last_id = 1;
  entry->id = question.id = resolver->last_id;
  entry->asked_ms = now_ms;
  g_strlcpy(question.name, entry->name, sizeof question.name);
  g_hash_table_insert(resolver->by_id, GUINT_TO_POINTER(entry->id), entry);
  if (send(resolver->watch.fd, &question, sizeof question, MSG_NOSIGNAL) != sizeof question)
    entry->asked_ms = now_ms - QV_RESOLVER_LOST_MS;
}

void qv_resolver_ask(QvResolver *resolver, const char *name, gint64 now_ms, QvResolverFunc func, gpointer user)
{
  Entry *entry = g_hash_table_lookup(resolver->by_name, name);
  if (entry == NULL) {
    entry = g_new0(Entry, 1);
    entry->name = g_strdup(name);
    entry->waiters = g_array_new(FALSE, FALSE, sizeof(Waiter));
    g_hash_table_insert(resolver->by_name, entry->name, entry);
  }
  if (entry->id == 0 && entry->ips.n > 0 && now_ms - entry->answered_ms < QV_RESOLVER_KEEP_MS) {
    QvIps ips = entry->ips;
    func(&ips, user);
    return;
  }
  const Waiter waiter = {func, user};
  g_array_append_val(entry->waiters, waiter);
  g_hash_table_add(resolver->by_user, user);
  if (entry->id == 0 || now_ms - entry->asked_ms >= QV_RESOLVER_LOST_MS)
    question_send(resolver, entry, now_ms);
}

void qv_resolver_forget(QvResolver *resolver, gpointer user)
{
  if (!g_hash_table_remove(resolver->by_user, user))
    return;
  GHashTableIter iter;
  gpointer value;
  g_hash_table_iter_init(&iter, resolver->by_name);
  while (g_hash_table_iter_next(&iter, NULL, &value)) {
    GArray *waiters = ((Entry *)value)->waiters;
    for (guint i = waiters->len; i-- > 0;)
      if (g_array_index(waiters, Waiter, i).user == user)
        g_array_remove_index_fast(waiters, i);
  }
}

QvResolver *qv_resolver_new(QvLoop *loop, const char *role, GError **error)
{
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    qv_error_set_errno(error, errno, "socketpair");
    return NULL;
  }
  qv_io_set_nonblock(pair[0], true);
  QvResolver *resolver = g_new0(QvResolver, 1);
  resolver->watch = (QvWatch){.fd = pair[0], .ready = on_answers};
  resolver->loop = loop;
  resolver->role = g_strdup(role);
  resolver->others = pair[1];
  resolver->by_name = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, entry_free);
  resolver->by_id = g_hash_table_new(NULL, NULL);
  resolver->by_user = g_hash_table_new(NULL, NULL);
  if (!qv_loop_add(loop, &resolver->watch, error)) {
    qv_resolver_free(resolver);
    return NULL;
  }
  for (guint i = 0; i < QV_RESOLVER_PROCESSES; i++)
    start(resolver, i);
  return resolver;
}

void qv_resolver_free(QvResolver *resolver)
{
  if (resolver == NULL)
    return;
  qv_loop_close(resolver->loop, &resolver->watch);
  close(resolver->others);
  for (guint i = 0; i < QV_RESOLVER_PROCESSES; i++) {
    if (resolver->children[i] != 0)
      g_source_remove(resolver->children[i]);
    if (resolver->respawns[i] != 0)
      g_source_remove(resolver->respawns[i]);
    /* A look-up may take seconds; it holds nothing that would have to be put away. */
    if (resolver->pids[i] > 0) {
      kill(resolver->pids[i], SIGKILL);
      TEMP_FAILURE_RETRY(waitpid(resolver->pids[i], NULL, 0));
    }
  }
  g_hash_table_unref(resolver->by_id);
  g_hash_table_unref(resolver->by_user);
  g_hash_table_unref(resolver->by_name);
  g_free(resolver->role);
  g_free(resolver);
}
