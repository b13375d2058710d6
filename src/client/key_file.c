/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the reading and making of key files. */
#include "client/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/random.h"
#include "base/secret.h"

enum { GROUPS_MAX = 65536 /* NGROUPS_MAX of Linux */ };

static gboolean check_permissions(const struct stat *st, GError **error)
{
  g_autofree gid_t *groups = g_new(gid_t, GROUPS_MAX);
  int n = getgroups(GROUPS_MAX, groups);
  QvKeyFile file = { .mode = st->st_mode, .gid = st->st_gid };
  QvKeyReader reader = { .egid = getegid(), .groups = groups, .groups_n = n > 0 ? (gsize)n : 0 };
  return qv_key_file_check(&file, &reader, error);
}

QvKey *qv_key_file_read(const char *path, GError **error)
{
  /* O_NONBLOCK: a FIFO is refused by the rule, and must not hang us before. */
  QV_AUTOFD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0) {
    int err = errno;
    g_set_error(error, QV_ERROR, err == ENOENT ? QV_ERROR_NOT_FOUND : QV_ERROR_SYSTEM, "key file %s: %s", path,
                g_strerror(err));
    return NULL;
  }
  QvKey *key = NULL;
  gsize n = 0;
  char *text = NULL;
  if (check_permissions(&st, error))
    text = qv_fd_read_all(fd, path, QV_KEY_FILE_BYTES_MAX, &n, error);
  if (text != NULL) {
    key = qv_key_parse(text, n, error);
    explicit_bzero(text, n);
    g_free(text);
  }
  if (key == NULL)
    g_prefix_error(error, "key file %s: ", path);
  return key;
}

static void add_stamp(GString *stamp, const char *path)
{
  struct stat st;
  if (stat(path, &st) != 0)
    g_string_append_printf(stamp, "-%d;", errno);
  else
    g_string_append_printf(stamp, "%" G_GUINT64_FORMAT ":%" G_GUINT64_FORMAT ":%" G_GINT64_FORMAT ":%ld.%09ld;",
                           (guint64)st.st_dev, (guint64)st.st_ino, (gint64)st.st_size, (long)st.st_ctim.tv_sec,
                           st.st_ctim.tv_nsec);
}

char *qv_key_files_stamp(const char *current, const char *const *previous)
{
  GString *stamp = g_string_new(NULL);
  g_autofree char *next = g_strconcat(current, QV_KEY_NEXT_SUFFIX, NULL);
  g_autofree char *old = g_strconcat(current, QV_KEY_PREVIOUS_SUFFIX, NULL);
  add_stamp(stamp, current);
  add_stamp(stamp, next);
  add_stamp(stamp, old);
  for (guint i = 0; previous != NULL && previous[i] != NULL; i++)
    add_stamp(stamp, previous[i]);
  return g_string_free(stamp, FALSE);
}

static gboolean add_file(QvKeyring *ring, const char *path, gboolean may_be_absent, GError **error)
{
  g_autoptr(GError) cause = NULL;
  g_autoptr(QvKey) key = qv_key_file_read(path, &cause);
  if (key != NULL)
    qv_keyring_add_previous(ring, key);
  else if (!may_be_absent || cause->code != QV_ERROR_NOT_FOUND)
    g_propagate_error(error, g_steal_pointer(&cause));
  return key != NULL || cause != NULL;
}

static QvKeyring *read_once(const char *current, const char *const *previous, GError **error)
{
  g_autoptr(QvKey) key = qv_key_file_read(current, error);
  if (key == NULL)
    return NULL;
  g_autoptr(QvKeyring) ring = qv_keyring_new(key);
  g_autofree char *next = g_strconcat(current, QV_KEY_NEXT_SUFFIX, NULL);
  g_autofree char *old = g_strconcat(current, QV_KEY_PREVIOUS_SUFFIX, NULL);
  gboolean ok = add_file(ring, next, TRUE, error) && add_file(ring, old, TRUE, error);
  for (guint i = 0; ok && previous != NULL && previous[i] != NULL; i++)
    ok = add_file(ring, previous[i], FALSE, error);
  return ok ? g_steal_pointer(&ring) : NULL;
}

QvKeyring *qv_key_files_read(const char *current, const char *const *previous, GError **error)
{
  for (guint tries = 0;; tries++) {
    g_autofree char *before = qv_key_files_stamp(current, previous);
    g_autoptr(QvKeyring) ring = read_once(current, previous, error);
    g_autofree char *after = qv_key_files_stamp(current, previous);
    /* Renamed under our eyes: of three files each could have been missed. */
    if (ring == NULL || tries == 10 || strcmp(before, after) == 0)
      return g_steal_pointer(&ring);
  }
}

QvKey *qv_key_file_create(const char *path, GError **error)
{
  g_autoptr(QvSecret) bytes = qv_secret_new(QV_KEY_BYTES_MIN);
  qv_random_bytes(qv_secret_bytes_mut(bytes), QV_KEY_BYTES_MIN);
  g_autoptr(QvKey) key = qv_key_new(qv_secret_bytes(bytes), qv_secret_len(bytes));
  g_autoptr(QvSecret) text = qv_key_format(key);
  QV_AUTOFD int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    qv_error_set_errno(error, errno, "key file %s", path);
    return NULL;
  }
  gboolean ok = qv_fd_write_all(fd, path, qv_secret_bytes(text), qv_secret_len(text), error);
  if (ok && fsync(fd) != 0)
    ok = qv_error_set_errno(error, errno, "key file %s", path);
  if (!ok) {
    unlink(path);
    return NULL;
  }
  return g_steal_pointer(&key);
}

/* ── Rotation ── */

QvKey *qv_key_rotate_prepare(const char *current, gboolean *made, GError **error)
{
  g_autofree char *next = g_strconcat(current, QV_KEY_NEXT_SUFFIX, NULL);
  g_autoptr(QvKey) old = qv_key_file_read(current, error);
  if (old == NULL)
    return NULL;
  *made = !g_file_test(next, G_FILE_TEST_EXISTS);
  if (!*made)
    return qv_key_file_read(next, error);
  /* Who may read the current one may read the next. */
  struct stat st;
  g_autofree char *unfinished = g_strconcat(next, ".new", NULL);
  unlink(unfinished);
  g_autoptr(QvKey) key = qv_key_file_create(unfinished, error);
  if (key == NULL)
    return NULL;
  if (stat(current, &st) != 0 || chown(unfinished, st.st_uid, st.st_gid) != 0 || chmod(unfinished, st.st_mode & 0640) != 0 ||
      link(unfinished, next) != 0 || unlink(unfinished) != 0) {
    qv_error_set_errno(error, errno, "key file %s", next);
    unlink(unfinished);
    return NULL;
  }
  return g_steal_pointer(&key);
}

gboolean qv_key_rotate_switch(const char *current, GError **error)
{
  g_autofree char *next = g_strconcat(current, QV_KEY_NEXT_SUFFIX, NULL);
  g_autofree char *previous = g_strconcat(current, QV_KEY_PREVIOUS_SUFFIX, NULL);
  g_autofree char *dir = g_path_get_dirname(current);
  if (g_file_test(previous, G_FILE_TEST_EXISTS)) {
    g_set_error(error, QV_ERROR, QV_ERROR_POLICY, "%s is there: finish the rotation before this one first", previous);
    return FALSE;
  }
  if (link(current, previous) != 0)
    return qv_error_set_errno(error, errno, "key file %s", previous);
  if (rename(next, current) != 0) {
    int err = errno;
    unlink(previous);
    return qv_error_set_errno(error, err, "key file %s", next);
  }
  QV_AUTOFD int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir_fd >= 0)
    fsync(dir_fd);
  return TRUE;
}

gboolean qv_key_rotate_finish(const char *current, GError **error)
{
  g_autofree char *previous = g_strconcat(current, QV_KEY_PREVIOUS_SUFFIX, NULL);
  if (unlink(previous) == 0)
    return TRUE;
  return qv_error_set_errno(error, errno, "key file %s", previous);
}

gint64 qv_key_rotate_switched_at(const char *current)
{
  struct stat st;
  g_autofree char *previous = g_strconcat(current, QV_KEY_PREVIOUS_SUFFIX, NULL);
  /* Its inode was changed last when the old name of it went. */
  return stat(previous, &st) == 0 ? (gint64)st.st_ctim.tv_sec * 1000 : -1;
}
