/* SPDX-License-Identifier: Apache-2.0 */
/* The runner's own life: drain and shutdown, kill -9 and the stalled path, Valkey away at the start and in the
 * middle, reload, two tenants, images that go bad under a running runner, an answer before the sandbox is gone. */
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <glob.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/random.h"
#include "protocol/images_lock.h"
#include "world.h"

static void test_drain(World *world)
{
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_GRACE_MS=1800000", "QUAVON_SANDBOX_CONCURRENCY=1", NULL});
  char sha256[65], other[65];
  g_autoptr(QvJob) job = world_job(world, "sleep 3; echo done");
  g_autoptr(QvJob) next = world_job(world, "true");
  world_add(world, job, sha256);
  world_await_started(world, job);
  kill(world->runner, SIGTERM);
  world_await_log(world, "draining");
  world_add(world, next, other);
  g_assert_cmpint(world_stop(world, 0), ==, 0);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_cmpint(result->status, ==, QV_STATUS_SUCCEEDED);
  world_await_state(world, next->job_id, QV_JOB_WAITING);
  /* The next runner takes what was left waiting, under the same id. */
  world_start(world, NULL);
  g_autoptr(QvResult) later = world_result(world, next, other);
  g_assert_cmpstr(later->runner_id, ==, result->runner_id);
  world_expect_clean(world);
}

static void test_shutdown(World *world)
{
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_GRACE_MS=100", NULL});
  char sha256[65];
  g_autoptr(QvJob) job = world_started_job(world, "sleep 1000", sha256);
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  world_expect_code(world, job, sha256, "shutdown");
  world_expect_clean(world);
}

static void test_second_term(World *world)
{
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_GRACE_MS=1800000", NULL});
  char sha256[65];
  g_autoptr(QvJob) job = world_started_job(world, "sleep 1000", sha256);
  kill(world->runner, SIGTERM);
  world_await_log(world, "draining");
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  world_expect_code(world, job, sha256, "shutdown");
  world_expect_clean(world);
}

/* The handler is there before the runner is ready: a reload then finds no worker. */
static void test_early_reload(World *world)
{
  world_start(world, NULL);
  g_autofree char *path = g_strdup_printf("/proc/%d/status", world->runner);
  gint64 end = qv_clock_mono_ms() + WORLD_DEADLINE_MS;
  for (gboolean caught = FALSE; !caught;) {
    g_assert_cmpint(qv_clock_mono_ms(), <, end);
    g_autofree char *status = NULL;
    g_assert_true(g_file_get_contents(path, &status, NULL, NULL));
    const char *line = strstr(status, "SigCgt:");
    g_assert_nonnull(line);
    caught = (g_ascii_strtoull(line + strlen("SigCgt:") + 1, NULL, 16) & (1u << (SIGHUP - 1))) != 0;
    if (!caught)
      g_usleep(1000);
  }
  kill(world->runner, SIGHUP);
  world_await_log(world, "keys and images were read again");
  g_autoptr(QvJob) job = world_job(world, "true");
  world_expect(world, job, NULL);
  world_expect_clean(world);
}

/* kill -9: the job is failed once, by the next start, and its input goes with it. */
static void test_killed(World *world)
{
  const char *const fast[] = {WORLD_FAST_LOCKS, NULL};
  world_start(world, fast);
  char sha256[65];
  g_autoptr(QvJob) job = world_started_job(world, "sleep 1000", sha256);
  g_assert_cmpint(world_stop(world, SIGKILL), ==, 128 + SIGKILL);
  world_start(world, fast);
  g_autofree char *text = NULL;
  g_assert_cmpint(world_wait(world, job->job_id, &text), ==, QV_JOB_FAILED);
  g_assert_cmpstr(text, ==, "stalled");
  world_expect_clean(world);
  g_assert_cmpuint(world_ends(world, job->job_id), ==, 1);
  g_autoptr(QvJob) next = world_job(world, "true");
  world_expect(world, next, NULL);
}

/* The processes below the supervisor die: that job alone is lost, and no later one has its layout in memory. */
static void test_processes_die(World *world)
{
  world_start(world, NULL);
  static const struct {
    const char *parent, *word, *code;
    guint on;
  } rows[] = {{NULL, "job", "sandbox_lost", ON_ALL}, {"job", "unpack", "bad_output", ON_ALL}, {"job", "run", "sandbox_lost", ON_RUNSC}};
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    if (!ON(rows[i].on))
      continue;
    char sha256[65];
    GPid starter, next_starter;
    AWAIT((starter = world_child(world->runner, "starter")) != 0);
    g_autoptr(QvJob) job = world_started_job(world, "sleep 1000", sha256);
    GPid victim = world_child(world->runner, "job");
    g_assert_cmpint(victim, >, 0);
    if (rows[i].parent != NULL)
      victim = world_child(victim, rows[i].word);
    g_assert_cmpint(victim, >, 0);
    kill(victim, SIGKILL);
    world_expect_code(world, job, sha256, rows[i].code);
    world_expect_clean(world);
    if (strcmp(rows[i].word, "run") != 0)
      AWAIT((next_starter = world_child(world->runner, "starter")) != 0 && next_starter != starter);
  }
  g_autoptr(QvJob) next = world_job(world, "true");
  world_expect(world, next, NULL);
}

/* It starts job processes and has no part in them: that which runs goes on, and so does the queue. */
static void test_starter_dies(World *world)
{
  world_start(world, NULL);
  char sha256[65];
  g_autoptr(QvJob) job = world_started_job(world, "sleep 2; echo still here", sha256);
  GPid starter = world_child(world->runner, "starter"), process = world_child(world->runner, "job");
  g_assert_true(starter > 0 && process > 0);
  kill(starter, SIGKILL);
  world_await_log(world, "the starter of job processes is gone");
  g_assert_cmpint(world_child(world->runner, "job"), ==, process);
  world_expect_code(world, job, sha256, NULL);
  for (int i = 0; i < 2; i++) { /* one without it, one of the new one */
    g_autoptr(QvJob) next = world_job(world, "true");
    world_expect(world, next, NULL);
    AWAIT(world_child(world->runner, "starter") != 0);
  }
  world_expect_clean(world);
}

static void test_valkey_down_at_start(World *world)
{
  g_autoptr(QvJob) job = world_job(world, "true");
  char sha256[65];
  world_add(world, job, sha256);
  qv_test_valkey_kill(world->valkey);
  world_start(world, NULL);
  world_await_log(world, "Valkey gives no answer");
  qv_test_valkey_restart(world->valkey);
  world_expect_code(world, job, sha256, NULL);
  world_await_log(world, "Valkey answers again");
}

/* Away for less than the lock: the run goes on and its answer is taken. */
static void test_valkey_away(World *world)
{
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_LOCK_MS=600000", NULL});
  char sha256[65];
  g_autoptr(QvJob) job = world_started_job(world, "sleep 3; echo still here", sha256);
  qv_test_valkey_kill(world->valkey);
  world_await_log(world, "event=REPORT");
  qv_test_valkey_restart(world->valkey);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_cmpint(result->status, ==, QV_STATUS_SUCCEEDED);
  g_autofree char *log = world_payload_log(world, job, result, 0);
  g_assert_cmpstr(log, ==, "still here\n");
  g_assert_cmpuint(world_ends(world, job->job_id), ==, 1);
  world_expect_clean(world);
}

/* Away for longer: the sandbox is killed, nothing is said, and the job is failed once when Valkey is back. */
static void test_lock_lost(World *world)
{
  world_start(world, (const char *const[]){WORLD_FAST_LOCKS, NULL});
  char sha256[65];
  g_autoptr(QvJob) job = world_started_job(world, "sleep 1000", sha256);
  qv_test_valkey_kill(world->valkey);
  world_await_log(world, "job's lock is lost");
  qv_test_valkey_restart(world->valkey);
  g_autofree char *text = NULL;
  g_assert_cmpint(world_wait(world, job->job_id, &text), ==, QV_JOB_FAILED);
  g_assert_cmpstr(text, ==, "stalled");
  g_assert_cmpuint(world_ends(world, job->job_id), ==, 1);
  world_expect_clean(world);
  g_autoptr(QvJob) next = world_job(world, "true");
  world_expect(world, next, NULL);
}

static void test_reload(World *world)
{
  world_start(world, NULL);
  g_autoptr(QvJob) before = world_job(world, "true");
  world_expect(world, before, NULL);
  /* A bad file changes nothing. */
  g_autofree char *good = NULL;
  gsize n;
  g_assert_true(g_file_get_contents(world->key_file, &good, &n, NULL));
  g_assert_true(qv_fd_write_file(world->key_file, "short\n", 6, 0600, NULL));
  kill(world->runner, SIGHUP);
  world_await_log(world, "reload failed");
  g_autoptr(QvJob) still = world_job(world, "true");
  world_expect(world, still, NULL);
  /* Another key: the old one is unknown from then on. */
  guint8 bytes[32];
  qv_random_bytes(bytes, sizeof bytes);
  g_autoptr(QvKey) key = qv_key_new(bytes, sizeof bytes);
  g_autoptr(QvSecret) text = qv_key_format(key);
  g_assert_true(qv_fd_write_file(world->key_file, qv_secret_bytes(text), qv_secret_len(text), 0600, NULL));
  kill(world->runner, SIGHUP);
  world_await_log(world, "keys and images were read again");
  g_autoptr(QvJob) old = world_job(world, "true");
  world_expect_failed(world, old, "rejected: unknown_key");
  qv_key_unref(world->key);
  world->key = qv_key_ref(key);
  g_autoptr(QvJob) new = world_job(world, "true");
  world_expect(world, new, NULL);
}

/* A job that does nothing, of another tenant: its input is that tenant's too. */
static QvJob *others_job(World *world)
{
  QvJob *job = world_job(world, "true");
  g_free(job->tenant_id);
  job->tenant_id = g_strdup("other");
  const char *files[] = {"a", "b", NULL};
  g_autoptr(GBytes) plain = world_snapshot(files);
  world_put_base(world, job, plain);
  return job;
}

static void test_tenants(World *world)
{
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_CONCURRENCY=3", "QUAVON_SANDBOX_TENANT_MAX=1", NULL});
  g_autoptr(QvJob) first = world_job(world, "sleep 4");
  g_autoptr(QvJob) second = world_job(world, "true");
  g_autoptr(QvJob) other = others_job(world);
  char a[65], b[65], c[65];
  world_add(world, first, a);
  world_await_started(world, first);
  world_add(world, second, b);
  world_add(world, other, c);
  g_autoptr(QvResult) of_other = world_result(world, other, c);
  g_autoptr(QvResult) of_first = world_result(world, first, a);
  g_autoptr(QvResult) of_second = world_result(world, second, b);
  g_assert_cmpint(of_other->status, ==, QV_STATUS_SUCCEEDED);
  g_assert_cmpint(of_second->status, ==, QV_STATUS_SUCCEEDED);
  g_assert_cmpint(of_second->started_at, >=, of_first->finished_at);
}

/* Adds an image "broken" to the lock, whose file holds TEXT. */
static char *add_broken_image(World *world, const char *text)
{
  g_autofree char *folder = g_path_get_dirname(world->images_file);
  g_autofree char *world_name = g_path_get_basename(world->dir);
  g_autofree char *name = g_strconcat(world_name, ".broken", NULL);
  char *file = g_build_filename(folder, name, NULL);
  g_assert_true(qv_fd_write_file(file, text, strlen(text), 0644, NULL));
  g_autofree char *hex = g_compute_checksum_for_string(G_CHECKSUM_SHA256, text, -1);
  gsize n;
  g_autofree char *old = qv_fd_read_file(world->images_file, 1 << 20, &n, NULL);
  g_autoptr(QvImagesLock) lock = qv_images_lock_parse(old, n, NULL);
  QvImage image = {.name = (char *)"zbroken",
                   .digest = g_strconcat("sha256:", hex, NULL),
                   .platform = lock->images[0].platform,
                   .rootfs_file = name,
                   .rootfs_sha256 = hex};
  g_autofree char *digest = image.digest;
  /* The good one stays in front: it is what the backend is tried with. */
  QvImagesLock both = {.images = (QvImage[]){lock->images[0], image}, .n = 2};
  g_autofree char *new = qv_images_lock_format(&both, &n, NULL);
  g_assert_true(qv_fd_write_file(world->images_file, new, n, 0644, NULL));
  g_free(world->image.digest);
  world->image.digest = g_strdup(digest);
  return file;
}

static QvJob *broken_job(World *world)
{
  QvJob *job = world_job(world, "true");
  g_free(job->image.name);
  job->image.name = g_strdup("zbroken");
  return job;
}

static void test_images(World *world)
{
  g_autofree char *digest = g_strdup(world->image.digest);
  g_autofree char *file = add_broken_image(world, "this is no file system");
  world_start(world, NULL);
  /* The digest is right, but nothing can be started from it. */
  g_autoptr(QvJob) unstartable = broken_job(world);
  world_expect(world, unstartable, "sandbox_failed");
  world_expect_clean(world);
  /* Altered under the running runner. */
  g_assert_true(qv_fd_write_file(file, "this is no file SYSTEM", 22, 0644, NULL));
  g_autoptr(QvJob) altered = broken_job(world);
  world_expect(world, altered, "image_failed");
  g_unlink(file);
  g_autoptr(QvJob) missing = broken_job(world);
  world_expect(world, missing, "image_failed");
  g_free(world->image.digest);
  world->image.digest = g_steal_pointer(&digest);
  g_autoptr(QvJob) next = world_job(world, "true");
  world_expect(world, next, NULL);
  world_expect_clean(world);
}

/* What runs the sandbox closes its output and ends a while later: it has not started all the same. */
static void test_late_end(World *world)
{
  static const char text[] = "#!/bin/sh\n\"$REAL_RUNSC\" \"$@\"\nstatus=$?\n"
                             "case \" $* \" in *' run '*) test $status = 0 || { exec >&-; sleep 1; } ;; esac\nexit $status\n";
  g_autofree char *file = add_broken_image(world, "this is no file system"), *real = g_find_program_in_path("runsc");
  g_autofree char *program = g_build_filename(world->dir, "late", NULL);
  g_autofree char *runsc = g_strconcat("QUAVON_SANDBOX_RUNSC=", program, NULL);
  g_auto(GStrv) parts = g_strsplit(text, "$REAL_RUNSC", 2);
  g_autofree char *script = g_strjoinv(real, parts);
  g_assert_true(qv_fd_write_file(program, script, strlen(script), 0755, NULL));
  world_start(world, (const char *const[]){runsc, NULL});
  g_autoptr(QvJob) job = broken_job(world);
  world_expect(world, job, "sandbox_failed");
  world_await_log(world, "output refused"); /* that its output was cut is told all the same */
  world_expect_clean(world);
  g_unlink(file);
}

/* Valkey is away and stays away: the third signal does not wait for it. */
static void test_abandon(World *world)
{
  const char *const fast[] = {WORLD_FAST_LOCKS, "QUAVON_SANDBOX_GRACE_MS=1800000", NULL};
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_LOCK_MS=600000", "QUAVON_SANDBOX_GRACE_MS=1800000", NULL});
  char sha256[65];
  g_autoptr(QvJob) job = world_started_job(world, "sleep 1000", sha256);
  qv_test_valkey_kill(world->valkey);
  kill(world->runner, SIGTERM);
  world_await_log(world, "draining");
  kill(world->runner, SIGTERM);
  world_await_log(world, "are ended for the shutdown");
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  qv_test_valkey_restart(world->valkey);
  g_autofree char *lock = g_strdup_printf("quavon-sandbox:sandbox:%s:lock", job->job_id);
  g_free(qv_test_valkey_cli(world->valkey, "DEL", lock, NULL)); /* as if its minute were over */
  world_start(world, fast);
  g_autofree char *text = NULL;
  g_assert_cmpint(world_wait(world, job->job_id, &text), ==, QV_JOB_FAILED);
  g_assert_cmpstr(text, ==, "stalled");
  g_assert_cmpuint(world_ends(world, job->job_id), ==, 1);
  world_expect_clean(world);
}

/* What cannot be removed stops the fetching, and says so; once it is gone, jobs are taken again. */
static void test_problem(World *world)
{
  g_autofree char *left = g_build_filename(world->state_dir, "runs", "6c1e0f0e-52a5-4a3f-8a5e-0d8f0c3f7a11", NULL);
  g_assert_cmpint(g_mkdir_with_parents(left, 0711), ==, 0);
  g_assert_cmpint(mount("tmpfs", left, "tmpfs", 0, "size=64k"), ==, 0);
  world_start(world, NULL);
  world_await_log(world, "problem: something of a sandbox is left");
  world_await_log(world, "runner is ready");
  char sha256[65];
  g_autoptr(QvJob) job = world_job(world, "true");
  world_add(world, job, sha256);
  g_usleep(1000000);
  world_await_state(world, job->job_id, QV_JOB_WAITING);
  g_assert_cmpint(umount(left), ==, 0);
  kill(world->runner, SIGHUP);
  world_await_log(world, "the problem is gone");
  world_expect_code(world, job, sha256, NULL);
  world_expect_clean(world);
}

/* A folder in the sandbox's control group: as long as it is there the sandbox cannot be removed. NULL: there is no such group. */
static char *hold_cgroup(const QvJob *job)
{
  static const char *const places[] = {"/sys/fs/cgroup/pids/quavon", "/sys/fs/cgroup/quavon"};
  for (gsize i = 0; i < G_N_ELEMENTS(places); i++) {
    g_autofree char *pattern = g_strdup_printf("%s/*/%s", places[i], job->job_id);
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0)
      continue;
    g_autofree char *held = g_build_filename(found.gl_pathv[0], "held", NULL);
    globfree(&found);
    if (g_mkdir(held, 0755) == 0)
      return g_steal_pointer(&held);
  }
  return NULL;
}

/* Adds the job, with seven chunks of payload, and holds it while the job process stands still before the guest's end. NULL: it was quicker. */
static char *hold_job(World *world, QvJob *job, char sha256[65])
{
  g_strfreev(job->artefacts);
  job->artefacts = g_strsplit("big", " ", -1);
  AWAIT(world_child(world->runner, "job") == 0); /* that of the try before */
  world_add(world, job, sha256);
  GPid process;
  AWAIT((process = world_child(world->runner, "job")) != 0);
  while (kill(process, SIGSTOP) == 0) {
    char *held = hold_cgroup(job);
    kill(process, SIGCONT);
    if (held != NULL)
      return held;
    g_usleep(2000);
  }
  return NULL;
}

/* A job is answered, payload and all, while its sandbox cannot be removed: what holds that, to be removed soon. */
static char *answer_held(World *world)
{
  for (int tries = 0; tries < 20; tries++) {
    char sha256[65];
    g_autoptr(QvJob) job = world_job(world, "sleep 2; head -c 6291456 /dev/urandom > big");
    g_autofree char *held = hold_job(world, job, sha256), *text = NULL;
    QvJobState state = world_wait(world, job->job_id, &text);
    gboolean early = !world_log_has(world, "is not wholly removed");
    if (held == NULL)
      continue;
    g_autoptr(QvResult) result = NULL;
    if (state == QV_JOB_COMPLETED)
      result = qv_result_verify(text, strlen(text), job, sha256, world->key, NULL);
    if (early && result != NULL && result->status == QV_STATUS_SUCCEEDED && result->payload != NULL &&
        result->payload->chunks == 7)
      return g_steal_pointer(&held);
    g_rmdir(held);
    world_fail(world, early ? text : "the answer came behind the removal");
  }
  g_error("every job was quicker than its test");
}

static gboolean has_begun(World *world, const QvJob *job)
{
  g_autofree char *text = g_strdup_printf("job starts jobId=%s", job->job_id);
  return world_log_has(world, text);
}

/* What takes the sandbox down may take its time: the answer is there before, and the slot is free behind it. */
static void test_answer_first(World *world)
{
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_CONCURRENCY=1", NULL});
  g_autofree char *held = answer_held(world);
  char sha256[65];
  g_autoptr(QvJob) next = world_job(world, "true");
  world_add(world, next, sha256);
  g_usleep(1500000);
  gboolean begun = has_begun(world, next);
  int removed = g_rmdir(held);
  g_assert_cmpint(removed, ==, 0);
  g_assert_false(begun);
  world_expect_code(world, next, sha256, NULL);
  world_expect_clean(world);
}

/* So it is with the tenant's count: another's job comes along with the answer, or later, into the slot that is free. */
static void test_answer_first_tenants(World *world)
{
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_CONCURRENCY=2", "QUAVON_SANDBOX_TENANT_MAX=1", NULL});
  g_autoptr(QvJob) next = world_job(world, "true");
  g_autoptr(QvJob) other = others_job(world);
  char a[65], b[65];
  g_autofree char *held = answer_held(world), *text = NULL;
  world_add(world, next, a);
  world_add(world, other, b);
  QvJobState state = world_wait(world, other->job_id, &text);
  gboolean begun = has_begun(world, next);
  int removed = g_rmdir(held);
  g_assert_cmpint(removed, ==, 0);
  g_assert_cmpint(state, ==, QV_JOB_COMPLETED);
  g_assert_false(begun);
  world_expect_code(world, next, a, NULL);
  world_expect_clean(world);
}

int main(int argc, char **argv)
{
  if (!backend_select(argc, argv))
    return 0;
  g_test_init(&argc, &argv, NULL);
  world_test_add("/runner/lifecycle/drain", QV_TEST_VALKEY_PLAIN, test_drain);
  world_test_add("/runner/lifecycle/killed", QV_TEST_VALKEY_PLAIN, test_killed);
  world_test_add("/runner/lifecycle/processes-die", QV_TEST_VALKEY_PLAIN, test_processes_die);
  if (ON(ON_RUNSC)) { /* what depends on no backend */
    world_test_add("/runner/lifecycle/starter-dies", QV_TEST_VALKEY_PLAIN, test_starter_dies);
    world_test_add("/runner/lifecycle/late-end", QV_TEST_VALKEY_PLAIN, test_late_end);
    world_test_add("/runner/lifecycle/shutdown", QV_TEST_VALKEY_PLAIN, test_shutdown);
    world_test_add("/runner/lifecycle/second-term", QV_TEST_VALKEY_PLAIN, test_second_term);
    world_test_add("/runner/lifecycle/early-reload", QV_TEST_VALKEY_PLAIN, test_early_reload);
    world_test_add("/runner/lifecycle/valkey-down-at-start", QV_TEST_VALKEY_PERSIST, test_valkey_down_at_start);
    world_test_add("/runner/lifecycle/valkey-away", QV_TEST_VALKEY_PERSIST, test_valkey_away);
    world_test_add("/runner/lifecycle/lock-lost", QV_TEST_VALKEY_PERSIST, test_lock_lost);
    world_test_add("/runner/lifecycle/reload", QV_TEST_VALKEY_PLAIN, test_reload);
    world_test_add("/runner/lifecycle/tenants", QV_TEST_VALKEY_PLAIN, test_tenants);
    world_test_add("/runner/lifecycle/images", QV_TEST_VALKEY_PLAIN, test_images);
    world_test_add("/runner/lifecycle/abandon", QV_TEST_VALKEY_PERSIST, test_abandon);
    world_test_add("/runner/lifecycle/answer-first", QV_TEST_VALKEY_PLAIN, test_answer_first);
    world_test_add("/runner/lifecycle/answer-first-tenants", QV_TEST_VALKEY_PLAIN, test_answer_first_tenants);
    world_test_add("/runner/lifecycle/problem", QV_TEST_VALKEY_PLAIN, test_problem);
  }
  int status = g_test_run();
  backend_finish();
  return status;
}
