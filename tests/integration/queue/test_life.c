/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's connections through everything that happens to a server: each loss and each answer has one right
 * behaviour (docs/QUEUE.md, "Connections"), shown with a job in progress and another one that waits. */
#include <string.h>

#include "base/error.h"
#include "fixture.h"
#include "queue/subscriber.h"

/* One server, or two of which the second may take the place of the first behind one address. */
typedef struct {
  QvTestValkey *valkey, *other;
  QvTestProxy *relay;
  QvAddress *worker_address, *sandbox_address;
  QvConn *conn;
  QvProducer *producer;
  TestWorker *t;
} Life;

static void open_sides(Life *f, gint64 lock_ms, gint64 stalled_ms)
{
  f->conn = qv_conn_new(f->worker_address, NULL);
  f->producer = qv_producer_new(f->conn, PREFIX, 0);
  f->t = test_worker_new(f->sandbox_address, 1, lock_ms, stalled_ms);
  qv_worker_resume(f->t->worker);
}

static void set_up(Life *f, gconstpointer flags)
{
  f->valkey = qv_test_valkey_start(GPOINTER_TO_INT(flags));
  f->worker_address = fixture_address(qv_test_valkey_url(f->valkey, "worker"));
  f->sandbox_address = fixture_address(qv_test_valkey_url(f->valkey, "sandbox"));
}

static void tear_down(Life *f, gconstpointer unused)
{
  test_worker_free(f->t);
  qv_producer_free(f->producer);
  qv_conn_free(f->conn);
  qv_address_unref(f->worker_address);
  qv_address_unref(f->sandbox_address);
  qv_test_proxy_free(f->relay);
  qv_test_valkey_free(f->other);
  qv_test_valkey_free(f->valkey);
}

static void await_trouble(Life *f, const char *word)
{
  QV_TEST_WAIT(f->t->trouble && strstr(f->t->trouble, word));
}

/* The job in progress ends well and the one that waited comes: nothing was lost, nothing stalled. */
static void expect_two_ends(Life *f, QvFetchedJob *first)
{
  g_assert_cmpint(test_worker_complete(f->t, first, "1"), ==, QV_FINISH_DONE);
  QvFetchedJob *second = test_worker_next(f->t);
  g_assert_cmpstr(second->id, ==, "second");
  g_assert_null(second->deferred_failure);
  g_assert_cmpint(test_worker_complete(f->t, second, "2"), ==, QV_FINISH_DONE);
  g_assert_cmpuint(f->t->fetched_n, ==, 2);
  g_assert_cmpuint(f->t->lost_n, ==, 0);
}

static QvFetchedJob *begin_two(Life *f)
{
  fixture_add(f->producer, "first", "{}");
  QvFetchedJob *first = test_worker_next(f->t);
  fixture_add(f->producer, "second", "{}");
  return first;
}

/* Failover */

static void cli(QvTestValkey *v, const char *a, const char *b, const char *c, const char *d)
{
  g_autofree char *out = qv_test_valkey_cli(v, a, b, c, d, NULL);
  if (!g_str_has_prefix(out, "OK"))
    g_error("%s %s: %s", a, b, out);
}

static void follow(QvTestValkey *replica, QvTestValkey *primary)
{
  g_autofree char *port = g_strdup_printf("%u", qv_test_valkey_port(primary));
  cli(replica, "CONFIG", "SET", "masteruser", "admin");
  cli(replica, "CONFIG", "SET", "masterauth", qv_test_valkey_password(primary));
  cli(replica, "REPLICAOF", "127.0.0.1", port, NULL);
}

static gboolean is_synchronous(QvTestValkey *replica)
{
  g_autofree char *info = qv_test_valkey_cli(replica, "INFO", "replication", NULL);
  return strstr(info, "master_link_status:up") != NULL;
}

static void set_up_pair(Life *f, gconstpointer unused)
{
  const char *users[] = { "worker", "sandbox" };
  f->valkey = qv_test_valkey_start(QV_TEST_VALKEY_TCP);
  f->other = qv_test_valkey_start(QV_TEST_VALKEY_TCP);
  f->relay = qv_test_proxy_start_tcp("127.0.0.1", "127.0.0.1", qv_test_valkey_port(f->valkey));
  QvAddress **addresses[] = { &f->worker_address, &f->sandbox_address };
  for (gsize i = 0; i < G_N_ELEMENTS(users); i++) {
    g_autofree char *password = g_strconcat(">", qv_test_valkey_password(f->valkey), NULL);
    g_autofree char *url = g_strdup_printf("redis://%s:%s@127.0.0.1:%u", users[i], password + 1,
                                           qv_test_proxy_port(f->relay));
    cli(f->other, "ACL", "SETUSER", users[i], password);
    *addresses[i] = fixture_address(url);
  }
  cli(f->other, "CONFIG", "SET", "repl-diskless-sync-delay", "0");
  cli(f->valkey, "CONFIG", "SET", "repl-diskless-sync-delay", "0");
  follow(f->other, f->valkey);
  QV_TEST_WAIT(is_synchronous(f->other));
  open_sides(f, 60000, 30000);
}

/* The primary dies; the address leads to its replica before that is promoted, first while it refuses everything
 * (MASTERDOWN), then while it only reads (READONLY). */
static void test_failover(Life *f, gconstpointer unused)
{
  QvFetchedJob *first = begin_two(f);
  fixture_wait_cli(f->other, "1", "EXISTS", P "second", NULL);
  cli(f->other, "CONFIG", "SET", "replica-serve-stale-data", "no");
  qv_test_valkey_kill(f->valkey);
  QV_TEST_WAIT(!is_synchronous(f->other));
  qv_test_proxy_aim(f->relay, qv_test_valkey_port(f->other));
  qv_worker_complete(f->t->worker, first, "1", 1, NULL, NULL);
  await_trouble(f, "MASTERDOWN");
  cli(f->other, "CONFIG", "SET", "replica-serve-stale-data", "yes");
  await_trouble(f, "READONLY");
  g_assert_cmpuint(f->t->fetched_n, ==, 1);
  cli(f->other, "REPLICAOF", "NO", "ONE", NULL);
  QvFetchedJob *second = test_worker_next(f->t);
  g_assert_cmpstr(second->id, ==, "second");
  g_assert_cmpint(test_worker_complete(f->t, second, "2"), ==, QV_FINISH_DONE);
  g_autofree char *state = fixture_state(f->producer, "first");
  g_assert_cmpstr(state, ==, "completed 1");
  g_assert_cmpuint(f->t->lost_n, ==, 0);
  fixture_wait_cli(f->other, "0", "LLEN", P "active", NULL);
}

/* A planned one: the old primary lives on as a replica, and the address still leads to it for a while. The blocked read is
 * ended by the server, commands are answered READONLY. */
static void test_switchover(Life *f, gconstpointer unused)
{
  fixture_await_blocked_read(f->valkey);
  cli(f->other, "REPLICAOF", "NO", "ONE", NULL);
  follow(f->valkey, f->other);
  await_trouble(f, "READONLY");
  qv_test_proxy_aim(f->relay, qv_test_valkey_port(f->other));
  expect_two_ends(f, begin_two(f));
}

/* The server dies and comes back */

/* It has its data, and much of it (a minute's, unless hurried): until all is read it answers LOADING. */
static void test_loading(Life *f, gconstpointer unused)
{
  const char *slowly[] = { "--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024", NULL };
  open_sides(f, 120000, 60000);
  QvFetchedJob *first = begin_two(f);
  g_free(qv_test_valkey_cli(f->valkey, "EVAL", "for i = 1, 3000 do redis.call('SET', 'filler:' .. i, 'x') end", "0", NULL));
  cli(f->valkey, "SAVE", NULL, NULL, NULL);
  qv_test_valkey_kill(f->valkey);
  qv_test_valkey_set_options(f->valkey, slowly);
  qv_test_valkey_restart(f->valkey);
  qv_worker_complete(f->t->worker, first, "1", 1, NULL, NULL);
  await_trouble(f, "LOADING");
  cli(f->valkey, "CONFIG", "SET", "key-load-delay", "0"); /* seen: now fast */
  QvFetchedJob *second = test_worker_next(f->t);
  g_assert_cmpstr(second->id, ==, "second");
  g_assert_cmpint(test_worker_complete(f->t, second, "2"), ==, QV_FINISH_DONE);
  g_autofree char *state = fixture_state(f->producer, "first");
  g_assert_cmpstr(state, ==, "completed 1");
  g_assert_cmpuint(f->t->lost_n, ==, 0);
}

/* It has nothing: the lock is gone, which is said; what is added from now on is served. */
static void test_restart_empty(Life *f, gconstpointer unused)
{
  open_sides(f, 8000, 30000);
  QvFetchedJob *first = begin_two(f);
  qv_test_valkey_kill(f->valkey);
  qv_test_valkey_restart(f->valkey);
  QV_TEST_WAIT(f->t->lost_n == 1);
  g_assert_true(f->t->lost == first);
  qv_worker_drop(f->t->worker, first);
  fixture_add(f->producer, "third", "{}");
  QvFetchedJob *third = test_worker_next(f->t);
  g_assert_cmpstr(third->id, ==, "third");
  g_assert_cmpint(test_worker_complete(f->t, third, "3"), ==, QV_FINISH_DONE);
}

/* One connection at a time */

static guint ready_n;

static void on_message(const char *channel, const char *text, gsize len, gpointer user)
{
  g_string_assign(user, text);
}

static void on_ready(gpointer user)
{
  ready_n++;
}

/* The ids of the runner's connections, sorted. */
static char **connections(QvTestValkey *v)
{
  g_autofree char *list = qv_test_valkey_cli(v, "CLIENT", "LIST", NULL);
  g_auto(GStrv) lines = g_strsplit(list, "\n", -1);
  g_autoptr(GStrvBuilder) ids = g_strv_builder_new();
  for (char **line = lines; *line; line++) {
    g_auto(GStrv) words = g_strsplit(*line, " ", 2);
    if (strstr(*line, " user=sandbox ") && g_str_has_prefix(words[0], "id="))
      g_strv_builder_add(ids, words[0] + 3);
  }
  return g_strv_builder_end(ids);
}

/* Commands, the blocked read, lock renewal, messages. */
#define CONNECTIONS_N 4

static guint connections_n(QvTestValkey *v)
{
  g_auto(GStrv) ids = connections(v);
  return g_strv_length(ids);
}

static void test_client_kill(Life *f, gconstpointer unused)
{
  static const QvSubscriberEvents events = { on_message, on_ready, NULL };
  const char *channels[] = { PREFIX ":cancel", NULL };
  g_autoptr(GString) message = g_string_new(NULL);
  open_sides(f, 12000, 2000);
  g_autoptr(QvSubscriber) subscriber = qv_subscriber_new(f->sandbox_address, NULL, channels, &events, message);
  QV_TEST_WAIT(connections_n(f->valkey) == CONNECTIONS_N && ready_n == 1);
  g_auto(GStrv) doomed = connections(f->valkey);
  for (guint i = 0; i < CONNECTIONS_N; i++) {
    /* Once idle, once with a job in progress: each id is one of the four for as long as it lives. */
    g_autofree char *id = g_strdup_printf("job-%u", i);
    guint jobs_n = f->t->fetched_n;
    if (i % 2)
      fixture_add(f->producer, id, "{}");
    QV_TEST_WAIT(f->t->fetched_n == jobs_n + i % 2);
    g_autofree char *killed = qv_test_valkey_cli(f->valkey, "CLIENT", "KILL", "ID", doomed[i], NULL);
    g_assert_cmpstr(killed, ==, "1");
    if (i % 2 == 0)
      fixture_add(f->producer, id, "{}");
    QvFetchedJob *job = test_worker_next(f->t);
    g_assert_cmpstr(job->id, ==, id);
    qv_test_turn_ms(4000); /* a renewal, two stall checks */
    g_assert_cmpint(test_worker_complete(f->t, job, "1"), ==, QV_FINISH_DONE);
    QV_TEST_WAIT(connections_n(f->valkey) == CONNECTIONS_N);
  }
  g_assert_cmpuint(f->t->lost_n, ==, 0);
  g_assert_cmpuint(f->t->fetched_n, ==, CONNECTIONS_N);
  QV_TEST_WAIT(ready_n == 2); /* the messages' connection was one of them, and its owner was told to look */
  g_free(qv_test_valkey_cli(f->valkey, "PUBLISH", PREFIX ":cancel", "a-word", NULL));
  QV_TEST_WAIT(g_str_equal(message->str, "a-word"));
}

/* Answers */

static void test_noscript(Life *f, gconstpointer unused)
{
  open_sides(f, 12000, 1000);
  QvFetchedJob *first = begin_two(f);
  for (int i = 0; i < 8; i++) { /* renewals, stall checks and progress among them */
    cli(f->valkey, "SCRIPT", "FLUSH", NULL, NULL);
    qv_worker_progress(f->t->worker, first, "{}");
    qv_test_turn_ms(700);
  }
  cli(f->valkey, "SCRIPT", "FLUSH", NULL, NULL);
  expect_two_ends(f, first);
  g_assert_cmpuint(f->t->states_n, ==, 0);
}

static void rights(Life *f, const char *rule)
{
  cli(f->valkey, "ACL", "SETUSER", "sandbox", rule);
}

static gboolean answered;

static void on_refused(QvFinish finish, const GError *error, gpointer user)
{
  g_assert_error(error, QV_ERROR, QV_ERROR_AUTH);
  answered = TRUE;
}

/* Rights that go and come back: what asks again by itself goes on by itself; an end that is refused is an error, and the
 * job is then a stalled one, failed by whoever takes it next. */
static void test_noperm(Life *f, gconstpointer unused)
{
  open_sides(f, 12000, 1000);
  rights(f, "-evalsha");
  await_trouble(f, "NOPERM");
  fixture_add(f->producer, "first", "{}");
  rights(f, "+evalsha");
  QvFetchedJob *first = test_worker_next(f->t);
  rights(f, "-lrem"); /* inside the script */
  qv_worker_complete(f->t->worker, first, "1", 1, on_refused, NULL);
  QV_TEST_WAIT(answered);
  rights(f, "+lrem");
  QvFetchedJob *again = test_worker_next(f->t);
  g_assert_cmpstr(again->id, ==, "first");
  g_assert_nonnull(again->deferred_failure);
  g_assert_cmpint(test_worker_fail(f->t, again, "stalled"), ==, QV_FINISH_DONE);
  /* A renewal that is refused for the lock's whole life. */
  fixture_add(f->producer, "second", "{}");
  QvFetchedJob *second = test_worker_next(f->t);
  rights(f, "-pexpire");
  QV_TEST_WAIT(f->t->lost_n == 1);
  g_assert_true(f->t->lost == second);
  rights(f, "+pexpire");
  qv_worker_drop(f->t->worker, second);
  second = test_worker_next(f->t);
  g_assert_nonnull(second->deferred_failure);
  g_assert_cmpint(test_worker_fail(f->t, second, "stalled"), ==, QV_FINISH_DONE);
}

/* The user is switched off, connections and all, and on again. */
static void test_user_off(Life *f, gconstpointer unused)
{
  open_sides(f, 60000, 30000);
  QvFetchedJob *first = begin_two(f);
  rights(f, "off");
  g_free(qv_test_valkey_cli(f->valkey, "CLIENT", "KILL", "USER", "sandbox", NULL));
  QV_TEST_WAIT(qv_conn_last_error(qv_worker_conn(f->t->worker)) != NULL &&
               g_error_matches(qv_conn_last_error(qv_worker_conn(f->t->worker)), QV_ERROR, QV_ERROR_AUTH));
  rights(f, "on");
  expect_two_ends(f, first);
}

static void add(const char *name, gconstpointer flags, void (*prepare)(Life *, gconstpointer),
                void (*test)(Life *, gconstpointer))
{
  g_autofree char *path = g_strconcat("/queue/life/", name, NULL);
  g_test_add(path, Life, flags, prepare, test, tear_down);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  add("failover", NULL, set_up_pair, test_failover);
  add("switchover", NULL, set_up_pair, test_switchover);
  add("loading", NULL, set_up, test_loading);
  add("restart-empty", NULL, set_up, test_restart_empty);
  add("client-kill", NULL, set_up, test_client_kill);
  add("noscript", NULL, set_up, test_noscript);
  add("noperm", NULL, set_up, test_noperm);
  add("user-off", NULL, set_up, test_user_off);
  return g_test_run();
}
