/* SPDX-License-Identifier: Apache-2.0 */
/* `quavon run` on a private engine that dies while it starts a container: what may still come of that is the keeper's,
 * which ends when nothing can come any more, and takes it along. However it ends, there is nothing left. */
#include <fcntl.h>
#include <glib/gstdio.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utime.h>

#include "../../unit/client/tree.h"
#include "embedded_run.h"
#include "support/dockerd.h"
#include "support/tiny.h"

enum { POLL_US = 2000, HOLD_US = 300000, TRIES = 40 };

typedef struct {
  QvTestDockerd *engine;
  Run *run;
  char *digest;
  char *mark; /* runs/<sandbox>/cut */
  GHashTable *seen; /* run folders */
  int status; /* of the run that ended */
} Fixture;

#define AWAIT(condition) \
  for (gint64 await_until = g_get_monotonic_time() + RUN_DEADLINE_MS * 1000; !(condition); g_usleep(POLL_US)) \
  g_assert_cmpint(g_get_monotonic_time(), <, await_until)

static void set_up(Fixture *f, gconstpointer data)
{
  f->engine = qv_test_dockerd_start(QV_TEST_DOCKERD_USUAL);
  f->run = run_new();
  f->seen = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  g_autofree char *lock = tree_path(f->run->dir, "tiny.lock.json");
  f->digest = qv_test_tiny_image(f->engine, "base", lock);
  run_setenv(f->run, "QUAVON_SANDBOX_IMAGES_FILE", lock);
  run_setenv(f->run, "QUAVON_SANDBOX_DOCKER_SOCKET", qv_test_dockerd_socket(f->engine));
  run_setenv(f->run, "QUAVON_SANDBOX_BACKEND", "docker-runsc");
  run_setenv(f->run, "QUAVON_ENV", "production");
}

static char *containers(Fixture *f)
{
  int status;
  char *text = qv_test_dockerd_call(f->engine, "GET", "/containers/json?all=1", NULL, &status);
  g_assert_cmpint(status, ==, 200);
  return g_strstrip(text);
}

static void tear_down(Fixture *f, gconstpointer data)
{
  run_expect_nothing_left(f->run);
  g_autofree char *left = containers(f);
  g_assert_cmpstr(left, ==, "[]");
  run_free(f->run);
  qv_test_dockerd_free(f->engine);
  g_free(f->digest);
  g_free(f->mark);
  g_hash_table_unref(f->seen);
}

static gboolean is_logged(Fixture *f, const char *words)
{
  g_autofree char *path = g_build_filename(f->run->folder, "runner.log", NULL), *text = NULL;
  return g_file_get_contents(path, &text, NULL, NULL) && strstr(text, words) != NULL;
}

/* Calls WITH for each run folder until that is TRUE. */
static gboolean any_folder(Fixture *f, gboolean (*with)(Fixture *f, const char *runs, const char *name))
{
  g_autofree char *runs = g_build_filename(f->run->folder, "state", "runs", NULL);
  g_autoptr(GDir) dir = g_dir_open(runs, 0, NULL);
  for (const char *name; dir != NULL && (name = g_dir_read_name(dir)) != NULL;)
    if (with(f, runs, name))
      return TRUE;
  return FALSE;
}

static gboolean is_new(Fixture *f, const char *runs, const char *name)
{
  return g_hash_table_add(f->seen, g_strdup(name));
}

static gboolean is_starting(Fixture *f, const char *runs, const char *name)
{
  g_autofree char *starting = g_build_filename(runs, name, "starting", NULL);
  if (access(starting, F_OK) != 0)
    return FALSE;
  f->run->sandbox_id = g_strdup(name);
  f->mark = g_build_filename(runs, name, "cut", NULL);
  return TRUE;
}

static gboolean has_ended(Fixture *f)
{
  int status;
  if (waitpid(f->run->pid, &status, WNOHANG) != f->run->pid)
    return FALSE;
  f->run->pid = 0;
  f->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return TRUE;
}

static void start_run(Fixture *f)
{
  run_start(f->run, WORDS("--", "true"));
  run_await_runner(f->run);
}

/* Once the runner's log has these words, containerd is stopped behind the next run folder, which is made just before the container: the
 * engine waits for it with the start. One that was through before is let go, and the next one is waited for; behind the last one there is
 * another run. */
static pid_t hold_start(Fixture *f, const char *words)
{
  pid_t containerd = qv_test_dockerd_containerd(f->engine);
  start_run(f);
  for (guint tries = 0; tries < TRIES; tries++) {
    AWAIT((is_logged(f, words) && any_folder(f, is_new)) || has_ended(f));
    if (f->run->pid == 0) {
      start_run(f);
      continue;
    }
    g_assert_cmpint(kill(containerd, SIGSTOP), ==, 0);
    g_usleep(HOLD_US);
    if (any_folder(f, is_starting))
      return containerd;
    g_assert_cmpint(kill(containerd, SIGCONT), ==, 0);
  }
  g_error("no start is seen before its end");
}

static void another_engine(Fixture *f, pid_t containerd)
{
  g_assert_cmpint(kill(containerd, SIGCONT), ==, 0);
  qv_test_dockerd_restart(f->engine);
}

static void expect_end(Fixture *f)
{
  int status = run_wait(f->run);
  g_autofree char *err = run_stderr(f->run);
  if (status != 125 || strstr(err, "could not be removed") != NULL)
    g_error("ended with %d, said:\n%s", status, err);
}

/* Engine, runner, and whoever waited for the start, mostly of the trial: the sweep of a keeper whose runner was killed waits until the
 * mark has aged. */
static void test_killed(Fixture *f, gconstpointer data)
{
  pid_t containerd = hold_start(f, "");
  qv_test_dockerd_kill(f->engine);
  run_kill_runner(f->run);
  another_engine(f, containerd);
  AWAIT(access(f->mark, F_OK) == 0);
  expect_end(f);
}

/* One of the sandbox that was cut off, as it may come behind the removal. */
static char *plant(Fixture *f, const char *labels)
{
  g_autofree char *body = g_strdup_printf("{\"Image\":\"%s\",\"Labels\":%s,\"Entrypoint\":[\"/opt/quavon/entry\"],"
                                          "\"HostConfig\":{\"NetworkMode\":\"none\",\"Runtime\":\"runc\"}}", f->digest, labels);
  int status;
  g_autofree char *answer = qv_test_dockerd_call(f->engine, "POST", "/containers/create", body, &status);
  g_assert_cmpint(status, ==, 201);
  const char *at = strstr(answer, "\"Id\":\"");
  g_assert_nonnull(at);
  return g_strndup(at + strlen("\"Id\":\""), 64);
}

static char *labels_now(Fixture *f)
{
  g_autofree char *text = containers(f);
  const char *at = strstr(text, "\"Labels\":{");
  g_assert_nonnull(at);
  at += strlen("\"Labels\":");
  return g_strndup(at, (gsize)(strchr(at, '}') + 1 - at));
}

static gboolean is_there(Fixture *f, const char *container)
{
  g_autofree char *text = containers(f);
  return strstr(text, container) != NULL;
}

/* The engine alone: the job fails and the runner ends in peace, but what was cut off keeps its folder, which is swept. The mark
 * is kept young, so that it is not over too soon, and then made old. */
static void test_clean(Fixture *f, gconstpointer data)
{
  pid_t containerd = hold_start(f, "job starts");
  g_autofree char *labels = labels_now(f);
  qv_test_dockerd_kill(f->engine);
  another_engine(f, containerd);
  AWAIT(access(f->mark, F_OK) == 0);
  AWAIT((utime(f->mark, NULL), kill(f->run->runner, 0) != 0));
  g_autofree char *late = plant(f, labels);
  AWAIT((utime(f->mark, NULL), !is_there(f, late)));
  g_assert_cmpint(utime(f->mark, &(struct utimbuf){.actime = 1000, .modtime = 1000}), ==, 0);
  expect_end(f);
}

/* ---- signals while it waits */

static gboolean is_said(Fixture *f, const char *words)
{
  g_autofree char *err = run_stderr(f->run);
  return strstr(err, words) != NULL;
}

#define WAITS "and may still go on with it: waiting up to 45 s"

/* The job is through, or was never begun; the keeper waits, and goes on without quavon. */
static void test_interrupt(Fixture *f, gconstpointer data)
{
  pid_t containerd = hold_start(f, "");
  qv_test_dockerd_kill(f->engine);
  run_kill_runner(f->run);
  another_engine(f, containerd);
  AWAIT(access(f->mark, F_OK) == 0);
  AWAIT((utime(f->mark, NULL), is_said(f, WAITS) && is_said(f, "waiting for process ")));
  g_assert_cmpint(kill(f->run->pid, SIGINT), ==, 0);
  AWAIT((utime(f->mark, NULL), has_ended(f)));
  g_assert_cmpint(f->status, ==, 130);
  run_says(run_stderr(f->run), "interrupted: process ");
  g_assert_cmpint(access(f->mark, F_OK), ==, 0);
  g_assert_cmpint(utime(f->mark, &(struct utimbuf){.actime = 1000, .modtime = 1000}), ==, 0);
}

/* What an earlier run left is waited for before anything is started: a private /run, so that no other run here finds it. */
static void test_interrupt_start(Fixture *f, gconstpointer data)
{
  static const char id[] = "6b8ed3f6-6a32-4ea5-8bbe-7f2ab6ab5a11";
  g_assert_cmpint(unshare(CLONE_NEWNS), ==, 0);
  g_assert_cmpint(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), ==, 0);
  g_assert_cmpint(mount("run", "/run", "tmpfs", 0, "mode=755"), ==, 0);
  const char *folder = "/run/quavon-before";
  g_autofree char *runs = g_build_filename(folder, "state", "runs", id, NULL);
  g_autofree char *lock = g_build_filename(folder, "lock", NULL);
  f->mark = g_build_filename(runs, "cut", NULL);
  g_assert_cmpint(g_mkdir_with_parents(runs, 0700), ==, 0);
  g_assert_cmpint(g_chmod(folder, 0700), ==, 0);
  g_assert_true(g_file_set_contents(lock, "", 0, NULL));
  g_assert_true(g_file_set_contents(f->mark, "", 0, NULL));
  g_autofree char *url = g_build_filename(folder, "runner.url", NULL);
  g_assert_true(g_file_set_contents(url, "unix://sandbox:gone@/run/quavon-before/valkey.sock\n", -1, NULL));
  g_assert_cmpint(g_chmod(url, 0600), ==, 0);
  run_start(f->run, WORDS("--", "true"));
  AWAIT((utime(f->mark, NULL), is_said(f, WAITS)));
  g_assert_cmpint(kill(f->run->pid, SIGINT), ==, 0);
  AWAIT((utime(f->mark, NULL), has_ended(f)));
  g_assert_cmpint(f->status, ==, 130);
  run_says(run_stderr(f->run), "interrupted: sandboxes of /run/quavon-before may be left");
  g_assert_cmpint(access(f->mark, F_OK), ==, 0);
  g_assert_cmpint(utime(f->mark, &(struct utimbuf){.actime = 1000, .modtime = 1000}), ==, 0);
  run_start(f->run, WORDS("--", "true"));
  run_await_runner(f->run);
  f->run->sandbox_id = g_strdup(id);
  g_assert_false(g_file_test(folder, G_FILE_TEST_EXISTS));
  kill(f->run->pid, SIGINT);
  run_wait(f->run);
}

int main(int argc, char **argv)
{
  const char *missing = qv_test_dockerd_missing();
  g_test_init(&argc, &argv, NULL);
  if (missing != NULL || geteuid() != 0) {
    g_print("1..0 # SKIP %s\n", missing != NULL ? missing : "sandboxes need root");
    return 0;
  }
  g_test_add("/embedded-engine/killed", Fixture, NULL, set_up, test_killed, tear_down);
  g_test_add("/embedded-engine/clean", Fixture, NULL, set_up, test_clean, tear_down);
  g_test_add("/embedded-engine/interrupt", Fixture, NULL, set_up, test_interrupt, tear_down);
  g_test_add("/embedded-engine/interrupt-start", Fixture, NULL, set_up, test_interrupt_start, tear_down); /* the last one */
  return g_test_run();
}
