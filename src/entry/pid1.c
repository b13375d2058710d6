/* SPDX-License-Identifier: Apache-2.0 */
/* Owns signals and the process table. All signals are blocked instead of
 * handled: blocked ones have no effect on PID 1 in any kernel, so a step's `kill 1` or
 * `kill -TERM -1` ends nothing. SIGKILL and SIGSTOP remain: gVisor delivers them to
 * PID 1 and the runner sees a lost or a hanging sandbox. */
#include "entry/pid1.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"

enum {
  REAP_AT_ONCE = 256,
  KILL_AGAIN_MS = 10, /* a process that was being born during kill(-1) gets the next one */
  PROBES = 8,         /* more than the parents that ended together with a step's last process */
  PROBE_STACK_BYTES = 16 * 1024,
};

/* gVisor's release may lack close_range, and a limit may be lower than a
 * descriptor that is already open: so the list of /proc is the second way. */
static bool close_above_stderr(void)
{
  if (syscall(SYS_close_range, 3U, ~0U, 0U) == 0)
    return true;
  DIR *dir = opendir("/proc/self/fd");
  if (!dir)
    return false;
  int own = dirfd(dir);
  int fds[256];
  size_t n;
  do {
    n = 0;
    rewinddir(dir);
    for (struct dirent *entry; n < 256 && (entry = readdir(dir));) {
      int fd = atoi(entry->d_name);
      if (fd > 2 && fd != own)
        fds[n++] = fd;
    }
    for (size_t i = 0; i < n; i++)
      close(fds[i]);
  } while (n == 256);
  closedir(dir);
  return true;
}

int qv_entry_pid1_harden(void)
{
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      !close_above_stderr())
    return -1;
  for (int fd = 0; fd <= 2; fd++)
    if (!qv_io_set_cloexec(fd, true) && open("/dev/null", O_RDWR | O_CLOEXEC) != fd)
      return -1;
  for (int sig = 1; sig <= SIGRTMAX; sig++)
    if (sig != SIGKILL && sig != SIGSTOP)
      signal(sig, SIG_DFL);
  sigset_t all, child;
  sigfillset(&all);
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  umask(022);
  if (sigprocmask(SIG_SETMASK, &all, NULL) != 0)
    return -1;
  return signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void forget_signals(int signal_fd)
{
  struct signalfd_siginfo info[16];
  while (read(signal_fd, info, sizeof info) > 0)
    ;
}

bool qv_entry_pid1_reap(int signal_fd, pid_t main, int *status, bool *ended)
{
  forget_signals(signal_fd);
  for (int i = 0; i < REAP_AT_ONCE; i++) {
    int got;
    pid_t pid = waitpid(-1, &got, WNOHANG | __WALL);
    if (pid <= 0)
      return false;
    if (pid == main && !*ended) {
      *status = got;
      *ended = true;
    }
  }
  return true;
}

void qv_entry_pid1_kill_all(int signal_fd, pid_t main, int *status, bool *ended)
{
  if (getpid() != 1)
    abort();
  for (;;) {
    kill(-1, SIGKILL);
    while (qv_entry_pid1_reap(signal_fd, main, status, ended))
      ;
    siginfo_t info = {0};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) != 0 && errno == ECHILD)
      return;
    struct pollfd child = {.fd = signal_fd, .events = POLLIN};
    poll(&child, 1, KILL_AGAIN_MS);
  }
}

/* Shares the memory of PID 1, and with it that it is not dumpable; a copy made by
 * fork would be one more place with the stream key in it. */
static int __attribute__((no_sanitize("address", "undefined"))) probe_main(void *unused)
{
  for (;;)
    syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
  return 0;
}

/* Few where the table is small: they are not to fill it themselves. */
static int probes_n(void)
{
  struct rlimit limit;
  if (getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur >= 8 * PROBES)
    return PROBES;
  return limit.rlim_cur < 16 ? 1 : (int)limit.rlim_cur / 8;
}

bool qv_entry_pid1_table_full(void)
{
  static _Alignas(16) char stacks[PROBES][PROBE_STACK_BYTES];
  const int n = probes_n();
  for (int i = 0; i < n; i++)
    if (clone(probe_main, stacks[i] + PROBE_STACK_BYTES, CLONE_VM | SIGCHLD, NULL) < 0)
      return errno == EAGAIN;
  return false;
}
