/* SPDX-License-Identifier: Apache-2.0 */
/* Owns quavon's side of the keeper, and the removal of what a keeper left. */
#include "cli/embedded.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/exit.h"
#include "base/fd.h"
#include "base/io.h"
#include "cli/keeper.h"
#include "cli/keeper_files.h"
#include "cli/programs.h"
#include "cli/progress.h"
#include "cli/verb.h"

enum { START_MS = 90000, STOP_MS = 150000, TELL_MS = 3000 };
enum { SWEEP_TRIES = 200, POLL_MS = 50, SAID_BYTES_MAX = 8192, SWEEP_BYTES_MAX = 65536, UNLOCKED_AGE_S = 600 };
/* What an engine may still start (sandbox/docker_mark.c) has come by then. */
enum { LATER_MS = 45000, LATER_POLL_MS = 500 };

static const char *const parents[] = { "/run", "/tmp" };
static const char folder_prefix[] = "quavon-";

struct QvEmbedded {
  char *folder;
  char **settings;
  int control_fd, lock_fd;
  GPid keeper;
  GString *said; /* by the keeper */
  gboolean gone; /* the end of its socket was read */
  char *trouble;
};

/* ── What a keeper left ── */

static gboolean has_entries(const char *folder, const char *name)
{
  g_autofree char *path = g_build_filename(folder, QV_KEEPER_STATE, name, NULL);
  g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
  return dir != NULL && g_dir_read_name(dir) != NULL;
}

gboolean qv_keeper_has_sandboxes(const char *folder)
{
  return has_entries(folder, "runs");
}

/* A wait that people may end: a signal from here on does, one from before has ended something else. */
typedef struct {
  const char *folder;
  gboolean interrupted_before;
  gboolean told;
  gint64 later_until_ms; /* 0: not told of any */
  guint tries;
} Wait;

static gboolean is_given_up(const Wait *wait)
{
  return !wait->interrupted_before && qv_interrupted();
}

/* As g_spawn_sync, but that a signal ends it: an engine that is silent takes its time. */
static gboolean run_sweep(const Wait *wait, const char *program, char **environment, char **said, int *status, GError **error)
{
  const char *argv[] = { program, "--sweep", NULL };
  GPid pid;
  QV_AUTOFD int out = memfd_create("sweep", MFD_CLOEXEC);
  QV_AUTOFD int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (out < 0 || null_fd < 0)
    return qv_error_set_errno(error, errno, "sweep of %s", wait->folder);
  if (!g_spawn_async_with_fds("/", (char **)argv, environment, G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL, &pid, null_fd, out, out,
                              error))
    return FALSE;
  while (waitpid(pid, status, WNOHANG) == 0) {
    if (is_given_up(wait))
      kill(pid, SIGKILL);
    g_usleep(POLL_MS * 1000);
  }
  /* What counts is said last, and an engine in trouble makes it say much before. */
  off_t all_n = lseek(out, 0, SEEK_END);
  lseek(out, MAX(all_n - SWEEP_BYTES_MAX, 0), SEEK_SET);
  *said = g_malloc(SWEEP_BYTES_MAX + 1);
  ssize_t n = qv_io_read_full(out, *said, SWEEP_BYTES_MAX);
  (*said)[MAX(n, 0)] = '\0';
  return n >= 0 || qv_error_set_errno(error, errno, "sweep of %s", wait->folder);
}

/* "removed N sandboxes; N are in use; N may come": in use by a job process that has not yet seen that its supervisor ended;
 * they may come where a start was cut off, and only time tells. FALSE: there is no more time. */
static gboolean await_rest(Wait *wait, gboolean unused)
{
  gint64 now_ms = qv_clock_mono_ms();
  if (!unused)
    return ++wait->tries < SWEEP_TRIES;
  if (wait->later_until_ms == 0)
    wait->later_until_ms = now_ms + LATER_MS;
  if (!wait->told)
    qv_complain("the engine went while it started a sandbox of %s, and may still go on with it: waiting up to %d s to remove "
                "what comes; Ctrl-C ends the wait", wait->folder, LATER_MS / 1000);
  wait->told = TRUE;
  if (now_ms >= wait->later_until_ms)
    return ++wait->tries < SWEEP_TRIES;
  for (gint64 until_ms = now_ms + LATER_POLL_MS; qv_clock_mono_ms() < until_ms && !is_given_up(wait);)
    g_usleep(POLL_MS * 1000);
  return TRUE;
}

/* The runner's own sweep knows what it makes. Its parts may still be dying, or be born: again until it says that nothing is left. */
static gboolean sweep_sandboxes(const char *folder, GError **error)
{
  /* The backend's first act for a sandbox is its folder in `runs`, the last one to remove it: without any there is
   * nothing but an empty control group to sweep, and no need for a runsc that may be what is missing. */
  gboolean needed = qv_keeper_has_sandboxes(folder) || has_entries(folder, "runsc");
  g_autofree char *program = qv_program_find("runner", "quavon-sandbox-runner", needed ? error : NULL);
  if (program == NULL)
    return !needed;
  g_auto(GStrv) environment = qv_keeper_environment(folder, FALSE);
  Wait wait = { .folder = folder, .interrupted_before = qv_interrupted() };
  for (gboolean unused = FALSE; !is_given_up(&wait); g_usleep(POLL_MS * 1000)) {
    int status = 0;
    g_autofree char *said = NULL;
    g_clear_error(error);
    if (!run_sweep(&wait, program, environment, &said, &status, error))
      return FALSE;
    if (WIFSIGNALED(status) && is_given_up(&wait))
      break;
    unused = g_spawn_check_wait_status(status, NULL) && strstr(said, "; 0 are in use; ") != NULL;
    if (!needed || (unused && strstr(said, "; 0 may come") != NULL))
      return TRUE;
    g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "sandboxes of %s could not be removed: %s", folder, g_strchomp(said));
    gboolean refused = WIFEXITED(status) && WEXITSTATUS(status) == QV_EXIT_CONFIG; /* which no wait mends */
    if (refused || !await_rest(&wait, unused))
      return FALSE;
  }
  g_clear_error(error);
  g_set_error(error, QV_ERROR, QV_ERROR_CANCELLED, "interrupted: sandboxes of %s may be left; the next `quavon run` removes them",
              folder);
  return FALSE;
}

gboolean qv_keeper_clean(const char *folder, GError **error)
{
  /* Without its sandboxes removed the folder stays: it is what the next sweep finds them by. */
  g_autoptr(GError) cause = NULL;
  if (sweep_sandboxes(folder, &cause) && qv_fd_remove_tree(folder, &cause))
    return TRUE;
  g_propagate_error(error, g_steal_pointer(&cause));
  return FALSE;
}

/* Ours, private, and owned by nobody that lives. */
static gboolean is_left_over(const char *folder, int *lock_fd)
{
  struct stat st;
  if (lstat(folder, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
    return FALSE;
  g_autofree char *path = g_build_filename(folder, QV_KEEPER_LOCK, NULL);
  *lock_fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (*lock_fd < 0 && errno == ENOENT && st.st_mtime + UNLOCKED_AGE_S < qv_clock_unix_ms() / 1000) {
    /* Killed before it had a lock: nothing was started, so the folder is empty. One that is not is somebody else's. */
    rmdir(folder);
    return FALSE;
  }
  return *lock_fd >= 0 && flock(*lock_fd, LOCK_EX | LOCK_NB) == 0;
}

void qv_keeper_sweep(void)
{
  for (guint i = 0; i < G_N_ELEMENTS(parents); i++) {
    g_autoptr(GDir) dir = g_dir_open(parents[i], 0, NULL);
    for (const char *name; dir != NULL && (name = g_dir_read_name(dir)) != NULL;) {
      if (!g_str_has_prefix(name, folder_prefix) || strlen(name) != strlen(folder_prefix) + strlen("XXXXXX"))
        continue;
      g_autofree char *folder = g_build_filename(parents[i], name, NULL);
      g_autoptr(GError) error = NULL;
      QV_AUTOFD int lock_fd = -1;
      if (!qv_interrupted() && is_left_over(folder, &lock_fd) && !qv_keeper_clean(folder, &error))
        qv_complain("left by an earlier run: %s", error->message);
    }
  }
}

/* ── One keeper ── */

static gboolean make_folder(QvEmbedded *embedded, GError **error)
{
  for (guint i = 0; i < G_N_ELEMENTS(parents) && embedded->folder == NULL; i++) {
    g_autofree char *name = g_strconcat(parents[i], "/", folder_prefix, "XXXXXX", NULL);
    if (g_mkdtemp_full(name, 0700) != NULL)
      embedded->folder = g_steal_pointer(&name);
  }
  if (embedded->folder == NULL)
    return qv_error_set_errno(error, errno, "no private folder in /run or /tmp");
  /* Under its name only once it is locked: a sweep of another run must not take it for a left-over. */
  g_autofree char *lock = g_build_filename(embedded->folder, QV_KEEPER_LOCK, NULL);
  g_autofree char *lock_new = g_strconcat(lock, ".new", NULL);
  embedded->lock_fd = open(lock_new, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (embedded->lock_fd < 0 || flock(embedded->lock_fd, LOCK_EX | LOCK_NB) != 0 || rename(lock_new, lock) != 0)
    return qv_error_set_errno(error, errno, "%s", lock);
  return TRUE;
}

static gboolean spawn_keeper(QvEmbedded *embedded, gboolean egress, GError **error)
{
  QV_AUTOFD int theirs = -1;
  int pair[2];
  if (!qv_fd_socketpair(pair, error))
    return FALSE;
  embedded->control_fd = pair[0];
  theirs = pair[1];
  const char *argv[] = { "/proc/self/exe", "quavon", "_keeper", embedded->folder, egress ? QV_KEEPER_WITH_EGRESS : NULL,
                         NULL };
  const int source_fds[] = { theirs, embedded->lock_fd };
  const int target_fds[] = { QV_KEEPER_CONTROL_FD, QV_KEEPER_LOCK_FD };
  GSpawnFlags flags = G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_FILE_AND_ARGV_ZERO | G_SPAWN_STDOUT_TO_DEV_NULL;
  return g_spawn_async_with_pipes_and_fds("/", argv, NULL, flags, NULL, NULL, -1, -1, -1, source_fds, target_fds,
                                          G_N_ELEMENTS(source_fds), &embedded->keeper, NULL, NULL, NULL, error);
}

/* Reads what the keeper says; waits up to wait_ms for something. */
static void listen_to(QvEmbedded *embedded, int wait_ms)
{
  struct pollfd poll_fd = { .fd = embedded->control_fd, .events = POLLIN };
  if (embedded->gone || poll(&poll_fd, 1, wait_ms) <= 0)
    return;
  char bytes[1024];
  ssize_t n = recv(embedded->control_fd, bytes, sizeof bytes, MSG_DONTWAIT);
  if (n > 0 && embedded->said->len < SAID_BYTES_MAX)
    g_string_append_len(embedded->said, bytes, n);
  else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
    embedded->gone = TRUE;
}

const char *qv_embedded_trouble(QvEmbedded *embedded)
{
  listen_to(embedded, 0);
  const char *failed = strstr(embedded->said->str, QV_KEEPER_FAILED);
  if (failed == NULL && !embedded->gone)
    return NULL;
  g_free(embedded->trouble);
  embedded->trouble = failed != NULL ? g_strchomp(g_strdup(failed + strlen(QV_KEEPER_FAILED)))
                                     : g_strdup("the keeper of the private runner was killed");
  return embedded->trouble;
}

QvEmbedded *qv_embedded_start(gboolean egress, GError **error)
{
  qv_keeper_sweep();
  if (qv_interrupted()) {
    g_set_error(error, QV_ERROR, QV_ERROR_CANCELLED, "interrupted before a sandbox was started");
    return NULL;
  }
  QvEmbedded *embedded = g_new0(QvEmbedded, 1);
  embedded->control_fd = embedded->lock_fd = -1;
  embedded->said = g_string_new(NULL);
  if (!make_folder(embedded, error) || !spawn_keeper(embedded, egress, error)) {
    qv_embedded_stop(embedded);
    return NULL;
  }
  const char *trouble = NULL;
  gint64 until_ms = qv_clock_mono_ms() + START_MS;
  while ((trouble = qv_embedded_trouble(embedded)) == NULL && strstr(embedded->said->str, QV_KEEPER_READY) == NULL &&
         qv_clock_mono_ms() < until_ms && !qv_interrupted())
    listen_to(embedded, POLL_MS);
  if (trouble != NULL || strstr(embedded->said->str, QV_KEEPER_READY) == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "%s",
                trouble != NULL    ? trouble
                : qv_interrupted() ? "interrupted before the private runner had started"
                                   : "the private runner does not start");
    qv_embedded_stop(embedded);
    return NULL;
  }
  embedded->settings = qv_keeper_settings(embedded->folder);
  return embedded;
}

const char *const *qv_embedded_settings(const QvEmbedded *embedded)
{
  return (const char *const *)embedded->settings;
}

/* FALSE: a signal has ended the wait, and it goes on without us. */
static gboolean end_keeper(QvEmbedded *embedded)
{
  /* The end of the socket is the order; it is the only end that it is sure to see. */
  shutdown(embedded->control_fd, SHUT_WR);
  const Wait wait = { .folder = embedded->folder, .interrupted_before = qv_interrupted() };
  gint64 since_ms = qv_clock_mono_ms();
  gboolean told = FALSE;
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(embedded->keeper, &status, WNOHANG)) == 0 && qv_clock_mono_ms() - since_ms < STOP_MS) {
    if (!told && qv_clock_mono_ms() - since_ms > TELL_MS) {
      qv_complain("waiting for process %d, which removes what is in %s", (int)embedded->keeper, embedded->folder);
      told = TRUE;
    }
    if (is_given_up(&wait)) {
      qv_complain("interrupted: process %d goes on and removes what is in %s", (int)embedded->keeper, embedded->folder);
      return FALSE;
    }
    g_usleep(POLL_MS * 200);
  }
  if (ended == 0) {
    kill(embedded->keeper, SIGKILL);
    waitpid(embedded->keeper, &status, 0);
  }
  return TRUE;
}

void qv_embedded_stop(QvEmbedded *embedded)
{
  if (embedded == NULL)
    return;
  gboolean ended = embedded->keeper == 0 || end_keeper(embedded);
  g_autoptr(GError) error = NULL;
  if (ended && embedded->folder != NULL && g_file_test(embedded->folder, G_FILE_TEST_IS_DIR) &&
      !qv_keeper_clean(embedded->folder, &error))
    qv_complain("%s", error->message);
  if (embedded->control_fd >= 0)
    close(embedded->control_fd);
  if (embedded->lock_fd >= 0)
    close(embedded->lock_fd);
  g_string_free(embedded->said, TRUE);
  g_strfreev(embedded->settings);
  g_free(embedded->trouble);
  g_free(embedded->folder);
  g_free(embedded);
}
