/* SPDX-License-Identifier: Apache-2.0 */
/* Our worker, as the user `sandbox` of the shipped ACL file, against every feature of matrix.mjs: each major alone, and both at
 * once, as producer and as observer in turn. What they print is the table of docs/INTEROP.md, which must be equal to it;
 * QUAVON_TEST_WRITE_DOCS=1 writes it. */
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "node.h"
#include "queue/worker.h"
#include "support/loop.h"

enum { LOCK_MS = 300000, STALLED_MS = 1000, SLOTS = 2 };

typedef struct {
  QvTestValkey *valkey;
  QvWorker *worker;
  GPtrArray *held; /* of Held */
  guint done; /* "do" lines carried out */
} Peer;

typedef struct {
  Peer *peer;
  QvFetchedJob *job;
  guint timer;
} Held;

/* ---- our worker's jobs */

static gboolean says(const QvFetchedJob *job, const char *word)
{
  const char *data = job->data != NULL ? g_bytes_get_data(job->data, NULL) : "";
  return job->data != NULL && g_strstr_len(data, g_bytes_get_size(job->data), word) != NULL;
}

static void end_job(Peer *peer, QvFetchedJob *job)
{
  if (says(job, "\"end\":\"crash\"")) {
    g_free(qv_test_valkey_cli(peer->valkey, "SET", "test:crashed", job->id, NULL));
    qv_worker_drop(peer->worker, job); /* its lock is renewed no more */
    return;
  }
  if (says(job, "\"end\":\"fail\"")) {
    qv_worker_fail(peer->worker, job, "failed as told", NULL, NULL);
    return;
  }
  g_autofree char *value = g_strdup_printf("{\"did\":\"%s\"}", job->id);
  qv_worker_complete(peer->worker, job, value, strlen(value), NULL, NULL);
}

/* It is held no more. */
static QvFetchedJob *held_take(Held *held)
{
  QvFetchedJob *job = held->job;
  job->caller = NULL;
  g_ptr_array_remove(held->peer->held, held);
  g_free(held);
  return job;
}

static gboolean on_held(gpointer data)
{
  Peer *peer = ((Held *)data)->peer;
  end_job(peer, held_take(data));
  return G_SOURCE_REMOVE;
}

static void let_go(Peer *peer)
{
  while (peer->held->len > 0) {
    Held *held = peer->held->pdata[0];
    g_source_remove(held->timer);
    end_job(peer, held_take(held));
  }
}

/* As the runner does it, check 1 of protocol.md 2.1. */
static void on_job(QvWorker *worker, QvFetchedJob *job, gpointer user)
{
  if (job->deferred_failure != NULL) {
    qv_worker_fail(worker, job, "stalled", NULL, NULL);
    return;
  }
  if (job->has_scheduler || job->has_parent || job->has_parent_key || job->has_dedup) {
    qv_worker_fail(worker, job, "rejected: unsupported", NULL, NULL);
    return;
  }
  if (says(job, "\"end\":\"progress\""))
    qv_worker_progress(worker, job, "{\"stage\":\"collecting\",\"elapsedMs\":7}");
  gsize n;
  const char *data = job->data != NULL ? g_bytes_get_data(job->data, &n) : NULL;
  const char *hold = data != NULL ? g_strstr_len(data, n, "\"hold\":") : NULL;
  if (hold == NULL) {
    end_job(user, job);
    return;
  }
  Held *held = g_new0(Held, 1);
  *held = (Held){.peer = user, .job = job};
  held->timer = g_timeout_add(g_ascii_strtoull(hold + 7, NULL, 10), on_held, held);
  job->caller = held;
  g_ptr_array_add(held->peer->held, held);
}

static void on_lock_lost(QvWorker *worker, QvFetchedJob *job, const char *why, gpointer user)
{
  Held *held = job->caller;
  if (held != NULL) {
    g_source_remove(held->timer);
    held_take(held);
  }
  qv_worker_drop(worker, job);
}

/* ---- orders of matrix.mjs */

static void obey(Peer *peer, const char *order)
{
  guint number = 0, slots = 0;
  if (sscanf(order, "do pause %u", &number) == 1)
    qv_worker_pause(peer->worker);
  else if (sscanf(order, "do resume %u", &number) == 1)
    qv_worker_resume(peer->worker);
  else if (sscanf(order, "do release %u", &number) == 1)
    let_go(peer);
  else if (sscanf(order, "do slots %u %u", &slots, &number) == 2)
    qv_worker_set_concurrency(peer->worker, slots);
  else
    g_error("what is '%s'?", order);
  if (number <= peer->done)
    return;
  peer->done = number;
  g_autofree char *text = g_strdup_printf("%u", number);
  g_free(qv_test_valkey_cli(peer->valkey, "SET", "test:did", text, NULL));
}

static void obey_new_lines(Peer *peer, const char *output, gsize *seen)
{
  const char *end;
  while ((end = strchr(output + *seen, '\n')) != NULL) {
    g_autofree char *line = g_strndup(output + *seen, end - output - *seen);
    *seen = end + 1 - output;
    if (g_str_has_prefix(line, "do "))
      obey(peer, line);
  }
}

/* The lines "row…" of a run. */
static char **run_matrix(const char *major, const char *other)
{
  static const QvWorkerEvents events = {.job = on_job, .lock_lost = on_lock_lost};
  Peer peer = {.valkey = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN), .held = g_ptr_array_new()};
  g_autoptr(QvAddress) address = qv_address_parse(qv_test_valkey_url(peer.valkey, "sandbox"), NULL);
  QvWorkerOptions options = {.address = address, .prefix = "quavon-sandbox", .name = "runner-1", .concurrency = SLOTS,
                             .lock_ms = LOCK_MS, .stalled_ms = STALLED_MS, .data_max_bytes = 1 << 20};
  peer.worker = qv_worker_new(&options, &events, &peer);
  qv_worker_resume(peer.worker);
  NodeProgram *node = node_start(peer.valkey, "worker", "matrix.mjs", major, (const char *[]){other, NULL}, NULL);
  gsize seen = 0;
  while (node_turn(node))
    obey_new_lines(&peer, node_output(node), &seen);
  g_auto(GStrv) lines = g_strsplit(node_output(node), "\n", -1);
  GPtrArray *rows = g_ptr_array_new();
  for (char **line = lines; *line != NULL; line++) {
    if (g_str_has_prefix(*line, "row\t"))
      g_ptr_array_add(rows, g_strdup(*line));
  }
  g_ptr_array_add(rows, NULL);
  node_finish(node);
  qv_worker_free(peer.worker);
  qv_test_valkey_free(peer.valkey);
  g_ptr_array_unref(peer.held);
  return (char **)g_ptr_array_free(rows, FALSE);
}

/* ---- the table */

static char **of_five, **of_six, **of_both, **of_both_turned;

static void test_five(void)
{
  if (node_folder() != NULL)
    of_five = run_matrix("5", "5");
}

static void test_six(void)
{
  if (node_folder() != NULL)
    of_six = run_matrix("6", "6");
}

static void test_both(void)
{
  if (node_folder() != NULL)
    of_both = run_matrix("5", "6");
}

static void test_both_turned(void)
{
  if (node_folder() != NULL)
    of_both_turned = run_matrix("6", "5");
}

static const char head[] =
  "<!-- SPDX-License-Identifier: Apache-2.0 -->\n"
  "# BullMQ's features on a queue that we work on\n"
  "\n"
  "Made by the test `interop/queue/matrix`, which runs each line on a real Valkey with the shipped users: the public npm package on one side, our\n"
  "worker (user `sandbox`) on the other. *By*: whose password it takes, that of `worker` in deploy/valkey/users.acl, or an operator's, who may do more.\n"
  "*Both*: a producer of the one major and `QueueEvents` and a Node worker of the other, both ways round.\n"
  "\n"
  "| feature | by | BullMQ 5 | BullMQ 6 | both |\n"
  "| --- | --- | --- | --- | --- |\n";

static void test_table(void)
{
  if (node_folder() == NULL)
    return;
  if (of_five == NULL || of_six == NULL || of_both == NULL || of_both_turned == NULL) {
    g_test_skip("the table needs all four runs");
    return;
  }
  g_autoptr(GString) text = g_string_new(head);
  for (guint i = 0; of_five[i] != NULL; i++) {
    g_assert_nonnull(of_six[i]);
    g_assert_nonnull(of_both[i]);
    g_assert_cmpstr(of_both[i], ==, of_both_turned[i]);
    g_auto(GStrv) five = g_strsplit(of_five[i], "\t", -1), six = g_strsplit(of_six[i], "\t", -1);
    g_auto(GStrv) both = g_strsplit(of_both[i], "\t", -1);
    g_assert_cmpstr(five[1], ==, six[1]);
    g_assert_cmpstr(five[1], ==, both[1]);
    g_assert_cmpstr(five[3], ==, "yes");
    g_assert_cmpstr(six[3], ==, "yes");
    const char *mixed = strcmp(both[3], "yes") == 0 ? "yes" : "no: ";
    g_string_append_printf(text, "| %s | %s | %s | %s | %s%s |\n", five[1], five[2], five[3], six[3], mixed,
                           strcmp(both[3], "yes") == 0 ? "" : both[3]);
  }
  g_autofree char *file = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "docs", "INTEROP.md", NULL), *is = NULL;
  if (g_strcmp0(g_getenv("QUAVON_TEST_WRITE_DOCS"), "1") == 0)
    g_assert_true(g_file_set_contents(file, text->str, text->len, NULL));
  g_assert_true(g_file_get_contents(file, &is, NULL, NULL));
  g_assert_cmpstr(is, ==, text->str);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/interop/matrix/bullmq-5", test_five);
  g_test_add_func("/interop/matrix/bullmq-6", test_six);
  g_test_add_func("/interop/matrix/both-5-and-6", test_both);
  g_test_add_func("/interop/matrix/both-6-and-5", test_both_turned);
  g_test_add_func("/interop/matrix/table", test_table);
  int status = g_test_run();
  g_strfreev(of_five);
  g_strfreev(of_six);
  g_strfreev(of_both);
  g_strfreev(of_both_turned);
  return status;
}
