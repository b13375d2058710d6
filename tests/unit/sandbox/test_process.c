/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that start, that cannot be started, that hang. What is asserted is what the program
 * itself answered after it had started, never what the kernel shows of a process that may be on its way. */
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "sandbox/process.h"

#define PATIENCE_MS 300000u
#define CAP 65536

static char *output_of(const char *script, guint deadline_ms, gsize cap, int *status, GError **error)
{
  const char *argv[] = {"sh", "-c", script, NULL};
  return qv_process_output("/bin/sh", argv, deadline_ms, cap, status, error);
}

static void expect(const char *script, int code, const char *text)
{
  g_autoptr(GError) error = NULL;
  int status = -1;
  g_autofree char *said = output_of(script, PATIENCE_MS, CAP, &status, &error);
  g_assert_no_error(error);
  g_assert_cmpstr(said, ==, text);
  g_assert_true(WIFEXITED(status));
  g_assert_cmpint(WEXITSTATUS(status), ==, code);
}

static void test_output(void)
{
  expect("echo out; echo err >&2; exit 3", 3, "out\nerr\n");
  expect("exit 0", 0, "");
  expect("cat", 0, ""); /* stdin is empty */
}

static void test_environment(void)
{
  g_assert_true(g_setenv("QV_TEST_SECRET", "x", TRUE));
  expect("echo ${QV_TEST_SECRET-none} $HOME $PWD; umask; ulimit -c", 0, "none / /\n0022\n0\n");
  g_unsetenv("QV_TEST_SECRET");
}

/* An ignored signal would go along through an exec: then it would not end the shell. */
static void test_signalled(void)
{
  g_autoptr(GError) error = NULL;
  int status = -1;
  signal(SIGTERM, SIG_IGN);
  g_autofree char *said = output_of("echo before; kill -TERM $$; echo after", PATIENCE_MS, CAP, &status, &error);
  signal(SIGTERM, SIG_DFL);
  g_assert_no_error(error);
  g_assert_cmpstr(said, ==, "before\n");
  g_assert_true(WIFSIGNALED(status));
  g_assert_cmpint(WTERMSIG(status), ==, SIGTERM);
}

static void test_cap(void)
{
  g_autoptr(GError) error = NULL;
  int status = -1;
  g_autofree char *said = output_of("i=0; while [ $i -lt 5000 ]; do echo 0123456789; i=$((i+1)); done", PATIENCE_MS, 100,
                                    &status, &error);
  g_assert_no_error(error);
  g_assert_cmpuint(strlen(said), ==, 100);
  g_assert_cmpint(WEXITSTATUS(status), ==, 0);
}

static void test_deadline(void)
{
  static const char *const SCRIPTS[] = {"exec sleep 100000", "sleep 100000", "exec >&- 2>&-; sleep 100000",
                                        "sleep 100000 & exec sleep 100000"};
  for (gsize i = 0; i < G_N_ELEMENTS(SCRIPTS); i++) {
    g_autoptr(GError) error = NULL;
    int status = -1;
    g_assert_null(output_of(SCRIPTS[i], 50, CAP, &status, &error));
    g_assert_error(error, QV_ERROR, QV_ERROR_TIMEOUT);
    g_assert_cmpint(waitpid(-1, NULL, WNOHANG), ==, -1); /* reaped */
  }
}

static void refuse_start(const char *program, const QvProcessPlan *base, const char *words)
{
  g_autoptr(GError) error = NULL;
  QvProcessPlan plan = *base;
  plan.program = program;
  g_assert_cmpint(qv_process_spawn(&plan, &error), ==, -1);
  g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
  g_assert_nonnull(strstr(error->message, program));
  g_assert_nonnull(strstr(error->message, words));
  g_assert_cmpint(waitpid(-1, NULL, WNOHANG), ==, -1);
}

static void test_cannot_start(void)
{
  const char *argv[] = {"x", NULL};
  QvProcessPlan plan = {.argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1};
  refuse_start("/nowhere/program", &plan, "executing");
  refuse_start("/dev/null", &plan, "executing");
  refuse_start("/", &plan, "executing");
  /* A cgroup that cannot be joined: the program does not run. */
  QV_AUTOFD int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  g_assert_cmpint(full, >=, 0);
  plan.join_fds = &full;
  plan.join_n = 1;
  refuse_start("/bin/true", &plan, "joining the cgroups");
}

/* Joins each, before the program says its first word. */
static void test_joins(void)
{
  g_autoptr(GError) error = NULL;
  int ends[2];
  char bytes[8] = "";
  const char *argv[] = {"true", NULL};
  g_assert_true(qv_fd_pipe(ends, &error));
  int joins[] = {ends[1], ends[1], ends[1]};
  QvProcessPlan plan = {.program = "/bin/true", .argv = argv, .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1,
                        .join_fds = joins, .join_n = 3};
  pid_t pid = qv_process_spawn(&plan, &error);
  g_assert_no_error(error);
  close(ends[1]);
  g_assert_cmpint(qv_io_read_full(ends[0], bytes, sizeof bytes), ==, 3);
  g_assert_cmpstr(bytes, ==, "000");
  close(ends[0]);
  g_assert_cmpint(waitpid(pid, NULL, 0), ==, pid);
}

/* Descriptors that were left open without close-on-exec do not go along: the pipe ends with us. */
static void test_descriptors_stay(void)
{
  g_autoptr(GError) error = NULL;
  int ends[2], hold[2];
  char byte;
  const char *argv[] = {"cat", NULL};
  g_assert_true(qv_fd_pipe(ends, &error));
  g_assert_true(qv_fd_pipe(hold, &error));
  g_assert_true(qv_io_set_cloexec(ends[1], false));
  QvProcessPlan plan = {.program = "/bin/cat", .argv = argv, .stdin_fd = hold[0], .stdout_fd = -1, .stderr_fd = -1};
  pid_t pid = qv_process_spawn(&plan, &error); /* returns after the exec */
  g_assert_no_error(error);
  close(ends[1]);
  g_assert_cmpint(qv_io_read_full(ends[0], &byte, 1), ==, 0);
  close(ends[0]);
  close(hold[0]);
  close(hold[1]);
  g_assert_cmpint(waitpid(pid, NULL, 0), ==, pid);
}

int main(int argc, char **argv)
{
  setlocale(LC_ALL, "");
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/sandbox/process/output", test_output);
  g_test_add_func("/sandbox/process/environment", test_environment);
  g_test_add_func("/sandbox/process/signalled", test_signalled);
  g_test_add_func("/sandbox/process/cap", test_cap);
  g_test_add_func("/sandbox/process/deadline", test_deadline);
  g_test_add_func("/sandbox/process/cannot-start", test_cannot_start);
  g_test_add_func("/sandbox/process/joins", test_joins);
  g_test_add_func("/sandbox/process/descriptors-stay", test_descriptors_stay);
  return g_test_run();
}
