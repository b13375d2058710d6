/* SPDX-License-Identifier: Apache-2.0 */
/* gunzip -> tar reader -> files. The folders of the current path stay open, outermost first: entries come
 * sorted, so each folder is opened once, and only single parts of a path are given to
 * the kernel. A folder's time is set when it is left, after its last change. */
#include "entry/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "entry/tree.h"
#include "format/members.h"
#include "format/tar.h"

enum {
  DEPTH_MAX = QV_PATH_BYTES_MAX / 2 + 1,
  CLOSING_MAX = 64,
};

typedef struct {
  int fd;
  size_t path_n; /* bytes of PATH that name it */
} Folder;

struct QvEntryUnpack {
  int root_fd;
  int64_t mtime_s;
  bool replace;
  QvEntryUnpackVerdict verdict;
  const char *why;
  QvMembers *gzip;
  QvTarReader reader;
  int file_fd;
  int closing_from, closing_n; /* files that are whole and still open: their numbers follow one another */
  size_t depth;
  Folder folders[DEPTH_MAX];
  char path[QV_PATH_BYTES_MAX + 1]; /* of the innermost open folder, each part with its slash */
};

QvEntryUnpack *qv_entry_unpack_new(int root_fd, int64_t mtime_s, bool replace)
{
  static const QvTarCaps caps = {.entries_max = QV_SNAPSHOT_ENTRIES_MAX,
                                 .total_bytes_max = QV_SNAPSHOT_BYTES_MAX,
                                 .file_bytes_max = QV_SNAPSHOT_FILE_BYTES_MAX};
  QvEntryUnpack *unpack = malloc(sizeof *unpack);
  if (!unpack)
    abort();
  memset(unpack, 0, sizeof *unpack);
  unpack->root_fd = root_fd;
  unpack->mtime_s = mtime_s;
  unpack->replace = replace;
  unpack->file_fd = -1;
  unpack->gzip = qv_members_new(QV_SNAPSHOT_BYTES_MAX);
  if (!unpack->gzip)
    abort();
  qv_tar_reader_init(&unpack->reader, &caps);
  return unpack;
}

static bool refuse(QvEntryUnpack *unpack, const char *why)
{
  if (unpack->verdict == QV_ENTRY_UNPACK_GOOD) {
    unpack->verdict = QV_ENTRY_UNPACK_REFUSED;
    unpack->why = why;
  }
  return false;
}

static bool fail_errno(QvEntryUnpack *unpack)
{
  int err = errno;
  refuse(unpack, strerror(err));
  if (err == ENOSPC || err == EDQUOT)
    unpack->verdict = QV_ENTRY_UNPACK_FULL;
  return false;
}

static int here(const QvEntryUnpack *unpack)
{
  return unpack->depth > 0 ? unpack->folders[unpack->depth - 1].fd : unpack->root_fd;
}

/* Leaves open folders until DEPTH are left. */
static bool leave_to(QvEntryUnpack *unpack, size_t depth)
{
  bool good = true;
  while (unpack->depth > depth) {
    Folder *folder = &unpack->folders[--unpack->depth];
    good = qv_entry_tree_set_mtime(folder->fd, unpack->mtime_s) && good;
    close(folder->fd);
  }
  return good || fail_errno(unpack);
}

static bool enter(QvEntryUnpack *unpack, const char *part, size_t path_n)
{
  int at = here(unpack);
  bool made = mkdirat(at, part, 0755) == 0;
  if (!made && errno != EEXIST)
    return fail_errno(unpack);
  /* What was made just now is what is opened: nobody else is here. What was there is looked at. */
  int fd = made ? openat(at, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : qv_entry_tree_open_folder(at, part);
  if (fd < 0)
    return errno == ENOTDIR ? refuse(unpack, "a folder where a file is") : fail_errno(unpack);
  unpack->folders[unpack->depth++] = (Folder){.fd = fd, .path_n = path_n};
  return true;
}

/* Makes the folder of PATH the innermost open one: its last part, or NULL. */
static const char *go_to(QvEntryUnpack *unpack, const char *path)
{
  size_t depth = 0, from = 0;
  while (depth < unpack->depth &&
         strncmp(path, unpack->path, unpack->folders[depth].path_n) == 0)
    from = unpack->folders[depth++].path_n;
  if (!leave_to(unpack, depth))
    return NULL;
  for (const char *slash; (slash = strchr(path + from, '/')); from = (size_t)(slash - path) + 1) {
    char part[QV_TAR_PART_BYTES_MAX + 1];
    size_t n = (size_t)(slash - path) - from;
    if (n > QV_TAR_PART_BYTES_MAX || unpack->depth == DEPTH_MAX) {
      refuse(unpack, "a path that is too long");
      return NULL;
    }
    memcpy(part, path + from, n);
    part[n] = '\0';
    if (!enter(unpack, part, from + n + 1))
      return NULL;
    memcpy(unpack->path + from, path + from, n + 1);
  }
  return path + from;
}

static bool open_file(QvEntryUnpack *unpack, const QvTarEntry *entry)
{
  const char *name = go_to(unpack, entry->path);
  if (!name)
    return false;
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const mode_t mode = entry->executable ? 0755 : 0644;
  int fd = openat(here(unpack), name, flags, mode);
  if (fd < 0 && errno == EEXIST && unpack->replace) {
    if (unlinkat(here(unpack), name, 0) != 0)
      return errno == EISDIR ? refuse(unpack, "a file where a folder is") : fail_errno(unpack);
    fd = openat(here(unpack), name, flags, mode);
  }
  if (fd < 0)
    return fail_errno(unpack);
  unpack->file_fd = fd;
  return true;
}

static void close_waiting(QvEntryUnpack *unpack)
{
  int from = unpack->closing_from, to = from + unpack->closing_n;
  unpack->closing_n = 0;
  if (to - from > 1 && close_range((unsigned)from, (unsigned)to - 1, 0) == 0)
    return;
  for (; from < to; from++)
    close(from);
}

/* A call into gVisor costs more than most of what it does: files are closed many at a time. */
static bool close_file(QvEntryUnpack *unpack)
{
  int fd = qv_io_steal(&unpack->file_fd);
  bool good = qv_entry_tree_set_mtime(fd, unpack->mtime_s) || fail_errno(unpack);
  if (unpack->closing_n == CLOSING_MAX || fd != unpack->closing_from + unpack->closing_n)
    close_waiting(unpack);
  if (unpack->closing_n == 0)
    unpack->closing_from = fd;
  unpack->closing_n++;
  return good;
}

/* The root and whatever is still open. */
static bool finish_folders(QvEntryUnpack *unpack)
{
  return leave_to(unpack, 0) &&
         (qv_entry_tree_set_mtime(unpack->root_fd, unpack->mtime_s) || fail_errno(unpack));
}

static bool untar(QvEntryUnpack *unpack, const uint8_t *bytes, size_t n)
{
  QvTarReader *reader = &unpack->reader;
  for (;;) {
    switch (qv_tar_reader_step(reader, &bytes, &n)) {
    case QV_TAR_MORE:
      return true;
    case QV_TAR_ENTRY:
      if (!open_file(unpack, &reader->entry))
        return false;
      break;
    case QV_TAR_DATA:
      if (!qv_io_write_full(unpack->file_fd, reader->data, reader->data_n))
        return fail_errno(unpack);
      break;
    case QV_TAR_ENTRY_END:
      if (!close_file(unpack))
        return false;
      break;
    case QV_TAR_END:
      break;
    case QV_TAR_BAD:
      return refuse(unpack, qv_tar_reason_text(reader->reason));
    }
  }
}

static void take(QvEntryUnpack *unpack, const char *bytes, size_t n, bool last)
{
  const uint8_t *from = (const uint8_t *)bytes, *inflated;
  QvGunzipStatus status = QV_GUNZIP_OUTPUT;
  while (unpack->verdict == QV_ENTRY_UNPACK_GOOD && status == QV_GUNZIP_OUTPUT) {
    size_t inflated_n;
    status = qv_members_step(unpack->gzip, &from, &n, last, &inflated, &inflated_n);
    if (status == QV_GUNZIP_BAD)
      refuse(unpack, qv_gzip_reason_text(qv_members_reason(unpack->gzip)));
    else
      untar(unpack, inflated, inflated_n);
  }
}

QvEntryUnpackVerdict qv_entry_unpack_feed(QvEntryUnpack *unpack, const char *bytes, size_t n)
{
  take(unpack, bytes, n, false);
  return unpack->verdict;
}

QvEntryUnpackVerdict qv_entry_unpack_end(QvEntryUnpack *unpack)
{
  take(unpack, "", 0, true);
  if (unpack->verdict != QV_ENTRY_UNPACK_GOOD)
    return unpack->verdict;
  QvGzipReason gzip = qv_members_finish(unpack->gzip);
  QvTarReason tar = qv_tar_reader_finish(&unpack->reader);
  if (gzip != QV_GZIP_OK)
    refuse(unpack, qv_gzip_reason_text(gzip));
  else if (tar != QV_TAR_OK)
    refuse(unpack, qv_tar_reason_text(tar));
  else
    finish_folders(unpack);
  return unpack->verdict;
}

const char *qv_entry_unpack_why(const QvEntryUnpack *unpack)
{
  return unpack->why ? unpack->why : "";
}

void qv_entry_unpack_free(QvEntryUnpack *unpack)
{
  if (!unpack)
    return;
  while (unpack->depth > 0)
    close(unpack->folders[--unpack->depth].fd);
  qv_io_close_cleanup(&unpack->file_fd);
  close_waiting(unpack);
  qv_members_free(unpack->gzip);
  qv_tar_reader_clear(&unpack->reader);
  free(unpack);
}
