/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the reading of key files: the descriptor that was looked at is the one that is read. */
#include "runner/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/io.h"
#include "base/limits.h"

static gboolean check(int fd, const char *path, GError **error)
{
  struct stat st;
  if (fstat(fd, &st) != 0)
    return qv_error_set_errno(error, errno, "key file %s", path);
  gid_t groups[256];
  int n = getgroups(G_N_ELEMENTS(groups), groups);
  QvKeyFile file = {.mode = st.st_mode, .gid = st.st_gid};
  QvKeyReader reader = {.egid = getegid(), .groups = groups, .groups_n = MAX(n, 0)};
  if (qv_key_file_check(&file, &reader, error))
    return TRUE;
  g_prefix_error(error, "key file %s: ", path);
  return FALSE;
}

QvKey *qv_key_file_load(const char *path, GError **error)
{
  /* A FIFO must not hold the start up. */
  QV_AUTOFD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    int err = errno;
    qv_error_set_errno(error, err, "key file %s", path);
    if (err == ENOENT && error != NULL)
      (*error)->code = QV_ERROR_NOT_FOUND;
    return NULL;
  }
  if (!check(fd, path, error))
    return NULL;
  char text[QV_KEY_FILE_BYTES_MAX + 1];
  ssize_t n = qv_io_read_full(fd, text, sizeof text);
  QvKey *key = NULL;
  if (n < 0)
    qv_error_set_errno(error, errno, "key file %s", path);
  else if (n > QV_KEY_FILE_BYTES_MAX)
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "key file %s is longer than a key", path);
  else if ((key = qv_key_parse(text, n, error)) == NULL)
    g_prefix_error(error, "key file %s: ", path);
  explicit_bzero(text, sizeof text);
  return key;
}

QvKeyring *qv_keyring_load(const char *current, const char *const *previous, GError **error)
{
  g_autoptr(QvKey) key = qv_key_file_load(current, error);
  if (key == NULL)
    return NULL;
  g_autoptr(QvKeyring) ring = qv_keyring_new(key);
  for (; previous != NULL && *previous != NULL; previous++) {
    g_autoptr(QvKey) old = qv_key_file_load(*previous, error);
    if (old == NULL)
      return NULL;
    qv_keyring_add_previous(ring, old);
  }
  return g_steal_pointer(&ring);
}
