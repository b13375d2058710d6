/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the writing of artefacts. Their names come from hostile code: no part may be a link that is
 * there already, `..` or `.git` (a hook written into a repository runs with its
 * owner's rights later: format/tar's portable paths). Each file appears whole under its name, or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/random.h"
#include "client/api_error.h"
#include "client/path.h"
#include "client/payload.h"

static gboolean path_error(GError **error, int err, const char *path)
{
  g_autofree char *shown = qv_path_show(path);
  if (err == ELOOP)
    g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "%s: a symbolic link is in the way", shown);
  else
    qv_error_set_errno(error, err, "%s", shown);
  return FALSE;
}

/* Before anything is written: the name is good, and (unless files may be replaced) free. */
static gboolean check_target(int dir_fd, const char *path, gboolean replace, GError **error)
{
  if (!qv_path_check(path, TRUE, error))
    return FALSE;
  QV_AUTOFD int fd = qv_io_open_beneath(dir_fd, path, O_PATH, 0);
  struct stat st;
  if (fd < 0 && errno == ENOENT)
    return TRUE;
  g_autofree char *shown = qv_path_show(path);
  if (fd < 0)
    return path_error(error, errno, path);
  if (fstat(fd, &st) != 0 || S_ISDIR(st.st_mode) || !replace) {
    g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "%s exists%s", shown,
                S_ISDIR(st.st_mode) ? " and is a folder" : " (--force replaces it)");
    return FALSE;
  }
  return TRUE;
}

static gboolean write_file(int parent_fd, const char *name, const QvPayloadMember *member, gboolean replace,
                           GError **error)
{
  const char *path = member->path + strlen(QV_PAYLOAD_ARTEFACTS);
  guint32 tail = 0;
  qv_random_bytes(&tail, sizeof tail);
  g_autofree char *temporary = g_strdup_printf(".quavon-%08x", tail);
  int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  QV_AUTOFD int fd = openat(parent_fd, temporary, flags, member->executable ? 0777 : 0666);
  if (fd < 0)
    return path_error(error, errno, path);
  gboolean ok = qv_fd_write_all(fd, path, member->bytes->data, member->bytes->len, error);
  if (ok && renameat2(parent_fd, temporary, parent_fd, name, replace ? 0 : RENAME_NOREPLACE) != 0) {
    int err = errno;
    ok = FALSE;
    /* A file system without RENAME_NOREPLACE: link fails where the name is taken. */
    if (err == EINVAL && !replace) {
      ok = linkat(parent_fd, temporary, parent_fd, name, 0) == 0 && unlinkat(parent_fd, temporary, 0) == 0;
      err = errno;
    }
    if (!ok)
      path_error(error, err, path);
  }
  if (!ok)
    unlinkat(parent_fd, temporary, 0);
  return ok;
}

static gboolean save_member(int dir_fd, const QvPayloadMember *member, gboolean replace, GError **error)
{
  const char *path = member->path + strlen(QV_PAYLOAD_ARTEFACTS);
  const char *name = NULL;
  QV_AUTOFD int parent_fd = qv_io_make_parents(dir_fd, path, 0777, &name);
  if (parent_fd < 0)
    return path_error(error, errno, path);
  return write_file(parent_fd, name, member, replace, error);
}

gboolean qv_artefacts_save(const GPtrArray *members, const char *folder, gboolean replace, GError **error)
{
  QV_AUTOFD int dir_fd = -1;
  for (int pass = 0; pass < 2; pass++) {
    if (pass == 0 && g_mkdir_with_parents(folder, 0777) == 0)
      dir_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
      return qv_error_set_errno(error, errno, "%s", folder);
    for (guint i = 0; i < members->len; i++) {
      const QvPayloadMember *member = g_ptr_array_index(members, i);
      if (!g_str_has_prefix(member->path, QV_PAYLOAD_ARTEFACTS))
        continue;
      const char *path = member->path + strlen(QV_PAYLOAD_ARTEFACTS);
      if (pass == 0 ? !check_target(dir_fd, path, replace, error) : !save_member(dir_fd, member, replace, error)) {
        g_prefix_error(error, "%s: ", folder);
        return FALSE;
      }
    }
  }
  return TRUE;
}

int quavon_payload_save(const QuavonPayload *payload, const char *folder, int replace, QuavonError **error)
{
  GError *cause = NULL;
  if (qv_artefacts_save(payload->members, folder, replace != 0, &cause))
    return 0;
  qv_api_error_take(error, cause);
  return -1;
}
