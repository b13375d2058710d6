/* SPDX-License-Identifier: Apache-2.0 */
/* Warm sandboxes: a job gets one of its own kind, each serves once, and none outlives its runner. */
#include <glib.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "protocol/images_lock.h"
#include "world.h"

static const char *const warm[] = {"QUAVON_SANDBOX_WARM=1", "QUAVON_SANDBOX_CONCURRENCY=1", NULL};
/* The defaults are what world_job asks for: there is one kind from the start. */
static const char *const one_kind[] = {"QUAVON_SANDBOX_WARM=1",
                                       "QUAVON_SANDBOX_CONCURRENCY=1",
                                       "QUAVON_SANDBOX_DEFAULT_MEMORY_MIB=256",
                                       "QUAVON_SANDBOX_DEFAULT_WORK_MIB=64",
                                       "QUAVON_SANDBOX_DEFAULT_MILLI_CPUS=1000",
                                       "QUAVON_SANDBOX_DEFAULT_PIDS=64",
                                       NULL};

/* The lock of the world has one image: each has its own warm sandboxes, and the tests count. */
static void keep_one_image(World *world)
{
  g_autoptr(GError) error = NULL;
  gsize n;
  g_autofree char *text = qv_fd_read_file(world->images_file, 1024 * 1024, &n, &error);
  g_assert_no_error(error);
  g_autoptr(QvImagesLock) lock = qv_images_lock_parse(text, n, &error);
  g_assert_no_error(error);
  for (gsize i = lock->n; i > 0; i--) {
    const QvImage *image = &lock->images[i - 1];
    if (strcmp(image->digest, world->image.digest) != 0) {
      g_autofree char *name = g_strdup(image->name), *digest = g_strdup(image->digest), *platform = g_strdup(image->platform);
      g_assert_true(qv_images_lock_remove(lock, name, digest, platform));
    }
  }
  g_autofree char *one = qv_images_lock_format(lock, &n, &error);
  g_assert_no_error(error);
  g_assert_true(qv_fd_write_file(world->images_file, one, n, 0644, &error));
}

static guint log_count(World *world, const char *text)
{
  g_autofree char *log = world_log(world);
  guint n = 0;
  for (const char *at = log; (at = strstr(at, text)) != NULL; at += strlen(text))
    n++;
  return n;
}

static void await_count(World *world, const char *text, guint n)
{
  gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;
  while (log_count(world, text) < n) {
    g_assert_cmpint(qv_clock_mono_ms(), <, end);
    g_usleep(20000);
  }
}

/* A runner of one image, whose settings keep N sandboxes warm (0: none before a job came): those wait now. */
static void begin(World *world, const char *const *settings, guint n)
{
  keep_one_image(world);
  world_start(world, settings);
  await_count(world, "a warm sandbox waits", n);
}

/* The runner ends as it should, and its warm sandboxes with it. */
static void finish(World *world)
{
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  world_expect_clean(world);
}

static gboolean was_warm(World *world, const QvJob *job)
{
  g_autofree char *text = g_strdup_printf("sandbox was warm jobId=%s", job->job_id);
  return world_log_has(world, text);
}

static void run_one(World *world, gint64 memory_mib, gboolean wants_warm)
{
  g_autoptr(QvJob) job = world_job(world, "cat hello.txt; test ! -e left; touch left /tmp/left ../left");
  if (memory_mib != 0)
    job->given.memory_mib = job->limits.memory_mib = memory_mib;
  world_expect(world, job, NULL);
  g_assert_cmpint(was_warm(world, job), ==, wants_warm);
}

/* One is ready before the first job, and after each use another: nothing of a job is found by the next. */
static void test_serves_once(World *world)
{
  begin(world, one_kind, 1);
  for (guint i = 0; i < 3; i++) {
    await_count(world, "a warm sandbox waits", 1 + i);
    run_one(world, 0, TRUE);
  }
  finish(world);
}

/* Of another kind than what waits: a sandbox of its own; the next finds that kind. */
static void test_other_kind(World *world)
{
  begin(world, warm, 0);
  run_one(world, 0, FALSE);
  gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;
  for (gboolean seen = FALSE; !seen;) {
    g_autoptr(QvJob) job = world_job(world, "true");
    world_expect(world, job, NULL);
    seen = was_warm(world, job);
    g_assert_cmpint(qv_clock_mono_ms(), <, end);
    g_usleep(200000);
  }
  run_one(world, 200, FALSE);
  finish(world);
}

/* A job with limits of its own takes nothing from the others: the sandbox that waits goes on waiting, and so does the next one. */
static void test_odd_job(World *world)
{
  begin(world, one_kind, 1);
  for (guint i = 0; i < 2; i++) {
    run_one(world, 200, FALSE);
    run_one(world, 0, TRUE);
    await_count(world, "a warm sandbox waits", 2 + i);
  }
  finish(world);
}

/* A guest that ends its sandbox, and a step that fails: a warm sandbox is a sandbox like any other. */
static void test_ends_alike(World *world)
{
  begin(world, one_kind, 1);
  const struct {
    const char *script, *code;
  } rows[] = {{"kill -9 1; sleep 10", row->first_killed}, {"exit 3", "step_failed"}, {"true", NULL}};
  for (guint i = 0; i < G_N_ELEMENTS(rows); i++) {
    await_count(world, "a warm sandbox waits", i + 1);
    g_autoptr(QvJob) job = world_job(world, rows[i].script);
    world_expect(world, job, rows[i].code);
    g_assert_true(was_warm(world, job));
  }
  finish(world);
}

/* The container of the only warm sandbox; the smoke test has its own beside it. */
static void kill_container(World *world)
{
  static const char head[] = "a warm sandbox waits sandbox=";
  g_autofree char *log = world_log(world);
  const char *id = strstr(log, head);
  g_assert_nonnull(id);
  g_autofree char *filters = g_strdup_printf("{\"label\":[\"quavon.job=%.36s\"]}", id + strlen(head));
  g_autofree char *escaped = g_uri_escape_string(filters, NULL, FALSE);
  g_autofree char *list_path = g_strdup_printf("/containers/json?filters=%s", escaped);
  g_autofree char *list = qv_test_dockerd_call(backend_dockerd(), "GET", list_path, NULL, NULL);
  const char *container = strstr(list, "\"Id\":\"");
  g_assert_nonnull(container);
  g_autofree char *path = g_strdup_printf("/containers/%.64s/kill", container + strlen("\"Id\":\""));
  int status;
  g_free(qv_test_dockerd_call(backend_dockerd(), "POST", path, NULL, &status));
  g_assert_cmpint(status, ==, 204);
}

static void kill_waiting(World *world)
{
  if (ON(ON_DOCKER)) {
    kill_container(world);
    return;
  }
  GPid job = world_child(world->runner, "job");
  g_assert_cmpint(job, >, 0);
  GPid sandbox = world_child(job, "run");
  g_assert_cmpint(sandbox, >, 0);
  kill(sandbox, SIGKILL);
}

/* One that dies while it waits costs no job, nor does its unpack process; the runner goes on, behind a crash with another starter. */
static void test_dies_waiting(World *world)
{
  begin(world, one_kind, 1);
  GPid first = world_child(world->runner, "job"), job, unpack;
  kill_waiting(world);
  await_count(world, "a warm sandbox is lost", 1);
  await_count(world, "a warm sandbox waits", 2);
  AWAIT((job = world_child(world->runner, "job")) != 0 && job != first && (unpack = world_child(job, "unpack")) != 0);
  GPid starter = world_child(world->runner, "starter"), next;
  kill(unpack, SIGUSR1);
  await_count(world, "a warm sandbox is lost", 2);
  AWAIT((next = world_child(world->runner, "starter")) != 0 && next != starter);
  await_count(world, "a warm sandbox waits", 3);
  run_one(world, 0, TRUE);
  await_count(world, "a warm sandbox waits", 4);
  finish(world);
}

/* LINE of /proc/PID/status, with its number or letter. */
static gboolean status_says(GPid pid, const char *line)
{
  g_autofree char *path = g_strdup_printf("/proc/%d/status", pid), *text = NULL;
  return g_file_get_contents(path, &text, NULL, NULL) && strstr(text, line) != NULL;
}

/* Kills the unpack process of a sandbox that starts still, while the job process stands still. FALSE: it was quicker, and has
 * given up what it needs to start another. */
static gboolean kill_early(World *world)
{
  GPid job, unpack;
  AWAIT((job = world_child(world->runner, "job")) != 0);
  AWAIT((unpack = world_child(job, "unpack")) != 0);
  kill(job, SIGSTOP);
  AWAIT(status_says(job, "State:\tT"));
  gboolean early = status_says(job, "NoNewPrivs:\t0");
  if (early)
    kill(unpack, SIGKILL);
  kill(job, SIGCONT);
  return early;
}

/* An unpack process that dies while the sandbox starts: another takes its place, and the sandbox serves its job. */
static void test_unpack_dies_early(World *world)
{
  keep_one_image(world);
  for (guint tries = 0; tries < 20; tries++) {
    guint waits = log_count(world, "a warm sandbox waits"), lost = log_count(world, "a warm sandbox is lost");
    world_start(world, one_kind);
    gboolean early = kill_early(world);
    AWAIT(log_count(world, "a warm sandbox waits") > waits || log_count(world, "a warm sandbox is lost") > lost);
    early &= log_count(world, "a warm sandbox is lost") == lost; /* it heard of the start first */
    if (early)
      run_one(world, 0, TRUE);
    finish(world);
    if (early)
      return;
  }
  g_error("every sandbox was quicker than its test");
}

/* Its job process dies: what that leaves is swept, and another sandbox takes its place. */
static void test_process_dies(World *world)
{
  begin(world, one_kind, 1);
  GPid job = world_child(world->runner, "job");
  g_assert_cmpint(job, >, 0);
  kill(job, SIGKILL);
  await_count(world, "a warm sandbox waits", 2);
  run_one(world, 0, TRUE);
  finish(world);
}

/* kill -9 of the runner: its warm sandboxes go with it, and what is left of them with the next start. */
static void test_killed(World *world)
{
  begin(world, one_kind, 1);
  g_assert_cmpint(world_stop(world, SIGKILL), ==, 128 + SIGKILL);
  if (ON(ON_DOCKER)) { /* an engine keeps what nobody removes, until the next start */
    begin(world, one_kind, 2);
    g_autoptr(QvJob) job = world_job(world, "true");
    world_expect(world, job, NULL);
    finish(world);
    return;
  }
  world_expect_clean(world);
}

/* Jobs in numbers are met with numbers: two at once, and two wait afterwards. */
static void test_adapts(World *world)
{
  begin(world, (const char *const[]){"QUAVON_SANDBOX_WARM_MAX=2", "QUAVON_SANDBOX_CONCURRENCY=2", NULL}, 0);
  char one_sha256[65], two_sha256[65];
  g_autoptr(QvJob) one = world_job(world, "sleep 4");
  g_autoptr(QvJob) two = world_job(world, "sleep 4");
  world_add(world, one, one_sha256);
  world_add(world, two, two_sha256);
  qv_result_free(world_result(world, one, one_sha256));
  qv_result_free(world_result(world, two, two_sha256));
  await_count(world, "a warm sandbox waits", 2);
  run_one(world, 0, TRUE);
  finish(world);
}

int main(int argc, char **argv)
{
  if (!backend_select(argc, argv))
    return 0;
  g_test_init(&argc, &argv, NULL);
  world_test_add("/warm/ends-alike", QV_TEST_VALKEY_PLAIN, test_ends_alike);
  world_test_add("/warm/dies-waiting", QV_TEST_VALKEY_PLAIN, test_dies_waiting);
  world_test_add("/warm/process-dies", QV_TEST_VALKEY_PLAIN, test_process_dies);
  world_test_add("/warm/killed", QV_TEST_VALKEY_PLAIN, test_killed);
  if (ON(ON_RUNSC)) { /* what depends on no backend */
    world_test_add("/warm/serves-once", QV_TEST_VALKEY_PLAIN, test_serves_once);
    world_test_add("/warm/other-kind", QV_TEST_VALKEY_PLAIN, test_other_kind);
    world_test_add("/warm/odd-job", QV_TEST_VALKEY_PLAIN, test_odd_job);
    world_test_add("/warm/adapts", QV_TEST_VALKEY_PLAIN, test_adapts);
    world_test_add("/warm/unpack-dies-early", QV_TEST_VALKEY_PLAIN, test_unpack_dies_early);
  }
  int status = g_test_run();
  backend_finish();
  return status;
}
