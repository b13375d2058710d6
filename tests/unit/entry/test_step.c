/* SPDX-License-Identifier: Apache-2.0 */
/* Steps under the sanitizers: each test is the first process of a PID namespace
 * of its own, since what is tested kills everything in it. */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "entry/pid1.h"
#include "entry/step.h"
#include "support/valgrind.h"

static char tail[4096], scratch[4096];
static QvEntryRing ring;

/* In the child, as PID 1: runs ARGV with TIMEOUT_MS. */
static QvEntryOutcome run_as_pid1(char **argv, gint64 timeout_ms)
{
  sigset_t all, child;
  sigfillset(&all);
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_SETMASK, &all, NULL);
  char *env[] = {(char *)"PATH=/usr/bin:/bin", NULL};
  QvEntryStage stage = {.root_fd = open("/", O_RDONLY | O_CLOEXEC),
                        .work_fd = open("/", O_RDONLY | O_CLOEXEC),
                        .tmp_fd = open("/", O_RDONLY | O_CLOEXEC),
                        .null_fd = open("/dev/null", O_RDWR | O_CLOEXEC),
                        .signal_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK),
                        .origin_ms = qv_clock_mono_ms(),
                        .ring = &ring,
                        .scratch = scratch,
                        .scratch_n = sizeof scratch};
  const QvEntryStep step = {.name = (char *)"step", .argv = argv, .timeout_ms = timeout_ms};
  QvEntryOutcome outcome;
  qv_entry_ring_init(&ring, tail, sizeof tail);
  g_assert_true(qv_entry_step_run(&stage, &step, env, NULL, NULL, &outcome));
  /* Nothing is left. */
  g_assert_cmpint(kill(-1, 0), ==, -1);
  g_assert_cmpint(errno, ==, ESRCH);
  return outcome;
}

static gboolean log_is(const char *text)
{
  return ring.total == strlen(text) && memcmp(tail, text, strlen(text)) == 0;
}

/* Runs FUNC as the first process of a namespace; it exits 0 when all is well. */
static void in_namespace(void (*func)(void))
{
  if (geteuid() != 0) {
    g_test_skip("needs root");
    return;
  }
  /* Valgrind has no clone that shares memory but is no thread. */
  if (qv_test_under_valgrind()) {
    g_test_skip("cannot run under valgrind");
    return;
  }
  pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, NULL);
  g_assert_cmpint(pid, >=, 0);
  if (pid == 0) {
    func();
    _exit(0);
  }
  int status;
  g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
  g_assert_cmpint(status, ==, 0);
}

#define SH(script) ((char *[]){(char *)"sh", (char *)"-c", (char *)script, NULL})

static void ends_child(void)
{
  QvEntryOutcome outcome = run_as_pid1(SH("echo out; echo err >&2; exit 5"), 120000);
  g_assert_cmpint(outcome.exit_code, ==, 5);
  g_assert_false(outcome.timed_out);
  g_assert_false(outcome.fork_failed);
  g_assert_true(log_is("out\nerr\n"));
  outcome = run_as_pid1(SH("kill -ABRT $$"), 120000);
  g_assert_cmpint(outcome.exit_code, ==, -1);
  g_assert_cmpint(outcome.signal, ==, SIGABRT);
  outcome = run_as_pid1(SH("sleep 1000 & setsid sleep 1000 & (setsid sleep 1000 &); exit 0"), 120000);
  g_assert_cmpint(outcome.exit_code, ==, 0);
  outcome = run_as_pid1((char *[]){(char *)"no-such-program", NULL}, 120000);
  g_assert_cmpint(outcome.exit_code, ==, 127);
  g_assert_true(log_is("entry: cannot start no-such-program: No such file or directory\n"));
}

static void times_out_child(void)
{
  QvEntryOutcome outcome = run_as_pid1(SH("trap '' TERM; sleep 1000 | sleep 1000"), 300);
  g_assert_true(outcome.timed_out);
  g_assert_cmpint(outcome.signal, ==, SIGKILL);
  g_assert_cmpint(outcome.duration_ms, >=, 300);
}

static void no_fork_child(void)
{
  /* A user that nobody else is, with room for this process alone. */
  const struct rlimit one = {1, 1};
  g_assert_cmpint(setrlimit(RLIMIT_NPROC, &one), ==, 0);
  g_assert_cmpint((int)syscall(SYS_setresuid, 1900000000, 1900000000, 1900000000), ==, 0);
  QvEntryOutcome outcome = run_as_pid1(SH("true"), 120000);
  g_assert_true(outcome.fork_failed);
  g_assert_cmpint(outcome.exit_code, ==, 126);
  g_assert_true(log_is("entry: cannot fork: Resource temporarily unavailable\n"));
}

static void test_ends(void)
{
  in_namespace(ends_child);
}

static void test_times_out(void)
{
  in_namespace(times_out_child);
}

static void test_no_fork(void)
{
  in_namespace(no_fork_child);
}

/* Anywhere but in PID 1 it would end processes that are not ours. */
static void test_only_pid1_kills(void)
{
  if (g_test_subprocess()) {
    int status;
    bool ended = false;
    qv_entry_pid1_kill_all(-1, 0, &status, &ended);
    return;
  }
  g_test_trap_subprocess(NULL, 0, 0);
  g_test_trap_assert_failed();
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/entry/step/ends", test_ends);
  g_test_add_func("/entry/step/times-out", test_times_out);
  g_test_add_func("/entry/step/no-fork", test_no_fork);
  g_test_add_func("/entry/step/only-pid1-kills", test_only_pid1_kills);
  return g_test_run();
}
