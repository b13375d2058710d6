/* SPDX-License-Identifier: Apache-2.0 */
/* The worker and the producer against a real server under the shipped ACL file. */
#include <string.h>

#include "base/error.h"
#include "fixture.h"

static void add_raw(Fixture *f, const char *id, const char *field, const char *value)
{
  g_free(qv_test_valkey_cli(f->valkey, "HSET", id, "name", "check", "data", "{}", field, value, NULL));
}

static void assert_events(Fixture *f, guint from, const char *expected)
{
  g_autofree char *events = fixture_events(f->valkey, from);
  g_assert_cmpstr(events, ==, expected);
}

static void test_complete(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 30000, 30000);
  g_assert_cmpint(fixture_add(f->producer, "job-a", "{\"x\":1}"), ==, QV_ADD_ADDED);
  g_assert_cmpint(fixture_add(f->producer, "job-a", "{\"x\":1}"), ==, QV_ADD_DUPLICATE);
  g_assert_cmpint(fixture_count(f->producer), ==, 1);
  qv_test_turn_ms(100);
  g_assert_cmpuint(t->fetched_n, ==, 0); /* not resumed yet */
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  g_assert_cmpstr(job->id, ==, "job-a");
  g_assert_cmpstr(job->name, ==, "check");
  g_assert_cmpmem(g_bytes_get_data(job->data, NULL), g_bytes_get_size(job->data), "{\"x\":1}", 7);
  g_assert_cmpint(job->data_bytes, ==, 7);
  g_assert_null(job->deferred_failure);
  g_assert_false(job->has_scheduler || job->has_parent || job->has_parent_key || job->has_dedup);
  g_assert_cmpint(job->attempts_started, ==, 1);
  g_autofree char *active = fixture_state(f->producer, "job-a");
  g_assert_cmpstr(active, ==, "active");
  assert_cli(f, "runner-1", "HGET", P "job-a", "pb");
  g_assert_false(fixture_remove(f->producer, "job-a"));
  g_assert_cmpuint(qv_worker_busy(t->worker), ==, 1);
  g_assert_cmpint(test_worker_complete(t, job, "{\"ok\":true}"), ==, QV_FINISH_DONE);
  g_assert_cmpuint(qv_worker_busy(t->worker), ==, 0);
  g_autofree char *done = fixture_state(f->producer, "job-a");
  g_assert_cmpstr(done, ==, "completed {\"ok\":true}");
  assert_events(f, 0,
                "added jobId=job-a name=check\nwaiting jobId=job-a\nduplicated jobId=job-a\n"
                "active jobId=job-a prev=waiting\ncompleted jobId=job-a returnvalue={\"ok\":true} prev=active\ndrained");
  assert_cli(f, "1", "HGET", P "job-a", "atm");
  assert_cli(f, "0", "LLEN", P "active", NULL);
  assert_cli(f, "0", "EXISTS", P "job-a:lock", P "stalled");
  g_assert_true(fixture_remove(f->producer, "job-a"));
  assert_cli(f, "0", "EXISTS", P "job-a", NULL);
}

static void test_fail_and_next(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 30000, 30000);
  for (int i = 0; i < 5; i++) {
    g_autofree char *id = g_strdup_printf("job-%d", i);
    fixture_add(f->producer, id, "{}");
  }
  qv_worker_resume(t->worker);
  for (int i = 0; i < 5; i++) {
    g_autofree char *id = g_strdup_printf("job-%d", i);
    QvFetchedJob *job = test_worker_next(t);
    g_assert_cmpstr(job->id, ==, id); /* first in, first out */
    g_assert_cmpuint(t->fetched_n, ==, i + 1);
    g_assert_cmpint(test_worker_fail(t, job, "rejected: \"quoted\" \xc3\xa4"), ==, QV_FINISH_DONE);
    g_autofree char *state = fixture_state(f->producer, id);
    g_assert_cmpstr(state, ==, "failed rejected: \"quoted\" \xc3\xa4");
  }
  assert_events(f, 23, "failed jobId=job-4 failedReason=rejected: \"quoted\" \xc3\xa4 prev=active\n"
                       "retries-exhausted jobId=job-4 attemptsMade=1\ndrained");
  /* Idle now: a later job wakes it through the marker. */
  fixture_await_blocked_read(f->valkey);
  fixture_add(f->producer, "late", "{}");
  g_assert_cmpstr(test_worker_next(t)->id, ==, "late");
}

static void test_order(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 30000, 30000);
  add_raw(f, P "low", "priority", "7");
  add_raw(f, P "high", "priority", "2");
  add_raw(f, P "later", "delay", "1500");
  g_autofree char *due = g_strdup_printf("%.0f", (g_get_real_time() / 1000 + 1500) * 4096.0);
  g_free(qv_test_valkey_cli(f->valkey, "ZADD", P "prioritized", "30064771072", "low", "8589934592", "high", NULL));
  g_free(qv_test_valkey_cli(f->valkey, "ZADD", P "delayed", due, "later", NULL));
  g_assert_cmpint(fixture_count(f->producer), ==, 3);
  fixture_add(f->producer, "plain", "{}");
  qv_worker_resume(t->worker);
  g_autoptr(GString) order = g_string_new(NULL);
  for (int i = 0; i < 4; i++) {
    QvFetchedJob *job = test_worker_next(t);
    /* On a slow machine it may be due before the others are taken; it is never early. */
    if (g_str_equal(job->id, "later"))
      g_assert_cmpint(g_get_real_time() / 1000 + 1, >=, (gint64)(g_ascii_strtod(due, NULL) / 4096));
    else
      g_string_append_printf(order, "%s ", job->id);
    g_assert_cmpint(test_worker_complete(t, job, "null"), ==, QV_FINISH_DONE);
  }
  g_assert_cmpstr(order->str, ==, "plain high low ");
  g_autofree char *events = fixture_events(f->valkey, 0);
  g_assert_nonnull(strstr(events, "waiting jobId=later prev=delayed"));
  assert_cli(f, "0", "HGET", P "later", "delay");
  assert_cli(f, "0", "EXISTS", P "pc", NULL);
}

static void test_keep(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 30000, 30000);
  add_raw(f, P "gone", "opts", "{\"removeOnComplete\":true}");
  g_free(qv_test_valkey_cli(f->valkey, "LPUSH", P "wait", "gone", NULL));
  g_free(qv_test_valkey_cli(f->valkey, "RPUSH", P "gone:logs", "a", "b", NULL));
  qv_worker_resume(t->worker);
  g_assert_cmpint(test_worker_complete(t, test_worker_next(t), "1"), ==, QV_FINISH_DONE);
  assert_cli(f, "0", "EXISTS", P "gone", P "gone:logs");
  assert_cli(f, "0", "ZCARD", P "completed", NULL);
  for (int i = 0; i < 5; i++) {
    g_autofree char *id = g_strdup_printf(P "n%d", i);
    add_raw(f, id, "opts", "{\"removeOnComplete\":2,\"removeOnFail\":{\"age\":3600,\"count\":3}}");
    g_free(qv_test_valkey_cli(f->valkey, "LPUSH", P "wait", id + strlen(P), NULL));
    g_free(qv_test_valkey_cli(f->valkey, "ZADD", P "marker", "0", "0", NULL));
    g_assert_cmpint(test_worker_complete(t, test_worker_next(t), "1"), ==, QV_FINISH_DONE);
  }
  assert_cli(f, "2", "ZCARD", P "completed", NULL);
  assert_cli(f, "0", "EXISTS", P "n2", NULL);
  assert_cli(f, "2", "EXISTS", P "n3", P "n4");
  /* Two old ones by age, one by count. */
  g_free(qv_test_valkey_cli(f->valkey, "ZADD", P "failed", "1000", "old1", "2000", "old2", NULL));
  add_raw(f, P "old1", "x", "y");
  for (int i = 0; i < 4; i++) {
    g_autofree char *id = g_strdup_printf(P "f%d", i);
    add_raw(f, id, "opts", "{\"removeOnFail\":{\"age\":3600,\"count\":3}}");
    g_free(qv_test_valkey_cli(f->valkey, "LPUSH", P "wait", id + strlen(P), NULL));
    g_free(qv_test_valkey_cli(f->valkey, "ZADD", P "marker", "0", "0", NULL));
    g_assert_cmpint(test_worker_fail(t, test_worker_next(t), "no"), ==, QV_FINISH_DONE);
  }
  assert_cli(f, "3", "ZCARD", P "failed", NULL);
  assert_cli(f, "0", "EXISTS", P "old1", P "f0");
}

static void test_limits(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 4, 30000, 30000);
  g_free(qv_test_valkey_cli(f->valkey, "HSET", P "meta", "concurrency", "1", NULL));
  for (int i = 0; i < 3; i++) {
    g_autofree char *id = g_strdup_printf("job-%d", i);
    fixture_add(f->producer, id, "{}");
  }
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  qv_test_turn_ms(1000);
  g_assert_cmpuint(t->fetched_n, ==, 1);
  /* One start in six seconds. */
  g_free(qv_test_valkey_cli(f->valkey, "HSET", P "meta", "concurrency", "10", "max", "1", "duration", "6000", NULL));
  gint64 from = g_get_monotonic_time();
  g_free(qv_test_valkey_cli(f->valkey, "SET", P "limiter", "1", "PX", "1500", NULL));
  g_assert_cmpint(test_worker_complete(t, job, "1"), ==, QV_FINISH_DONE);
  job = test_worker_next(t);
  g_assert_cmpint(g_get_monotonic_time() - from, >=, 1000000);
  assert_cli(f, "1", "GET", P "limiter", NULL);
  g_assert_cmpint(test_worker_complete(t, job, "1"), ==, QV_FINISH_DONE);
  g_assert_cmpint(test_worker_complete(t, test_worker_next(t), "1"), ==, QV_FINISH_DONE);
}

static void test_too_long(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 30000, 30000);
  gsize n = 1024 * 1024 + 1;
  g_autofree char *data = g_malloc(n + 1);
  memset(data, ' ', n);
  data[n] = '\0';
  fixture_add(f->producer, "long", data);
  data[n - 1] = '\0';
  fixture_add(f->producer, "fits", data);
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  g_assert_null(job->data);
  g_assert_cmpint(job->data_bytes, ==, n);
  g_assert_cmpint(test_worker_fail(t, job, "rejected: malformed"), ==, QV_FINISH_DONE);
  job = test_worker_next(t);
  g_assert_cmpuint(g_bytes_get_size(job->data), ==, n - 1);
}

static void test_flags(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 30000, 30000);
  const char *fields[] = { "rjk", "parent", "parentKey", "deid" };
  qv_worker_resume(t->worker);
  for (int i = 0; i < 4; i++) {
    g_autofree char *key = g_strdup_printf(P "x%d", i);
    add_raw(f, key, fields[i], "v");
    g_free(qv_test_valkey_cli(f->valkey, "SET", P "de:v", key + strlen(P), NULL));
    g_free(qv_test_valkey_cli(f->valkey, "LPUSH", P "wait", key + strlen(P), NULL));
    g_free(qv_test_valkey_cli(f->valkey, "ZADD", P "marker", "0", "0", NULL));
    QvFetchedJob *job = test_worker_next(t);
    gboolean seen[] = { job->has_scheduler, job->has_parent, job->has_parent_key, job->has_dedup };
    for (int k = 0; k < 4; k++)
      g_assert_cmpint(seen[k], ==, k == i);
    g_assert_cmpint(test_worker_fail(t, job, "rejected: unsupported"), ==, QV_FINISH_DONE);
    assert_cli(f, i == 3 ? "0" : "1", "EXISTS", P "de:v", NULL);
  }
  /* Ids whose hash is gone are passed over, and 4.x's wake-up marks too. */
  g_free(qv_test_valkey_cli(f->valkey, "RPUSH", P "wait", "ghost", "0:123", NULL));
  fixture_add(f->producer, "real", "{}");
  g_assert_cmpstr(test_worker_next(t)->id, ==, "real");
  assert_cli(f, "real", "LINDEX", P "active", "0");
}

static void test_stalled(Fixture *f, gconstpointer unused)
{
  TestWorker *dead = test_worker_new(f->sandbox_address, 1, 5000, 1000);
  fixture_add(f->producer, "job-s", "{}");
  qv_worker_resume(dead->worker);
  test_worker_next(dead);
  test_worker_free(dead); /* as if it had been killed: the lock stays until it runs out */
  assert_cli(f, "1", "LLEN", P "active", NULL);
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 30000, 1000);
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  g_assert_cmpstr(job->id, ==, "job-s");
  g_assert_cmpstr(job->deferred_failure, ==, "job stalled more than allowable limit");
  g_assert_cmpint(job->attempts_started, ==, 2);
  g_assert_cmpint(job->stalled_n, ==, 1);
  g_assert_cmpint(test_worker_fail(t, job, "stalled"), ==, QV_FINISH_DONE);
  assert_events(f, 2, "active jobId=job-s prev=waiting\nwaiting jobId=job-s prev=active\nstalled jobId=job-s\n"
                      "active jobId=job-s prev=waiting\nfailed jobId=job-s failedReason=stalled prev=active\n"
                      "retries-exhausted jobId=job-s attemptsMade=1\ndrained");
  assert_cli(f, "0", "HEXISTS", P "job-s", "defa");
  assert_cli(f, "1", "HGET", P "job-s", "stc");
}

static void test_lock_lost(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 2, 8000, 30000);
  fixture_add(f->producer, "job-l", "{}");
  fixture_add(f->producer, "job-m", "{}");
  qv_worker_resume(t->worker);
  QvFetchedJob *l = test_worker_next(t), *m = test_worker_next(t);
  g_free(qv_test_valkey_cli(f->valkey, "SET", P "job-l:lock", "somebody", NULL));
  QV_TEST_WAIT(t->lost_n == 1);
  g_assert_true(t->lost == l);
  g_assert_cmpuint(qv_worker_busy(t->worker), ==, 2);
  qv_worker_drop(t->worker, l);
  g_assert_cmpuint(qv_worker_busy(t->worker), ==, 1);
  /* A result for a lock that is gone is not stored. */
  g_free(qv_test_valkey_cli(f->valkey, "DEL", P "job-m:lock", NULL));
  g_assert_cmpint(test_worker_complete(t, m, "1"), ==, QV_FINISH_LOST);
  assert_cli(f, "0", "ZCARD", P "completed", NULL);
  g_assert_cmpuint(t->lost_n, ==, 1);
}

static void test_removed(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 30000, 30000);
  fixture_add(f->producer, "job-r", "{}");
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  g_free(qv_test_valkey_cli(f->valkey, "DEL", P "job-r", P "job-r:lock", P "active", NULL));
  g_assert_cmpint(test_worker_complete(t, job, "1"), ==, QV_FINISH_REMOVED);
}

/* Renewal goes on while the caller's loop stands still for longer than a lock lives. */
static void test_blocked_loop(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 8000, 30000);
  fixture_add(f->producer, "job-b", "{}");
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  g_usleep(17 * G_USEC_PER_SEC);
  g_assert_cmpint(test_worker_complete(t, job, "1"), ==, QV_FINISH_DONE);
  g_assert_cmpuint(t->lost_n, ==, 0);
}

static void test_cancel_seen(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 8000, 30000);
  fixture_add(f->producer, "job-c", "{}");
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  qv_test_turn_ms(1200);
  g_assert_cmpuint(t->cancels_n, ==, 0);
  g_free(qv_test_valkey_cli(f->valkey, "SET", PREFIX ":cancel:job-c", "{}", NULL));
  QV_TEST_WAIT(t->cancels_n > 1);
  g_assert_cmpint(test_worker_complete(t, job, "1"), ==, QV_FINISH_DONE);
}

static void test_pause_and_drain(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 30000, 30000);
  fixture_add(f->producer, "one", "{}");
  fixture_add(f->producer, "two", "{}");
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  qv_worker_pause(t->worker);
  g_assert_cmpint(test_worker_complete(t, job, "1"), ==, QV_FINISH_DONE);
  qv_test_turn_ms(300);
  g_assert_cmpuint(t->fetched_n, ==, 1);
  qv_worker_resume(t->worker);
  job = test_worker_next(t);
  test_worker_drain(t);
  qv_test_turn_ms(300);
  g_assert_false(t->drained);
  g_assert_cmpint(test_worker_complete(t, job, "1"), ==, QV_FINISH_DONE);
  QV_TEST_WAIT(t->drained);
  fixture_add(f->producer, "three", "{}");
  qv_test_turn_ms(300);
  g_assert_cmpuint(t->fetched_n, ==, 2);
  g_assert_cmpint(fixture_count(f->producer), ==, 1);
}

static void test_pause_while_fetching(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 30000, 30000);
  fixture_add(f->producer, "one", "{}");
  fixture_add(f->producer, "two", "{}");
  qv_worker_resume(t->worker); /* the fetch is on its way */
  test_worker_drain(t);
  QV_TEST_WAIT(t->drained);
  g_assert_cmpuint(t->fetched_n, ==, 0);
  assert_cli(f, "2", "LLEN", P "wait", NULL);
  assert_cli(f, "one", "LINDEX", P "wait", "-1");
  assert_cli(f, "0", "HGET", P "one", "ats");
  assert_cli(f, "0", "LLEN", P "active", NULL);
}

static void test_release(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 30000, 30000);
  fixture_add(f->producer, "one", "{}");
  fixture_add(f->producer, "two", "{}");
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  g_assert_cmpstr(job->id, ==, "one");
  g_assert_cmpint(test_worker_release(t, job), ==, QV_FINISH_DONE);
  g_assert_cmpstr(test_worker_next(t)->id, ==, "one");
}

static void test_queue_paused(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 30000, 30000);
  g_free(qv_test_valkey_cli(f->valkey, "HSET", P "meta", "paused", "1", "version", "bullmq:6.7.0", NULL));
  fixture_add(f->producer, "one", "{}");
  qv_worker_resume(t->worker);
  qv_test_turn_ms(500);
  g_assert_cmpuint(t->fetched_n, ==, 0);
  assert_cli(f, "0", "EXISTS", P "marker", NULL);
  g_free(qv_test_valkey_cli(f->valkey, "HDEL", P "meta", "paused", NULL));
  g_free(qv_test_valkey_cli(f->valkey, "ZADD", P "marker", "0", "0", NULL));
  QvFetchedJob *job = test_worker_next(t);
  g_assert_cmpint(test_worker_complete(t, job, "1"), ==, QV_FINISH_DONE);
  /* 5.x keeps a paused queue's jobs in another list, which resume renames over wait. */
  g_free(qv_test_valkey_cli(f->valkey, "HSET", P "meta", "paused", "1", "version", "bullmq:5.81.5", NULL));
  fixture_add(f->producer, "two", "{}");
  assert_cli(f, "two", "LINDEX", P "paused", "0");
  g_assert_cmpint(fixture_count(f->producer), ==, 1);
}

static void test_progress(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 30000, 30000);
  fixture_add(f->producer, "one", "{}");
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  qv_worker_progress(t->worker, job, "{\"step\":1}");
  g_assert_cmpint(test_worker_complete(t, job, "1"), ==, QV_FINISH_DONE);
  assert_cli(f, "{\"step\":1}", "HGET", P "one", "progress");
  assert_events(f, 3, "progress jobId=one data={\"step\":1}\ncompleted jobId=one returnvalue=1 prev=active\ndrained");
}

static void test_many(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) a = test_worker_new(f->sandbox_address, 3, 30000, 30000);
  g_autoptr(TestWorker) b = test_worker_new(f->sandbox_address, 3, 30000, 30000);
  qv_worker_resume(a->worker);
  qv_worker_resume(b->worker);
  for (int i = 0; i < 100; i++) {
    g_autofree char *id = g_strdup_printf("job-%d", i);
    fixture_add(f->producer, id, "{}");
  }
  for (int i = 0; i < 100; i++) {
    QV_TEST_WAIT(a->jobs->len + b->jobs->len > 0);
    TestWorker *t = a->jobs->len ? a : b;
    g_assert_cmpuint(qv_worker_busy(t->worker), <=, 3);
    g_assert_cmpint(test_worker_complete(t, test_worker_next(t), "1"), ==, QV_FINISH_DONE);
  }
  assert_cli(f, "100", "ZCARD", P "completed", NULL);
  g_assert_cmpuint(a->fetched_n + b->fetched_n, ==, 100);
}

/* Without a word to those who wait for jobs. */
static void add_quietly(Fixture *f, const char *id)
{
  g_autofree char *key = g_strconcat(P, id, NULL);
  add_raw(f, key, "timestamp", "1");
  g_free(qv_test_valkey_cli(f->valkey, "LPUSH", P "wait", id, NULL));
}

static void end_held(TestWorker *t, QvFetchedJob *job, QvFinishFunc func, gpointer user)
{
  qv_worker_hold_slot(t->worker, job);
  qv_worker_complete(t->worker, job, "1", 1, func, user);
}

static void on_one_more(QvFinish finish, const GError *error, gpointer user)
{
  g_assert_no_error(error);
  g_assert_cmpint(finish, ==, QV_FINISH_DONE);
  ++*(guint *)user;
}

/* A slot that is held brings no job along, and is filled once it is free. */
static void test_held_slot(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 30000, 30000);
  guint done = 0;
  fixture_add(f->producer, "one", "{}");
  fixture_add(f->producer, "two", "{}");
  fixture_add(f->producer, "three", "{}");
  qv_worker_resume(t->worker);
  end_held(t, test_worker_next(t), on_one_more, &done);
  QV_TEST_WAIT(done == 1);
  qv_test_turn_ms(300);
  g_assert_cmpuint(t->fetched_n, ==, 1);
  qv_worker_free_slot(t->worker, NULL);
  QvFetchedJob *job = test_worker_next(t);
  g_assert_cmpstr(job->id, ==, "two");
  /* Free before its end is answered: filled behind that answer. */
  end_held(t, job, on_one_more, &done);
  qv_worker_free_slot(t->worker, job);
  QV_TEST_WAIT(done == 2);
  g_assert_cmpstr(test_worker_next(t)->id, ==, "three");
}

/* Ends at the same time ask for no more than there are free slots, whoever asks besides. */
static void test_held_slots(Fixture *f, gconstpointer unused)
{
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 3, 30000, 30000);
  guint done = 0;
  fixture_add(f->producer, "a", "{}");
  fixture_add(f->producer, "b", "{}");
  qv_worker_resume(t->worker);
  QvFetchedJob *a = test_worker_next(t), *b = test_worker_next(t);
  fixture_await_blocked_read(f->valkey); /* for a third one */
  add_quietly(f, "c");
  add_quietly(f, "d");
  add_quietly(f, "e");
  end_held(t, a, on_one_more, &done);
  end_held(t, b, on_one_more, &done);
  QV_TEST_WAIT(done == 2);
  QvFetchedJob *c = test_worker_next(t);
  qv_test_turn_ms(300);
  g_assert_cmpuint(t->fetched_n, ==, 3);
  /* The loop's own fetch is under way for the slot that was free. */
  qv_worker_free_slot(t->worker, NULL);
  end_held(t, c, on_one_more, &done);
  QV_TEST_WAIT(done == 3 && t->fetched_n == 4);
  qv_test_turn_ms(300);
  g_assert_cmpuint(t->fetched_n, ==, 4);
  qv_worker_free_slot(t->worker, NULL);
  qv_worker_free_slot(t->worker, NULL);
  QV_TEST_WAIT(t->fetched_n == 5);
}

static void rights(Fixture *f, const char *rule)
{
  g_free(qv_test_valkey_cli(f->valkey, "ACL", "SETUSER", "sandbox", rule, NULL));
}

static void free_worker(gpointer user)
{
  TestWorker *t = user;
  g_clear_pointer(&t->worker, qv_worker_free);
}

typedef struct {
  TestWorker *t;
  guint ends_n;
} Freeing;

static void on_end_free(QvFinish finish, const GError *error, gpointer user)
{
  Freeing *freeing = user;
  freeing->ends_n++;
  free_worker(freeing->t);
}

/* What is told of an end, or of the trouble that it meets, may free the worker: the end is told once. */
static void test_free_inside(Fixture *f, gconstpointer unused)
{
  for (int troubled = 0; troubled < 2; troubled++) {
    g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 30000, 30000);
    Freeing freeing = { t, 0 };
    fixture_add(f->producer, troubled ? "b" : "a", "{}");
    qv_worker_resume(t->worker);
    QvFetchedJob *job = test_worker_next(t);
    if (troubled) {
      rights(f, "-evalsha");
      t->state_hook = free_worker;
    }
    qv_worker_complete(t->worker, job, "1", 1, on_end_free, &freeing);
    QV_TEST_WAIT(freeing.ends_n > 0);
    qv_test_turn_ms(200);
    g_assert_cmpuint(freeing.ends_n, ==, 1);
    g_assert_null(t->worker);
  }
}

static void pump(gpointer user)
{
  TestWorker *t = user;
  qv_worker_set_concurrency(t->worker, 1);
}

/* What is told of trouble may let the worker go on: it rests all the same, and has one fetch on its way. */
static void test_pump_inside(Fixture *f, gconstpointer unused)
{
  static const char *const rules[][2] = { { "-evalsha", "+evalsha" }, { "-bzpopmin", "+bzpopmin" } };
  for (gsize i = 0; i < G_N_ELEMENTS(rules); i++) {
    g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 30000, 30000);
    g_autofree char *id = g_strdup_printf("job-%u", (guint)i);
    t->state_hook = pump;
    rights(f, rules[i][0]);
    qv_worker_resume(t->worker);
    QV_TEST_WAIT(t->states_n > 0);
    qv_test_turn_ms(500);
    g_assert_cmpuint(t->states_n, <, 20); /* else hundreds */
    rights(f, rules[i][1]);
    fixture_add(f->producer, id, "{}");
    QvFetchedJob *job = test_worker_next(t);
    g_assert_cmpint(test_worker_complete(t, job, "1"), ==, QV_FINISH_DONE);
    g_assert_cmpuint(t->fetched_n, ==, 1);
  }
}

static void add(const char *name, void (*test)(Fixture *, gconstpointer))
{
  fixture_test_add("/queue/worker", name, FIXTURE_PLAIN, test);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  add("complete", test_complete);
  add("fail-and-next", test_fail_and_next);
  add("order", test_order);
  add("keep", test_keep);
  add("limits", test_limits);
  add("too-long", test_too_long);
  add("flags", test_flags);
  add("stalled", test_stalled);
  add("lock-lost", test_lock_lost);
  add("removed", test_removed);
  add("blocked-loop", test_blocked_loop);
  add("cancel-seen", test_cancel_seen);
  add("pause-and-drain", test_pause_and_drain);
  add("pause-while-fetching", test_pause_while_fetching);
  add("release", test_release);
  add("queue-paused", test_queue_paused);
  add("progress", test_progress);
  add("many", test_many);
  add("held-slot", test_held_slot);
  add("held-slots", test_held_slots);
  add("free-inside", test_free_inside);
  add("pump-inside", test_pump_inside);
  return g_test_run();
}
