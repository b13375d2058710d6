/* SPDX-License-Identifier: Apache-2.0 */
/* The sweep role as a process of its own, with another one that has a sandbox in its hands. */
#include <fcntl.h>
#include <glib/gstdio.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/random.h"
#include "runner/setup.h"
#include "runner/sweep.h"

enum { DEADLINE_MS = 120000, POLL_US = 10000 };

typedef struct {
  char *dir, *folder, *lock;
  char id[QV_UUID_LEN + 1];
  int lock_fd;
  int looks; /* inotify: who opens the lock */
  GPid sweeper;
} Fixture;

static void set_up(Fixture *f, gconstpointer data)
{
  qv_random_uuid(f->id);
  f->dir = g_dir_make_tmp("qv-XXXXXX", NULL);
  f->folder = g_build_filename(f->dir, "runs", f->id, NULL);
  f->lock = g_build_filename(f->folder, "lock", NULL);
  g_assert_cmpint(g_mkdir_with_parents(f->folder, 0700), ==, 0);
  f->lock_fd = open(f->lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  g_assert_cmpint(flock(f->lock_fd, LOCK_EX | LOCK_NB), ==, 0);
  f->looks = inotify_init1(IN_CLOEXEC);
  g_assert_cmpint(inotify_add_watch(f->looks, f->lock, IN_OPEN), >=, 0);
}

static void tear_down(Fixture *f, gconstpointer data)
{
  g_assert_true(qv_fd_remove_tree(f->dir, NULL));
  close(f->lock_fd);
  close(f->looks);
  g_free(f->dir);
  g_free(f->folder);
  g_free(f->lock);
}

/* SANDBOX_ID NULL: of all. */
static void start(Fixture *f, const char *sandbox_id)
{
  QvSweepOrder order = {.place = {.backend = (char *)"runsc",
                                  .state_dir = f->dir,
                                  .runner_id = (char *)"sweep-test",
                                  .runsc = (char *)"runsc",
                                  .pool = (char *)"default"},
                        .sandbox_id = (char *)sandbox_id};
  g_autofree char *text = qv_sweep_order_format(&order);
  g_autofree char *program = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "runner", "quavon-sandbox-runner", NULL);
  char *argv[] = {program, (char *)"--role", (char *)"sweep", text, NULL};
  g_autoptr(GError) error = NULL;
  g_spawn_async(NULL, argv, NULL, G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL, &f->sweeper, &error);
  g_assert_no_error(error);
}

/* Waits until it has looked once more; FALSE: it has not in time, or has ended. */
static gboolean looks(Fixture *f)
{
  struct inotify_event event;
  for (gint waited_us = 0; waited_us < DEADLINE_MS * 1000; waited_us += POLL_US) {
    struct pollfd wait = {.fd = f->looks, .events = POLLIN};
    if (poll(&wait, 1, POLL_US / 1000) > 0)
      return read(f->looks, &event, sizeof event) > 0;
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)f->sweeper, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0)
      return FALSE;
  }
  return FALSE;
}

static int end(Fixture *f)
{
  int status = 0;
  g_assert_cmpint(waitpid(f->sweeper, &status, 0), ==, f->sweeper);
  g_assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

/* The slot of a job is free when the sweep of its sandbox ends: not while another sweep still works on it. */
static void test_one(Fixture *f, gconstpointer data)
{
  start(f, f->id);
  for (guint i = 0; i < 3; i++)
    if (!looks(f))
      g_error("it does not look again: ended with %d", end(f));
  g_assert_cmpint(flock(f->lock_fd, LOCK_UN), ==, 0);
  g_assert_cmpint(end(f), ==, QV_SWEEP_CLEAN);
  g_assert_false(g_file_test(f->folder, G_FILE_TEST_EXISTS));
}

/* Of all sandboxes those in use are left to who uses them. */
static void test_all(Fixture *f, gconstpointer data)
{
  start(f, NULL);
  g_assert_cmpint(end(f), ==, QV_SWEEP_CLEAN);
  g_assert_true(g_file_test(f->folder, G_FILE_TEST_EXISTS));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  if (geteuid() != 0) {
    g_print("1..0 # SKIP sandboxes need root\n");
    return 0;
  }
  g_test_add("/sweep/one-in-use", Fixture, NULL, set_up, test_one, tear_down);
  g_test_add("/sweep/all-but-those-in-use", Fixture, NULL, set_up, test_all, tear_down);
  return g_test_run();
}
