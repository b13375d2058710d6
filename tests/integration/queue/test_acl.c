/* SPDX-License-Identifier: Apache-2.0 */
/* The shipped users: foreign keys and channels are refused to each, the sandbox's commands are exactly those that the
 * worker and the stores send, and a server with those users is what all other tests here run on. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "fixture.h"
#include "queue/subscriber.h"

typedef struct {
  guint n;
  gint code;
} Seen;

static void see(const QvReply *reply, const GError *error, gpointer user)
{
  Seen *seen = user;
  seen->n++;
  seen->code = error ? error->code : -1;
}

static const char *const refused[] = {
  /* user, command and arguments */
  "worker GET somebody:else",
  "worker GET quavon-sandbox:replay:x",
  "worker SET quavon-sandbox:replay:x 1",
  "worker SET quavon-sandbox:health:x 1",
  "worker GET quavon-sandbox:egress:x",
  "worker GET quavon-sandbox-other:sandbox:meta",
  "worker PUBLISH somebody 1",
  "worker SUBSCRIBE quavon-sandbox:egress",
  "worker KEYS *",
  "worker SCAN 0",
  "worker CONFIG GET *",
  "worker FLUSHALL",
  "worker CLIENT LIST",
  "worker EVAL return{redis.call('get','somebody:else')} 0",
  "worker ACL LIST",
  "sandbox GET somebody:else",
  "sandbox SET quavon-sandbox:cancel:x 1",
  "sandbox UNLINK quavon-sandbox:cancel:x",
  "sandbox GET quavon-sandbox-other:blob:x",
  "sandbox PUBLISH somebody 1",
  "sandbox KEYS *",
  "sandbox SCAN 0",
  "sandbox CONFIG GET *",
  "sandbox INFO",
  "sandbox FLUSHDB",
  "sandbox EVAL return{redis.call('get','somebody:else')} 0",
  "egress GET quavon-sandbox:sandbox:meta",
  "egress GET quavon-sandbox:blob:x",
  "egress SET quavon-sandbox:egress:x 1",
  "egress SUBSCRIBE quavon-sandbox:cancel",
  "egress EVAL return{1} 0",
  "egress SCAN 0",
  "egress KEYS *",
};

static void test_refused(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  const char *users[] = { "worker", "sandbox", "egress" };
  for (gsize u = 0; u < G_N_ELEMENTS(users); u++) {
    g_autoptr(QvAddress) address = fixture_address(qv_test_valkey_url(v, users[u]));
    g_autoptr(QvConn) conn = qv_conn_new(address, NULL);
    for (gsize i = 0; i < G_N_ELEMENTS(refused); i++) {
      g_auto(GStrv) words = g_strsplit(refused[i], " ", -1);
      if (!g_str_equal(words[0], users[u]))
        continue;
      Seen seen = { 0 };
      qv_conn_send(conn, QV_SEND_ONCE, 0, g_strv_length(words) - 1, (const char *const *)words + 1, NULL, see, &seen);
      QV_TEST_WAIT(seen.n == 1);
      if (seen.code != QV_ERROR_AUTH)
        g_error("not refused: %s (%d)", refused[i], seen.code);
    }
  }
}

static void test_egress(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  g_autoptr(QvAddress) address = fixture_address(qv_test_valkey_url(v, "egress"));
  g_autoptr(QvConn) conn = qv_conn_new(address, NULL);
  Seen seen[3] = { 0 };
  qv_conn_sendl(conn, QV_SEND_ONCE, 0, see, &seen[0], "GET", PREFIX ":egress:x", NULL);
  qv_conn_sendl(conn, QV_SEND_ONCE, 0, see, &seen[1], "PUBLISH", PREFIX ":egress-usage", "x", NULL);
  qv_conn_sendl(conn, QV_SEND_ONCE, 0, see, &seen[2], "SUBSCRIBE", PREFIX ":egress", NULL);
  QV_TEST_WAIT(seen[2].n == 1);
  for (int i = 0; i < 3; i++)
    g_assert_cmpint(seen[i].code, ==, -1);
}

/* Everything that a runner asks of Valkey, in the ways that reach every branch of the scripts. */

static void on_guard(QvGuard guard, const GError *error, gpointer user)
{
  ((Seen *)user)->n++;
}

static void on_done(const GError *error, gpointer user)
{
  g_assert_no_error(error);
  ((Seen *)user)->n++;
}

static void on_bytes(GBytes *bytes, const GError *error, gpointer user)
{
  g_assert_no_error(error);
  ((Seen *)user)->n++;
}

static void on_message(const char *channel, const char *text, gsize len, gpointer user)
{
}

static void on_ready(gpointer user)
{
  ((Seen *)user)->n++;
}

static void use_stores(QvAddress *address, QvConn *conn)
{
  static const QvSubscriberEvents events = { on_message, on_ready, NULL };
  Seen seen = { 0 };
  g_autoptr(GBytes) chunk = g_bytes_new_static("x", 1);
  const char *channels[] = { PREFIX ":cancel", PREFIX ":smoke", PREFIX ":egress-usage", NULL };
  G_GNUC_UNUSED g_autoptr(QvSubscriber) subscriber = qv_subscriber_new(address, NULL, channels, &events, &seen);
  qv_replay_guard_take(conn, PREFIX, "j", "r", 1000, 0, on_guard, &seen);
  qv_blob_put(conn, PREFIX, "j.result", 0, chunk, 1000, 0, on_done, &seen);
  qv_blob_get(conn, PREFIX, "j.base", 0, 0, on_bytes, &seen);
  qv_blob_unlink(conn, PREFIX, "j.base", 1, 0, on_done, &seen);
  qv_cancel_get(conn, PREFIX, "j", 0, on_bytes, &seen);
  qv_health_put(conn, PREFIX, "r", qv_clock_unix_ms(), "{}", 2, 0, on_done, &seen);
  qv_conn_sendl(conn, QV_SEND_ONCE, 0, see, &seen, "GET", PREFIX ":smoke:r", NULL);
  qv_conn_sendl(conn, QV_SEND_ONCE, 0, see, &seen, "PUBLISH", PREFIX ":live", "j 0", NULL);
  qv_conn_sendl(conn, QV_SEND_ONCE, 0, see, &seen, "PUBLISH", PREFIX ":egress", "h", NULL);
  QV_TEST_WAIT(seen.n == 10);
}

static void raw_job(QvTestValkey *v, const char *id, const char *field, const char *value)
{
  g_autofree char *key = g_strconcat(P, id, NULL);
  g_free(qv_test_valkey_cli(v, "HSET", key, "name", "check", "data", "{}", "opts",
                            "{\"attempts\":1,\"removeOnComplete\":{\"age\":10,\"count\":1}}", field, value, NULL));
}

/* How often the server has run a command. */
static gint64 calls(QvTestValkey *v, const char *command)
{
  g_autofree char *stat = qv_test_valkey_cli(v, "INFO", "commandstats", NULL);
  g_autofree char *needle = g_strdup_printf("cmdstat_%s:calls=", command);
  const char *at = strstr(stat, needle);
  return at != NULL ? g_ascii_strtoll(at + strlen(needle), NULL, 10) : 0;
}

static void use_worker(QvTestValkey *v, QvAddress *address)
{
  raw_job(v, "plain", "x", "y");
  raw_job(v, "dedup", "deid", "d");
  raw_job(v, "prio", "priority", "3");
  raw_job(v, "late", "priority", "4");
  g_free(qv_test_valkey_cli(v, "SET", P "de:d", "dedup", NULL));
  g_free(qv_test_valkey_cli(v, "HSET", P "meta", "max", "1000", "duration", "1000", "concurrency", "50", NULL));
  g_free(qv_test_valkey_cli(v, "ZADD", P "completed", "1000", "old", NULL));
  g_free(qv_test_valkey_cli(v, "LPUSH", P "wait", "ghost", "plain", "dedup", NULL));
  g_free(qv_test_valkey_cli(v, "ZADD", P "prioritized", "12884901888", "prio", NULL));
  g_free(qv_test_valkey_cli(v, "ZADD", P "delayed", "4096", "late", NULL));
  raw_job(v, "soon", "x", "y");
  g_free(qv_test_valkey_cli(v, "ZADD", P "delayed", "8192", "soon", NULL));
  g_free(qv_test_valkey_cli(v, "LPUSH", P "active", "stuck", NULL));
  raw_job(v, "stuck", "x", "y");
  g_free(qv_test_valkey_cli(v, "SADD", P "stalled", "stuck", NULL));
  g_autoptr(TestWorker) t = test_worker_new(address, 1, 30000, 1000);
  qv_worker_resume(t->worker);
  for (int i = 0; i < 6; i++) {
    QvFetchedJob *job = test_worker_next(t);
    qv_worker_progress(t->worker, job, "1");
    QvFinish end = i == 1 ? test_worker_fail(t, job, "no") : test_worker_complete(t, job, "1");
    g_assert_cmpint(end, ==, QV_FINISH_DONE);
  }
  raw_job(v, "back", "x", "y");
  g_free(qv_test_valkey_cli(v, "LPUSH", P "wait", "back", NULL));
  g_free(qv_test_valkey_cli(v, "ZADD", P "marker", "0", "0", NULL));
  g_assert_cmpint(test_worker_release(t, test_worker_next(t)), ==, QV_FINISH_DONE);
  QvFetchedJob *job = test_worker_next(t);
  gint64 before = calls(v, "pexpire");
  QV_TEST_WAIT(calls(v, "pexpire") > before); /* a renewal */
  g_assert_cmpint(test_worker_complete(t, job, "1"), ==, QV_FINISH_DONE);
  g_assert_null(t->trouble);
}

/* The commands of a user in the ACL file. */
static GPtrArray *allowed(QvTestValkey *v, const char *user)
{
  GPtrArray *out = g_ptr_array_new_with_free_func(g_free);
  g_autofree char *list = qv_test_valkey_cli(v, "ACL", "LIST", NULL);
  g_autofree char *start = g_strdup_printf("user %s ", user);
  g_auto(GStrv) lines = g_strsplit(list, "\n", -1);
  for (char **line = lines; *line; line++) {
    g_auto(GStrv) words = g_strsplit(*line, " ", -1);
    for (char **word = words; g_str_has_prefix(*line, start) && *word; word++)
      if (**word == '+')
        g_ptr_array_add(out, g_strdup(*word + 1));
  }
  return out;
}

static void test_exactly(void)
{
  g_autoptr(QvTestValkey) v = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  g_autoptr(QvTestProxy) proxy = qv_test_proxy_start(qv_test_valkey_dir(v), qv_test_valkey_socket(v));
  g_autoptr(QvAddress) address = fixture_address(qv_test_valkey_url(v, "sandbox"));
  g_autoptr(QvAddress) proxied = fixture_proxied(v, proxy, "sandbox");
  g_autoptr(GPtrArray) commands = allowed(v, "sandbox");
  g_assert_cmpuint(commands->len, >, 30);
  g_autoptr(QvConn) conn = qv_conn_new(address, NULL);
  use_stores(address, conn);
  use_worker(v, address);
  /* A finish whose reply is lost asks whether it worked. */
  g_autoptr(TestWorker) t = test_worker_new(proxied, 1, 30000, 30000);
  raw_job(v, "again", "x", "y");
  g_free(qv_test_valkey_cli(v, "LPUSH", P "wait", "again", NULL));
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  qv_test_proxy_lose_reply_to(proxy, "{\"my\":1}", 1);
  g_assert_cmpint(test_worker_complete(t, job, "{\"my\":1}"), ==, QV_FINISH_DONE);
  /* No command was refused, ... */
  g_autofree char *denied = qv_test_valkey_cli(v, "ACL", "LOG", NULL);
  g_assert_cmpstr(denied, ==, "");
  /* ... and none of the list was idle. (The set-up, as admin, uses seven of them too.) */
  for (guint i = 0; i < commands->len; i++) {
    const char *command = commands->pdata[i];
    g_autofree char *stat = qv_test_valkey_cli(v, "INFO", "commandstats", NULL);
    g_autofree char *needle = g_strdup_printf("cmdstat_%s:", command);
    if (!strstr(stat, needle))
      g_error("the sandbox may run %s, and nothing does", command);
  }
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/queue/acl/refused", test_refused);
  g_test_add_func("/queue/acl/egress", test_egress);
  g_test_add_func("/queue/acl/exactly", test_exactly);
  return g_test_run();
}
