/* SPDX-License-Identifier: Apache-2.0 */
/* Each command of the shipped ACL file is needed. A scenario is something that a user's side does, at the level of the
 * libraries, on a server that was emptied and set up for it; it works with the shipped rights, and each command that
 * needs.def names beside it is taken away once: then it must not work. What only Node sends is interop's queue/needs-node. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "egress/store.h"
#include "fixture.h"
#include "queue/subscriber.h"
#include "queue/view.h"

#define BEGIN "<!-- Written from tests/integration/queue/needs.def: QUAVON_TEST_WRITE_DOCS=1 meson test queue/needs -->\n"
#define END "<!-- end of the written part -->\n"

static const struct {
  const char *user, *command, *scenario;
} needs[] = {
#define N(user, command, scenario) { user, command, scenario },
#include "needs.def"
#undef N
};

static QvTestValkey *valkey;
static QvTestProxy *relay;
static QvConn *operator_conn;

typedef struct {
  const char *user;
  QvAddress *address;
  QvConn *conn;
  char *trouble; /* the first thing that went wrong, NULL: it works */
  guint done_n;
} Case;

static void broken(Case *c, const char *why)
{
  if (!c->trouble)
    c->trouble = g_strdup(why);
}

static void step(Case *c, const GError *error)
{
  c->done_n++;
  if (error)
    broken(c, error->message);
}

#define UNTIL(c, condition) QV_TEST_WAIT((c)->trouble || (condition))

/* The operator's own connection: an answer as valkey-cli prints it, as far as it matters here. */
typedef struct {
  gboolean done;
  char *text;
} Answer;

static void on_answer(const QvReply *reply, const GError *error, gpointer user)
{
  Answer *answer = user;
  answer->done = TRUE;
  if (error)
    g_error("the operator: %s", error->message);
  if (reply->type == QV_REPLY_INTEGER)
    answer->text = g_strdup_printf("%" G_GINT64_FORMAT, reply->integer);
  else if (reply->type == QV_REPLY_ARRAY)
    answer->text = g_strdup(reply->elements_n ? "some" : "");
  else
    answer->text = g_strdup(reply->text ? reply->text : "");
}

static char *ask(const char *first, ...) G_GNUC_NULL_TERMINATED;
static char *ask(const char *first, ...)
{
  const char *argv[16] = { first };
  int argc = 1;
  Answer answer = { 0 };
  va_list args;
  va_start(args, first);
  while ((argv[argc] = va_arg(args, const char *)))
    g_assert(++argc < (int)G_N_ELEMENTS(argv));
  va_end(args);
  qv_conn_send(operator_conn, QV_SEND_ONCE, 0, argc, argv, NULL, on_answer, &answer);
  QV_TEST_WAIT(answer.done);
  return answer.text;
}

static gboolean denied(void)
{
  g_autofree char *log = ask("ACL", "LOG", NULL);
  return log[0] != '\0';
}

static void on_done(const GError *error, gpointer user)
{
  step(user, error);
}

static void on_bytes(GBytes *bytes, const GError *error, gpointer user)
{
  step(user, error);
}

/* The runner's side */

static void on_finish(QvFinish finish, const GError *error, gpointer user)
{
  step(user, error);
  if (!error && finish != QV_FINISH_DONE)
    broken(user, "the end of a job was not stored");
}

static void on_job(QvWorker *worker, QvFetchedJob *job, gpointer user)
{
  static gboolean released;
  qv_worker_progress(worker, job, "1");
  released = job->attempts_started == 1 && g_str_has_prefix(job->id, "back") && !released;
  if (released)
    qv_worker_release(worker, job, NULL, on_finish, user);
  else if (job->deferred_failure)
    qv_worker_fail(worker, job, "stalled", on_finish, user);
  else
    qv_worker_complete(worker, job, "{\"my\":1}", strlen("{\"my\":1}"), on_finish, user);
}

static void on_lost(QvWorker *worker, QvFetchedJob *job, const char *why, gpointer user)
{
  broken(user, why);
  qv_worker_drop(worker, job);
}

static void on_state(QvWorker *worker, const GError *why, gpointer user)
{
  if (why && !g_error_matches(why, QV_ERROR, QV_ERROR_GONE))
    broken(user, why->message);
}

static const QvWorkerEvents worker_events = { on_job, on_lost, NULL, on_state };

static QvWorker *start_worker(Case *c, QvAddress *address)
{
  QvWorkerOptions options = { address, PREFIX, "runner-1", 1, 30000, 30000, 1024 * 1024 };
  QvWorker *worker = qv_worker_new(&options, &worker_events, c);
  qv_worker_resume(worker);
  return worker;
}

static void end_jobs(Case *c, guint n)
{
  g_autoptr(QvWorker) worker = start_worker(c, c->address);
  UNTIL(c, c->done_n == n);
}

static void run_one(Case *c)
{
  end_jobs(c, 1);
}

static void run_two(Case *c)
{
  end_jobs(c, 2);
}

static void run_wake(Case *c)
{
  g_autoptr(QvWorker) worker = start_worker(c, c->address);
  UNTIL(c, qv_worker_fetched_at_ms(worker) > 0);
  qv_test_turn_ms(50); /* it blocks, or was refused to */
  g_free(ask("EVAL",
                            "redis.call('HSET', KEYS[1] .. 'late', 'name', 'check', 'data', '{}', 'opts', '{}') "
                            "redis.call('LPUSH', KEYS[1] .. 'wait', 'late') redis.call('ZADD', KEYS[1] .. 'marker', 0, '0')",
                            "1", P, NULL));
  UNTIL(c, c->done_n == 1);
}

static void run_lost_finish(Case *c)
{
  g_autoptr(QvAddress) proxied = fixture_proxied(valkey, relay, c->user);
  qv_test_proxy_lose_reply_to(relay, "{\"my\":1}", 1);
  g_autoptr(QvWorker) worker = start_worker(c, proxied);
  UNTIL(c, c->done_n == 1);
  qv_test_proxy_lose_reply_to(relay, "", 0);
}

static void run_revoke(Case *c)
{
  qv_egress_token_revoke(c->conn, PREFIX, "0123", 0, on_done, c);
  UNTIL(c, c->done_n == 1);
}

/* Anybody's */

static void run_blobs(Case *c)
{
  g_autoptr(GBytes) chunk = g_bytes_new_static("x", 1);
  qv_blob_put(c->conn, PREFIX, "j.base", 0, chunk, 60000, 0, on_done, c);
  qv_blob_get(c->conn, PREFIX, "j.base", 0, 0, on_bytes, c);
  qv_blob_unlink(c->conn, PREFIX, "j.base", 1, 0, on_done, c);
  UNTIL(c, c->done_n == 3);
}

static void on_message(const char *channel, const char *text, gsize len, gpointer user)
{
}

static void on_ready(gpointer user)
{
  ((Case *)user)->done_n++;
}

static void on_failed(const GError *why, gpointer user)
{
  broken(user, why->message);
}

/* Subscribed, and still so after the quiet in which a connection is asked whether it lives. */
static void run_listen(Case *c)
{
  static const QvSubscriberEvents events = { on_message, on_ready, on_failed };
  g_autofree char *channel =
    g_strdup_printf("%s:%s", PREFIX, g_str_equal(c->user, "egress") ? "egress" : g_str_equal(c->user, "worker") ? "live" : "cancel");
  const char *channels[] = { channel, NULL };
  G_GNUC_UNUSED g_autoptr(QvSubscriber) subscriber = qv_subscriber_new(c->address, NULL, channels, &events, c);
  UNTIL(c, c->done_n == 1);
  gint64 end_us = g_get_monotonic_time() + QV_SILENCE_ASK_MS * 3 * 1000;
  UNTIL(c, g_get_monotonic_time() > end_us);
}

/* The proxy's side */

static void on_revoked(const char *hash, gpointer user)
{
}

static void on_store_state(gboolean up, const GError *why, gpointer user)
{
}

static void on_token(const QvReply *reply, const GError *error, gpointer user)
{
  step(user, error);
}

static void on_usage(const char *channel, const char *text, gsize len, gpointer user)
{
  *(gboolean *)user = TRUE;
}

static void run_proxy(Case *c)
{
  static const QvStoreEvents events = { on_revoked, on_store_state };
  static const QvSubscriberEvents hears = { .message = on_usage };
  g_autoptr(QvAddress) other = fixture_address(qv_test_valkey_url(valkey, "sandbox"));
  const char *channels[] = { PREFIX ":egress-usage", NULL };
  gboolean heard = FALSE;
  G_GNUC_UNUSED g_autoptr(QvSubscriber) runner = qv_subscriber_new(other, NULL, channels, &hears, &heard);
  QvStore *store = qv_store_new(c->address, PREFIX, &events, c);
  qv_store_get(store, "0123", 0, on_token, c, NULL);
  /* Published again: the runner's side may not be there yet. */
  while (!c->trouble && !heard && !denied()) {
    qv_store_publish_usage(store, "{}", 2);
    qv_test_turn_ms(100);
  }
  if (!heard)
    broken(c, "no usage record came");
  UNTIL(c, c->done_n == 1);
  qv_store_free(store);
}

/* The worker's side */

static void on_count(gint64 count, const GError *error, gpointer user)
{
  step(user, error);
}

static void on_added(QvAdd added, const GError *error, gpointer user)
{
  step(user, error);
}

static void on_removed(gboolean removed, const GError *error, gpointer user)
{
  step(user, error);
  if (!removed)
    broken(user, "not removed");
}

static void on_job_state(QvJobState state, const char *text, gsize len, const GError *error, gpointer user)
{
  step(user, error);
}

static void run_submit(Case *c)
{
  g_autoptr(QvProducer) producer = qv_producer_new(c->conn, PREFIX, 0);
  qv_producer_count(producer, on_count, c);
  qv_producer_add(producer, "job", "check", "{}", 2, qv_clock_unix_ms(), on_added, c);
  qv_producer_remove(producer, "job", on_removed, c);
  UNTIL(c, c->done_n == 3);
}

static void run_ended(Case *c)
{
  g_autoptr(QvProducer) producer = qv_producer_new(c->conn, PREFIX, 0);
  qv_producer_state(producer, "done", 1024, on_job_state, c);
  UNTIL(c, c->done_n == 1);
}

static void on_progress(const char *json, gsize len, gpointer user)
{
  *(gboolean *)user = TRUE;
}

/* A wait ends without the stream too, by looking now and then; but nothing is heard of the job meanwhile. */
static void run_wait(Case *c)
{
  gboolean heard = FALSE;
  g_autoptr(QvWaiter) waiter = qv_waiter_new(c->address, PREFIX, 1024);
  qv_waiter_add(waiter, "running", on_job_state, c);
  qv_waiter_set_progress(waiter, "running", on_progress, &heard);
  while (!c->trouble && !heard && !denied()) {
    g_free(ask("XADD", P "events", "*", "event", "progress", "jobId", "running", "data", "1", NULL));
    qv_test_turn_ms(50);
  }
  if (!heard)
    broken(c, "no progress was heard");
}

static void on_view(QvQueueView *view, const GError *error, gpointer user)
{
  g_autoptr(QvQueueView) mine G_GNUC_UNUSED = view;
  step(user, error);
}

static void run_view(Case *c)
{
  qv_queue_view(c->conn, PREFIX, 10, 10, 0, on_view, c);
  UNTIL(c, c->done_n == 1);
}

static void run_pause(Case *c)
{
  qv_queue_pause(c->conn, PREFIX, TRUE, 0, on_done, c);
  qv_queue_pause(c->conn, PREFIX, FALSE, 0, on_done, c);
  UNTIL(c, c->done_n == 2);
}

static void run_cancel(Case *c)
{
  qv_cancel_put(c->conn, PREFIX, "j", "{}", 2, 60000, 0, on_done, c);
  UNTIL(c, c->done_n == 1);
}

static void on_health(guint n, const char *const *ids, GBytes *const *records, const GError *error, gpointer user)
{
  step(user, error);
}

static void run_runners(Case *c)
{
  qv_health_list(c->conn, PREFIX, qv_clock_unix_ms(), 0, on_health, c);
  UNTIL(c, c->done_n == 1);
}

/* SET_UP and OUTCOME are Lua with P, job(id, field, value) and call; the outcome is true where it worked. */
static const struct {
  const char *user, *name, *what, *set_up;
  void (*run)(Case *);
  const char *outcome;
} scenarios[] = {
  { "sandbox", "run", "a job is taken, tells of its progress and ends; an older one goes", "job('plain') call('LPUSH', P .. 'wait', 'plain') "
    "job('old') call('ZADD', P .. 'completed', 1000, 'old')", run_one,
    "call('HGET', P .. 'plain', 'progress') == '1' and call('HGET', P .. 'plain', 'returnvalue') == '{\"my\":1}' and call('EXISTS', P .. 'old') == 0" },
  { "sandbox", "wake", "an idle runner wakes", "", run_wake, NULL },
  { "sandbox", "due", "delayed jobs, with a priority and without, are due", "job('a') job('b', 'priority', '3') "
    "call('ZADD', P .. 'delayed', 4096, 'a', 8192, 'b')", run_two, NULL },
  { "sandbox", "limited", "the queue has a rate limit", "call('HSET', P .. 'meta', 'max', 1, 'duration', 200) job('a') job('b') "
    "call('LPUSH', P .. 'wait', 'a', 'b')", run_two, NULL },
  { "sandbox", "stalled", "a dead runner's job is failed", "job('gone') job('other') call('LPUSH', P .. 'active', 'other', 'gone') "
    "call('SADD', P .. 'stalled', 'gone')", run_one, "call('HGET', P .. 'gone', 'failedReason') == 'stalled'" },
  { "sandbox", "release", "a job goes back unrun", "job('back') call('LPUSH', P .. 'wait', 'back')", run_two, NULL },
  { "sandbox", "lost-finish", "the answer to a finish is lost", "job('plain') call('LPUSH', P .. 'wait', 'plain')", run_lost_finish, NULL },
  { "sandbox", "blobs", "chunks are read and removed, a payload is written", "", run_blobs, NULL },
  { "sandbox", "revoke", "an egress token is revoked", "", run_revoke, NULL },
  { "sandbox", "listen", "messages, over a quiet time", "", run_listen, NULL },
  { "worker", "submit", "count, add, remove", "", run_submit, "call('EXISTS', P .. 'job') == 0" },
  { "worker", "ended", "the answer of a job is read", "job('done', 'returnvalue', '1') call('ZADD', P .. 'completed', 1, 'done')", run_ended, NULL },
  { "worker", "wait", "a job's progress is heard", "job('running') call('SET', P .. 'running:lock', 'x')", run_wait, NULL },
  { "worker", "view", "quavon ps, top", "job('a') job('b') call('LPUSH', P .. 'wait', 'a') call('ZADD', P .. 'completed', 1, 'b')", run_view, NULL },
  { "worker", "pause", "quavon pool pause, resume", "call('HSET', P .. 'meta', 'version', 'bullmq:5.0.0') job('a') "
    "call('LPUSH', P .. 'wait', 'a')", run_pause, "call('LLEN', P .. 'wait') == 1" },
  { "worker", "cancel", "a job is cancelled", "", run_cancel, NULL },
  { "worker", "blobs", "snapshots are written, payloads read and removed", "", run_blobs, NULL },
  { "worker", "runners", "health records are read", "", run_runners, NULL },
  { "worker", "listen", "live logs, over a quiet time", "", run_listen, NULL },
  { "worker", "node", "a service with bullmq: Queue, QueueEvents, the contract's own keys", NULL, NULL, NULL },
  { "egress", "proxy", "a token is looked up, its usage told", "call('SET', 'quavon-sandbox:egress:0123', '{}')", run_proxy, NULL },
  { "egress", "listen", "revocations, over a quiet time", "", run_listen, NULL },
};

static gsize find_scenario(const char *user, const char *name)
{
  for (gsize i = 0; i < G_N_ELEMENTS(scenarios); i++)
    if (g_str_equal(scenarios[i].user, user) && g_str_equal(scenarios[i].name, name))
      return i;
  g_error("no scenario %s of %s", name, user);
}

static char *lua(const char *body)
{
  g_autofree char *text = g_strconcat(
    "local P, call = KEYS[1], redis.call "
    "local function job(id, ...) call('HSET', P .. id, 'name', 'check', 'data', '{}', 'opts', "
    "'{\"attempts\":1,\"removeOnComplete\":{\"age\":10,\"count\":1}}', ...) end ", body, NULL);
  return ask("EVAL", text, "1", P, NULL);
}

/* What went wrong, or NULL. */
static char *play(gsize i, const char *without)
{
  Case c = { .user = scenarios[i].user };
  g_free(ask("FLUSHALL", NULL));
  g_free(ask("SCRIPT", "FLUSH", NULL));
  g_free(ask("ACL", "LOG", "RESET", NULL));
  g_autofree char *set_up = lua(scenarios[i].set_up);
  g_assert_cmpstr(set_up, ==, "");
  g_autofree char *minus = g_strconcat("-", without, NULL), *plus = g_strconcat("+", without, NULL);
  if (without)
    g_free(ask("ACL", "SETUSER", c.user, minus, NULL));
  c.address = fixture_address(qv_test_valkey_url(valkey, c.user));
  c.conn = qv_conn_new(c.address, NULL);
  scenarios[i].run(&c);
  qv_conn_free(c.conn);
  qv_address_unref(c.address);
  g_autofree char *test = g_strconcat("return ", scenarios[i].outcome ? scenarios[i].outcome : "true", NULL);
  g_autofree char *worked = lua(test);
  if (!g_str_equal(worked, "1"))
    broken(&c, "it is not as it should be afterwards");
  if (without)
    g_free(ask("ACL", "SETUSER", c.user, plus, NULL));
  return c.trouble;
}

static void test_works(void)
{
  for (gsize i = 0; i < G_N_ELEMENTS(scenarios); i++) {
    g_autofree char *trouble = scenarios[i].run ? play(i, NULL) : NULL;
    if (trouble || denied())
      g_error("%s of %s: %s", scenarios[i].name, scenarios[i].user, trouble ? trouble : "something was denied");
  }
}

static void test_each(void)
{
  for (gsize i = 0; i < G_N_ELEMENTS(needs); i++) {
    gsize scenario = find_scenario(needs[i].user, needs[i].scenario);
    if (!scenarios[scenario].run)
      continue;
    g_autofree char *trouble = play(scenario, needs[i].command);
    if (!trouble)
      g_error("%s works without %s, so %s does not need it", needs[i].scenario, needs[i].command, needs[i].user);
    g_test_message("%s without %s: %s", needs[i].user, needs[i].command, trouble);
  }
}

/* needs.def has what the shipped file has, no more and no less. */
static void test_all(void)
{
  g_autofree char *file = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "deploy", "valkey", "users.acl", NULL), *text = NULL;
  g_assert_true(g_file_get_contents(file, &text, NULL, NULL));
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  guint commands_n = 0;
  for (char **line = lines; *line; line++) {
    g_auto(GStrv) words = g_strsplit(*line, " ", -1);
    if (g_strv_length(words) < 2 || g_str_equal(words[1], "default"))
      continue;
    for (char **word = words + 2; *word; word++) {
      if (**word != '+')
        continue;
      gboolean found = FALSE;
      for (gsize i = 0; i < G_N_ELEMENTS(needs) && !found; i++)
        found = g_str_equal(needs[i].user, words[1]) && g_str_equal(needs[i].command, *word + 1);
      if (!found)
        g_error("%s may run %s, and nothing is said to need it", words[1], *word);
      commands_n++;
    }
  }
  g_assert_cmpuint(commands_n, ==, G_N_ELEMENTS(needs));
}

static char *table(void)
{
  g_autoptr(GString) out = g_string_new("\n| user | what it does | cannot be done without |\n| --- | --- | --- |\n");
  for (gsize s = 0; s < G_N_ELEMENTS(scenarios); s++) {
    g_autoptr(GString) commands = g_string_new(NULL);
    for (gsize i = 0; i < G_N_ELEMENTS(needs); i++)
      if (g_str_equal(needs[i].user, scenarios[s].user) && g_str_equal(needs[i].scenario, scenarios[s].name))
        g_string_append_printf(commands, "%s%s", commands->len ? " " : "", needs[i].command);
    g_string_replace(commands, "|", "\\|", 0);
    if (commands->len)
      g_string_append_printf(out, "| %s | %s | %s |\n", scenarios[s].user, scenarios[s].what, commands->str);
  }
  g_string_append_c(out, '\n');
  return g_string_free(g_steal_pointer(&out), FALSE);
}

static void test_page(void)
{
  g_autofree char *path = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "docs", "QUEUE.md", NULL), *page = NULL, *wanted = table();
  g_assert_true(g_file_get_contents(path, &page, NULL, NULL));
  char *begin = strstr(page, BEGIN), *end = strstr(page, END);
  g_assert_true(begin && end);
  begin += strlen(BEGIN);
  if (g_getenv("QUAVON_TEST_WRITE_DOCS")) {
    g_autofree char *head = g_strndup(page, begin - page), *text = g_strconcat(head, wanted, end, NULL);
    g_assert_true(qv_fd_write_file(path, text, strlen(text), 0644, NULL));
    return;
  }
  g_autofree char *found = g_strndup(begin, end - begin);
  g_assert_cmpstr(found, ==, wanted);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  valkey = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  relay = qv_test_proxy_start(qv_test_valkey_dir(valkey), qv_test_valkey_socket(valkey));
  g_autoptr(QvAddress) admin = fixture_address(qv_test_valkey_url(valkey, "admin"));
  operator_conn = qv_conn_new(admin, NULL);
  g_test_add_func("/queue/needs/works", test_works);
  g_test_add_func("/queue/needs/each", test_each);
  g_test_add_func("/queue/needs/all", test_all);
  g_test_add_func("/queue/needs/page", test_page);
  int status = g_test_run();
  qv_conn_free(operator_conn);
  qv_test_proxy_free(relay);
  qv_test_valkey_free(valkey);
  return status;
}
