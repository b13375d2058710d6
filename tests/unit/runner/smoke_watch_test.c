/* SPDX-License-Identifier: Apache-2.0 */
/* When smoke tests run and what their outcome does to the gate; and passes that are remembered. Times are short here:
 * nothing is asserted of how soon, only of what comes first and what comes at all. */
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "runner/smoke_memory.h"
#include "runner/smoke_watch.h"

enum { DEADLINE_MS = 60000, LONG_MS = 3600000 };

typedef struct {
  QvSmokeWatchDone done;
  gpointer done_data;
  guint starts, changes;
  gint64 started_ms; /* monotonic, of the last one */
  QvProblems *problems;
  QvSmokeWatch *watch;
} World;

static void start(QvSmokeWatchDone done, gpointer done_data, gpointer user)
{
  World *world = user;
  g_assert_null(world->done);
  world->done = done;
  world->done_data = done_data;
  world->starts++;
  world->started_ms = qv_clock_mono_ms();
}

static void changed(gpointer user)
{
  ((World *)user)->changes++;
}

static void on_problems(gpointer user)
{
}

static QvSmokeReport *report(const char *failed, gint64 at)
{
  QvSmokeReport *made = g_new0(QvSmokeReport, 1);
  *made = (QvSmokeReport){.at = at, .passed = failed == NULL, .probes = 3, .failed = g_new0(char *, 2)};
  made->failed[0] = g_strdup(failed);
  return made;
}

static void finish(World *world, const char *failed)
{
  QvSmokeWatchDone done = world->done;
  world->done = NULL;
  done(report(failed, qv_clock_unix_ms()), world->done_data);
}

static void make(World *world, gint64 interval_ms, gint64 apart_ms, gint64 again_ms)
{
  *world = (World){.problems = qv_problems_new(on_problems, NULL)};
  QvSmokeWatchOptions options = {.start = start,
                                 .changed = changed,
                                 .pool = "default",
                                 .runner_id = "r",
                                 .prefix = "p",
                                 .interval_ms = interval_ms,
                                 .apart_ms = apart_ms,
                                 .again_ms = again_ms};
  world->watch = qv_smoke_watch_new(&options, world->problems, world);
  g_assert_true(qv_problems_stop(world->problems));
}

static void clear(World *world)
{
  qv_smoke_watch_free(world->watch);
  qv_problems_free(world->problems);
}

static void await_start(World *world, guint n)
{
  for (gint64 end = qv_clock_mono_ms() + DEADLINE_MS; world->starts < n && qv_clock_mono_ms() < end;) {
    g_main_context_iteration(NULL, FALSE);
    g_usleep(500);
  }
  g_assert_cmpuint(world->starts, ==, n);
}

static void turn(gint64 ms)
{
  for (gint64 end = qv_clock_mono_ms() + ms; qv_clock_mono_ms() < end; g_usleep(500))
    g_main_context_iteration(NULL, FALSE);
}

static void test_passes(void)
{
  World world;
  make(&world, 300, 10, LONG_MS);
  g_assert_null(qv_smoke_watch_report(world.watch));
  qv_smoke_watch_begin(world.watch, NULL);
  await_start(&world, 1);
  g_assert_true(qv_problems_stop(world.problems));
  finish(&world, NULL);
  g_assert_false(qv_problems_stop(world.problems));
  g_assert_cmpuint(world.changes, ==, 1);
  g_assert_true(qv_smoke_watch_report(world.watch)->passed);
  /* The next one does not shut the gate while it runs; one that fails does. */
  await_start(&world, 2);
  g_assert_false(qv_problems_stop(world.problems));
  finish(&world, "mount");
  g_assert_true(qv_problems_stop(world.problems));
  g_auto(GStrv) texts = qv_problems_texts(world.problems);
  g_assert_cmpstr(texts[0], ==, "smoke: the smoke test did not pass: mount");
  clear(&world);
}

/* One that did not pass is tried again sooner than the interval says, yet not sooner than `apart`. */
static void test_fails_then_passes(void)
{
  World world;
  make(&world, LONG_MS, 200, 1);
  qv_smoke_watch_begin(world.watch, NULL);
  await_start(&world, 1);
  gint64 first_ms = world.started_ms;
  finish(&world, "net");
  g_assert_true(qv_problems_stop(world.problems));
  await_start(&world, 2);
  g_assert_cmpint(world.started_ms - first_ms, >=, 200);
  finish(&world, NULL);
  g_assert_false(qv_problems_stop(world.problems));
  clear(&world);
}

static void test_remembered(void)
{
  World world;
  make(&world, LONG_MS, 10, 10);
  qv_smoke_watch_begin(world.watch, report(NULL, qv_clock_unix_ms() - 1000));
  g_assert_false(qv_problems_stop(world.problems));
  turn(50);
  g_assert_cmpuint(world.starts, ==, 0);
  clear(&world);
  /* It ages from when it ran, not from when it was remembered. */
  make(&world, LONG_MS, 10, 10);
  qv_smoke_watch_begin(world.watch, report(NULL, qv_clock_unix_ms() - LONG_MS));
  await_start(&world, 1);
  finish(&world, NULL);
  clear(&world);
}

static void test_ends(void)
{
  World world;
  make(&world, 1, 1, 1);
  qv_smoke_watch_begin(world.watch, NULL);
  await_start(&world, 1);
  qv_smoke_watch_stop(world.watch);
  finish(&world, NULL);
  turn(50);
  g_assert_cmpuint(world.starts, ==, 1);
  clear(&world);
  /* Freed while a test runs: it still calls back. */
  make(&world, 1, 1, 1);
  qv_smoke_watch_begin(world.watch, NULL);
  await_start(&world, 1);
  qv_smoke_watch_free(world.watch);
  finish(&world, NULL);
  qv_problems_free(world.problems);
}

static void test_memory(void)
{
  char dir[] = "/tmp/qv-XXXXXX";
  g_assert_nonnull(g_mkdtemp(dir));
  g_autofree char *folder = g_build_filename(dir, "smoke", NULL), *runsc = g_build_filename(dir, "runsc", NULL);
  g_assert_true(qv_fd_write_file(runsc, "#!", 2, 0755, NULL));
  QvPlace place = {.backend = (char *)"runsc", .runsc = runsc};
  QvBackendFacts facts = {(char *)"1", (char *)"systrap", (char *)"v1"};
  QvImage image = {.digest = (char *)"sha256:aa", .rootfs_sha256 = (char *)"bb"};
  g_autofree char *one = qv_smoke_identity(&place, &facts, &image);
  g_autofree char *same = qv_smoke_identity(&place, &facts, &image);
  g_assert_cmpstr(one, ==, same);
  image.digest = (char *)"sha256:ab";
  g_autofree char *two = qv_smoke_identity(&place, &facts, &image);
  g_assert_cmpstr(one, !=, two);
  facts.runtime_version = (char *)"2";
  g_autofree char *three = qv_smoke_identity(&place, &facts, &image);
  g_assert_cmpstr(two, !=, three);
  g_assert_true(qv_fd_write_file(runsc, "#?", 2, 0755, NULL));
  g_autofree char *four = qv_smoke_identity(&place, &facts, &image);
  g_assert_cmpstr(three, !=, four);
  place.backend = (char *)"docker-runsc";
  g_assert_null(qv_smoke_identity(&place, &facts, &image));

  g_assert_null(qv_smoke_memory_find(folder, one, 1000, 500));
  QvSmokeReport *passed = report(NULL, 1000);
  g_assert_true(qv_smoke_memory_put(folder, one, passed, NULL));
  qv_smoke_report_free(passed);
  QvSmokeReport *found = qv_smoke_memory_find(folder, one, 1499, 500);
  g_assert_nonnull(found);
  g_assert_true(found->passed);
  g_assert_cmpint(found->at, ==, 1000);
  g_assert_cmpint(found->probes, ==, 3);
  qv_smoke_report_free(found);
  g_assert_null(qv_smoke_memory_find(folder, one, 1500, 500));
  g_assert_null(qv_smoke_memory_find(folder, one, -1, 500));
  g_assert_null(qv_smoke_memory_find(folder, two, 1000, 500));
  g_assert_cmpint(g_chmod(folder, 0777), ==, 0);
  g_assert_null(qv_smoke_memory_find(folder, one, 1000, 500));
  g_assert_true(qv_fd_remove_tree(dir, NULL));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/smoke-watch/passes", test_passes);
  g_test_add_func("/smoke-watch/fails-then-passes", test_fails_then_passes);
  g_test_add_func("/smoke-watch/remembered", test_remembered);
  g_test_add_func("/smoke-watch/ends", test_ends);
  g_test_add_func("/smoke-watch/memory", test_memory);
  return g_test_run();
}
