/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <string.h>

#include "base/clock.h"

QvAddress *fixture_address(const char *url)
{
  g_autoptr(GError) error = NULL;
  QvAddress *address = qv_address_parse(url, &error);
  g_assert_no_error(error);
  return address;
}

QvAddress *fixture_proxied(QvTestValkey *v, QvTestProxy *p, const char *user)
{
  g_autofree char *url = g_strdup_printf("unix://%s:%s@%s", user, qv_test_valkey_password(v), qv_test_proxy_socket(p));
  return fixture_address(url);
}

static void on_job(QvWorker *worker, QvFetchedJob *job, gpointer user)
{
  TestWorker *t = user;
  t->fetched_n++;
  g_ptr_array_add(t->jobs, job);
}

static void on_lock_lost(QvWorker *worker, QvFetchedJob *job, const char *why, gpointer user)
{
  TestWorker *t = user;
  g_assert_nonnull(why);
  t->lost_n++;
  t->lost = job;
}

static void on_cancel_seen(QvWorker *worker, QvFetchedJob *job, gpointer user)
{
  ((TestWorker *)user)->cancels_n++;
}

static void on_state(QvWorker *worker, const GError *why, gpointer user)
{
  TestWorker *t = user;
  t->states_n++;
  g_free(t->trouble);
  t->trouble = why ? g_strdup(why->message) : NULL;
  if (why && !t->first_trouble)
    t->first_trouble = g_strdup(why->message);
  g_test_message("worker state: %s", t->trouble ? t->trouble : "fine");
  if (t->state_hook)
    t->state_hook(t);
}

TestWorker *test_worker_new(QvAddress *address, guint concurrency, gint64 lock_ms, gint64 stalled_ms)
{
  static const QvWorkerEvents events = { on_job, on_lock_lost, on_cancel_seen, on_state };
  TestWorker *t = g_new0(TestWorker, 1);
  QvWorkerOptions options = { address, PREFIX, "runner-1", concurrency, lock_ms, stalled_ms, 1024 * 1024 };
  t->jobs = g_ptr_array_new();
  t->worker = qv_worker_new(&options, &events, t);
  return t;
}

void test_worker_free(TestWorker *t)
{
  qv_worker_free(t->worker);
  g_ptr_array_unref(t->jobs);
  g_free(t->trouble);
  g_free(t->first_trouble);
  g_free(t);
}

static void on_drained(const GError *error, gpointer user)
{
  ((TestWorker *)user)->drained = TRUE;
}

void test_worker_drain(TestWorker *t)
{
  qv_worker_drain(t->worker, on_drained, t);
}

QvFetchedJob *test_worker_next(TestWorker *t)
{
  QV_TEST_WAIT(t->jobs->len > 0);
  return g_ptr_array_steal_index(t->jobs, 0);
}

typedef struct {
  gboolean done;
  gint64 value;
  char *text;
} Outcome;

static void on_finish(QvFinish finish, const GError *error, gpointer user)
{
  Outcome *o = user;
  g_assert_no_error(error);
  o->value = finish;
  o->done = TRUE;
}

QvFinish test_worker_complete(TestWorker *t, QvFetchedJob *job, const char *json)
{
  Outcome o = { 0 };
  qv_worker_complete(t->worker, job, json, strlen(json), on_finish, &o);
  QV_TEST_WAIT(o.done);
  return o.value;
}

QvFinish test_worker_fail(TestWorker *t, QvFetchedJob *job, const char *reason)
{
  Outcome o = { 0 };
  qv_worker_fail(t->worker, job, reason, on_finish, &o);
  QV_TEST_WAIT(o.done);
  return o.value;
}

QvFinish test_worker_release_as(TestWorker *t, QvFetchedJob *job, const char *tenant)
{
  Outcome o = { 0 };
  qv_worker_release(t->worker, job, tenant, on_finish, &o);
  QV_TEST_WAIT(o.done);
  return o.value;
}

QvFinish test_worker_release(TestWorker *t, QvFetchedJob *job)
{
  return test_worker_release_as(t, job, NULL);
}

static void on_added(QvAdd added, const GError *error, gpointer user)
{
  on_finish((QvFinish)added, error, user);
}

QvAdd fixture_add(QvProducer *producer, const char *id, const char *data)
{
  Outcome o = { 0 };
  qv_producer_add(producer, id, "check", data, strlen(data), qv_clock_unix_ms(), on_added, &o);
  QV_TEST_WAIT(o.done);
  return o.value;
}

static void on_count(gint64 count, const GError *error, gpointer user)
{
  on_finish((QvFinish)count, error, user);
}

gint64 fixture_count(QvProducer *producer)
{
  Outcome o = { 0 };
  qv_producer_count(producer, on_count, &o);
  QV_TEST_WAIT(o.done);
  return o.value;
}

static void on_removed(gboolean removed, const GError *error, gpointer user)
{
  on_finish((QvFinish)removed, error, user);
}

gboolean fixture_remove(QvProducer *producer, const char *id)
{
  Outcome o = { 0 };
  qv_producer_remove(producer, id, on_removed, &o);
  QV_TEST_WAIT(o.done);
  return o.value;
}

static void on_job_state(QvJobState state, const char *text, gsize len, const GError *error, gpointer user)
{
  static const char *const names[] = { "unknown", "waiting", "active", "completed", "failed" };
  Outcome *o = user;
  g_assert_no_error(error);
  o->text = text ? g_strdup_printf("%s %.*s", names[state], (int)len, text) : g_strdup(names[state]);
  o->done = TRUE;
}

char *fixture_state(QvProducer *producer, const char *id)
{
  Outcome o = { 0 };
  qv_producer_state(producer, id, 1024 * 1024, on_job_state, &o);
  QV_TEST_WAIT(o.done);
  return o.text;
}

char *fixture_events(QvTestValkey *v, guint from)
{
  static const char script[] = "local out = {} "
                               "for _, e in ipairs(redis.call('XRANGE', KEYS[1], '-', '+')) do "
                               "  local f, line = e[2], e[2][2] "
                               "  for i = 3, #f, 2 do line = line .. ' ' .. f[i] .. '=' .. f[i + 1] end "
                               "  out[#out + 1] = line "
                               "end "
                               "return table.concat(out, '\\n', ARGV[1] + 1)";
  g_autofree char *n = g_strdup_printf("%u", from);
  return qv_test_valkey_cli(v, "EVAL", script, "1", P "events", n, NULL);
}

guint fixture_calls_n(QvTestValkey *v, const char *command)
{
  g_autofree char *stats = qv_test_valkey_cli(v, "INFO", "commandstats", NULL);
  g_autofree char *name = g_strdup_printf("cmdstat_%s:calls=", command);
  const char *at = strstr(stats, name);
  g_assert_nonnull(at);
  return (guint)g_ascii_strtoull(at + strlen(name), NULL, 10);
}

guint fixture_scripts_n(QvTestValkey *v)
{
  return fixture_calls_n(v, "evalsha");
}

void fixture_wait_cli(QvTestValkey *v, const char *expected, const char *command, const char *key, const char *more)
{
  g_autofree char *last = NULL;
  for (gint64 end = g_get_monotonic_time() + QV_TEST_DEADLINE_S * G_USEC_PER_SEC; g_get_monotonic_time() < end;) {
    g_free(last);
    last = qv_test_valkey_cli(v, command, key, more, NULL);
    if (g_str_equal(last, expected))
      return;
    qv_test_turn_ms(20);
  }
  g_error("%s %s: still '%s', not '%s'", command, key, last, expected);
}

static gboolean has_blocked_read(QvTestValkey *v)
{
  g_autofree char *list = qv_test_valkey_cli(v, "CLIENT", "LIST", NULL);
  g_auto(GStrv) lines = g_strsplit(list, "\n", -1);
  gboolean found = FALSE;
  for (char **line = lines; *line; line++)
    found |= strstr(*line, " cmd=bzpopmin") && strstr(*line, " flags=b");
  return found;
}

void fixture_await_blocked_read(QvTestValkey *v)
{
  QV_TEST_WAIT(has_blocked_read(v));
}

static void set_up(Fixture *f, gconstpointer data)
{
  FixtureParts parts = GPOINTER_TO_UINT(data);
  f->valkey = qv_test_valkey_start((parts & FIXTURE_PROXY) != 0 ? QV_TEST_VALKEY_PERSIST : QV_TEST_VALKEY_PLAIN);
  f->worker_address = fixture_address(qv_test_valkey_url(f->valkey, "worker"));
  f->sandbox_address = fixture_address(qv_test_valkey_url(f->valkey, "sandbox"));
  if ((parts & FIXTURE_PROXY) != 0) {
    f->proxy = qv_test_proxy_start(qv_test_valkey_dir(f->valkey), qv_test_valkey_socket(f->valkey));
    f->proxied_sandbox = fixture_proxied(f->valkey, f->proxy, "sandbox");
    f->proxied_worker = fixture_proxied(f->valkey, f->proxy, "worker");
  }
  f->conn = qv_conn_new(f->worker_address, NULL);
  if ((parts & FIXTURE_SANDBOX_CONN) != 0)
    f->sandbox_conn = qv_conn_new(f->sandbox_address, NULL);
  f->producer = qv_producer_new(f->conn, PREFIX, 0);
  if ((parts & FIXTURE_WORKER) != 0)
    f->t = test_worker_new(f->sandbox_address, 1, 30000, 30000);
}

static void tear_down(Fixture *f, gconstpointer data)
{
  g_clear_pointer(&f->t, test_worker_free);
  qv_producer_free(f->producer);
  qv_conn_free(f->conn);
  g_clear_pointer(&f->sandbox_conn, qv_conn_free);
  qv_address_unref(f->worker_address);
  qv_address_unref(f->sandbox_address);
  g_clear_pointer(&f->proxied_sandbox, qv_address_unref);
  g_clear_pointer(&f->proxied_worker, qv_address_unref);
  g_clear_pointer(&f->proxy, qv_test_proxy_free);
  qv_test_valkey_free(f->valkey);
}

void fixture_test_add(const char *path, const char *name, FixtureParts parts, void (*test)(Fixture *, gconstpointer))
{
  g_autofree char *full = g_strconcat(path, "/", name, NULL);
  g_test_add(full, Fixture, GUINT_TO_POINTER(parts), set_up, test, tear_down);
}

void fixture_assert_cli(QvTestValkey *valkey, const char *expected, const char *command, const char *key, const char *more)
{
  g_autofree char *got = qv_test_valkey_cli(valkey, command, key, more, NULL);
  g_assert_cmpstr(got, ==, expected);
}
