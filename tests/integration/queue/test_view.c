/* SPDX-License-Identifier: Apache-2.0 */
/* What people see of a queue, and its pause: as user `worker`, with both of BullMQ's ways to keep a paused queue's jobs. */
#include <string.h>

#include "fixture.h"
#include "queue/view.h"

typedef struct {
  guint n;
  QvQueueView *view;
} Seen;

static void on_view(QvQueueView *view, const GError *error, gpointer user)
{
  Seen *seen = user;
  g_assert_no_error(error);
  seen->view = view;
  seen->n++;
}

static void on_done(const GError *error, gpointer user)
{
  g_assert_no_error(error);
  ((Seen *)user)->n++;
}

static QvQueueView *look(QvConn *conn, guint waiting_max, guint ended_max)
{
  Seen seen = { 0 };
  qv_queue_view(conn, PREFIX, waiting_max, ended_max, 0, on_view, &seen);
  QV_TEST_WAIT(seen.n == 1);
  return seen.view;
}

static void set_pause(QvConn *conn, gboolean pause)
{
  Seen seen = { 0 };
  qv_queue_pause(conn, PREFIX, pause, 0, on_done, &seen);
  QV_TEST_WAIT(seen.n == 1);
}

/* "w:a w:b a:c …" */
static char *listed(const QvQueueView *view)
{
  GString *text = g_string_new(NULL);
  for (guint i = 0; i < view->jobs->len; i++) {
    const QvViewJob *job = view->jobs->pdata[i];
    g_string_append_printf(text, "%s%c:%s", i > 0 ? " " : "", "wacf"[job->state], job->id);
  }
  return g_string_free(text, FALSE);
}

static void expect_listed(QvConn *conn, guint waiting_max, guint ended_max, const char *want)
{
  g_autoptr(QvQueueView) view = look(conn, waiting_max, ended_max);
  g_autofree char *is = listed(view);
  g_assert_cmpstr(is, ==, want);
}

static void test_view(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  g_autoptr(QvAddress) address = fixture_address(qv_test_valkey_url(v, "worker"));
  g_autoptr(QvAddress) sandbox = fixture_address(qv_test_valkey_url(v, "sandbox"));
  g_autoptr(QvConn) conn = qv_conn_new(address, NULL);
  g_autoptr(QvProducer) producer = qv_producer_new(conn, PREFIX, 0);
  expect_listed(conn, 10, 10, "");
  static const char *const ids[] = { "one", "two", "three", "four", "five" };
  for (gsize i = 0; i < G_N_ELEMENTS(ids); i++)
    fixture_add(producer, ids[i], "{}");
  g_autoptr(TestWorker) t = test_worker_new(sandbox, 1, 30000, 30000);
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  qv_worker_progress(t->worker, job, "{\"x\":1}");
  g_assert_cmpint(test_worker_complete(t, job, "1"), ==, QV_FINISH_DONE);
  g_assert_cmpint(test_worker_fail(t, test_worker_next(t), "rejected: malformed"), ==, QV_FINISH_DONE);
  QvFetchedJob *held = test_worker_next(t);
  expect_listed(conn, 10, 10, "w:four w:five a:three c:one f:two");
  expect_listed(conn, 1, 0, "w:four a:three");
  g_autoptr(QvQueueView) view = look(conn, 0, 1);
  g_assert_cmpint(view->waiting, ==, 2);
  g_assert_cmpint(view->active, ==, 1);
  g_assert_cmpint(view->completed, ==, 1);
  g_assert_cmpint(view->failed, ==, 1);
  const QvViewJob *active = view->jobs->pdata[0], *completed = view->jobs->pdata[1], *failed = view->jobs->pdata[2];
  g_assert_cmpint(active->processed_on, >=, active->timestamp);
  g_assert_cmpint(active->finished_on, ==, 0);
  g_assert_cmpint(completed->finished_on, >=, completed->processed_on);
  g_assert_cmpstr(completed->progress, ==, "{\"x\":1}");
  g_assert_null(completed->failed_reason);
  g_assert_cmpstr(failed->failed_reason, ==, "rejected: malformed");
  /* What is too long to be shown is not sent. */
  g_autofree char *long_text = g_strnfill(5000, 'x');
  g_free(qv_test_valkey_cli(v, "HSET", P "three", "progress", long_text, "pb", long_text, NULL));
  g_autoptr(QvQueueView) after = look(conn, 0, 0);
  g_assert_null(((QvViewJob *)after->jobs->pdata[0])->progress);
  g_assert_null(((QvViewJob *)after->jobs->pdata[0])->worker);
  g_assert_cmpint(test_worker_complete(t, held, "1"), ==, QV_FINISH_DONE);
}

static void expect_cli(QvTestValkey *v, const char *want, const char *command, const char *key, const char *a, const char *b)
{
  g_autofree char *is = qv_test_valkey_cli(v, command, key, a, b, NULL);
  g_assert_cmpstr(is, ==, want);
}

static void test_pause(gconstpointer version)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  g_autoptr(QvAddress) address = fixture_address(qv_test_valkey_url(v, "worker"));
  g_autoptr(QvConn) conn = qv_conn_new(address, NULL);
  g_autoptr(QvProducer) producer = qv_producer_new(conn, PREFIX, 0);
  gboolean five = g_str_has_prefix(version, "bullmq:5.");
  g_free(qv_test_valkey_cli(v, "HSET", P "meta", "version", (const char *)version, NULL));
  fixture_add(producer, "one", "{}");
  fixture_add(producer, "two", "{}");
  set_pause(conn, TRUE);
  set_pause(conn, TRUE); /* once is enough */
  expect_cli(v, "1", "HGET", P "meta", "paused", NULL);
  expect_cli(v, "two\none", "LRANGE", five ? P "paused" : P "wait", "0", "-1");
  expect_cli(v, "0", "EXISTS", five ? P "wait" : P "paused", P "marker", NULL);
  fixture_add(producer, "three", "{}");
  expect_listed(conn, 10, 0, "w:one w:two w:three");
  g_autoptr(QvQueueView) view = look(conn, 0, 0);
  g_assert_true(view->paused);
  g_assert_cmpint(view->waiting, ==, 3);
  /* Something that was put into `wait` all the same stays behind the older ones. */
  if (five)
    g_free(qv_test_valkey_cli(v, "LPUSH", P "wait", "four", NULL));
  set_pause(conn, FALSE);
  set_pause(conn, FALSE);
  expect_cli(v, "", "HGET", P "meta", "paused", NULL);
  expect_cli(v, five ? "four\nthree\ntwo\none" : "three\ntwo\none", "LRANGE", P "wait", "0", "-1");
  expect_cli(v, "0", "EXISTS", P "paused", NULL, NULL);
  expect_cli(v, "1", "EXISTS", P "marker", NULL, NULL);
  g_autofree char *events = fixture_events(v, 0);
  g_assert_nonnull(strstr(events, "paused"));
  g_assert_nonnull(strstr(events, "resumed"));
}

/* A worker takes nothing while it lasts, and goes on at once. */
static void test_worker(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  g_autoptr(QvAddress) address = fixture_address(qv_test_valkey_url(v, "worker"));
  g_autoptr(QvAddress) sandbox = fixture_address(qv_test_valkey_url(v, "sandbox"));
  g_autoptr(QvConn) conn = qv_conn_new(address, NULL);
  g_autoptr(QvProducer) producer = qv_producer_new(conn, PREFIX, 0);
  g_autoptr(TestWorker) t = test_worker_new(sandbox, 1, 30000, 30000);
  set_pause(conn, TRUE);
  qv_worker_resume(t->worker);
  fixture_add(producer, "one", "{}");
  qv_test_turn_ms(4000); /* longer than a blocking read */
  g_assert_cmpuint(t->fetched_n, ==, 0);
  set_pause(conn, FALSE);
  g_assert_cmpint(test_worker_complete(t, test_worker_next(t), "1"), ==, QV_FINISH_DONE);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/queue/view/view", test_view);
  g_test_add_data_func("/queue/view/pause-5", "bullmq:5.81.5", test_pause);
  g_test_add_data_func("/queue/view/pause-6", "bullmq:6.7.0", test_pause);
  g_test_add_func("/queue/view/worker", test_worker);
  return g_test_run();
}
