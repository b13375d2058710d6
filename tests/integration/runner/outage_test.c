/* SPDX-License-Identifier: Apache-2.0 */
/* The engine is away for long, under a real runner: the health record says so within moments, nothing is fetched meanwhile, it
 * is said once and not at each try, its return is said once, and the jobs that waited run then. */
#include <glib.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/tiny.h"
#include "world.h"

enum { LOOKS_N = 5, AWAY_MS = 12000 };

static gboolean is_fine(const QvHealth *health)
{
  return health->smoke != NULL && health->smoke->passed && health->problems[0] == NULL;
}

static gboolean has_engine_problem(const QvHealth *health)
{
  for (char **text = health->problems; *text != NULL; text++) {
    if (g_str_has_prefix(*text, "engine: "))
      return TRUE;
  }
  return FALSE;
}

static guint count(const char *text, const char *part)
{
  guint n = 0;
  for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
    n++;
  return n;
}

/* The tries that failed as LOG has it: those that are said, at most QV_REPEAT_CHANGES of them in a minute, and those that a later
 * line counts. */
static guint tries(const char *log, guint *said)
{
  guint unsaid = 0;
  *said = 0;
  g_auto(GStrv) lines = g_strsplit(log, "\n", -1);
  g_autofree char *before = g_strdup("");
  for (char **line = lines; *line != NULL; line++) {
    const char *error = strstr(*line, " error="), *count_of = strstr(*line, " notSaid=");
    if (count_of != NULL)
      unsaid += (guint)strtoul(count_of + strlen(" notSaid="), NULL, 10);
    if (strstr(*line, "backend cannot be used") == NULL || error == NULL)
      continue;
    ++*said;
    g_autofree char *reason = g_strndup(error, count_of != NULL ? (gsize)(count_of - error) : strlen(error));
    g_assert_cmpstr(reason, !=, before);
    g_free(before);
    before = g_steal_pointer(&reason);
  }
  return *said + unsaid;
}

static QvJob *docker_job(World *world)
{
  QvJob *job = world_job(world, "true");
  g_strfreev(job->backends);
  job->backends = g_strsplit("docker-runsc", " ", -1);
  return job;
}

static void test_away(void)
{
  const char *missing = qv_test_dockerd_missing();
  g_autoptr(World) world = missing == NULL ? world_new(QV_TEST_VALKEY_PLAIN) : NULL;
  if (world == NULL) {
    if (missing != NULL)
      g_test_skip(missing);
    return;
  }
  g_autoptr(QvTestDockerd) engine = qv_test_dockerd_start(FALSE);
  g_free(world->image.digest);
  world->image.digest = qv_test_tiny_image(engine, world->image.name, world->images_file);
  g_autofree char *socket = g_strconcat("QUAVON_SANDBOX_DOCKER_SOCKET=", qv_test_dockerd_socket(engine), NULL);
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_BACKEND=docker-runsc", socket, NULL});
  g_autoptr(QvHealth) first = world_await_health(world, is_fine);
  g_assert_cmpstr(first->backend, ==, "docker-runsc");
  g_autoptr(QvJob) before = docker_job(world);
  world_expect(world, before, NULL);

  /* Its process is through with the engine before that goes: else what is left of it may be told in half a minute only. */
  g_autofree char *through = g_strdup_printf("jobId=%s event=EXITED", before->job_id);
  world_await_log(world, through);
  /* What a dead job left, for the sweep at the engine's return. */
  g_autofree char *left = g_build_filename(world->state_dir, "runs", "6c1e0f0e-52a5-4a3f-8a5e-0d8f0c3f7a12", NULL);
  g_assert_cmpint(g_mkdir_with_parents(left, 0700), ==, 0);
  /* Without its containerd, as when the host's package is upgraded. */
  qv_test_dockerd_kill_all(engine);
  g_autoptr(QvHealth) away = world_await_health(world, has_engine_problem);
  g_assert_true(away->smoke->passed);
  g_autoptr(QvJob) waiting = docker_job(world);
  char sha256[65];
  world_add(world, waiting, sha256);
  g_autofree char *log_before = world_log(world);
  for (gint64 end = qv_clock_mono_ms() + AWAY_MS; qv_clock_mono_ms() < end; g_usleep(AWAY_MS / LOOKS_N * 1000)) {
    world_await_state(world, waiting->job_id, QV_JOB_WAITING);
    g_autoptr(QvHealth) still = world_health(world);
    g_assert_true(still != NULL && has_engine_problem(still));
  }
  g_autofree char *log = world_log(world);
  g_assert_cmpuint(count(log, "problem: the engine cannot be used"), ==, 1);
  g_assert_cmpuint(count(log, "job starts"), ==, count(log_before, "job starts"));

  qv_test_dockerd_restart(engine);
  g_autoptr(QvResult) result = world_result(world, waiting, sha256);
  g_assert_cmpint(result->status, ==, QV_STATUS_SUCCEEDED);
  g_autoptr(QvHealth) fine = world_await_health(world, is_fine);
  g_assert_cmpint(fine->started_at, ==, first->started_at);
  g_assert_cmpint(access(left, F_OK), !=, 0);
  g_autofree char *whole = world_log(world);
  guint said, tried = tries(whole, &said);
  g_assert_cmpuint(said, >=, 1);
  g_assert_cmpuint(tried, >, said);
  g_assert_cmpuint(count(whole, "the engine can be used again"), ==, 1);
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  world_expect_clean(world);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/runner/outage/engine-away", test_away);
  return g_test_run();
}
