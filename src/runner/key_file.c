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

/* Absent where it may be: TRUE, and *KEY stays NULL. */
static gboolean load_neighbour(const char *current, const char *suffix, QvKey **key, GError **error)
{
  g_autofree char *path = g_strconcat(current, suffix, NULL);
  g_autoptr(GError) cause = NULL;
  *key = qv_key_file_load(path, &cause);
  if (*key != NULL || g_error_matches(cause, QV_ERROR, QV_ERROR_NOT_FOUND))
    return TRUE;
  g_propagate_error(error, g_steal_pointer(&cause));
  return FALSE;
}

static QvKeyring *load_once(const char *current, const char *const *previous, GError **error)
{
  g_autoptr(QvKey) key = qv_key_file_load(current, error);
  g_autoptr(QvKey) next = NULL;
  g_autoptr(QvKey) last = NULL;
  if (key == NULL || !load_neighbour(current, QV_KEY_NEXT_SUFFIX, &next, error) ||
      !load_neighbour(current, QV_KEY_PREVIOUS_SUFFIX, &last, error))
    return NULL;
  /* A runner signs its health with the key that comes: that is how the workers know that it has it. */
  g_autoptr(QvKeyring) ring = qv_keyring_new(next != NULL ? next : key);
  if (next != NULL)
    qv_keyring_add_previous(ring, key);
  if (last != NULL)
    qv_keyring_add_previous(ring, last);
  for (; previous != NULL && *previous != NULL; previous++) {
    g_autoptr(QvKey) old = qv_key_file_load(*previous, error);
    if (old == NULL)
      return NULL;
    qv_keyring_add_previous(ring, old);
  }
  return g_steal_pointer(&ring);
}

/* The current key's file is renamed over in a rotation: between two looks all three may have changed their place. */
static ino_t inode_of(const char *path)
{
  struct stat st;
  return stat(path, &st) == 0 ? st.st_ino : 0;
}

QvKeyring *qv_keyring_load(const char *current, const char *const *previous, GError **error)
{
  for (guint tries = 0;; tries++) {
    ino_t before = inode_of(current);
    g_autoptr(QvKeyring) ring = load_once(current, previous, error);
    if (ring == NULL || tries == 10 || inode_of(current) == before)
      return g_steal_pointer(&ring);
  }
}
