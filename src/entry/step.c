/* SPDX-License-Identifier: Apache-2.0 */
/* A step is over when its first process ends or its time does; never when its
 * pipe does, which a process in the background may hold for ever. Then
 * everything is killed, and what the pipe still holds is read until it would block: all
 * writers are gone, so nothing is missed and nothing is waited for.
 *
 * Starting a program is the costliest thing here under gVisor, so the child is
 * made with vfork: no page of PID 1 is copied. All that it needs is prepared
 * before; between vfork and exec there are system calls only. */
#include "entry/step.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "entry/pid1.h"

enum {
  EXIT_NOT_FOUND = 127,
  EXIT_NOT_STARTABLE = 126,
  PIPE_BYTES = 1024 * 1024,
  READS_AT_ONCE = 16, /* then the clock and the signals are looked at again */
  /* A folder counts as full below this: what writes through a buffer stops short of the last page. */
  FULL_BYTES = 64 * 1024,
};

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* All that the child uses, made before it exists. */
typedef struct {
  const QvEntryStage *stage;
  const QvEntryStep *step;
  char *const *env;
  char **candidates; /* paths to try, NULL at the end */
  int out_fd;
} Launch;

typedef struct {
  const QvEntryStage *stage;
  QvEntryForward *forward;
  QvEntryLive *live;
  int pipe_fd; /* -1 once every writer has closed it */
  pid_t pid;
  int status;
  bool ended;
  bool more_to_reap;
} Watch;

bool qv_entry_outcome_ok(const QvEntryOutcome *outcome)
{
  return outcome->exit_code == 0 && !outcome->timed_out;
}

static const char *search_path(char *const *env)
{
  for (; *env; env++)
    if (strncmp(*env, "PATH=", 5) == 0)
      return *env + 5;
  return DEFAULT_PATH;
}

/* The paths that execvp would try, without its second try by a shell: argv is
 * executed directly. One allocation. */
static char **make_candidates(const char *program, const char *path)
{
  size_t n = 1;
  for (const char *p = path; *p; p++)
    n += *p == ':';
  size_t program_n = strlen(program);
  char **list = malloc((n + 1) * sizeof *list + strlen(path) + 1 + n * (program_n + 2));
  if (!list)
    return NULL;
  char *text = (char *)(list + n + 1);
  if (strchr(program, '/') || program_n == 0) {
    list[0] = memcpy(text, program, program_n + 1);
    list[1] = NULL;
    return list;
  }
  for (size_t i = 0; i < n; i++) {
    size_t part = strcspn(path, ":");
    list[i] = text;
    text = mempcpy(text, path, part);
    if (part > 0)
      *text++ = '/';
    text = mempcpy(text, program, program_n + 1);
    path += part + (path[part] == ':');
  }
  list[n] = NULL;
  return list;
}

_Noreturn static void give_up(const char *what, int err, int code)
{
  static char start[] = "entry: cannot start ", middle[] = ": ", end[] = "\n";
  const char *reason = strerrordesc_np(err);
  if (!reason)
    reason = "unknown error";
  struct iovec parts[] = {{start, sizeof start - 1},
                          {(char *)what, strlen(what)},
                          {middle, sizeof middle - 1},
                          {(char *)reason, strlen(reason)},
                          {end, sizeof end - 1}};
  (void)!writev(STDERR_FILENO, parts, 5);
  _exit(code);
}

/* Runs in the memory of PID 1 until exec. */
_Noreturn static void child_main(const Launch *launch)
{
  const QvEntryStep *step = launch->step;
  const struct rlimit no_core = {0, 0};
  sigset_t none;
  sigemptyset(&none);
  setsid();
  setrlimit(RLIMIT_CORE, &no_core);
  if (dup2(launch->stage->null_fd, 0) < 0 || dup2(launch->out_fd, 1) < 0 || dup2(launch->out_fd, 2) < 0)
    _exit(EXIT_NOT_STARTABLE);
  if (fchdir(launch->stage->root_fd) != 0 || (step->cwd && chdir(step->cwd) != 0))
    give_up(step->cwd ? step->cwd : "in the repository", errno, EXIT_NOT_STARTABLE);
  sigprocmask(SIG_SETMASK, &none, NULL);
  int err = ENOENT;
  for (char **path = launch->candidates; *path; path++) {
    execve(*path, step->argv, launch->env);
    if (errno == ENOENT || errno == ENOTDIR)
      continue;
    err = errno;
    if (err != EACCES)
      break;
  }
  give_up(step->argv[0], err, err == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_STARTABLE);
}

static pid_t spawn(const Launch *launch)
{
  pid_t pid = vfork();
  if (pid == 0)
    child_main(launch);
  return pid;
}

static void read_some(Watch *watch)
{
  const QvEntryStage *stage = watch->stage;
  for (int i = 0; i < READS_AT_ONCE && watch->pipe_fd >= 0; i++) {
    ssize_t got = read(watch->pipe_fd, stage->scratch, stage->scratch_n);
    if (got > 0)
      qv_entry_ring_append(stage->ring, stage->scratch, (size_t)got);
    else if (got < 0 && (errno == EAGAIN || errno == EINTR))
      return;
    else
      qv_io_close_cleanup(&watch->pipe_fd); /* polling it further would spin */
  }
}

/* Nothing writes any more: what is there is all. */
static void drain(Watch *watch)
{
  const QvEntryStage *stage = watch->stage;
  ssize_t got;
  while (watch->pipe_fd >= 0 && (got = read(watch->pipe_fd, stage->scratch, stage->scratch_n)) > 0)
    qv_entry_ring_append(stage->ring, stage->scratch, (size_t)got);
  qv_io_close_cleanup(&watch->pipe_fd);
}

static int earlier(int a_ms, int b_ms)
{
  return a_ms < 0 || (b_ms >= 0 && b_ms < a_ms) ? b_ms : a_ms;
}

static void watch_step(Watch *watch, int64_t deadline_ms)
{
  enum { OWN_FDS = 2 };
  struct pollfd fds[OWN_FDS + QV_ENTRY_FORWARD_FDS_MAX];
  int64_t left_ms = deadline_ms - qv_clock_mono_ms();
  int timeout = left_ms <= 0 ? 0 : left_ms < INT32_MAX ? (int)left_ms : INT32_MAX;
  if (watch->more_to_reap)
    timeout = 0;
  size_t forward_n = 0;
  fds[0] = (struct pollfd){.fd = watch->stage->signal_fd, .events = POLLIN};
  fds[1] = (struct pollfd){.fd = watch->pipe_fd, .events = POLLIN};
  if (watch->forward) {
    forward_n = qv_entry_forward_fds(watch->forward, fds + OWN_FDS);
    timeout = earlier(timeout, qv_entry_forward_timeout_ms(watch->forward));
  }
  if (watch->live)
    timeout = earlier(timeout, qv_entry_live_timeout_ms(watch->live, watch->stage->ring));
  if (poll(fds, OWN_FDS + forward_n, timeout) < 0 && errno != EINTR)
    abort();
  if (fds[1].revents)
    read_some(watch);
  if (watch->forward)
    qv_entry_forward_step(watch->forward, fds + OWN_FDS, forward_n);
  if (watch->live)
    qv_entry_live_step(watch->live, watch->stage->ring);
  if (fds[0].revents || watch->more_to_reap)
    watch->more_to_reap =
      qv_entry_pid1_reap(watch->stage->signal_fd, watch->pid, &watch->status, &watch->ended);
}

static bool is_full(int fd)
{
  struct statvfs info;
  if (fstatvfs(fd, &info) != 0 || info.f_blocks == 0)
    return false;
  return (uint64_t)info.f_bavail * info.f_frsize < FULL_BYTES || (info.f_files > 0 && info.f_ffree == 0);
}

static void note_end(const Watch *watch, QvEntryOutcome *outcome)
{
  outcome->exit_code = watch->ended && WIFEXITED(watch->status) ? WEXITSTATUS(watch->status) : -1;
  outcome->signal = outcome->exit_code >= 0 ? 0 : WIFSIGNALED(watch->status) ? WTERMSIG(watch->status) : SIGKILL;
}

/* From the start of the child to the last process's end. */
static void supervise(Watch *watch, const QvEntryStep *step, QvEntryOutcome *outcome)
{
  int64_t started_ms = qv_clock_mono_ms();
  int64_t deadline_ms = started_ms + step->timeout_ms;
  outcome->started_ms = started_ms - watch->stage->origin_ms;
  while (!watch->ended && qv_clock_mono_ms() < deadline_ms)
    watch_step(watch, deadline_ms);
  /* A step that ended in its last moment ended by itself. */
  while (!watch->ended &&
         qv_entry_pid1_reap(watch->stage->signal_fd, watch->pid, &watch->status, &watch->ended))
    ;
  bool killed = !watch->ended;
  outcome->duration_ms = qv_clock_mono_ms() - started_ms;
  note_end(watch, outcome);
  if (killed || outcome->exit_code != 0) {
    /* Looked at before anything is killed: its children may be what fills it. */
    outcome->disk_full = is_full(watch->stage->work_fd) || is_full(watch->stage->tmp_fd);
    outcome->fork_failed = qv_entry_pid1_table_full();
  }
  qv_entry_pid1_kill_all(watch->stage->signal_fd, watch->pid, &watch->status, &watch->ended);
  if (killed) {
    /* Its own end may have come between the clock and the kill. */
    note_end(watch, outcome);
    outcome->timed_out = outcome->signal == SIGKILL;
  }
  drain(watch);
  if (watch->forward)
    qv_entry_forward_flush_log(watch->forward);
}

bool qv_entry_step_run(const QvEntryStage *stage, const QvEntryStep *step, char *const *env,
                       QvEntryForward *forward, QvEntryLive *live, QvEntryOutcome *outcome)
{
  *outcome = (QvEntryOutcome){.exit_code = EXIT_NOT_STARTABLE};
  qv_entry_ring_clear(stage->ring);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return false;
  /* Our end only: each end is a description of its own, the step's stays blocking. */
  qv_io_set_nonblock(ends[0], true);
  fcntl(ends[0], F_SETPIPE_SZ, PIPE_BYTES);
  Launch launch = {.stage = stage, .step = step, .env = env, .out_fd = ends[1]};
  launch.candidates = make_candidates(step->argv[0], search_path(env));
  Watch watch = {.stage = stage, .forward = forward, .live = live, .pipe_fd = ends[0]};
  watch.pid = launch.candidates ? spawn(&launch) : -1;
  int err = errno;
  free(launch.candidates);
  close(ends[1]);
  if (watch.pid > 0) {
    supervise(&watch, step, outcome);
    return true;
  }
  const char *reason = strerrordesc_np(err);
  outcome->started_ms = qv_clock_mono_ms() - stage->origin_ms;
  outcome->fork_failed = err == EAGAIN;
  qv_entry_ring_append(stage->ring, "entry: cannot fork: ", 20);
  qv_entry_ring_append(stage->ring, reason ? reason : "?", reason ? strlen(reason) : 1);
  qv_entry_ring_append(stage->ring, "\n", 1);
  qv_io_close_cleanup(&watch.pipe_fd);
  return true;
}
