/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the run folders and knows the names of runsc's own files. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "sandbox/runsc_private.h"

/* The state holds the whole configuration once more. */
#define STATE_BYTES_MAX (4 * 1024 * 1024)

static char *run_path(QvRunscBackend *runsc, const char *id, const char *name)
{
  return g_build_filename(runsc->runs_dir, id, name, NULL);
}

char *qv_runsc_bundle(QvRunscBackend *runsc, const char *id)
{
  return run_path(runsc, id, "bundle");
}

/* Held for the moments in which a run folder exists and its lock is not yet taken: a
 * sweep between the two would take the folder for a left one. Shared with nobody else. */
static int hold_runs(QvRunscBackend *runsc, GError **error)
{
  QV_AUTOFD int fd = open(runsc->runs_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int held = -1;
  if (fd >= 0)
    while ((held = flock(fd, LOCK_EX)) != 0 && errno == EINTR)
      ;
  if (held == 0)
    return qv_io_steal(&fd);
  qv_error_set_errno(error, errno, "run folder: locking %s", runsc->runs_dir);
  return -1;
}

static int lock_file(const char *path, int flags, gboolean *busy, GError **error)
{
  QV_AUTOFD int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
  if (fd < 0) {
    qv_error_set_errno(error, errno, "run folder: opening %s", path);
    return -1;
  }
  *busy = FALSE;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0)
    return qv_io_steal(&fd);
  if (errno == EWOULDBLOCK)
    *busy = TRUE;
  else
    qv_error_set_errno(error, errno, "run folder: locking %s", path);
  return -1;
}

static gboolean write_bundle(QvRunscBackend *runsc, const char *id, const char *config, GError **error)
{
  g_autofree char *bundle = qv_runsc_bundle(runsc, id);
  g_autofree char *rootfs = g_build_filename(bundle, "rootfs", NULL);
  g_autofree char *file = g_build_filename(bundle, "config.json", NULL);
  if (mkdir(bundle, 0700) != 0 || mkdir(rootfs, 0755) != 0)
    return qv_error_set_errno(error, errno, "run folder: making %s", rootfs);
  QV_AUTOFD int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0)
    return qv_error_set_errno(error, errno, "run folder: making %s", file);
  return qv_fd_write_all(fd, file, config, strlen(config), error);
}

int qv_runsc_make_run(QvRunscBackend *runsc, const char *id, const char *config, GError **error)
{
  g_autofree char *folder = g_build_filename(runsc->runs_dir, id, NULL);
  g_autofree char *lock = run_path(runsc, id, "lock");
  gboolean busy = FALSE;
  QV_AUTOFD int held = hold_runs(runsc, error);
  if (held < 0)
    return -1;
  if (mkdir(folder, 0700) != 0) {
    qv_error_set_errno(error, errno, "run folder: making %s", folder);
    return -1;
  }
  QV_AUTOFD int fd = lock_file(lock, O_CREAT | O_EXCL, &busy, error);
  if (fd >= 0 && write_bundle(runsc, id, config, error))
    return qv_io_steal(&fd);
  if (busy)
    g_set_error(error, QV_ERROR, QV_ERROR_BUG, "run folder: %s is locked by somebody else", lock);
  qv_runsc_remove_run(runsc, id, NULL);
  return -1;
}

int qv_runsc_lock_run(QvRunscBackend *runsc, const char *id, gboolean *busy, GError **error)
{
  g_autofree char *folder = g_build_filename(runsc->runs_dir, id, NULL);
  g_autofree char *lock = run_path(runsc, id, "lock");
  *busy = FALSE;
  QV_AUTOFD int held = hold_runs(runsc, error);
  if (held < 0)
    return -1;
  if (access(folder, F_OK) != 0)
    return -2;
  return lock_file(lock, O_CREAT, busy, error);
}

gboolean qv_runsc_remove_run(QvRunscBackend *runsc, const char *id, GError **error)
{
  g_autofree char *folder = g_build_filename(runsc->runs_dir, id, NULL);
  return qv_fd_remove_tree(folder, error);
}

static char *state_path(QvRunscBackend *runsc, const char *id, const char *suffix)
{
  g_autofree char *name = g_strdup_printf("%s_sandbox:%s.%s", id, id, suffix);
  return g_build_filename(runsc->runsc_root, name, NULL);
}

gboolean qv_runsc_remove_state(QvRunscBackend *runsc, const char *id, GError **error)
{
  g_autofree char *socket_name = g_strdup_printf("runsc-%s.sock", id);
  char *paths[] = {state_path(runsc, id, "state"), state_path(runsc, id, "lock"),
                   g_build_filename(runsc->runsc_root, socket_name, NULL)};
  gboolean ok = TRUE;
  for (gsize i = 0; i < G_N_ELEMENTS(paths); i++) {
    if (unlink(paths[i]) != 0 && errno != ENOENT && ok)
      ok = qv_error_set_errno(error, errno, "runsc: removing %s", paths[i]);
    g_free(paths[i]);
  }
  return ok;
}

gboolean qv_runsc_state_parse(const char *text, gsize n, gint *pid)
{
  json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
  const char *status = json_string_value(json_object_get(root, "status"));
  json_t *number = json_object_get(json_object_get(root, "sandbox"), "pid");
  json_int_t value = json_integer_value(number);
  gboolean running = status != NULL && strcmp(status, "running") == 0 && value > 1 && value <= G_MAXINT;
  if (running)
    *pid = (gint)value;
  json_decref(root);
  return running;
}

gboolean qv_runsc_is_running(QvRunscBackend *runsc, const char *id, gint *pid)
{
  g_autofree char *path = state_path(runsc, id, "state");
  gsize n;
  /* Absent or half written: not yet. */
  g_autofree char *text = qv_fd_read_file(path, STATE_BYTES_MAX, &n, NULL);
  return text != NULL && qv_runsc_state_parse(text, n, pid);
}
