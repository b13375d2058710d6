/* SPDX-License-Identifier: Apache-2.0 */
/* Between fork and exec only async-signal-safe calls: the runner may have
 * threads (GLib's own) that held a lock at the fork. */
#include "sandbox/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"

static const char *const ENVIRONMENT[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/",
                                          "LANG=C.UTF-8", NULL};

#define REAP_PAUSE_US 1000

/* What the child tells of its own failure. */
typedef struct {
  int err;
  int step;
} Report;
enum { STEP_SETUP, STEP_JOIN, STEP_EXEC };
static const char *const STEPS[] = {"preparing", "joining the cgroups of", "executing"};

static void default_signals(void)
{
  struct sigaction action = {.sa_handler = SIG_DFL};
  for (int i = 1; i < NSIG; i++)
    if (i != SIGKILL && i != SIGSTOP)
      sigaction(i, &action, NULL); /* EINVAL for the numbers that libc keeps */
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Moves FD out of the way of 0 to 2, so that the dup2 below cannot run over it. */
static int above_stdio(int fd)
{
  return fd > 2 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

static gboolean wire_stdio(const QvProcessPlan *plan)
{
  int fds[3] = {plan->stdin_fd, plan->stdout_fd, plan->stderr_fd};
  for (int i = 0; i < 3; i++) {
    int fd = fds[i] >= 0 ? fds[i] : open("/dev/null", O_RDWR | O_CLOEXEC);
    fds[i] = fd < 0 ? -1 : above_stdio(fd);
    if (fds[i] < 0)
      return FALSE;
  }
  for (int i = 0; i < 3; i++)
    if (dup2(fds[i], i) < 0)
      return FALSE;
  return TRUE;
}

G_NORETURN static void child(const QvProcessPlan *plan, pid_t parent, int report_fd)
{
  Report report = {.step = STEP_SETUP};
  struct rlimit no_core = {0, 0};
  /* The thread that forked may be gone already: then nobody would end us. */
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
    goto fail;
  default_signals();
  setsid();
  umask(022);
  setrlimit(RLIMIT_CORE, &no_core);
  if (chdir("/") != 0)
    goto fail;
  report.step = STEP_JOIN;
  for (int i = 0; i < plan->join_n; i++)
    if (write(plan->join_fds[i], "0", 1) != 1)
      goto fail;
  report.step = STEP_SETUP;
  if (!wire_stdio(plan))
    goto fail;
  /* Close-on-exec alone is what the rest of the program promises; not every library keeps it. */
  if (close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) != 0)
    goto fail;
  report.step = STEP_EXEC;
  execve(plan->program, (char *const *)plan->argv, (char *const *)ENVIRONMENT);
fail:
  report.err = errno;
  if (write(report_fd, &report, sizeof report) < 0)
    _exit(126);
  _exit(127);
}

static void reap(pid_t pid)
{
  while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
    ;
}

pid_t qv_process_spawn(const QvProcessPlan *plan, GError **error)
{
  int ends[2];
  if (!qv_fd_pipe(ends, error))
    return -1;
  QV_AUTOFD int reader = ends[0];
  QV_AUTOFD int writer = above_stdio(ends[1]);
  if (ends[1] != writer)
    close(ends[1]);
  pid_t parent = getpid();
  pid_t pid = writer < 0 ? -1 : fork();
  if (pid < 0) {
    qv_error_set_errno(error, errno, "starting %s", plan->program);
    return -1;
  }
  if (pid == 0)
    child(plan, parent, writer);
  close(qv_io_steal(&writer));
  Report report;
  ssize_t n = qv_io_read_full(reader, &report, sizeof report);
  if (n == 0)
    return pid;
  if (n != sizeof report) {
    report = (Report){.err = EIO, .step = STEP_SETUP};
    kill(pid, SIGKILL);
  }
  reap(pid);
  qv_error_set_errno(error, report.err, "%s %s", STEPS[report.step], plan->program);
  return -1;
}

/* Appends what comes until the end of the stream or the deadline. */
static void collect(int fd, GString *text, gsize cap, gint64 until_ms)
{
  for (;;) {
    gint64 left = until_ms - qv_clock_mono_ms();
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    int ready = left <= 0 ? 0 : poll(&waiting, 1, (int)MIN(left, G_MAXINT));
    if (ready < 0 && errno == EINTR)
      continue;
    if (ready <= 0)
      return;
    char bytes[4096];
    ssize_t n = read(fd, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
      continue;
    if (n <= 0)
      return;
    g_string_append_len(text, bytes, (gssize)MIN((gsize)n, cap - MIN(cap, text->len)));
  }
}

/* Reaps until the deadline, then kills. A program may close its output and stay. */
static gboolean reap_until(pid_t pid, int *wait_status, gint64 until_ms)
{
  for (;;) {
    pid_t got = waitpid(pid, wait_status, WNOHANG);
    if (got == pid)
      return TRUE;
    if (got < 0 && errno != EINTR)
      return FALSE;
    if (qv_clock_mono_ms() >= until_ms) {
      /* And what it started, which may have become our child by its end. */
      kill(-pid, SIGKILL);
      reap(pid);
      while (waitpid(-pid, NULL, 0) > 0)
        ;
      return FALSE;
    }
    g_usleep(REAP_PAUSE_US);
  }
}

char *qv_process_output(const char *program, const char *const *argv, guint deadline_ms, gsize cap, int *wait_status,
                        GError **error)
{
  int ends[2];
  if (!qv_fd_pipe(ends, error))
    return NULL;
  QV_AUTOFD int reader = ends[0];
  QvProcessPlan plan = {.program = program, .argv = argv, .stdin_fd = -1, .stdout_fd = ends[1], .stderr_fd = ends[1]};
  pid_t pid = qv_process_spawn(&plan, error);
  close(ends[1]);
  if (pid < 0)
    return NULL;
  gint64 until_ms = qv_clock_mono_ms() + deadline_ms;
  GString *text = g_string_new(NULL);
  collect(reader, text, cap, until_ms);
  if (reap_until(pid, wait_status, until_ms))
    return g_string_free(text, FALSE);
  g_string_free(text, TRUE);
  g_set_error(error, QV_ERROR, QV_ERROR_TIMEOUT, "%s did not answer within %u ms", program, deadline_ms);
  return NULL;
}
