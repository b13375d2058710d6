/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the starter's own process. It makes ready what its children would else each make for themselves, then waits. It may have no
 * thread but the first: a child would have the memory of the others and not them. */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "runner/job.h"
#include "runner/spawn.h"
#include "runner/starter.h"
#include "runner/unpack.h"
#include "sandbox/docker_curl.h"

enum { HIGH_FD = 16 }; /* every descriptor of a starter and of what it has just forked is below */

/* The words behind `--role`, as ps shows them. */
static struct {
  char *text;
  gsize n;
} title;

static void find_title(int argc, char **argv)
{
  title.text = argv[2];
  title.n = argv[argc - 1] + strlen(argv[argc - 1]) - argv[2];
}

static void set_title(const char *word)
{
  memset(title.text, 0, title.n);
  memcpy(title.text, word, MIN(strlen(word), title.n));
}

/* FDS become 3, 4, …; nothing else of the parent's stays open. One below would stay open twice, and stderr goes into it. */
static gboolean place(const int *fds, gsize n)
{
  for (gsize i = 0; i < n; i++) {
    if (fds[i] < QV_SPAWN_FD_FIRST || fcntl(fds[i], F_DUPFD_CLOEXEC, HIGH_FD + (int)i) != HIGH_FD + (int)i)
      return FALSE;
  }
  for (gsize i = 0; i < n; i++) {
    if (dup2(HIGH_FD + (int)i, QV_SPAWN_FD_FIRST + (int)i) < 0)
      return FALSE;
  }
  for (gsize fd = QV_SPAWN_FD_FIRST + n; fd < HIGH_FD + n; fd++)
    close((int)fd);
  return TRUE;
}

/* ---- unpack, out of a job process that knows nothing yet */

static gboolean fork_unpack(QvUnpackProcess *unpack)
{
  int config[2], frames[2];
  if (!qv_fd_socketpair(config, NULL))
    return FALSE;
  QV_AUTOFD int config_near = config[0];
  QV_AUTOFD int config_far = config[1];
  if (!qv_fd_pipe(frames, NULL))
    return FALSE;
  QV_AUTOFD int frames_in = frames[0];
  QV_AUTOFD int frames_out = frames[1];
  pid_t pid = fork();
  if (pid < 0)
    return FALSE;
  if (pid == 0) {
    const int fds[] = {config_far, frames_out};
    if (!place(fds, G_N_ELEMENTS(fds)))
      _exit(1);
    set_title("unpack");
    setsid();
    _exit(qv_unpack_main(TRUE));
  }
  *unpack = (QvUnpackProcess){.pid = pid, .config_fd = qv_io_steal(&config_near), .frames_fd = qv_io_steal(&frames_in)};
  return TRUE;
}

/* ---- job */

static int become_job(int channel, int lock)
{
  const int fds[] = {channel, lock};
  if (!place(fds, G_N_ELEMENTS(fds)))
    return 1;
  set_title("job");
  setsid();
  QvUnpackProcess unpack;
  return qv_job_main(fork_unpack(&unpack) ? &unpack : NULL); /* without, it starts its own when it can */
}

/* Where the supervisor looks for a child that it was not told of. Not the child's: whoever could write there would say whom the supervisor
 * kills. NULL: cannot be. */
static pid_t *map_note(void)
{
  gsize n = sizeof(pid_t);
  QV_AUTOFD int fd = QV_STARTER_NOTE_FD;
  void *page = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (page == MAP_FAILED || madvise(page, (gsize)sysconf(_SC_PAGESIZE), MADV_DONTFORK) != 0)
    return NULL;
  mlock(page, n); /* the kernel writes, whatever the signals, what is in memory */
  return page;
}

/* As fork(2), but the child is the supervisor's. What libc's fork does beside is for programs with threads, save that
 * the thread's own id is kept in memory: the kernel writes it there, where libc has told it. */
static pid_t clone_for_parent(pid_t *note)
{
  int *id = NULL;
  unsigned long flags = CLONE_PARENT | CLONE_PARENT_SETTID | SIGCHLD;
  if (prctl(PR_GET_TID_ADDRESS, &id) == 0 && id != NULL)
    flags |= CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
#if defined(__x86_64__)
  return (pid_t)syscall(SYS_clone, flags, NULL, note, id, 0UL);
#else
  return (pid_t)syscall(SYS_clone, flags, NULL, note, 0UL, id);
#endif
}

int qv_starter_main(int argc, char **argv)
{
  qv_role_enter(TRUE);
  find_title(argc, argv);
  if (argc > 3)
    qv_curl_load(NULL); /* a job that misses it says so */
  qv_unpack_warm_up();
  pid_t *note = map_note();
  if (note == NULL || !qv_io_write_full(QV_STARTER_FD, "", 1)) /* ready */
    return 1;
  for (;;) {
    int channel = qv_fd_receive(QV_STARTER_FD);
    int lock = channel >= 0 ? qv_fd_receive(QV_STARTER_FD) : -1;
    if (lock < 0)
      return 0; /* the supervisor is gone, or has done with this one */
    pid_t pid = clone_for_parent(note);
    if (pid == 0)
      return become_job(channel, lock);
    gint32 answer = pid > 0 ? pid : -errno;
    close(channel);
    close(lock);
    if (!qv_io_write_full(QV_STARTER_FD, &answer, sizeof answer))
      return 1;
  }
}
