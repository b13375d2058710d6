/* SPDX-License-Identifier: Apache-2.0 */
/* The health record of a real runner: what it says, and that it follows what happens. */
#include <glib.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/utsname.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/random.h"
#include "world.h"

enum { CLOCK_OFF_S = 20 };

static gboolean any(const QvHealth *health)
{
  return TRUE;
}

static gboolean is_busy(const QvHealth *health)
{
  return health->busy == 1;
}

static gboolean is_idle(const QvHealth *health)
{
  return health->busy == 0;
}

static gboolean has_problem(const QvHealth *health, const char *start)
{
  for (char **text = health->problems; *text != NULL; text++) {
    if (g_str_has_prefix(*text, start))
      return TRUE;
  }
  return FALSE;
}

static gboolean has_drain(const QvHealth *health)
{
  return has_problem(health, "drain: ");
}

static gboolean has_reload(const QvHealth *health)
{
  return has_problem(health, "reload: ");
}

static gboolean has_sweep(const QvHealth *health)
{
  return has_problem(health, "sweep: ");
}

static gboolean has_no_sweep(const QvHealth *health)
{
  return !has_sweep(health);
}

static gboolean has_clock(const QvHealth *health)
{
  return has_problem(health, "clock: ");
}

static void test_record(void)
{
  g_autoptr(World) world = world_new(QV_TEST_VALKEY_PLAIN);
  if (world == NULL)
    return;
  gint64 before = qv_clock_unix_ms();
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_CONCURRENCY=2", NULL});
  g_autoptr(QvHealth) health = world_await_health(world, any);
  struct utsname name;
  g_assert_cmpint(uname(&name), ==, 0);
  gsize n;
  g_autofree char *boot_id = qv_fd_read_file("/proc/sys/kernel/random/boot_id", 128, &n, NULL);
  char host_id[65];
  qv_host_id_format(g_strchomp(boot_id), host_id);
  g_autofree char *id_file = g_build_filename(world->state_dir, "runner-id", NULL);
  g_autofree char *id = qv_fd_read_file(id_file, 64, &n, NULL);
  g_assert_cmpstr(health->runner_id, ==, g_strchomp(id));
  g_assert_cmpstr(health->backend, ==, row->name);
  g_assert_cmpstr(health->runtime_name, ==, ON(ON_GVISOR) ? "runsc" : "runc");
  g_assert_nonnull(health->runtime_version);
  g_assert_cmpstr(health->platform, ==, row->platform);
  g_assert_cmpstr(health->kernel, ==, name.release);
  g_assert_cmpstr(health->host_id, ==, host_id);
  g_assert_true(g_str_equal(health->cgroup, "v1") || g_str_equal(health->cgroup, "v2"));
  g_assert_cmpint(health->concurrency, ==, 2);
  g_assert_cmpint(health->started_at, >=, before);
  g_assert_cmpuint(health->images_n, >=, 1);
  g_assert_cmpstr(health->images[0].digest, ==, world->image.digest);
  g_assert_true(health->insecure == ON(ON_DOCKER_RUNC));
  g_assert_true(world_log_has(world, "this backend isolates no hostile code") == ON(ON_DOCKER_RUNC));
  g_assert_false(has_clock(health));
  g_autofree char *score = qv_test_valkey_cli(world->valkey, "ZSCORE", "quavon-sandbox:runners", health->runner_id, NULL);
  g_assert_cmpint(g_ascii_strtoll(score, NULL, 10), >=, before);
  g_autofree char *key = g_strdup_printf("quavon-sandbox:health:%s", health->runner_id);
  g_autofree char *ttl = qv_test_valkey_cli(world->valkey, "PTTL", key, NULL);
  g_assert_cmpint(g_ascii_strtoll(ttl, NULL, 10), >, 0);
  g_assert_cmpint(g_ascii_strtoll(ttl, NULL, 10), <=, QV_HEALTH_TTL_MS);
}

/* Busy and idle again, then the drain: each is told when it happens, not at the next half minute. */
static void test_follows(void)
{
  g_autoptr(World) world = world_new(QV_TEST_VALKEY_PLAIN);
  if (world == NULL)
    return;
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_GRACE_MS=1800000", NULL});
  char sha256[65];
  g_autoptr(QvJob) job = world_job(world, "sleep 1000");
  world_add(world, job, sha256);
  g_autoptr(QvHealth) busy = world_await_health(world, is_busy);
  g_assert_false(has_drain(busy));
  world_cancel(world, job);
  world_expect_code(world, job, sha256, "cancelled");
  g_autoptr(QvHealth) idle = world_await_health(world, is_idle);
  g_assert_cmpint(idle->at, >=, busy->at);
  g_autoptr(QvJob) last = world_job(world, "sleep 1000");
  world_add(world, last, sha256);
  g_autoptr(QvHealth) again = world_await_health(world, is_busy);
  kill(world->runner, SIGTERM);
  g_autoptr(QvHealth) drain = world_await_health(world, has_drain);
  g_assert_cmpint(drain->busy, ==, 1);
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  world_expect_clean(world);
}

static void test_problems(void)
{
  g_autoptr(World) world = world_new(QV_TEST_VALKEY_PLAIN);
  if (world == NULL)
    return;
  g_autofree char *left = g_build_filename(world->state_dir, "runs", "6c1e0f0e-52a5-4a3f-8a5e-0d8f0c3f7a12", NULL);
  g_assert_cmpint(g_mkdir_with_parents(left, 0711), ==, 0);
  g_assert_cmpint(mount("tmpfs", left, "tmpfs", 0, "size=64k"), ==, 0);
  world_start(world, NULL);
  g_autoptr(QvHealth) sweep = world_await_health(world, has_sweep);
  g_assert_cmpint(umount(left), ==, 0);
  g_autofree char *good = NULL;
  gsize n;
  g_assert_true(g_file_get_contents(world->key_file, &good, &n, NULL));
  g_assert_true(qv_fd_write_file(world->key_file, "short\n", 6, 0600, NULL));
  kill(world->runner, SIGHUP);
  g_autoptr(QvHealth) reload = world_await_health(world, has_reload);
  g_autoptr(QvHealth) swept = world_await_health(world, has_no_sweep);
  g_assert_true(qv_fd_write_file(world->key_file, good, n, 0600, NULL));
  kill(world->runner, SIGHUP);
  world_await_log(world, "keys and images were read again");
  g_autoptr(QvJob) job = world_job(world, "true");
  world_expect(world, job, NULL);
  g_autoptr(QvHealth) fine = world_await_health(world, is_idle);
  g_assert_false(has_sweep(fine));
  g_assert_false(has_reload(fine));
  world_expect_clean(world);
}

static gboolean has_passed(const QvHealth *health)
{
  return health->smoke != NULL && health->smoke->passed;
}

static gboolean has_failed(const QvHealth *health)
{
  return health->smoke != NULL && !health->smoke->passed;
}

static gboolean has_request(const QvHealth *health)
{
  return health->smoke != NULL && health->smoke->request_id != NULL;
}

/* A start that remembers nothing: the job that waits is taken when the test has passed, and not before. */
static void test_smoke_first(void)
{
  g_autoptr(World) world = world_new(QV_TEST_VALKEY_PLAIN);
  if (world == NULL)
    return;
  gint64 before = qv_clock_unix_ms();
  g_autoptr(QvJob) job = world_job(world, "true");
  char sha256[65];
  world_add(world, job, sha256);
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_SMOKE_MEMORY=", NULL});
  g_autoptr(QvHealth) health = world_await_health(world, has_passed);
  g_assert_cmpint(health->smoke->at, >=, before);
  g_assert_cmpint(health->smoke->probes, >, 20);
  g_assert_null(health->smoke->request_id);
  g_assert_false(has_problem(health, "smoke: "));
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_cmpint(result->status, ==, QV_STATUS_SUCCEEDED);
  g_autofree char *log = world_log(world);
  const char *passed = strstr(log, "smoke test passed"), *starts = strstr(log, "job starts");
  g_assert_nonnull(passed);
  g_assert_nonnull(starts);
  g_assert_true(passed < starts);
  world_expect_clean(world);
}

/* Two SIGTERMs: the second one ends what runs. */
static void end_now(World *world)
{
  kill(world->runner, SIGTERM);
  world_await_log(world, "draining");
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  world_expect_clean(world);
}

static void on_put(const GError *error, gpointer done)
{
  g_assert_no_error(error);
  *(gboolean *)done = TRUE;
}

static void request(World *world, const char *runner_id, const char *request_id, QvKey *key)
{
  gsize n;
  gboolean done = FALSE;
  g_autofree char *text = qv_smoke_request_sign("default", runner_id, request_id, qv_clock_unix_ms(), key, &n, NULL);
  qv_smoke_request_put(world->conn, "quavon-sandbox", runner_id, text, n, WORLD_DEADLINE_MS, on_put, &done);
  while (!done)
    g_main_context_iteration(NULL, TRUE);
}

/* Asked for by somebody with the key, while a job runs: that is not touched. */
static void test_smoke_request(void)
{
  g_autoptr(World) world = world_new(QV_TEST_VALKEY_PLAIN);
  if (world == NULL)
    return;
  world_start(world, NULL);
  g_autoptr(QvHealth) first = world_await_health(world, has_passed);
  guint8 bytes[32];
  qv_random_bytes(bytes, sizeof bytes);
  g_autoptr(QvKey) stranger = qv_key_new(bytes, sizeof bytes);
  request(world, first->runner_id, "forged", stranger);
  world_await_log(world, "request for a smoke test is refused");
  g_autoptr(QvJob) job = world_job(world, "while [ ! -e /tmp/never ]; do sleep 1; done");
  char sha256[65];
  world_add(world, job, sha256);
  g_autoptr(QvHealth) busy = world_await_health(world, is_busy);
  request(world, first->runner_id, "asked-1", world->key);
  g_autoptr(QvHealth) answered = world_await_health(world, has_request);
  g_assert_cmpstr(answered->smoke->request_id, ==, "asked-1");
  g_assert_true(answered->smoke->passed);
  g_assert_cmpint(answered->busy, ==, 1);
  g_assert_false(world_log_has(world, "job ends"));
  end_now(world);
}

/* A runtime with one protection taken away: nothing is fetched, and the record names the probes. */
static void test_smoke_failed(void)
{
  g_autoptr(World) world = world_new(QV_TEST_VALKEY_PLAIN);
  if (world == NULL)
    return;
  g_autoptr(QvJob) job = world_job(world, "true");
  char sha256[65];
  world_add(world, job, sha256);
  g_autofree char *runsc = world_weak_runsc(world, "host-folder");
  world_start(world, (const char *const[]){runsc, "QUAVON_SANDBOX_SMOKE_MEMORY=", NULL});
  g_autoptr(QvHealth) health = world_await_health(world, has_failed);
  g_assert_true(has_problem(health, "smoke: the smoke test did not pass: "));
  g_assert_nonnull(health->smoke->failed[0]);
  world_await_state(world, job->job_id, QV_JOB_WAITING);
  world->keeps_input = TRUE;
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  world_expect_clean(world);
}

/* A server whose clock is wrong: told, and jobs run all the same. */
static void test_clock(void)
{
  g_setenv("LD_PRELOAD", g_getenv("QUAVON_TEST_SHIFT_CLOCK"), TRUE);
  g_setenv("QV_SHIFT_CLOCK_S", "-600", TRUE);
  g_autoptr(World) world = world_new(QV_TEST_VALKEY_PLAIN);
  g_unsetenv("LD_PRELOAD");
  g_unsetenv("QV_SHIFT_CLOCK_S");
  if (world == NULL)
    return;
  world_start(world, NULL);
  g_autoptr(QvHealth) health = world_await_health(world, has_clock);
  int behind_s = 0;
  for (char **text = health->problems; *text != NULL; text++)
    sscanf(*text, "clock: Valkey's clock is %d s behind this host's", &behind_s);
  g_assert_cmpint(behind_s, >=, 600 - CLOCK_OFF_S); /* the answer takes its time */
  g_assert_cmpint(behind_s, <=, 600 + CLOCK_OFF_S);
  g_autoptr(QvJob) job = world_job(world, "true");
  world_expect(world, job, NULL);
}

int main(int argc, char **argv)
{
  static const struct {
    guint on; /* ON_RUNSC: what depends on no backend, or on a runtime that is made weak */
    const char *path;
    void (*func)(void);
  } cases[] = {{ON_ALL, "/runner/health/record", test_record},
               {ON_RUNSC, "/runner/health/follows", test_follows},
               {ON_ALL, "/runner/health/problems", test_problems},
               {ON_RUNSC, "/runner/health/clock", test_clock},
               {ON_GVISOR, "/runner/health/smoke-first", test_smoke_first},
               {ON_GVISOR, "/runner/health/smoke-request", test_smoke_request},
               {ON_RUNSC, "/runner/health/smoke-failed", test_smoke_failed}};
  if (!backend_select(argc, argv))
    return 0;
  g_test_init(&argc, &argv, NULL);
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++)
    if (ON(cases[i].on))
      g_test_add_func(cases[i].path, cases[i].func);
  int status = g_test_run();
  backend_finish();
  return status;
}
