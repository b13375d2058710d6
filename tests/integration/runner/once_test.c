/* SPDX-License-Identifier: Apache-2.0 */
/* Exactly once, as the worker side sees it: cancels at every stage, stalled jobs, copies, lost answers of the replay guard,
 * tenants that share a runner, and clocks that end what hangs. */
#include <errno.h>
#include <glib.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "runner/ipc.h"
#include "runner/unpack.h"
#include "support/proxy.h"
#include "world.h"

#define JOBS WORLD_PREFIX ":sandbox:"

static char *ask(World *world, const char *command, const char *key, const char *more)
{
  return qv_test_valkey_cli(world->valkey, command, key, more, NULL);
}

/* TRUE once the runner says so of the job; FALSE where the job ends without. */
static gboolean await_stage(World *world, const QvJob *job, const char *stage)
{
  g_autofree char *key = g_strconcat(JOBS, job->job_id, NULL), *text = g_strdup_printf("\"stage\":\"%s\"", stage);
  gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;
  for (;;) {
    g_autofree char *said = ask(world, "HGET", key, "progress"), *done = ask(world, "HEXISTS", key, "finishedOn");
    if (strstr(said, text) != NULL)
      return TRUE;
    if (strcmp(done, "1") == 0)
      return FALSE;
    g_assert_cmpint(qv_clock_mono_ms(), <, end);
    g_usleep(10000);
  }
}

static GPid await_child(GPid parent, const char *word)
{
  GPid pid;
  gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;
  while ((pid = world_child(parent, word)) == 0) {
    g_assert_cmpint(qv_clock_mono_ms(), <, end);
    g_usleep(2000);
  }
  return pid;
}

static void expect_once(World *world, const QvJob *job, const char *sha256, const char *code)
{
  world_expect_code(world, job, sha256, code);
  g_assert_cmpuint(world_ends(world, job->job_id), ==, 1);
}

static gboolean started(World *world, const QvJob *job)
{
  g_autofree char *line = g_strconcat("sandbox starts jobId=", job->job_id, NULL);
  return world_log_has(world, line);
}

/* ---- cancel */

static void add_setup(QvJob *job, const char *script)
{
  const char *argv[] = {"/bin/sh", "-c", script, NULL};
  job->setup = g_new0(QvStep, 1);
  job->setup->name = g_strdup("install");
  job->setup->argv = g_strdupv((char **)argv);
}

static void cancel_waiting(World *world)
{
  char sha256[65];
  g_autoptr(QvJob) job = world_job(world, "true");
  world_add(world, job, sha256);
  world_cancel(world, job);
  world_start(world, NULL);
  expect_once(world, job, sha256, "cancelled");
  g_assert_false(started(world, job));
}

/* The job process stands still, so that nothing comes after `preparing`; where it was quicker, another try is due. */
static void cancel_preparing(World *world)
{
  for (int tries = 0; tries < 50; tries++) {
    char sha256[65];
    AWAIT(world_child(world->runner, "job") == 0); /* that of the try before */
    g_autoptr(QvJob) job = world_job(world, "sleep 1000");
    world_add(world, job, sha256);
    GPid process = await_child(world->runner, "job");
    kill(process, SIGSTOP);
    g_autofree char *runs = g_strconcat("sandbox runs jobId=", job->job_id, NULL);
    gboolean early = !world_log_has(world, runs);
    world_cancel(world, job);
    g_autofree char *line = g_strdup_printf("jobId=%s event=INTERRUPT phase=STOPPING", job->job_id);
    world_await_log(world, line);
    g_autofree char *key = g_strconcat(JOBS, job->job_id, NULL), *said = ask(world, "HGET", key, "progress");
    kill(process, SIGCONT);
    expect_once(world, job, sha256, "cancelled");
    if (early && strstr(said, "\"stage\":\"preparing\"") != NULL)
      return;
  }
  g_error("no cancel came while a sandbox was prepared");
}

static void cancel_at(World *world, const char *stage)
{
  char sha256[65];
  g_autoptr(QvJob) job = world_job(world, "echo first");
  world_job_add_step(job, "second", "sleep 1000");
  if (strcmp(stage, "setup") == 0)
    add_setup(job, "sleep 1000");
  world_add(world, job, sha256);
  g_assert_true(await_stage(world, job, stage));
  if (strcmp(stage, "step") == 0)
    g_assert_true(await_stage(world, job, "step\",\"step\":2,\"steps\":2,\"name\":\"second")); /* the whole word of it */
  world_cancel(world, job);
  expect_once(world, job, sha256, "cancelled");
}

/* Artefacts take a while; where the run was over before the cancel came, it counts as it ended, and another try is due. */
static void cancel_collecting(World *world)
{
  for (int tries = 0; tries < 20; tries++) {
    char sha256[65];
    g_autoptr(QvJob) job = world_job(world, "head -c 33554432 /dev/urandom > big; head -c 33554432 /dev/urandom > more");
    g_strfreev(job->artefacts);
    job->artefacts = g_strsplit("big more", " ", -1);
    job->given.work_mib = 128;
    job->given.artefact_bytes = 67108864;
    world_add(world, job, sha256);
    if (await_stage(world, job, "collecting"))
      world_cancel(world, job);
    g_autoptr(QvResult) result = world_result(world, job, sha256);
    g_assert_cmpuint(world_ends(world, job->job_id), ==, 1);
    if (g_strcmp0(qv_code_text(result->code), "cancelled") == 0)
      return;
    g_assert_cmpstr(qv_code_text(result->code), ==, NULL);
  }
  g_error("no cancel came while artefacts were collected");
}

static void test_cancel(World *world)
{
  cancel_waiting(world);
  cancel_preparing(world);
  cancel_at(world, "setup");
  cancel_at(world, "step");
  cancel_collecting(world);
  world_expect_clean(world);
}

/* ---- what cannot be read is not run */

static void test_cancel_unreadable(World *world)
{
  world_start(world, (const char *const[]){WORLD_FAST_LOCKS, NULL});
  g_autoptr(QvJob) wrong = world_job(world, "true");
  g_autoptr(QvJob) denied = world_job(world, "true");
  g_autofree char *key = g_strdup_printf(WORLD_PREFIX ":cancel:%s", wrong->job_id);
  g_free(qv_test_valkey_cli(world->valkey, "HSET", key, "a", "b", NULL));
  world_expect_failed(world, wrong, "stalled");
  g_assert_false(started(world, wrong));
  g_free(qv_test_valkey_cli(world->valkey, "ACL", "SETUSER", "sandbox", "-getrange", NULL));
  world_expect_failed(world, denied, "stalled");
  g_assert_false(started(world, denied));
  g_free(qv_test_valkey_cli(world->valkey, "ACL", "SETUSER", "sandbox", "+getrange", NULL));
  g_autoptr(QvJob) next = world_job(world, "true");
  world_expect(world, next, NULL);
  world_expect_clean(world);
}

/* ---- clocks */

/* Valkey takes no payload: the slot is free when wallMs is over, and the answer says so as soon as it can. */
static void test_wall_while_storing(World *world)
{
  world_start(world, NULL);
  char sha256[65];
  g_autoptr(QvJob) job = world_job(world, "sleep 10; head -c 100000 /dev/urandom > big");
  g_strfreev(job->artefacts);
  job->artefacts = g_strsplit("big", " ", -1);
  job->given.wall_ms = 50000;
  world_add(world, job, sha256);
  g_assert_true(await_stage(world, job, "step"));
  g_free(qv_test_valkey_cli(world->valkey, "CONFIG", "SET", "maxmemory", "1", NULL));
  g_autofree char *line = g_strdup_printf("jobId=%s event=INTERRUPT phase=ANSWERING", job->job_id);
  world_await_log(world, line);
  g_free(qv_test_valkey_cli(world->valkey, "CONFIG", "SET", "maxmemory", "0", NULL));
  expect_once(world, job, sha256, "wall");
  world_expect_clean(world);
}

/* Lets the unpack process run until it is about to write the frame REPORT, and holds it there. */
static void hold_before_report(GPid unpack)
{
  int status;
  g_assert_cmpint(ptrace(PTRACE_SEIZE, unpack, NULL, (void *)(intptr_t)PTRACE_O_TRACESYSGOOD), ==, 0);
  g_assert_cmpint(ptrace(PTRACE_INTERRUPT, unpack, NULL, NULL), ==, 0);
  for (;;) {
    g_assert_cmpint(waitpid(unpack, &status, __WALL), ==, unpack);
    g_assert_true(WIFSTOPPED(status));
    struct user_regs_struct regs;
    g_assert_cmpint(ptrace(PTRACE_GETREGS, unpack, NULL, &regs), ==, 0);
    if (WSTOPSIG(status) == (SIGTRAP | 0x80) && regs.orig_rax == SYS_write && regs.rdi == QV_UNPACK_OUT_FD &&
        regs.rdx == QV_IPC_HEADER_BYTES) {
      errno = 0;
      long type = ptrace(PTRACE_PEEKDATA, unpack, (void *)(regs.rsi + 4), NULL);
      if (errno == 0 && (guint32)type == QV_IPC_REPORT)
        return;
    }
    int signal_number = WSTOPSIG(status) == SIGTRAP || WSTOPSIG(status) == (SIGTRAP | 0x80) || status >> 16 != 0
                          ? 0
                          : WSTOPSIG(status);
    g_assert_cmpint(ptrace(PTRACE_SYSCALL, unpack, NULL, (void *)(intptr_t)signal_number), ==, 0);
  }
}

/* The stream was complete, but its sum never comes: a cancel is obeyed all the same. */
static void test_hang_before_report(World *world)
{
  world_start(world, NULL);
  char sha256[65];
  g_autoptr(QvJob) job = world_job(world, "sleep 10");
  world_add(world, job, sha256);
  g_assert_true(await_stage(world, job, "step"));
  GPid unpack = await_child(await_child(world->runner, "job"), "unpack");
  hold_before_report(unpack);
  world_cancel(world, job);
  expect_once(world, job, sha256, "cancelled");
  int status;
  g_assert_cmpint(waitpid(unpack, &status, __WALL), ==, unpack); /* its tracer hears of its end, too */
  world_expect_clean(world);
  g_assert_false(world_log_has(world, "does not obey"));
}

/* ---- stalled, copies, the guard */

static void remove_ended(World *world, const char *id)
{
  g_autofree char *key = g_strconcat(JOBS, id, NULL);
  g_free(ask(world, "ZREM", JOBS "completed", id));
  g_free(ask(world, "ZREM", JOBS "failed", id));
  g_free(ask(world, "DEL", key, NULL));
}

static gint64 hash_number(World *world, const char *id, const char *field)
{
  g_autofree char *key = g_strconcat(JOBS, id, NULL), *text = ask(world, "HGET", key, field);
  return g_ascii_strtoll(text, NULL, 10);
}

/* When the N-th runner of this world has tried its backend: from then on it looks for stalled jobs. */
static gint64 await_up(World *world, guint n)
{
  for (gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;; g_usleep(20000)) {
    g_autofree char *log = world_log(world);
    guint seen = 0;
    for (const char *at = log; (at = strstr(at, "backend tried")) != NULL; at++)
      seen++;
    if (seen == n)
      return qv_clock_unix_ms();
    g_assert_cmpint(qv_clock_mono_ms(), <, end);
  }
}

/* A runner that is killed: the job fails once, in time, its blobs go, and it does not come back. */
static void test_stalled(World *world)
{
  const char *const fast[] = {WORLD_FAST_LOCKS, NULL};
  world_start(world, fast);
  char sha256[65];
  g_autoptr(QvJob) job = world_job(world, "sleep 1000");
  world_add(world, job, sha256);
  g_assert_true(await_stage(world, job, "step"));
  world_stop(world, SIGKILL);
  world_start(world, fast);
  gint64 up_at = await_up(world, 2);
  g_autofree char *text = NULL;
  g_assert_cmpint(world_wait(world, job->job_id, &text), ==, QV_JOB_FAILED);
  g_assert_cmpstr(text, ==, "stalled");
  gint64 took = hash_number(world, job->job_id, "finishedOn") - up_at;
  g_test_message("failed after %" G_GINT64_FORMAT " ms; lock and two intervals are %d ms", took, WORLD_LOCK_MS + 2 * WORLD_STALLED_MS);
  g_assert_cmpint(took, <=, 5 * (WORLD_LOCK_MS + 2 * WORLD_STALLED_MS)); /* five times, for a slow machine */
  world_expect_clean(world);
  g_assert_cmpuint(world_ends(world, job->job_id), ==, 1);
  remove_ended(world, job->job_id);
  world_expect_failed(world, job, "rejected: replayed");
  /* Not only this runner remembers. */
  remove_ended(world, job->job_id);
  world_stop(world, SIGTERM);
  world_start(world, fast);
  world_expect_failed(world, job, "rejected: replayed");
}

/* The job, its process standing still with whatever it has of its input by now. */
static GPid begin_and_hold(World *world, const QvJob *job, const char *data, gsize n)
{
  world_add_raw(world, job->job_id, data, n);
  GPid process = await_child(world->runner, "job");
  kill(process, SIGSTOP);
  return process;
}

/* A copy of a running job under another id: refused, and the job goes on and has its blobs. */
static void test_copy(World *world)
{
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_CONCURRENCY=2", NULL});
  char sha256[65];
  g_autoptr(QvJob) job = world_job(world, "sleep 5; cat hello.txt");
  g_autoptr(QvJob) other = world_job(world, "true");
  world->keeps_input = TRUE; /* that of the other id */
  gsize n;
  g_autofree char *data = qv_job_sign(job, &world->policy, world->key, &n, sha256, NULL);
  GPid process = begin_and_hold(world, job, data, n);
  world_add_raw(world, other->job_id, data, n);
  g_autofree char *text = NULL;
  g_assert_cmpint(world_wait(world, other->job_id, &text), ==, QV_JOB_FAILED);
  g_assert_cmpstr(text, ==, "rejected: job_id_mismatch");
  g_autofree char *blob = g_strdup_printf(WORLD_PREFIX ":blob:%s:0", job->base.blob_id);
  g_assert_true(world_key_exists(world, blob));
  kill(process, SIGCONT);
  expect_once(world, job, sha256, NULL);
  world_expect_clean(world);
}

/* Under its own id, as somebody with the queue's password can do it: that takes the lock away from the job. One end, one
 * start; the copy is refused by the guard. */
static void test_copy_same_id(World *world)
{
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_CONCURRENCY=2", NULL});
  char sha256[65];
  g_autoptr(QvJob) job = world_job(world, "sleep 5; cat hello.txt");
  gsize n;
  g_autofree char *data = qv_job_sign(job, &world->policy, world->key, &n, sha256, NULL);
  GPid process = begin_and_hold(world, job, data, n);
  g_free(ask(world, "LPUSH", JOBS "wait", job->job_id));
  g_free(qv_test_valkey_cli(world->valkey, "ZADD", JOBS "marker", "0", "0", NULL));
  g_autofree char *text = NULL;
  g_assert_cmpint(world_wait(world, job->job_id, &text), ==, QV_JOB_FAILED);
  kill(process, SIGCONT);
  g_assert_cmpstr(text, ==, "rejected: replayed");
  world_stop(world, SIGTERM);
  g_assert_cmpuint(world_ends(world, job->job_id), ==, 1);
  g_autofree char *log = world_log(world), *line = g_strconcat("sandbox starts jobId=", job->job_id, NULL);
  const char *first = strstr(log, line);
  g_assert_true(first == NULL || strstr(first + 1, line) == NULL);
}

/* The guard's SET arrives, its answer does not, nor that of the question behind it: won once, run once. */
static void test_lost_guard(World *world)
{
  g_autoptr(QvTestProxy) proxy = qv_test_proxy_start(world->dir, qv_test_valkey_socket(world->valkey));
  g_autofree char *url = g_strdup_printf("VALKEY_URL=unix://sandbox:%s@%s", qv_test_valkey_password(world->valkey),
                                         qv_test_proxy_socket(proxy));
  world_start(world, (const char *const[]){url, NULL});
  for (guint lost = 1; lost <= 3; lost++) {
    char sha256[65];
    g_autoptr(QvJob) job = world_job(world, "cat hello.txt");
    guint before = qv_test_proxy_lost_n(proxy);
    qv_test_proxy_lose_reply_to(proxy, WORLD_PREFIX ":replay:", lost);
    world_add(world, job, sha256);
    expect_once(world, job, sha256, NULL);
    g_assert_cmpuint(qv_test_proxy_lost_n(proxy) - before, ==, lost);
    remove_ended(world, job->job_id);
    world_expect_failed(world, job, "rejected: replayed");
  }
  world_expect_clean(world);
}

/* ---- tenants */

static QvJob *job_of(World *world, const char *tenant)
{
  QvJob *job = world_job(world, "true");
  const char *files[] = {"hello.txt", "hello\n", NULL};
  g_autoptr(GBytes) plain = world_snapshot(files);
  g_free(job->tenant_id);
  job->tenant_id = g_strdup(tenant);
  world_put_base(world, job, plain);
  return job;
}

/* Many jobs of one tenant and then one of another, one slot: the other's is the second to run. */
static void test_turns(World *world)
{
  enum { MANY = 5 };
  g_autoptr(GPtrArray) jobs = g_ptr_array_new_with_free_func((GDestroyNotify)qv_job_free);
  char sha256[MANY + 1][65];
  for (int i = 0; i <= MANY; i++) {
    g_ptr_array_add(jobs, job_of(world, i < MANY ? "one" : "other"));
    world_add(world, jobs->pdata[i], sha256[i]);
  }
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_CONCURRENCY=1", NULL});
  g_autoptr(QvResult) of_other = world_result(world, jobs->pdata[MANY], sha256[MANY]);
  for (int i = 0; i < MANY; i++) {
    g_autoptr(QvResult) result = world_result(world, jobs->pdata[i], sha256[i]);
    g_assert_cmpint(result->status, ==, QV_STATUS_SUCCEEDED);
    g_assert_true((result->started_at < of_other->started_at) == (i == 0));
  }
  world_expect_clean(world);
}

static gboolean list_is(World *world, const char *list, const char *length)
{
  g_autofree char *key = g_strconcat(JOBS, list, NULL), *is = ask(world, "LLEN", key, NULL);
  return strcmp(is, length) == 0;
}

/* A tenant over its cap holds no slot: with two slots and eight of its jobs in front, the other's are not behind them. */
static void test_cap(World *world)
{
  enum { MANY = 8 };
  g_autoptr(GPtrArray) jobs = g_ptr_array_new_with_free_func((GDestroyNotify)qv_job_free);
  char sha256[MANY + 2][65];
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_CONCURRENCY=2", "QUAVON_SANDBOX_TENANT_MAX=1", NULL});
  g_autoptr(QvJob) endless = world_job(world, "sleep 1000");
  char endless_sha256[65];
  world_add(world, endless, endless_sha256);
  g_assert_true(await_stage(world, endless, "step"));
  for (int i = 0; i < MANY + 2; i++) {
    g_ptr_array_add(jobs, job_of(world, i < MANY ? "tenant" : "other"));
    world_add(world, jobs->pdata[i], sha256[i]);
  }
  for (int i = MANY; i < MANY + 2; i++) {
    g_autoptr(QvResult) result = world_result(world, jobs->pdata[i], sha256[i]);
    g_assert_cmpint(result->status, ==, QV_STATUS_SUCCEEDED);
  }
  AWAIT(list_is(world, "wait", "8")); /* where BullMQ sees them wait */
  AWAIT(list_is(world, "active", "1"));
  world_cancel(world, endless);
  expect_once(world, endless, endless_sha256, "cancelled");
  gint64 free_at = 0;
  for (int i = 0; i < MANY; i++) { /* in their order, one at a time */
    g_autoptr(QvResult) result = world_result(world, jobs->pdata[i], sha256[i]);
    g_assert_cmpint(result->status, ==, QV_STATUS_SUCCEEDED);
    g_assert_cmpint(result->started_at, >=, free_at);
    free_at = result->finished_at;
  }
  world_expect_clean(world);
}

int main(int argc, char **argv)
{
  if (!backend_select(argc, argv))
    return 0;
  g_test_init(&argc, &argv, NULL);
  world_test_add("/runner/once/cancel", QV_TEST_VALKEY_PLAIN, test_cancel);
  if (ON(ON_RUNSC)) { /* what depends on no backend */
    world_test_add("/runner/once/cancel-unreadable", QV_TEST_VALKEY_PLAIN, test_cancel_unreadable);
    world_test_add("/runner/once/wall-while-storing", QV_TEST_VALKEY_PLAIN, test_wall_while_storing);
    world_test_add("/runner/once/hang-before-report", QV_TEST_VALKEY_PLAIN, test_hang_before_report);
    world_test_add("/runner/once/stalled", QV_TEST_VALKEY_PLAIN, test_stalled);
    world_test_add("/runner/once/copy", QV_TEST_VALKEY_PLAIN, test_copy);
    world_test_add("/runner/once/copy-same-id", QV_TEST_VALKEY_PLAIN, test_copy_same_id);
    world_test_add("/runner/once/lost-guard", QV_TEST_VALKEY_PLAIN, test_lost_guard);
    world_test_add("/runner/once/turns", QV_TEST_VALKEY_PLAIN, test_turns);
    world_test_add("/runner/once/cap", QV_TEST_VALKEY_PLAIN, test_cap);
  }
  int status = g_test_run();
  backend_finish();
  return status;
}
