/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the run folders and the names made of a state folder. */
#include "sandbox/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "sandbox/container_spec.h"

#define OWNER_HEX_BYTES 6 /* 12 digits tell the runners of one host apart */

char *qv_run_state_dir(const char *state_dir, GError **error)
{
  char *absolute = state_dir[0] == '/' ? realpath(state_dir, NULL) : NULL;
  if (absolute == NULL) {
    qv_error_set_errno(error, state_dir[0] == '/' ? errno : EINVAL, "state folder %s (must be absolute and exist)",
                       state_dir);
    return NULL;
  }
  char *copy = g_strdup(absolute);
  free(absolute);
  return copy;
}

char *qv_run_state_part(const char *state_dir, const char *name, GError **error)
{
  g_autofree char *path = g_build_filename(state_dir, name, NULL);
  if (mkdir(path, 0700) == 0 || errno == EEXIST)
    return g_steal_pointer(&path);
  qv_error_set_errno(error, errno, "state folder: making %s", path);
  return NULL;
}

char *qv_run_owner_name(const char *runner_id, const char *state_dir)
{
  g_autofree char *text = g_strconcat(runner_id, "\n", state_dir, NULL);
  uint8_t digest[QV_SHA256_BYTES];
  char hex[2 * OWNER_HEX_BYTES + 1];
  qv_sha256(text, strlen(text), digest);
  qv_hex_encode(digest, OWNER_HEX_BYTES, hex);
  return g_strconcat("r", hex, NULL);
}

/* Held for the moments in which a run folder exists and its lock is not yet taken: a
 * sweep between the two would take the folder for a left one. Shared with nobody else. */
static int hold_runs(const char *runs_dir, GError **error)
{
  QV_AUTOFD int fd = open(runs_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int held = -1;
  if (fd >= 0)
    while ((held = flock(fd, LOCK_EX)) != 0 && errno == EINTR)
      ;
  if (held == 0)
    return qv_io_steal(&fd);
  qv_error_set_errno(error, errno, "run folder: locking %s", runs_dir);
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

int qv_run_folder_make(const char *runs_dir, const char *id, GError **error)
{
  g_autofree char *folder = g_build_filename(runs_dir, id, NULL);
  g_autofree char *lock = g_build_filename(folder, "lock", NULL);
  gboolean busy = FALSE;
  QV_AUTOFD int held = hold_runs(runs_dir, error);
  if (held < 0)
    return -1;
  if (mkdir(folder, 0700) != 0) {
    qv_error_set_errno(error, errno, "run folder: making %s", folder);
    return -1;
  }
  QV_AUTOFD int fd = lock_file(lock, O_CREAT | O_EXCL, &busy, error);
  if (fd >= 0)
    return qv_io_steal(&fd);
  if (busy)
    g_set_error(error, QV_ERROR, QV_ERROR_BUG, "run folder: %s is locked by somebody else", lock);
  qv_run_folder_remove(runs_dir, id, NULL);
  return -1;
}

int qv_run_folder_lock(const char *runs_dir, const char *id, gboolean *busy, GError **error)
{
  g_autofree char *folder = g_build_filename(runs_dir, id, NULL);
  g_autofree char *lock = g_build_filename(folder, "lock", NULL);
  *busy = FALSE;
  QV_AUTOFD int held = hold_runs(runs_dir, error);
  if (held < 0)
    return -1;
  if (access(folder, F_OK) != 0)
    return -2;
  return lock_file(lock, O_CREAT, busy, error);
}

gboolean qv_run_folder_remove(const char *runs_dir, const char *id, GError **error)
{
  g_autofree char *folder = g_build_filename(runs_dir, id, NULL);
  return qv_fd_remove_tree(folder, error);
}

gboolean qv_run_folder_ids(const char *runs_dir, GHashTable *ids, GError **error)
{
  g_autoptr(GError) problem = NULL;
  g_autoptr(GDir) dir = g_dir_open(runs_dir, 0, &problem);
  if (dir == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "sweep: %s", problem->message);
    return FALSE;
  }
  for (const char *name = g_dir_read_name(dir); name != NULL; name = g_dir_read_name(dir))
    if (qv_sandbox_id_is_valid(name))
      g_hash_table_add(ids, g_strdup(name));
  return TRUE;
}
