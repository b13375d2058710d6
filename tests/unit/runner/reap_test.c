/* SPDX-License-Identifier: Apache-2.0 */
/* Children that end, that have ended, and that do not end. One that a third process traces ends for its parent once that one is gone:
 * until then it is as one that the kernel does not let go. */
#include <glib.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "runner/reap.h"

enum { LONG_MS = 60000 };

/* It does not outlive a test that fails. */
static pid_t fork_for_test(void)
{
  pid_t pid = fork();
  g_assert_cmpint(pid, >=, 0);
  if (pid == 0)
    prctl(PR_SET_PDEATHSIG, SIGKILL);
  return pid;
}

static pid_t sleeper(void)
{
  pid_t pid = fork_for_test();
  if (pid == 0) {
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    for (;;)
      pause();
  }
  return pid;
}

/* Holds PID; it holds no longer when it dies. */
static pid_t holder(pid_t held)
{
  int tell[2];
  char word = 'n';
  g_assert_true(qv_fd_pipe(tell, NULL));
  pid_t pid = fork_for_test();
  if (pid == 0) {
    word = ptrace(PTRACE_SEIZE, held, NULL, NULL) == 0 ? 'y' : 'n';
    qv_io_write_full(tell[1], &word, 1);
    for (;;)
      pause();
  }
  close(tell[1]);
  g_assert_cmpint(qv_io_read_full(tell[0], &word, 1), ==, 1);
  close(tell[0]);
  if (word == 'y')
    return pid;
  g_assert_true(qv_reap_child(pid, NULL, LONG_MS, NULL));
  return 0;
}

static gboolean is_child(pid_t pid)
{
  siginfo_t info;
  return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void test_ends(void)
{
  int status = 0;
  pid_t pid = sleeper();
  g_assert_true(qv_reap_child(pid, "test", LONG_MS, &status));
  g_assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  g_assert_false(is_child(pid));
}

/* What ended it is told, not the kill that came behind. */
static void test_has_ended(void)
{
  siginfo_t info;
  int status = 0;
  pid_t pid = sleeper();
  kill(pid, SIGUSR1);
  g_assert_cmpint(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), ==, 0);
  g_assert_true(qv_reap_child(pid, "test", LONG_MS, &status));
  g_assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
}

static void test_reaped_by_another(void)
{
  pid_t pid = sleeper();
  kill(pid, SIGKILL);
  g_assert_cmpint(waitpid(pid, NULL, 0), ==, pid);
  g_assert_false(qv_reap_child(pid, "test", LONG_MS, NULL));
}

/* What is said of one that does not end. */
static char *reap_and_hear(pid_t pid, const char *what)
{
  QV_AUTOFD int kept = dup(STDERR_FILENO);
  QV_AUTOFD int file = memfd_create("stderr", MFD_CLOEXEC);
  g_assert_cmpint(dup2(file, STDERR_FILENO), ==, STDERR_FILENO);
  gboolean done = qv_reap_child(pid, what, 20, NULL);
  g_assert_cmpint(dup2(kept, STDERR_FILENO), ==, STDERR_FILENO);
  g_assert_false(done);
  g_assert_cmpint(lseek(file, 0, SEEK_SET), ==, 0);
  gsize n;
  return qv_fd_read_all(file, "stderr", 4096, &n, NULL);
}

/* The call comes back, and the main loop reaps it once it does end. */
static void test_does_not_end(void)
{
  pid_t pid = sleeper(), by = holder(pid);
  if (by == 0) {
    g_assert_true(qv_reap_child(pid, NULL, LONG_MS, NULL));
    g_test_skip("no process may trace another one here");
    return;
  }
  g_autofree char *said = reap_and_hear(pid, "test");
  g_assert_nonnull(strstr(said, "the test process"));
  g_assert_true(is_child(pid));
  g_assert_true(qv_reap_child(by, NULL, LONG_MS, NULL));
  for (gint64 until = g_get_monotonic_time() + (gint64)LONG_MS * 1000; is_child(pid);) {
    g_assert_cmpint(g_get_monotonic_time(), <, until);
    g_main_context_iteration(NULL, FALSE);
    g_usleep(1000);
  }
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/reap/ends", test_ends);
  g_test_add_func("/reap/has-ended", test_has_ended);
  g_test_add_func("/reap/reaped-by-another", test_reaped_by_another);
  g_test_add_func("/reap/does-not-end", test_does_not_end);
  return g_test_run();
}
