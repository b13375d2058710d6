/* SPDX-License-Identifier: Apache-2.0 */
/* The marker is one wake-up for one worker: who pops it and cannot use it gives it back, so that nobody's is lost. */
#include <string.h>

#include "fixture.h"

/* Without a word to those who wait for jobs. */
static void add_quietly(Fixture *f, const char *id, const char *tenant)
{
  g_autofree char *key = g_strconcat(P, id, NULL), *data = g_strdup_printf("{\"job\":{\"tenantId\":\"%s\"}}", tenant);
  g_free(qv_test_valkey_cli(f->valkey, "HSET", key, "name", "check", "data", data, "timestamp", "1", NULL));
  g_free(qv_test_valkey_cli(f->valkey, "LPUSH", P "wait", id, NULL));
}

static void add(Fixture *f, const char *id, const char *tenant)
{
  add_quietly(f, id, tenant);
  g_free(qv_test_valkey_cli(f->valkey, "ZADD", P "marker", "0", "0", NULL));
}

static void order(TestWorker *t, const char *skip, const char *served)
{
  const char *skips[] = {skip, NULL}, *serves[] = {served, NULL};
  qv_worker_set_tenants(t->worker, skips, serves);
}

/* Until so many are blocked at the marker. */
static void wait_reads(Fixture *f, guint expected)
{
  guint n;
  gint64 end = g_get_monotonic_time() + QV_TEST_DEADLINE_S * G_USEC_PER_SEC;
  do {
    qv_test_turn_ms(20);
    g_autofree char *clients = qv_test_valkey_cli(f->valkey, "CLIENT", "LIST", NULL);
    n = 0;
    for (const char *at = clients; (at = strstr(at, " flags=b")) != NULL; at++)
      n++;
    g_assert_cmpint(g_get_monotonic_time(), <, end);
  } while (n != expected);
}

static QvFetchedJob *take_one_of_two(Fixture *f)
{
  qv_worker_set_concurrency(f->t->worker, 2);
  add(f, "a", "");
  qv_worker_resume(f->t->worker);
  QvFetchedJob *job = test_worker_next(f->t);
  wait_reads(f, 1); /* for the other slot */
  return job;
}

static void on_done(QvFinish finish, const GError *error, gpointer user)
{
  g_assert_no_error(error);
  g_assert_cmpint(finish, ==, QV_FINISH_DONE);
  *(gboolean *)user = TRUE;
}

static void end_held(Fixture *f, QvFetchedJob *job)
{
  gboolean done = FALSE;
  qv_worker_hold_slot(f->t->worker, job);
  qv_worker_complete(f->t->worker, job, "1", 1, on_done, &done);
  QV_TEST_WAIT(done);
}

/* The end of a job that holds its slot fills no other one: the blocked read is for that. */
static void test_held(Fixture *f, gconstpointer unused)
{
  QvFetchedJob *job = take_one_of_two(f);
  add_quietly(f, "b", "");
  end_held(f, job);
  QV_TEST_WAIT(f->t->fetched_n == 2);
  assert_cli(f, "1", "EXISTS", P "marker", NULL); /* of the start of b: for others */
  wait_reads(f, 0);
  add_quietly(f, "c", "");
  qv_test_turn_ms(300);
  g_assert_cmpuint(f->t->fetched_n, ==, 2);
  qv_worker_free_slot(f->t->worker, NULL); /* wakes it, without a marker that says so */
  QV_TEST_WAIT(f->t->fetched_n == 3);
}

/* Full while its read is on its way: what it pops is there again, as it was. */
static void test_lowered(Fixture *f, gconstpointer unused)
{
  take_one_of_two(f);
  qv_worker_set_concurrency(f->t->worker, 1);
  g_autofree char *due = g_strdup_printf("%" G_GINT64_FORMAT, g_get_real_time() / 1000 + 3600000);
  g_free(qv_test_valkey_cli(f->valkey, "ZADD", P "marker", due, "1", NULL));
  fixture_wait_cli(f->valkey, due, "ZSCORE", P "marker", "1");
  wait_reads(f, 0);
  add_quietly(f, "b", "");
  qv_worker_set_concurrency(f->t->worker, 2);
  QV_TEST_WAIT(f->t->fetched_n == 2);
}

/* A moment to come, as a marker's score. */
static char *due_in_ms(gint64 ms)
{
  return g_strdup_printf("%" G_GINT64_FORMAT, g_get_real_time() / 1000 + ms);
}

/* What is given back late does not put off what was said meanwhile: the next due time stays the earliest. */
static void test_given_back_late(Fixture *f, gconstpointer unused)
{
  take_one_of_two(f);
  qv_worker_set_concurrency(f->t->worker, 1);
  g_autofree char *late = due_in_ms(3600000), *soon = due_in_ms(600000);
  g_free(qv_test_valkey_cli(f->valkey, "ZADD", P "marker", late, "1", NULL)); /* popped */
  g_free(qv_test_valkey_cli(f->valkey, "ZADD", P "marker", soon, "1", NULL));
  guint before = fixture_calls_n(f->valkey, "zadd");
  wait_reads(f, 0);
  QV_TEST_WAIT(fixture_calls_n(f->valkey, "zadd") > before);
  assert_cli(f, soon, "ZSCORE", P "marker", "1");
}

/* Nor does a job that is added behind another one, for later. */
static void test_next_one_later(Fixture *f, gconstpointer unused)
{
  g_autofree char *soon = due_in_ms(600000);
  add(f, "a", "");
  g_free(qv_test_valkey_cli(f->valkey, "HSET", P "dn:same", "name", "check", "data", "{}", "opts", "{\"delay\":3600000}", NULL));
  g_free(qv_test_valkey_cli(f->valkey, "HSET", P "a", "deid", "same", NULL));
  g_free(qv_test_valkey_cli(f->valkey, "SET", P "de:same", "a", NULL));
  qv_worker_resume(f->t->worker);
  QvFetchedJob *job = test_worker_next(f->t);
  qv_worker_pause(f->t->worker);
  g_free(qv_test_valkey_cli(f->valkey, "ZADD", P "marker", soon, "1", NULL));
  g_assert_cmpint(test_worker_complete(f->t, job, "1"), ==, QV_FINISH_DONE);
  assert_cli(f, "1", "ZCARD", P "delayed", NULL);
  assert_cli(f, soon, "ZSCORE", P "marker", "1");
}

/* A look beside the read, since the order has changed, fills the last slot. */
static void test_beside(Fixture *f, gconstpointer unused)
{
  order(f->t, "a", "a");
  qv_worker_resume(f->t->worker);
  wait_reads(f, 1);
  add_quietly(f, "a1", "a");
  order(f->t, "", "a");
  QV_TEST_WAIT(f->t->fetched_n == 1);
  fixture_wait_cli(f->valkey, "1", "EXISTS", P "marker", NULL);
  wait_reads(f, 0);
}

static void test_paused(Fixture *f, gconstpointer unused)
{
  qv_worker_resume(f->t->worker);
  wait_reads(f, 1);
  qv_worker_pause(f->t->worker);
  add(f, "a", "");
  fixture_wait_cli(f->valkey, "1", "EXISTS", P "marker", NULL);
  wait_reads(f, 0);
  qv_worker_resume(f->t->worker);
  QV_TEST_WAIT(f->t->fetched_n == 1);
}

/* Not more jobs at once than the queue itself may have: the end of one that brings none along is a place for another worker. */
static void test_limit(Fixture *f, gconstpointer unused)
{
  g_free(qv_test_valkey_cli(f->valkey, "HSET", P "meta", "concurrency", "1", NULL));
  add(f, "a", "");
  add(f, "b", "");
  qv_worker_resume(f->t->worker);
  QvFetchedJob *job = test_worker_next(f->t);
  g_free(qv_test_valkey_cli(f->valkey, "DEL", P "marker", NULL));
  end_held(f, job);
  fixture_wait_cli(f->valkey, "1", "EXISTS", P "marker", NULL);
  qv_worker_free_slot(f->t->worker, NULL);
  QV_TEST_WAIT(f->t->fetched_n == 2);
}

/* A worker of another kind. */
typedef struct {
  QvConn *conn;
  gboolean popped;
} Other;

static void read_marker(Other *other);

static void on_read(const QvReply *reply, const GError *error, gpointer user)
{
  Other *other = user;
  g_assert_no_error(error);
  other->popped = reply->type == QV_REPLY_ARRAY;
  if (!other->popped)
    read_marker(other);
}

static void read_marker(Other *other)
{
  qv_conn_sendl(other->conn, QV_SEND_ONCE, 0, on_read, other, "BZPOPMIN", P "marker", "5", NULL);
}

/* A worker that may take nothing of what waits wakes the next one, and the wake-up ends where all have looked. */
static void test_passed_over(Fixture *f, gconstpointer unused)
{
  order(f->t, "a", "a");
  qv_worker_resume(f->t->worker);
  for (int i = 0; i < 3; i++) {
    Other other = {f->sandbox_conn, FALSE};
    g_autofree char *id = g_strdup_printf("a%d", i);
    wait_reads(f, 1);
    read_marker(&other);
    wait_reads(f, 2);
    add(f, id, "a");
    QV_TEST_WAIT(other.popped);
  }
  g_autoptr(TestWorker) second = test_worker_new(f->sandbox_address, 1, 30000, 30000);
  order(second, "a", "a");
  qv_worker_resume(second->worker);
  wait_reads(f, 2);
  guint before = fixture_scripts_n(f->valkey);
  add(f, "a3", "a");
  qv_test_turn_ms(500);
  fixture_wait_cli(f->valkey, "0", "EXISTS", P "marker", NULL);
  g_assert_cmpuint(fixture_scripts_n(f->valkey) - before, <, 30); /* without an end it is hundreds */
  g_assert_cmpuint(f->t->fetched_n + second->fetched_n, ==, 0);
}

/* Several wake-ups of workers that look no more, at once: they end where all have looked, too. */
static void test_passed_over_several(Fixture *f, gconstpointer unused)
{
  order(f->t, "a", "a");
  qv_worker_resume(f->t->worker);
  g_autoptr(TestWorker) second = test_worker_new(f->sandbox_address, 1, 30000, 30000);
  order(second, "a", "a");
  qv_worker_resume(second->worker);
  wait_reads(f, 2);
  add_quietly(f, "a1", "a");
  guint before = fixture_scripts_n(f->valkey);
  g_free(qv_test_valkey_cli(f->valkey, "ZADD", P "marker", "0", "gone:1", "0", "gone:2", "0", "gone:3", NULL));
  qv_test_turn_ms(500);
  fixture_wait_cli(f->valkey, "0", "EXISTS", P "marker", NULL);
  g_assert_cmpuint(fixture_scripts_n(f->valkey) - before, <, 30);
  g_assert_cmpuint(f->t->fetched_n + second->fetched_n, ==, 0);
}

/* The rate limit is met before the look that passes over: the wake-up is passed on behind the wait. */
static void test_passed_over_late(Fixture *f, gconstpointer unused)
{
  Other other = {f->sandbox_conn, FALSE};
  order(f->t, "a", "a");
  qv_worker_resume(f->t->worker);
  wait_reads(f, 1);
  read_marker(&other);
  wait_reads(f, 2);
  g_free(qv_test_valkey_cli(f->valkey, "HSET", P "meta", "max", "1", "duration", "1000", NULL));
  g_free(qv_test_valkey_cli(f->valkey, "SET", P "limiter", "1", "PX", "1000", NULL));
  add(f, "a1", "a");
  QV_TEST_WAIT(other.popped);
  g_assert_cmpuint(f->t->fetched_n, ==, 0);
}

/* A look that is refused gives back what it popped, once. */
static void test_refused(Fixture *f, gconstpointer unused)
{
  qv_worker_resume(f->t->worker);
  wait_reads(f, 1);
  g_free(qv_test_valkey_cli(f->valkey, "ACL", "SETUSER", "sandbox", "-evalsha", NULL));
  add(f, "a1", "");
  QV_TEST_WAIT(f->t->trouble != NULL);
  fixture_wait_cli(f->valkey, "1", "EXISTS", P "marker", NULL);
  g_free(qv_test_valkey_cli(f->valkey, "ACL", "SETUSER", "sandbox", "+evalsha", NULL));
  QV_TEST_WAIT(f->t->fetched_n == 1);
}

static gint64 late_ms(Fixture *f, const char *id)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 30000, 30000);
  g_autofree char *key = g_strconcat(P, id, NULL);
  g_free(qv_test_valkey_cli(f->valkey, "DEL", P "marker", NULL));
  gint64 begin_us = g_get_monotonic_time();
  qv_worker_resume(t->worker);
  wait_reads(f, 1);
  qv_worker_pause(t->worker);
  g_autofree char *due = g_strdup_printf("%" G_GINT64_FORMAT, (g_get_real_time() / 1000 + 300) * 4096);
  g_free(qv_test_valkey_cli(f->valkey, "HSET", key, "name", "check", "data", "{}", "timestamp", "1", NULL));
  g_free(qv_test_valkey_cli(f->valkey, "ZADD", P "delayed", due, id, NULL));
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  gint64 took_us = g_get_monotonic_time() - begin_us;
  qv_worker_pause(t->worker);
  g_assert_cmpint(test_worker_complete(t, job, "1"), ==, QV_FINISH_DONE);
  return took_us / 1000;
}

/* A delayed job that is known beside a read that was sent before does not wait for the read's 3 s. A slow machine may: not each time. */
static void test_delayed_beside(Fixture *f, gconstpointer unused)
{
  gint64 least = G_MAXINT64;
  for (int i = 0; i < 5 && least >= 2900; i++) {
    g_autofree char *id = g_strdup_printf("later-%d", i);
    least = MIN(least, late_ms(f, id));
  }
  g_assert_cmpint(least, <, 2900);
}

static void add_test(const char *name, void (*test)(Fixture *, gconstpointer))
{
  fixture_test_add("/queue/wake", name, FIXTURE_WORKER | FIXTURE_SANDBOX_CONN, test);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  add_test("held", test_held);
  add_test("lowered", test_lowered);
  add_test("given-back-late", test_given_back_late);
  add_test("next-one-later", test_next_one_later);
  add_test("beside", test_beside);
  add_test("paused", test_paused);
  add_test("limit", test_limit);
  add_test("passed-over", test_passed_over);
  add_test("passed-over-several", test_passed_over_several);
  add_test("delayed-beside", test_delayed_beside);
  add_test("passed-over-late", test_passed_over_late);
  add_test("refused", test_refused);
  return g_test_run();
}
