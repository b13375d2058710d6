/* SPDX-License-Identifier: Apache-2.0 */
/* Fair fetching: round robin between tenants that wait, none over its cap, and nothing of BullMQ's view of the
 * queue moves for it. */
#include <string.h>

#include "fixture.h"

static void order(Fixture *f, const char *skip, const char *served)
{
  g_auto(GStrv) skips = g_strsplit(skip, " ", -1), serves = g_strsplit(served, " ", -1);
  qv_worker_set_tenants(f->t->worker, (const char *const *)skips, (const char *const *)serves);
}

static void add(Fixture *f, const char *id, const char *tenant)
{
  g_autofree char *data = g_strdup_printf("{\"keyId\":\"k\",\"job\":{\"tenantId\":\"%s\",\"run\":[]},\"sig\":\"s\"}", tenant);
  fixture_add(f->producer, id, data);
}

static void expect(Fixture *f, const char *id)
{
  QvFetchedJob *job = test_worker_next(f->t);
  g_assert_cmpstr(job->id, ==, id);
  g_assert_cmpint(test_worker_complete(f->t, job, "1"), ==, QV_FINISH_DONE);
}

/* After each job its tenant has been served last, as the runner says it. */
static void test_round_robin(Fixture *f, gconstpointer unused)
{
  add(f, "a1", "a");
  add(f, "a2", "a");
  add(f, "a3", "a");
  add(f, "b1", "b");
  add(f, "b2", "b");
  add(f, "c1", "c");
  static const char *const rows[][2] = {{"", "a1"}, {"a", "b1"}, {"a b", "c1"}, {"a b c", "a2"}, {"b c a", "b2"}, {"c a b", "a3"}};
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    order(f, "", rows[i][0]);
    qv_worker_resume(f->t->worker);
    QvFetchedJob *job = test_worker_next(f->t);
    g_assert_cmpstr(job->id, ==, rows[i][1]);
    qv_worker_pause(f->t->worker); /* so that the next one is fetched under the next order */
    g_assert_cmpint(test_worker_complete(f->t, job, "1"), ==, QV_FINISH_DONE);
  }
}

/* A thousand of one do not hide the one of another, and stay where they are, in their order. */
static void test_thousand(Fixture *f, gconstpointer unused)
{
  for (int i = 0; i < 1000; i++) {
    g_autofree char *id = g_strdup_printf("a%d", i);
    add(f, id, "a");
  }
  g_autofree char *before = qv_test_valkey_cli(f->valkey, "LRANGE", P "wait", "0", "-1", NULL);
  add(f, "b1", "b");
  order(f, "a", "a");
  qv_worker_resume(f->t->worker);
  expect(f, "b1");
  g_autofree char *after = qv_test_valkey_cli(f->valkey, "LRANGE", P "wait", "0", "-1", NULL);
  g_assert_cmpstr(before, ==, after);
  /* Nothing for this runner: it waits, and looks at once when the tenant may have one more. */
  qv_test_turn_ms(300);
  g_assert_cmpuint(f->t->fetched_n, ==, 1);
  order(f, "", "a b");
  expect(f, "a0");
  expect(f, "a1");
}

/* While it waits for the marker, also a second time. */
static void test_unskipped(Fixture *f, gconstpointer unused)
{
  qv_worker_set_concurrency(f->t->worker, 4);
  order(f, "a", "a");
  qv_worker_resume(f->t->worker);
  add(f, "a1", "a");
  add(f, "a2", "a");
  qv_test_turn_ms(500);
  g_assert_cmpuint(f->t->fetched_n, ==, 0);
  order(f, "", "a");
  QvFetchedJob *first = test_worker_next(f->t), *second = test_worker_next(f->t);
  g_assert_cmpstr(first->id, ==, "a1");
  g_assert_cmpstr(second->id, ==, "a2");
  order(f, "a", "a");
  add(f, "b1", "b"); /* the marker wakes the read that was there all the time */
  expect(f, "b1");
  add(f, "a3", "a");
  qv_test_turn_ms(300);
  g_assert_cmpint(test_worker_complete(f->t, first, "1"), ==, QV_FINISH_DONE);
  order(f, "", "a");
  expect(f, "a3");
  qv_worker_pause(f->t->worker);
  add(f, "b2", "b");
  qv_test_turn_ms(300);
  g_assert_cmpuint(f->t->fetched_n, ==, 4);
  qv_worker_resume(f->t->worker);
  expect(f, "b2");
}

/* What is no job of ours, and what must be failed, is never held back; a priority counts within its tenant. */
static void test_others(Fixture *f, gconstpointer unused)
{
  add(f, "a1", "a");
  fixture_add(f->producer, "junk", "no JSON at all");
  fixture_add(f->producer, "env", "{\"job\":{\"env\":{\"tenantId\":\"z\"},\"tenantId\":\"a\"}}");
  fixture_add(f->producer, "list", "[1]");
  add(f, "gone", "a");
  g_free(qv_test_valkey_cli(f->valkey, "DEL", P "gone", NULL));
  fixture_add(f->producer, "nohash", "{}");
  g_free(qv_test_valkey_cli(f->valkey, "SET", P "nohash", "text", NULL));
  add(f, "stuck", "a");
  g_free(qv_test_valkey_cli(f->valkey, "HSET", P "stuck", "defa", "job stalled more than allowable limit", NULL));
  g_free(qv_test_valkey_cli(f->valkey, "RPUSH", P "wait", "0:123", NULL));
  add(f, "low", "b");
  add(f, "high", "b");
  g_free(qv_test_valkey_cli(f->valkey, "LREM", P "wait", "0", "low", NULL));
  g_free(qv_test_valkey_cli(f->valkey, "LREM", P "wait", "0", "high", NULL));
  g_free(qv_test_valkey_cli(f->valkey, "ZADD", P "prioritized", "30064771072", "low", "8589934592", "high", NULL));
  order(f, "a", "a");
  qv_worker_resume(f->t->worker);
  expect(f, "junk");
  expect(f, "list");
  expect(f, "stuck");
  expect(f, "high");
  order(f, "", "b a"); /* the tenant in the environment is nobody's */
  QvFetchedJob *job = test_worker_next(f->t);
  g_assert_cmpstr(job->id, ==, "low"); /* it came with the last finish, or comes now: b is the older one */
  g_assert_cmpint(test_worker_complete(f->t, job, "1"), ==, QV_FINISH_DONE);
  expect(f, "a1");
  expect(f, "env");
  g_autofree char *left = qv_test_valkey_cli(f->valkey, "LRANGE", P "wait", "0", "-1", NULL);
  g_assert_cmpstr(left, ==, "");
}

/* Given back with the tenant that is signed, where the text says another. */
static void test_put_back(Fixture *f, gconstpointer unused)
{
  add(f, "liar", "b");
  g_free(qv_test_valkey_cli(f->valkey, "HSET", P "liar", "qvTenant", "c", NULL));
  order(f, "b", "b");
  qv_worker_resume(f->t->worker);
  QvFetchedJob *job = test_worker_next(f->t);
  g_assert_cmpstr(job->id, ==, "liar");
  g_assert_cmpint(test_worker_release_as(f->t, job, "b"), ==, QV_FINISH_DONE);
  qv_test_turn_ms(300);
  g_assert_cmpuint(f->t->fetched_n, ==, 1);
  order(f, "", "b");
  job = test_worker_next(f->t);
  g_assert_cmpint(job->attempts_started, ==, 1);
  g_assert_cmpint(test_worker_complete(f->t, job, "1"), ==, QV_FINISH_DONE);
}

/* Keys of ours go with the end, and only with an end that was stored. */
static void test_keys(Fixture *f, gconstpointer unused)
{
  g_autoptr(GPtrArray) names = g_ptr_array_new();
  for (int i = 0; i < 1100; i++)
    g_ptr_array_add(names, g_strdup_printf(PREFIX ":blob:x:%d", i));
  g_ptr_array_add(names, NULL);
  g_free(qv_test_valkey_cli(f->valkey, "SET", PREFIX ":blob:x:0", "1", NULL));
  g_free(qv_test_valkey_cli(f->valkey, "SET", PREFIX ":blob:x:1099", "1", NULL));
  fixture_add(f->producer, "one", "{}");
  qv_worker_resume(f->t->worker);
  QvFetchedJob *job = test_worker_next(f->t);
  g_free(qv_test_valkey_cli(f->valkey, "SET", P "one:lock", "another", NULL));
  qv_worker_take_keys(f->t->worker, job, g_strdupv((char **)names->pdata));
  g_assert_cmpint(test_worker_complete(f->t, job, "1"), ==, QV_FINISH_LOST);
  fixture_wait_cli(f->valkey, "2", "EXISTS", PREFIX ":blob:x:0", PREFIX ":blob:x:1099");
  fixture_add(f->producer, "two", "{}");
  job = test_worker_next(f->t);
  qv_worker_take_keys(f->t->worker, job, (char **)g_ptr_array_free(g_steal_pointer(&names), FALSE));
  g_assert_cmpint(test_worker_complete(f->t, job, "1"), ==, QV_FINISH_DONE);
  fixture_wait_cli(f->valkey, "0", "EXISTS", PREFIX ":blob:x:0", PREFIX ":blob:x:1099");
}

static void raw(Fixture *f, const char *command, const char *key, const char *a, const char *b)
{
  g_free(qv_test_valkey_cli(f->valkey, command, key, a, b, NULL));
}

/* A refused child lets its parent go, as its own options say, and a refused job the one that was left for its end. */
static void test_refused_frees_others(Fixture *f, gconstpointer unused)
{
  static const char *const flags[] = {"fpof", "cpof", "idof", "rdof", "none"};
  for (gsize i = 0; i < G_N_ELEMENTS(flags); i++) {
    g_autofree char *parent = g_strdup_printf(P "parent-%s", flags[i]), *child = g_strdup_printf("child-%s", flags[i]);
    g_autofree char *child_key = g_strconcat(P, child, NULL), *deps = g_strconcat(parent, ":dependencies", NULL);
    g_autofree char *text = g_strdup_printf("{\"id\":\"%s\",\"queueKey\":\"quavon-sandbox:sandbox\",\"%s\":true}", parent + strlen(P), flags[i]);
    raw(f, "HSET", parent, "data", "{}");
    raw(f, "SADD", deps, child_key, NULL);
    raw(f, "ZADD", P "waiting-children", "1", parent + strlen(P));
    fixture_add(f->producer, child, "{}");
    raw(f, "HSET", child_key, "parentKey", parent);
    raw(f, "HSET", child_key, "parent", text);
    qv_worker_resume(f->t->worker);
    QvFetchedJob *job = test_worker_next(f->t);
    g_assert_cmpstr(job->id, ==, child);
    g_assert_true(job->has_parent && job->has_parent_key);
    qv_worker_pause(f->t->worker);
    g_assert_cmpint(test_worker_fail(f->t, job, "rejected: unsupported"), ==, QV_FINISH_DONE);
    gboolean stays = g_str_equal(flags[i], "none");
    g_autofree char *waits = qv_test_valkey_cli(f->valkey, "LPOP", P "wait", NULL);
    g_assert_cmpstr(waits, ==, stays ? "" : parent + strlen(P));
    g_autofree char *why = qv_test_valkey_cli(f->valkey, "HEXISTS", parent, "defa", NULL);
    g_assert_cmpstr(why, ==, i == 0 ? "1" : "0");
  }
  raw(f, "HSET", P "dn:same", "name", "check");
  raw(f, "HSET", P "dn:same", "data", "{}");
  fixture_add(f->producer, "first", "{}");
  raw(f, "HSET", P "first", "deid", "same");
  raw(f, "SET", P "de:same", "first", NULL);
  qv_worker_resume(f->t->worker);
  QvFetchedJob *job = test_worker_next(f->t);
  g_assert_cmpstr(job->id, ==, "first");
  g_assert_cmpint(test_worker_fail(f->t, job, "rejected: unsupported"), ==, QV_FINISH_DONE);
  job = test_worker_next(f->t);
  g_assert_true(job->has_dedup);
  g_assert_cmpint(test_worker_fail(f->t, job, "rejected: unsupported"), ==, QV_FINISH_DONE);
  g_autofree char *left = qv_test_valkey_cli(f->valkey, "EXISTS", P "de:same", P "dn:same", NULL);
  g_assert_cmpstr(left, ==, "0");
}

static void on_pong(const QvReply *reply, const GError *error, gpointer user)
{
  g_assert_no_error(error);
  *(gboolean *)user = TRUE;
}

/* An end that meets an empty queue has looked under the order that its job made: nobody looks once more. That is one
 * script; a renewal or a look in its time would be another one, but not at every try. */
static void test_end_looks(Fixture *f, gconstpointer unused)
{
  guint least = G_MAXUINT;
  for (int i = 0; i < 10 && least > 1; i++) {
    g_autofree char *id = g_strdup_printf("a%d", i), *served = g_strdup_printf("t%d", i);
    add(f, id, "a");
    qv_worker_resume(f->t->worker);
    QvFetchedJob *job = test_worker_next(f->t);
    order(f, "", served);
    guint before = fixture_scripts_n(f->valkey);
    g_assert_cmpint(test_worker_complete(f->t, job, "1"), ==, QV_FINISH_DONE);
    gboolean done = FALSE;
    qv_conn_sendl(qv_worker_conn(f->t->worker), QV_SEND_AGAIN, 0, on_pong, &done, "PING", NULL); /* behind whatever was sent */
    QV_TEST_WAIT(done);
    least = MIN(least, fixture_scripts_n(f->valkey) - before);
  }
  g_assert_cmpuint(least, ==, 1);
}

/* More unread data of a tenant that may have no more than one look reads: it looks on, and does not wait for a marker. */
static void test_much_data(Fixture *f, gconstpointer unused)
{
  static const char *fill = "local data = '{\"job\":{\"tenantId\":\"a\"},\"x\":\"' .. string.rep('x', 1048000) .. '\"}' "
                            "for i = 1, 10 do redis.call('HSET', KEYS[1] .. 'a' .. i, 'name', 'check', 'data', data, 'timestamp', '1') "
                            "redis.call('LPUSH', KEYS[1] .. 'wait', 'a' .. i) end";
  g_free(qv_test_valkey_cli(f->valkey, "EVAL", fill, "1", P, NULL));
  add(f, "b1", "b");
  order(f, "a", "a");
  qv_worker_resume(f->t->worker);
  QvFetchedJob *job = test_worker_next(f->t);
  g_autofree char *stats = qv_test_valkey_cli(f->valkey, "INFO", "commandstats", NULL);
  g_assert_cmpstr(job->id, ==, "b1");
  g_assert_null(strstr(stats, "cmdstat_bzpopmin"));
  assert_cli(f, "10", "LLEN", P "wait", NULL);
}

static void add_test(const char *name, void (*test)(Fixture *, gconstpointer))
{
  fixture_test_add("/queue/fair", name, FIXTURE_WORKER, test);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  add_test("round-robin", test_round_robin);
  add_test("thousand", test_thousand);
  add_test("unskipped", test_unskipped);
  add_test("others", test_others);
  add_test("put-back", test_put_back);
  add_test("keys", test_keys);
  add_test("refused-frees-others", test_refused_frees_others);
  add_test("end-looks", test_end_looks);
  add_test("much-data", test_much_data);
  return g_test_run();
}
