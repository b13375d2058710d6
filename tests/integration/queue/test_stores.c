/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs, cancel, health, messages and waiting against a real server under the shipped ACL file. */
#include <string.h>

#include "base/error.h"
#include "fixture.h"
#include "queue/subscriber.h"

typedef struct {
  guint n;
  GBytes *bytes;
} Got;

static void on_done(const GError *error, gpointer user)
{
  g_assert_no_error(error);
  ((Got *)user)->n++;
}

static void on_bytes(GBytes *bytes, const GError *error, gpointer user)
{
  Got *got = user;
  g_assert_no_error(error);
  got->n++;
  g_clear_pointer(&got->bytes, g_bytes_unref);
  got->bytes = bytes ? g_bytes_ref(bytes) : NULL;
}

static GBytes *get_chunk(Fixture *f, guint chunk)
{
  Got got = { 0 };
  qv_blob_get(f->sandbox_conn, PREFIX, "job.base", chunk, 0, on_bytes, &got);
  QV_TEST_WAIT(got.n == 1);
  return got.bytes;
}

static void test_blobs(Fixture *f, gconstpointer unused)
{
  gsize sizes[] = { QV_CHUNK_MAX_BYTES, 100, QV_CHUNK_MAX_BYTES + 5000 };
  for (guint i = 0; i < 3; i++) {
    guint8 *bytes = g_malloc0(sizes[i]);
    bytes[sizes[i] - 1] = (guint8)(i + 1);
    g_autoptr(GBytes) chunk = g_bytes_new_take(bytes, sizes[i]);
    Got put = { 0 };
    qv_blob_put(f->conn, PREFIX, "job.base", i, chunk, 600000, 0, on_done, &put);
    QV_TEST_WAIT(put.n == 1);
    g_autoptr(GBytes) back = get_chunk(f, i);
    if (i < 2)
      g_assert_true(g_bytes_equal(back, chunk));
    else
      g_assert_cmpuint(g_bytes_get_size(back), ==, QV_CHUNK_MAX_BYTES + 1); /* too long is seen, and no more of it is read */
  }
  g_assert_null(get_chunk(f, 3));
  g_autofree char *ttl = qv_test_valkey_cli(f->valkey, "PTTL", PREFIX ":blob:job.base:0", NULL);
  g_assert_cmpint(g_ascii_strtoll(ttl, NULL, 10), >, 0);
  Got cancelled = { 0 }, unlinked = { 0 };
  qv_conn_cancel(f->sandbox_conn, qv_blob_get(f->sandbox_conn, PREFIX, "job.base", 0, 0, on_bytes, &cancelled));
  qv_blob_unlink(f->sandbox_conn, PREFIX, "job.base", 5, 0, on_done, &unlinked);
  QV_TEST_WAIT(unlinked.n == 1);
  g_assert_cmpuint(cancelled.n, ==, 0);
  for (guint i = 0; i < 3; i++)
    g_assert_null(get_chunk(f, i));
}

typedef struct {
  guint ready_n, failed_n, messages_n;
  gint code;
  char last[64];
} Heard;

static void on_message(const char *channel, const char *text, gsize len, gpointer user)
{
  Heard *h = user;
  h->messages_n++;
  g_assert_cmpuint(strlen(text), ==, len);
  g_snprintf(h->last, sizeof h->last, "%s %s", strrchr(channel, ':') + 1, text);
}

static void on_ready(gpointer user)
{
  ((Heard *)user)->ready_n++;
}

static void on_failed(const GError *why, gpointer user)
{
  Heard *h = user;
  h->failed_n++;
  h->code = why->code;
}

static void test_egress_tokens(Fixture *f, gconstpointer unused)
{
  static const QvSubscriberEvents events = { on_message, on_ready, on_failed };
  Heard heard = { 0 };
  g_autofree char *hash = g_strnfill(64, 'a');
  g_autofree char *channel = qv_egress_channel(PREFIX), *usage = qv_egress_usage_channel(PREFIX);
  g_autofree char *key = g_strconcat(PREFIX ":egress:", hash, NULL);
  const char *channels[] = { channel, usage, NULL };
  g_autoptr(QvAddress) proxy = fixture_address(qv_test_valkey_url(f->valkey, "egress"));
  G_GNUC_UNUSED g_autoptr(QvSubscriber) subscriber = qv_subscriber_new(proxy, NULL, channels, &events, &heard);
  QV_TEST_WAIT(heard.ready_n == 1);
  Got put = { 0 }, revoked = { 0 };
  qv_egress_token_put(f->sandbox_conn, PREFIX, hash, "{\"v\":1}", 7, 600000, 0, on_done, &put);
  QV_TEST_WAIT(put.n == 1);
  g_autofree char *record = qv_test_valkey_cli(f->valkey, "GET", key, NULL), *ttl = qv_test_valkey_cli(f->valkey, "PTTL", key, NULL);
  g_assert_cmpstr(record, ==, "{\"v\":1}");
  gint64 left = g_ascii_strtoll(ttl, NULL, 10);
  g_assert_true(left > 0 && left <= 600000);
  qv_egress_token_revoke(f->sandbox_conn, PREFIX, hash, 0, on_done, &revoked);
  QV_TEST_WAIT(revoked.n == 1 && heard.messages_n == 1);
  g_autofree char *gone = qv_test_valkey_cli(f->valkey, "EXISTS", key, NULL);
  g_assert_cmpstr(gone, ==, "0");
  g_assert_true(g_str_has_prefix(heard.last, "egress aaaa"));
  /* Again is no error. */
  qv_egress_token_revoke(f->sandbox_conn, PREFIX, hash, 0, on_done, &revoked);
  QV_TEST_WAIT(revoked.n == 2 && heard.messages_n == 2);
}

static void test_cancel(Fixture *f, gconstpointer unused)
{
  static const QvSubscriberEvents events = { on_message, on_ready, on_failed };
  Heard heard = { 0 };
  g_autofree char *channel = qv_cancel_channel(PREFIX);
  const char *channels[] = { channel, PREFIX ":smoke", NULL };
  G_GNUC_UNUSED g_autoptr(QvSubscriber) subscriber = qv_subscriber_new(f->sandbox_address, NULL, channels, &events, &heard);
  QV_TEST_WAIT(heard.ready_n == 1);
  Got put = { 0 }, got = { 0 };
  qv_cancel_put(f->conn, PREFIX, "job-1", "{\"c\":1}", 7, 600000, 0, on_done, &put);
  QV_TEST_WAIT(put.n == 1 && heard.messages_n == 1);
  g_assert_cmpstr(heard.last, ==, "cancel job-1");
  qv_cancel_get(f->sandbox_conn, PREFIX, "job-1", 0, on_bytes, &got);
  QV_TEST_WAIT(got.n == 1);
  g_assert_cmpmem(g_bytes_get_data(got.bytes, NULL), g_bytes_get_size(got.bytes), "{\"c\":1}", 7);
  g_bytes_unref(got.bytes);
  /* It lives through idle times, and comes back after a loss. */
  qv_test_turn_ms(3 * QV_SILENCE_ASK_MS);
  g_assert_cmpuint(heard.failed_n, ==, 0);
  qv_test_valkey_kill(f->valkey);
  QV_TEST_WAIT(heard.failed_n > 0);
  qv_test_valkey_restart(f->valkey);
  QV_TEST_WAIT(heard.ready_n == 2);
  Got again = { 0 };
  qv_cancel_put(f->conn, PREFIX, "job-2", "{}", 2, 600000, 0, on_done, &again);
  QV_TEST_WAIT(heard.messages_n == 2);
  QV_TEST_WAIT(again.n == 1);
  /* A channel that the user must not hear. */
  Heard refused = { 0 };
  G_GNUC_UNUSED g_autoptr(QvSubscriber) deaf =
    qv_subscriber_new(f->sandbox_address, NULL, (const char *[]){ "other:cancel", NULL }, &events, &refused);
  QV_TEST_WAIT(refused.failed_n > 0);
  g_assert_cmpint(refused.code, ==, QV_ERROR_AUTH);
}

static void on_health(guint n, const char *const *ids, GBytes *const *records, const GError *error, gpointer user)
{
  GString *text = user;
  g_assert_no_error(error);
  g_string_append_printf(text, "%u:", n);
  for (guint i = 0; i < n; i++)
    g_string_append_printf(text, " %s=%.*s", ids[i], records[i] ? (int)g_bytes_get_size(records[i]) : 1,
                           records[i] ? (const char *)g_bytes_get_data(records[i], NULL) : "-");
}

static void test_health(Fixture *f, gconstpointer unused)
{
  Got put = { 0 };
  gint64 now = 1700000000000;
  g_autoptr(GString) none = g_string_new(NULL), some = g_string_new(NULL);
  qv_health_list(f->conn, PREFIX, now, 0, on_health, none);
  QV_TEST_WAIT(none->len > 0);
  g_assert_cmpstr(none->str, ==, "0:");
  qv_health_put(f->sandbox_conn, PREFIX, "old", now - 100000, "{}", 2, 0, on_done, &put);
  qv_health_put(f->sandbox_conn, PREFIX, "a", now - 5000, "{\"a\":1}", 7, 0, on_done, &put);
  qv_health_put(f->sandbox_conn, PREFIX, "b", now, "{\"b\":1}", 7, 0, on_done, &put);
  QV_TEST_WAIT(put.n == 3);
  g_free(qv_test_valkey_cli(f->valkey, "DEL", PREFIX ":health:a", NULL));
  qv_health_list(f->conn, PREFIX, now, 0, on_health, some);
  QV_TEST_WAIT(some->len > 0);
  g_assert_cmpstr(some->str, ==, "2: a=- b={\"b\":1}");
}

typedef struct {
  GString *said;
  gboolean ended;
} Waited;

static void on_state(QvJobState state, const char *text, gsize len, const GError *error, gpointer user)
{
  static const char *const names[] = { "unknown", "waiting", "active", "completed", "failed" };
  Waited *w = user;
  g_string_append_printf(w->said, "%s%s%.*s;", error ? error->message : names[state], text ? " " : "", (int)len, text ? text : "");
  w->ended = w->ended || error || state != QV_JOB_ACTIVE;
}

static void on_progress(const char *json, gsize len, gpointer user)
{
  g_string_append_printf(((Waited *)user)->said, "progress %.*s;", (int)len, json);
}

static void test_waiter(Fixture *f, gconstpointer unused)
{
  g_autoptr(QvWaiter) waiter = qv_waiter_new(f->worker_address, PREFIX, 100);
  g_autoptr(TestWorker) t = test_worker_new(f->sandbox_address, 1, 30000, 30000);
  Waited w[5] = { 0 };
  const char *ids[] = { "ok", "bad", "long", "never", "removed" };
  for (int i = 0; i < 5; i++) {
    w[i].said = g_string_new(NULL);
    if (i != 3)
      fixture_add(f->producer, ids[i], "{}");
    qv_waiter_add(waiter, ids[i], on_state, &w[i]);
    qv_waiter_set_progress(waiter, ids[i], on_progress, &w[i]);
  }
  QV_TEST_WAIT(w[3].ended);
  g_assert_cmpstr(w[3].said->str, ==, "unknown;");
  g_assert_true(fixture_remove(f->producer, "removed"));
  QV_TEST_WAIT(w[4].ended);
  g_assert_cmpstr(w[4].said->str, ==, "unknown;");
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  QV_TEST_WAIT(g_str_has_prefix(w[0].said->str, "active;"));
  qv_worker_progress(t->worker, job, "{\"p\":1}");
  QV_TEST_WAIT(g_str_has_suffix(w[0].said->str, "progress {\"p\":1};"));
  g_assert_false(w[0].ended);
  g_assert_cmpint(test_worker_complete(t, job, "[1]"), ==, QV_FINISH_DONE);
  QV_TEST_WAIT(w[0].ended);
  g_assert_cmpstr(w[0].said->str, ==, "active;progress {\"p\":1};completed [1];");
  g_assert_cmpint(test_worker_fail(t, test_worker_next(t), "why not"), ==, QV_FINISH_DONE);
  QV_TEST_WAIT(w[1].ended);
  g_assert_true(g_str_has_suffix(w[1].said->str, "failed why not;"));
  g_autofree char *text = g_strnfill(101, '1');
  g_assert_cmpint(test_worker_complete(t, test_worker_next(t), text), ==, QV_FINISH_DONE);
  QV_TEST_WAIT(w[2].ended);
  g_assert_nonnull(strstr(w[2].said->str, "101 bytes"));
  /* Through a restart without data: it is told, not left waiting. */
  Waited lost = { g_string_new(NULL), FALSE }, gone = { g_string_new(NULL), FALSE };
  fixture_add(f->producer, "lost", "{}");
  qv_waiter_add(waiter, "lost", on_state, &lost);
  qv_waiter_add(waiter, "gone", on_state, &gone);
  qv_waiter_remove(waiter, "gone");
  qv_test_valkey_kill(f->valkey);
  qv_test_valkey_restart(f->valkey);
  QV_TEST_WAIT(lost.ended);
  g_assert_cmpuint(gone.said->len, ==, 0);
  for (int i = 0; i < 5; i++)
    g_string_free(w[i].said, TRUE);
  g_string_free(lost.said, TRUE);
  g_string_free(gone.said, TRUE);
}

static void add(const char *name, void (*test)(Fixture *, gconstpointer))
{
  fixture_test_add("/queue/stores", name, FIXTURE_SANDBOX_CONN, test);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  add("blobs", test_blobs);
  add("cancel", test_cancel);
  add("egress-tokens", test_egress_tokens);
  add("health", test_health);
  add("waiter", test_waiter);
  return g_test_run();
}
