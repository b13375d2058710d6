/* SPDX-License-Identifier: Apache-2.0 */
/* A process behind the drop: what it can no longer do, and that it can still kill and remove. */
#include <errno.h>
#include <glib.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner/drop.h"
#include "support/valgrind.h"

static int is_refused(long result)
{
  return result < 0 && errno == EPERM;
}

static int try_all(pid_t victim, const char *folder)
{
  char *argv[] = {(char *)"true", NULL};
  if (!qv_drop_after_start(NULL))
    return 1;
  if (!is_refused(execv("/bin/true", argv)) || !is_refused(mount("none", folder, "tmpfs", 0, "")) ||
      !is_refused(unshare(CLONE_NEWNET)) || !is_refused(ptrace(PTRACE_ATTACH, victim, NULL, NULL)) || !is_refused(chroot("/")) ||
      !is_refused(setuid(1)) || !is_refused(sethostname("x", 1)))
    return 2;
  if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 || prctl(PR_CAPBSET_READ, 21 /* CAP_SYS_ADMIN */, 0, 0, 0) != 0)
    return 3;
  /* A process of another user, as those of a sandbox are. */
  if (kill(victim, SIGKILL) != 0)
    return 4;
  return rmdir(folder) == 0 ? 0 : 5;
}

static void test_drop(void)
{
  if (geteuid() != 0 || qv_test_under_valgrind()) {
    g_test_skip("needs root, and cannot run under valgrind");
    return;
  }
  g_autofree char *folder = g_dir_make_tmp("qv-drop-XXXXXX", NULL);
  pid_t victim = fork();
  if (victim == 0) {
    if (setgid(65532) != 0 || setuid(65532) != 0)
      _exit(1);
    for (;;)
      pause();
  }
  pid_t pid = fork();
  if (pid == 0)
    _exit(try_all(victim, folder));
  int status;
  g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
  kill(victim, SIGKILL);
  waitpid(victim, NULL, 0);
  g_assert_true(WIFEXITED(status));
  g_assert_cmpint(WEXITSTATUS(status), ==, 0);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/drop/after-start", test_drop);
  return g_test_run();
}
