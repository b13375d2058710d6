/* SPDX-License-Identifier: Apache-2.0 */
/* Lost replies, dead servers, refusals: each job is taken, ended and counted once. */
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "fixture.h"

/* The fetch that took the job lost its reply, twice: the same job comes, once, unstalled. */
static void test_lost_fetch(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->proxied_sandbox, 2, 30000, 1000);
  fixture_add(f->producer, "first", "{}");
  qv_test_proxy_lose_reply_to(f->proxy, "\r\n1048576\r\n", 2); /* the data's cap: in fetch alone */
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  g_assert_cmpstr(job->id, ==, "first");
  g_assert_cmpint(job->attempts_started, ==, 1);
  g_assert_cmpuint(qv_test_proxy_lost_n(f->proxy), ==, 2);
  qv_test_turn_ms(2500); /* two stall checks */
  g_assert_cmpuint(t->fetched_n, ==, 1);
  g_assert_cmpint(test_worker_complete(t, job, "1"), ==, QV_FINISH_DONE);
  assert_cli(f, "1", "HGET", P "first", "atm");
}

/* The finish worked and its reply, with the next job in it, was lost. */
static void test_lost_finish(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->proxied_sandbox, 1, 30000, 30000);
  fixture_add(f->producer, "first", "{}");
  fixture_add(f->producer, "second", "{}");
  fixture_add(f->producer, "third", "{}");
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  qv_test_proxy_lose_reply_to(f->proxy, "{\"my\":\"result\"}", 2);
  g_assert_cmpint(test_worker_complete(t, job, "{\"my\":\"result\"}"), ==, QV_FINISH_DONE);
  g_assert_cmpuint(qv_test_proxy_lost_n(f->proxy), ==, 2);
  assert_cli(f, "1", "ZCARD", P "completed", NULL);
  assert_cli(f, "1", "HGET", P "first", "atm");
  job = test_worker_next(t);
  g_assert_cmpstr(job->id, ==, "second");
  assert_cli(f, "1", "LLEN", P "active", NULL);
  qv_test_proxy_lose_reply_to(f->proxy, "my reason", 1);
  g_assert_cmpint(test_worker_fail(t, job, "my reason"), ==, QV_FINISH_DONE);
  assert_cli(f, "1", "ZCARD", P "failed", NULL);
  job = test_worker_next(t);
  g_assert_cmpstr(job->id, ==, "third");
  qv_test_proxy_lose_reply_to(f->proxy, "third", 1);
  g_assert_cmpint(test_worker_release(t, job), ==, QV_FINISH_DONE);
  job = test_worker_next(t);
  g_assert_cmpstr(job->id, ==, "third");
  g_assert_cmpuint(t->fetched_n, ==, 4);
  g_assert_cmpuint(t->lost_n, ==, 0);
}

static void test_lost_add(Fixture *f, gconstpointer unused)
{
  g_autoptr(QvConn) conn = qv_conn_new(f->proxied_worker, NULL);
  g_autoptr(QvProducer) producer = qv_producer_new(conn, PREFIX, 0);
  qv_test_proxy_lose_reply_to(f->proxy, "job-x", 2);
  g_assert_cmpint(fixture_add(producer, "job-x", "{\"mine\":1}"), ==, QV_ADD_ADDED);
  g_assert_cmpuint(qv_test_proxy_lost_n(f->proxy), ==, 2);
  g_assert_cmpint(fixture_count(producer), ==, 1);
  qv_test_proxy_lose_reply_to(f->proxy, "job-x", 1);
  g_assert_cmpint(fixture_add(producer, "job-x", "{\"other\":1}"), ==, QV_ADD_DUPLICATE);
}

typedef struct {
  guint n;
  QvGuard guard;
} Guarded;

static void on_guard(QvGuard guard, const GError *error, gpointer user)
{
  Guarded *g = user;
  g->n++;
  g->guard = guard;
  g_assert_true((guard == QV_GUARD_UNKNOWN) == (error != NULL));
}

static QvGuard take_guard(QvConn *conn, const char *job_id, const char *runner, gint64 deadline_ms)
{
  Guarded g = { 0 };
  qv_replay_guard_take(conn, PREFIX, job_id, runner, 600000, deadline_ms, on_guard, &g);
  QV_TEST_WAIT(g.n == 1);
  return g.guard;
}

static void test_guard(Fixture *f, gconstpointer unused)
{
  g_autoptr(QvConn) conn = qv_conn_new(f->proxied_sandbox, NULL);
  g_assert_cmpint(take_guard(conn, "plain", "r1", 0), ==, QV_GUARD_WON);
  g_assert_cmpint(take_guard(conn, "plain", "r1", 0), ==, QV_GUARD_REPLAYED);
  g_assert_cmpint(take_guard(conn, "plain", "r2", 0), ==, QV_GUARD_REPLAYED);
  /* SET arrived, its reply did not; and the GET's neither. */
  qv_test_proxy_lose_reply_to(f->proxy, "replay:lost", 2);
  g_assert_cmpint(take_guard(conn, "lost", "r1", 0), ==, QV_GUARD_WON);
  g_assert_cmpuint(qv_test_proxy_lost_n(f->proxy), ==, 2);
  qv_test_proxy_lose_reply_to(f->proxy, "replay:lost", 1);
  g_assert_cmpint(take_guard(conn, "lost", "r1", 0), ==, QV_GUARD_REPLAYED);
  g_autofree char *value = qv_test_valkey_cli(f->valkey, "GET", PREFIX ":replay:lost", NULL);
  g_assert_true(g_regex_match_simple("^r1:[0-9a-f]{32}$", value, 0, 0));
  g_autofree char *ttl = qv_test_valkey_cli(f->valkey, "PTTL", PREFIX ":replay:lost", NULL);
  g_assert_cmpint(g_ascii_strtoll(ttl, NULL, 10), >, 0);
  /* Silence: unknown, not won. */
  qv_test_proxy_freeze(f->proxy, TRUE);
  g_assert_cmpint(take_guard(conn, "silent", "r1", 1500), ==, QV_GUARD_UNKNOWN);
}

/* "Not now" is an answer: nothing was set. */
static void test_guard_full_server(Fixture *f, gconstpointer unused)
{
  g_autoptr(QvConn) conn = qv_conn_new(f->sandbox_address, NULL);
  Guarded g = { 0 };
  g_free(qv_test_valkey_cli(f->valkey, "CONFIG", "SET", "maxmemory", "1", NULL));
  qv_replay_guard_take(conn, PREFIX, "full", "r1", 600000, 0, on_guard, &g);
  qv_test_turn_ms(500);
  g_assert_cmpuint(g.n, ==, 0);
  g_free(qv_test_valkey_cli(f->valkey, "CONFIG", "SET", "maxmemory", "0", NULL));
  QV_TEST_WAIT(g.n == 1);
  g_assert_cmpint(g.guard, ==, QV_GUARD_WON);
}

/* The server dies with a job in progress and comes back with its data: the job ends once. */
static void test_restart(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 60000, 30000);
  fixture_add(f->producer, "first", "{}");
  fixture_add(f->producer, "second", "{}");
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  qv_test_valkey_kill(f->valkey);
  QV_TEST_WAIT(qv_conn_state(qv_worker_conn(t->worker)) != QV_CONN_UP);
  qv_worker_progress(t->worker, job, "{}");
  qv_test_turn_ms(300);
  qv_test_valkey_restart(f->valkey);
  g_assert_cmpint(test_worker_complete(t, job, "1"), ==, QV_FINISH_DONE);
  job = test_worker_next(t);
  g_assert_cmpstr(job->id, ==, "second");
  g_assert_cmpint(test_worker_complete(t, job, "2"), ==, QV_FINISH_DONE);
  g_assert_cmpuint(t->lost_n, ==, 0);
  /* While it is idle, too: it wakes without waiting for anybody. */
  qv_test_valkey_kill(f->valkey);
  qv_test_turn_ms(300);
  qv_test_valkey_restart(f->valkey);
  fixture_add(f->producer, "third", "{}");
  g_assert_cmpstr(test_worker_next(t)->id, ==, "third");
}

/* A server without its data: the job is gone, and that is said. */
static void test_data_lost(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 4000, 30000);
  fixture_add(f->producer, "first", "{}");
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  g_free(qv_test_valkey_cli(f->valkey, "FLUSHALL", NULL));
  g_free(qv_test_valkey_cli(f->valkey, "SCRIPT", "FLUSH", NULL));
  QV_TEST_WAIT(t->lost_n == 1);
  qv_worker_drop(t->worker, job);
  fixture_add(f->producer, "first", "{}");
  job = test_worker_next(t);
  g_assert_cmpint(test_worker_complete(t, job, "1"), ==, QV_FINISH_DONE);
}

/* Valkey is away for longer than a lock lives: the sandbox must go, and is told so while it is still away. */
static void test_away_too_long(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 2000, 30000);
  fixture_add(f->producer, "first", "{}");
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  qv_test_valkey_kill(f->valkey);
  QV_TEST_WAIT(t->lost_n == 1);
  qv_worker_drop(t->worker, job);
  g_assert_cmpuint(qv_worker_busy(t->worker), ==, 0);
  qv_test_valkey_restart(f->valkey);
}

/* Memory is full: locks are kept, a finish gets through as soon as it can. */
static void test_full_server(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 8000, 30000);
  fixture_add(f->producer, "first", "{}");
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  g_free(qv_test_valkey_cli(f->valkey, "CONFIG", "SET", "maxmemory", "1", NULL));
  qv_test_turn_ms(10000); /* longer than the lock lives */
  g_assert_cmpuint(t->lost_n, ==, 0);
  assert_cli(f, "1", "EXISTS", P "first:lock", NULL);
  g_free(qv_test_valkey_cli(f->valkey, "CONFIG", "SET", "maxmemory", "0", NULL));
  g_assert_cmpint(test_worker_complete(t, job, "1"), ==, QV_FINISH_DONE);
}

static void kill_clients(Fixture *f)
{
  g_free(qv_test_valkey_cli(f->valkey, "CLIENT", "KILL", "USER", "sandbox", NULL));
}

/* Connections die again and again under a stream of jobs: each is completed once, none stalls. */
static void test_cut_and_cut(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->proxied_sandbox, 3, 60000, 30000);
  const int jobs_n = 60;
  qv_worker_resume(t->worker);
  for (int i = 0; i < jobs_n; i++) {
    g_autofree char *id = g_strdup_printf("job-%d", i);
    fixture_add(f->producer, id, "{}");
  }
  for (int i = 0; i < jobs_n; i++) {
    QvFetchedJob *job = test_worker_next(t);
    if (i % 5 == 0)
      qv_test_proxy_cut(f->proxy);
    if (i % 7 == 0)
      kill_clients(f);
    g_assert_cmpint(test_worker_complete(t, job, job->id), ==, QV_FINISH_DONE);
  }
  g_autofree char *n = g_strdup_printf("%d", jobs_n);
  assert_cli(f, n, "ZCARD", P "completed", NULL);
  assert_cli(f, "0", "LLEN", P "active", NULL);
  g_assert_cmpuint(t->fetched_n, ==, jobs_n);
  g_assert_cmpuint(t->lost_n, ==, 0);
  g_autofree char *events = fixture_events(f->valkey, 0);
  g_assert_null(strstr(events, "stalled"));
}

static void add(const char *name, void (*test)(Fixture *, gconstpointer))
{
  fixture_test_add("/queue/faults", name, FIXTURE_PROXY, test);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  add("lost-fetch", test_lost_fetch);
  add("lost-finish", test_lost_finish);
  add("lost-add", test_lost_add);
  add("guard", test_guard);
  add("guard-full-server", test_guard_full_server);
  add("restart", test_restart);
  add("data-lost", test_data_lost);
  add("away-too-long", test_away_too_long);
  add("full-server", test_full_server);
  add("cut-and-cut", test_cut_and_cut);
  return g_test_run();
}
