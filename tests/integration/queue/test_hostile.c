/* SPDX-License-Identifier: Apache-2.0 */
/* A Valkey that answers whatever it likes. The server is real; a relay before each client puts one hostile answer in
 * the place of one of the server's. Each is named in the error, bounded in memory, followed by a new connection where the
 * old one is out of step, and costs nothing: the same client, asked once more, gets its true answer, and no job is
 * taken, run or ended twice. Without an answer to put in ("none") all of it is the scenario without harm. */
#include <string.h>

#include "base/error.h"
#include "fixture.h"
#include "queue/subscriber.h"
#include "queue/view.h"

#define TEN(x) x x x x x x x x x x
#define FETCH_MARK "\r\n1048576\r\n" /* the data's cap: in fetch alone */
#define GIB (G_GUINT64_CONSTANT(1) << 30)

static const QvTestAnswer answers[] = {
  { .name = "none" },
  { .name = "bulk-512-mib", .bytes = "$536870912\r\n", .again = "x", .again_n = GIB, .said = "is announced" },
  { .name = "bulk-8-eib", .bytes = "$9223372036854775807\r\n", .again = "x", .again_n = GIB, .said = "is announced" },
  { .name = "bulk-beyond-64-bit", .bytes = "$99999999999999999999999\r\n", .said = "" },
  { .name = "bulk-negative", .bytes = "$-2\r\n", .said = "not the Valkey protocol" },
  { .name = "bulk-without-end", .bytes = "$3\r\nabcdef", .again = "x", .again_n = 1000, .said = "" },
  { .name = "array-of-2-31", .bytes = "*2147483647\r\n", .said = "too many elements" },
  { .name = "array-of-2-32", .bytes = "*4294967297\r\n", .said = "" },
  { .name = "array-negative", .bytes = "*-2\r\n", .said = "not the Valkey protocol" },
  { .name = "nested-deep", .bytes = TEN("*1\r\n") TEN("*1\r\n"), .said = "not the Valkey protocol" },
  { .name = "nested-deep-and-wide", .bytes = TEN("*1048576\r\n"), .said = "" },
  { .name = "wide", .bytes = "*1048576\r\n", .again = "*1\r\n:1\r\n", .again_n = 1048576, .said = "too much memory" },
  { .name = "many-large", .bytes = "*1000\r\n", .again = "$20\r\nxxxxxxxxxxxxxxxxxxxx\r\n", .again_n = 1000, .said = "wrong shape" },
  { .name = "line-without-end", .bytes = "+", .again = "xxxxxxxxxxxxxxxx", .again_n = 16777216, .said = "a line" },
  { .name = "count-without-end", .bytes = "*", .again = "1", .again_n = 1000000, .said = "a line" },
  { .name = "half-and-silence", .bytes = "*15\r\n:1\r\n$5\r\nab", .after = QV_TEST_AFTER_HUSH, .said = "no sign of life" },
  { .name = "half-and-gone", .bytes = "*15\r\n:1\r\n$5\r\nab", .after = QV_TEST_AFTER_HANG_UP, .said = "closed" },
  { .name = "gone", .bytes = "\r", .after = QV_TEST_AFTER_HANG_UP, .said = "" },
  { .name = "three-for-one", .bytes = "+OK\r\n+OK\r\n+OK\r\n", .said = "" },
  { .name = "push", .bytes = ">2\r\n+invalidate\r\n*0\r\n", .said = "not the Valkey protocol" },
  { .name = "map", .bytes = "%1\r\n+a\r\n:1\r\n", .said = "not the Valkey protocol" },
  { .name = "double", .bytes = ",1.5\r\n", .said = "not the Valkey protocol" },
  { .name = "boolean", .bytes = "#t\r\n", .said = "not the Valkey protocol" },
  { .name = "null-3", .bytes = "_\r\n", .said = "not the Valkey protocol" },
  { .name = "integer-beyond-64-bit", .bytes = ":9223372036854775808\r\n", .said = "" },
  { .name = "integer-of-letters", .bytes = ":one\r\n", .said = "" },
  { .name = "integer", .bytes = ":9223372036854775807\r\n", .said = "wrong shape" },
  { .name = "status", .bytes = "+QUEUED\r\n", .said = "wrong shape" },
  { .name = "nil", .bytes = "$-1\r\n", .said = "wrong shape" },
  { .name = "empty-array", .bytes = "*0\r\n", .said = "wrong shape" },
  { .name = "array-of-arrays", .bytes = "*3\r\n*1\r\n:1\r\n*0\r\n*-1\r\n", .said = "wrong shape" },
  { .name = "taken-of-nothing", .bytes = "*2\r\n:1\r\n$1\r\nx\r\n", .said = "wrong shape" },
  { .name = "taken-of-nils", .bytes = "*15\r\n:1\r\n" TEN("$-1\r\n") "$-1\r\n$-1\r\n$-1\r\n$-1\r\n", .said = "wrong shape" },
  { .name = "error-with-controls", .bytes = "-ERR \x1b[2J\x07 \xff evil\r\n", .said = "\\x1b[2J\\x07 \\ufffd evil" },
  { .name = "error-of-1-kb", .bytes = "-ERR ", .again = TEN(TEN("0123456789")) "\r\n", .again_n = 1, .said = "…" },
  { .name = "error-of-4-mb", .bytes = "-ERR ", .again = "0123456789abcdef", .again_n = 262144, .said = "a line" },
  { .name = "other-protocol", .bytes = "HTTP/1.1 400 Bad Request\r\n\r\n", .said = "not the Valkey protocol" },
};

enum { ANSWERS_N = G_N_ELEMENTS(answers) };

typedef struct {
  QvTestValkey *valkey;
  QvAddress *worker_address;
  QvConn *conn;
  QvProducer *producer;
  QvTestProxy *relays[ANSWERS_N];
} Relays;

static void set_up(Relays *f, gconstpointer unused)
{
  f->valkey = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  f->worker_address = fixture_address(qv_test_valkey_url(f->valkey, "worker"));
  f->conn = qv_conn_new(f->worker_address, NULL);
  f->producer = qv_producer_new(f->conn, PREFIX, 0);
  for (gsize i = 0; i < ANSWERS_N; i++) {
    g_autofree char *name = g_strdup_printf("%zu", i), *dir = g_build_filename(qv_test_valkey_dir(f->valkey), name, NULL);
    g_assert_cmpint(g_mkdir_with_parents(dir, 0700), ==, 0);
    f->relays[i] = qv_test_proxy_start(dir, qv_test_valkey_socket(f->valkey));
  }
}

static void tear_down(Relays *f, gconstpointer unused)
{
  for (gsize i = 0; i < ANSWERS_N; i++)
    qv_test_proxy_free(f->relays[i]);
  qv_producer_free(f->producer);
  qv_conn_free(f->conn);
  qv_address_unref(f->worker_address);
  qv_test_valkey_free(f->valkey);
}

static void arm(Relays *f, gsize i, const char *text)
{
  if (answers[i].bytes)
    qv_test_proxy_answer(f->relays[i], text, &answers[i], 1);
}

/* What is said of an answer: printable, short, and what it should be. */
static void assert_said(gsize i, const char *text)
{
  const char *said = answers[i].said;
  if (!said || !text)
    g_error("%s: %s was said", answers[i].name, text ? text : "nothing");
  g_assert_cmpuint(strlen(text), <, 1024);
  g_assert_true(g_utf8_validate(text, -1, NULL));
  for (const char *c = text; *c; c++)
    g_assert_false(g_ascii_iscntrl(*c));
  if (!strstr(text, said))
    g_error("%s: \"%s\" was said, not \"%s\"", answers[i].name, text, said);
}

/* ---- workers: one behind each answer, at the fetch and at the end */

static gboolean all_have(TestWorker *const *workers)
{
  for (gsize i = 0; i < ANSWERS_N; i++)
    if (workers[i]->fetched_n == 0)
      return FALSE;
  return TRUE;
}

static void on_end(QvFinish finish, const GError *error, gpointer user)
{
  g_assert_no_error(error);
  g_assert_cmpint(finish, ==, QV_FINISH_DONE);
  ++*(guint *)user;
}

static void on_pong(const QvReply *reply, const GError *error, gpointer user)
{
  g_assert_no_error(error);
  ++*(guint *)user;
}

/* Until nothing is on its way: the relay takes the place of whatever answers come together. Twice, since a script that the
 * server does not know yet is asked for twice. */
static void settle(QvWorker *worker)
{
  guint pongs_n = 0;
  for (guint i = 0; i < 2; i++) {
    qv_conn_sendl(qv_worker_conn(worker), QV_SEND_AGAIN, 0, on_pong, &pongs_n, "PING", NULL);
    QV_TEST_WAIT(pongs_n == i + 1);
  }
}

static void test_worker(Relays *f, gconstpointer unused)
{
  TestWorker *workers[ANSWERS_N];
  guint ended_n = 0;
  for (gsize i = 0; i < ANSWERS_N; i++) {
    g_autofree char *id = g_strdup_printf("job-%zu", i);
    g_autoptr(QvAddress) address = fixture_proxied(f->valkey, f->relays[i], "sandbox");
    workers[i] = test_worker_new(address, 1, 120000, 60000);
    settle(workers[i]->worker);
    fixture_add(f->producer, id, "{}");
    arm(f, i, FETCH_MARK);
  }
  for (gsize i = 0; i < ANSWERS_N; i++)
    qv_worker_resume(workers[i]->worker);
  QV_TEST_WAIT(all_have(workers));
  for (gsize i = 0; i < ANSWERS_N; i++) {
    g_assert_cmpuint(qv_test_proxy_answered_n(f->relays[i]), ==, answers[i].bytes ? 1 : 0);
    if (answers[i].said)
      assert_said(i, workers[i]->first_trouble);
    else
      g_assert_null(workers[i]->first_trouble);
    g_assert_null(workers[i]->trouble); /* over */
    arm(f, i, "{\"my\":\"result\"}");
  }
  for (gsize i = 0; i < ANSWERS_N; i++) {
    QvFetchedJob *job = test_worker_next(workers[i]);
    g_autofree char *key = g_strconcat(P, job->id, NULL);
    assert_cli(f, "1", "HGET", key, "ats");
    /* An error of the server's ends it: the job is said to be lost, and stalls. */
    if (answers[i].bytes && g_str_has_prefix(answers[i].name, "error-") && !strstr(answers[i].name, "4-mb"))
      qv_test_proxy_answer(f->relays[i], "{\"my\":\"result\"}", &answers[i], 0);
    qv_worker_complete(workers[i]->worker, job, "{\"my\":\"result\"}", 15, on_end, &ended_n);
  }
  QV_TEST_WAIT(ended_n == ANSWERS_N);
  g_autofree char *n = g_strdup_printf("%d", ANSWERS_N);
  assert_cli(f, n, "ZCARD", P "completed", NULL);
  assert_cli(f, "0", "LLEN", P "active", NULL);
  for (gsize i = 0; i < ANSWERS_N; i++) {
    g_assert_cmpuint(workers[i]->fetched_n, ==, 1);
    g_assert_cmpuint(workers[i]->lost_n, ==, 0);
    test_worker_free(workers[i]);
  }
}

/* ---- everything that is asked once and has one answer */

typedef struct {
  gsize answer; /* its index */
  QvConn *conn;
  QvProducer *producer;
  guint done_n, good_n;
  char *error;  /* the last one's text */
} Asked;

typedef struct {
  const char *name, *mark; /* in the bytes of the command alone */
  void (*ask)(Asked *asked);
} Question;

static void note(Asked *a, gboolean good, const GError *error)
{
  a->done_n++;
  a->good_n += good && !error;
  if (error) {
    g_free(a->error);
    a->error = g_strdup(error->message);
  }
}

static void on_count(gint64 count, const GError *error, gpointer user)
{
  note(user, count == 1, error);
}

static void ask_count(Asked *a)
{
  qv_producer_count(a->producer, on_count, a);
}

static void on_state(QvJobState state, const char *text, gsize len, const GError *error, gpointer user)
{
  note(user, state == QV_JOB_WAITING, error);
}

static void ask_state(Asked *a)
{
  qv_producer_state(a->producer, "the-job", 4096, on_state, a);
}

static void on_guard(QvGuard guard, const GError *error, gpointer user)
{
  g_assert_true((guard == QV_GUARD_UNKNOWN) == (error != NULL));
  note(user, guard == QV_GUARD_WON, error);
}

static void ask_guard(Asked *a)
{
  g_autofree char *id = g_strdup_printf("g-%zu-%u", a->answer, a->done_n);
  qv_replay_guard_take(a->conn, PREFIX, id, "r1", 600000, 20000, on_guard, a);
}

static void on_bytes(GBytes *bytes, const GError *error, gpointer user)
{
  note(user, bytes && g_bytes_get_size(bytes) == 5, error);
}

static void ask_blob(Asked *a)
{
  qv_blob_get(a->conn, PREFIX, "the-blob", 0, 20000, on_bytes, a);
}

static void on_view(QvQueueView *taken, const GError *error, gpointer user)
{
  g_autoptr(QvQueueView) view = taken;
  note(user, view && view->waiting == 1, error);
}

static void ask_view(Asked *a)
{
  qv_queue_view(a->conn, PREFIX, 10, 10, 20000, on_view, a);
}

static void on_health(guint n, const char *const *ids, GBytes *const *records, const GError *error, gpointer user)
{
  note(user, n == 1, error);
}

static void ask_health(Asked *a)
{
  qv_health_list(a->conn, PREFIX, 1000000, 20000, on_health, a);
}

static const Question questions[] = {
  { "count", "EVALSHA", ask_count }, { "state", "the-job", ask_state },   { "guard", "replay:", ask_guard },
  { "blob", "GETRANGE", ask_blob },  { "view", "EVALSHA", ask_view },     { "health", "ZRANGEBYSCORE", ask_health },
  { "hello", "HELLO", ask_count },
};

static gboolean all_done(const Asked *asked, guint n)
{
  for (gsize i = 0; i < ANSWERS_N; i++)
    if (asked[i].done_n < n)
      return FALSE;
  return TRUE;
}

/* Silence takes QV_SILENCE_DEAD_MS to be seen: once is enough. */
static gboolean is_for(const Question *q, gsize i)
{
  return answers[i].bytes && (q == questions || answers[i].after != QV_TEST_AFTER_HUSH);
}

/* Each may fail once, with a word of what was wrong, or be asked again by itself; the second time it is right. */
static void test_question(Relays *f, gconstpointer data)
{
  const Question *q = data;
  Asked asked[ANSWERS_N] = { { 0 } };
  fixture_add(f->producer, "the-job", "{}");
  g_free(qv_test_valkey_cli(f->valkey, "SET", PREFIX ":blob:the-blob:0", "12345", NULL));
  g_free(qv_test_valkey_cli(f->valkey, "ZADD", PREFIX ":runners", "1000000", "runner-1", NULL));
  for (gsize i = 0; i < ANSWERS_N; i++) {
    g_autoptr(QvAddress) address = fixture_proxied(f->valkey, f->relays[i], "admin");
    if (is_for(q, i))
      arm(f, i, q->mark);
    asked[i].answer = i;
    asked[i].conn = qv_conn_new(address, NULL);
    asked[i].producer = qv_producer_new(asked[i].conn, PREFIX, 20000);
    q->ask(&asked[i]);
  }
  QV_TEST_WAIT(all_done(asked, 1));
  for (gsize i = 0; i < ANSWERS_N; i++) {
    g_assert_cmpuint(qv_test_proxy_answered_n(f->relays[i]), ==, is_for(q, i) ? 1 : 0);
    const GError *lost = qv_conn_last_error(asked[i].conn);
    if (answers[i].said && !asked[i].error && lost)
      g_assert_cmpuint(strlen(lost->message), <, 1024);
    if (!answers[i].said)
      g_assert_cmpuint(asked[i].good_n, ==, 1);
    asked[i].good_n = 0;
    q->ask(&asked[i]);
  }
  QV_TEST_WAIT(all_done(asked, 2));
  for (gsize i = 0; i < ANSWERS_N; i++) {
    if (asked[i].good_n != 1)
      g_error("%s, %s: wrong when asked again: %s", q->name, answers[i].name, asked[i].error ? asked[i].error : "a wrong answer");
    qv_producer_free(asked[i].producer);
    qv_conn_free(asked[i].conn);
    g_free(asked[i].error);
  }
}

/* ---- those that listen */

typedef struct {
  guint ready_n, failed_n, messages_n;
} Heard;

static void on_message(const char *channel, const char *text, gsize len, gpointer user)
{
  ((Heard *)user)->messages_n++;
}

static void on_ready(gpointer user)
{
  ((Heard *)user)->ready_n++;
}

static void on_failed(const GError *why, gpointer user)
{
  ((Heard *)user)->failed_n++;
}

static gboolean all_heard(const Heard *heard)
{
  for (gsize i = 0; i < ANSWERS_N; i++)
    if (heard[i].messages_n == 0)
      return FALSE;
  return TRUE;
}

static void test_subscriber(Relays *f, gconstpointer unused)
{
  static const char *const channels[] = { PREFIX ":cancel", NULL };
  static const QvSubscriberEvents events = { on_message, on_ready, on_failed };
  QvSubscriber *subscribers[ANSWERS_N];
  Heard heard[ANSWERS_N] = { { 0 } };
  for (gsize i = 0; i < ANSWERS_N; i++) {
    g_autoptr(QvAddress) address = fixture_proxied(f->valkey, f->relays[i], "sandbox");
    arm(f, i, "SUBSCRIBE");
    subscribers[i] = qv_subscriber_new(address, NULL, channels, &events, &heard[i]);
  }
  for (gint64 end = g_get_monotonic_time() + QV_TEST_DEADLINE_S * G_USEC_PER_SEC; !all_heard(heard) && g_get_monotonic_time() < end;) {
    g_free(qv_test_valkey_cli(f->valkey, "PUBLISH", PREFIX ":cancel", "word", NULL));
    qv_test_turn_ms(200);
  }
  g_assert_true(all_heard(heard));
  for (gsize i = 0; i < ANSWERS_N; i++) {
    g_assert_cmpuint(heard[i].ready_n, ==, 1);
    g_assert_cmpuint(heard[i].failed_n, ==, answers[i].bytes ? 1 : 0);
    qv_subscriber_free(subscribers[i]);
  }
}

static void on_waited(QvJobState state, const char *text, gsize len, const GError *error, gpointer user)
{
  if (state == QV_JOB_ACTIVE)
    return;
  g_assert_no_error(error);
  g_assert_cmpint(state, ==, QV_JOB_COMPLETED);
  ++*(guint *)user;
}

/* The event stream may say what it likes: what counts is the job, which is looked at. */
static void test_waiter(Relays *f, gconstpointer unused)
{
  QvWaiter *waiters[ANSWERS_N];
  guint ended_n = 0;
  g_autoptr(QvAddress) sandbox = fixture_address(qv_test_valkey_url(f->valkey, "sandbox"));
  g_autoptr(TestWorker) t = test_worker_new(sandbox, 1, 60000, 60000);
  fixture_add(f->producer, "the-job", "{}");
  qv_worker_resume(t->worker);
  QvFetchedJob *job = test_worker_next(t);
  for (gsize i = 0; i < ANSWERS_N; i++) {
    g_autoptr(QvAddress) address = fixture_proxied(f->valkey, f->relays[i], "worker");
    arm(f, i, i % 2 ? "XREAD" : "XREVRANGE");
    waiters[i] = qv_waiter_new(address, PREFIX, 4096);
    qv_waiter_add(waiters[i], "the-job", on_waited, &ended_n);
  }
  qv_test_turn_ms(3500); /* a read without events has ended: the answers have come */
  g_assert_cmpint(test_worker_complete(t, job, "1"), ==, QV_FINISH_DONE);
  QV_TEST_WAIT(ended_n == ANSWERS_N);
  for (gsize i = 0; i < ANSWERS_N; i++)
    qv_waiter_free(waiters[i]);
}

/* ---- a server that never stops lying is asked again and again, and not more often than that */

static void test_for_ever(Relays *f, gconstpointer unused)
{
  static const char *const names[] = { "array-of-2-31", "empty-array", "push", "gone" };
  static const char *const marks[] = { FETCH_MARK, "BZPOPMIN" };
  for (gsize m = 0; m < G_N_ELEMENTS(marks); m++) {
    TestWorker *workers[G_N_ELEMENTS(names)];
    guint before[G_N_ELEMENTS(names)];
    for (gsize n = 0; n < G_N_ELEMENTS(names); n++) {
      const QvTestAnswer *answer = answers;
      while (!g_str_equal(answer->name, names[n]))
        answer++;
      g_autoptr(QvAddress) address = fixture_proxied(f->valkey, f->relays[n], "sandbox");
      workers[n] = test_worker_new(address, 1, 60000, 60000);
      settle(workers[n]->worker);
      qv_test_proxy_answer(f->relays[n], marks[m], answer, G_MAXUINT);
      before[n] = qv_test_proxy_answered_n(f->relays[n]);
      qv_worker_resume(workers[n]->worker);
    }
    qv_test_turn_ms(4000);
    for (gsize n = 0; n < G_N_ELEMENTS(names); n++) {
      guint asked_n = qv_test_proxy_answered_n(f->relays[n]) - before[n];
      g_test_message("%s instead of the answer to %s: asked %u times", names[n], m ? "BZPOPMIN" : "fetch", asked_n);
      g_assert_cmpuint(asked_n, <, 400); /* without a pause: tens of thousands */
      qv_test_proxy_answer(f->relays[n], marks[m], answers, 0);
    }
    for (gsize n = 0; n < G_N_ELEMENTS(names); n++) {
      g_autofree char *id = g_strdup_printf("job-%zu-%zu", m, n);
      fixture_add(f->producer, id, "{}");
    }
    /* One each, before any asks for a second. */
    QvFetchedJob *jobs[G_N_ELEMENTS(names)];
    for (gsize n = 0; n < G_N_ELEMENTS(names); n++)
      jobs[n] = test_worker_next(workers[n]);
    for (gsize n = 0; n < G_N_ELEMENTS(names); n++)
      g_assert_cmpint(test_worker_complete(workers[n], jobs[n], "1"), ==, QV_FINISH_DONE);
    for (gsize n = 0; n < G_N_ELEMENTS(names); n++)
      test_worker_free(workers[n]);
  }
}

static void add(const char *name, gconstpointer data, void (*test)(Relays *, gconstpointer))
{
  g_autofree char *path = g_strconcat("/queue/hostile/", name, NULL);
  g_test_add(path, Relays, data, set_up, test, tear_down);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  add("worker", NULL, test_worker);
  for (gsize i = 0; i < G_N_ELEMENTS(questions); i++)
    add(questions[i].name, &questions[i], test_question);
  add("subscriber", NULL, test_subscriber);
  add("waiter", NULL, test_waiter);
  add("for-ever", NULL, test_for_ever);
  return g_test_run();
}
