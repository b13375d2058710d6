/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the runner's folder, its lock and the runner id. */
#include "runner/state_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/hex.h"
#include "base/random.h"

enum { ID_BYTES = 16, ID_FILE_MAX = 64, POLL_MS = 50 };

gboolean qv_state_dir_private(const char *path, GError **error)
{
  struct stat st;
  if (stat(path, &st) != 0)
    return qv_error_set_errno(error, errno, "cannot look at %s", path);
  if (!S_ISDIR(st.st_mode) || (st.st_mode & 0022) != 0 || st.st_uid != geteuid()) {
    g_set_error(error, QV_ERROR, QV_ERROR_POLICY,
                "%s must be a folder of uid %u that nobody else may write to (chown %u, chmod go-w)", path, geteuid(),
                geteuid());
    return FALSE;
  }
  return TRUE;
}

gboolean qv_state_dir_prepare(const char *path, GError **error)
{
  if (!g_path_is_absolute(path)) {
    g_set_error(error, QV_ERROR, QV_ERROR_POLICY,
                "QUAVON_SANDBOX_STATE_DIR: %s is not an absolute path", path);
    return FALSE;
  }
  if (g_mkdir_with_parents(path, 0711) != 0)
    return qv_error_set_errno(error, errno, "QUAVON_SANDBOX_STATE_DIR: cannot make %s", path);
  if (qv_state_dir_private(path, error))
    return TRUE;
  g_prefix_error(error, "QUAVON_SANDBOX_STATE_DIR: ");
  return FALSE;
}

int qv_state_dir_lock(const char *path, gint64 wait_ms, GError **error)
{
  g_autofree char *name = g_build_filename(path, "runner.lock", NULL);
  QV_AUTOFD int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    qv_error_set_errno(error, errno, "cannot open %s", name);
    return -1;
  }
  gint64 end_ms = qv_clock_mono_ms() + wait_ms;
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      qv_error_set_errno(error, errno, "cannot lock %s", name);
      return -1;
    }
    if (qv_clock_mono_ms() >= end_ms) {
      g_set_error(error, QV_ERROR, QV_ERROR_TIMEOUT,
                  "%s is held by another runner: give each its own QUAVON_SANDBOX_STATE_DIR", path);
      return -1;
    }
    g_usleep(POLL_MS * 1000);
  }
  return qv_io_steal(&fd);
}

static char *make_id(const char *name, GError **error)
{
  guint8 bytes[ID_BYTES];
  char text[2 * ID_BYTES + 2];
  qv_random_bytes(bytes, sizeof bytes);
  qv_hex_encode(bytes, sizeof bytes, text);
  g_autofree char *line = g_strconcat(text, "\n", NULL);
  if (!qv_fd_write_file(name, line, strlen(line), 0644, error))
    return NULL;
  return g_strdup(text);
}

char *qv_state_dir_runner_id(const char *path, GError **error)
{
  g_autofree char *name = g_build_filename(path, "runner-id", NULL);
  g_autoptr(GError) cause = NULL;
  gsize n;
  g_autofree char *text = qv_fd_read_file(name, ID_FILE_MAX, &n, &cause);
  if (text == NULL) {
    if (g_error_matches(cause, QV_ERROR, QV_ERROR_NOT_FOUND))
      return make_id(name, error);
    g_propagate_error(error, g_steal_pointer(&cause));
    return NULL;
  }
  g_strchomp(text);
  if (strlen(text) != 2 * ID_BYTES || !qv_hex_valid(text, 2 * ID_BYTES)) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT,
                "%s does not hold a runner id (%d hex digits): remove the file to get a new one", name, 2 * ID_BYTES);
    return NULL;
  }
  return g_steal_pointer(&text);
}
