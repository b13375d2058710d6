/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the walks. Only single parts of a path are ever given to the kernel. */
#include "entry/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"

enum { PASSES_MAX = 16 };

/* Opens NAME where lstat says that it is of kind TYPE, and only if the opened thing is that
 * very one. */
static int open_checked(int dir_fd, const char *name, mode_t type, int flags, struct stat *info)
{
  struct stat seen, dir;
  if (fstatat(dir_fd, name, &seen, AT_SYMLINK_NOFOLLOW) != 0 || fstat(dir_fd, &dir) != 0)
    return -1;
  if ((seen.st_mode & S_IFMT) != type) {
    errno = S_ISLNK(seen.st_mode) ? ELOOP : type == S_IFDIR ? ENOTDIR : EINVAL;
    return -1;
  }
  if (seen.st_dev != dir.st_dev) {
    errno = EXDEV;
    return -1;
  }
  /* O_NONBLOCK: a FIFO that takes the file's place must not hang PID 1. */
  QV_AUTOFD int fd = openat(dir_fd, name, flags | O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, info) != 0)
    return -1;
  if (info->st_dev != seen.st_dev || info->st_ino != seen.st_ino || (info->st_mode & S_IFMT) != type) {
    errno = ELOOP;
    return -1;
  }
  return qv_io_steal(&fd);
}

int qv_entry_tree_open_folder(int dir_fd, const char *name)
{
  struct stat info;
  return open_checked(dir_fd, name, S_IFDIR, O_DIRECTORY, &info);
}

int qv_entry_tree_open_file(int dir_fd, const char *name, struct stat *info)
{
  return open_checked(dir_fd, name, S_IFREG, 0, info);
}

static bool is_dots(const char *name)
{
  return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

/* Depth is bounded by the longest path that a snapshot may have. */
static bool remove_below(int dir_fd, const char *name)
{
  int fd = qv_entry_tree_open_folder(dir_fd, name);
  DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
  if (!dir) {
    qv_io_close_cleanup(&fd);
    return false;
  }
  bool good;
  int passes = 0;
  do { /* a listing that was read while it shrank may have left something out */
    struct dirent *entry;
    good = true;
    rewinddir(dir);
    while (good && (entry = readdir(dir)))
      good = is_dots(entry->d_name) || qv_entry_tree_remove(dirfd(dir), entry->d_name);
    good = good && unlinkat(dir_fd, name, AT_REMOVEDIR) == 0;
  } while (!good && errno == ENOTEMPTY && ++passes < PASSES_MAX);
  int saved = errno;
  closedir(dir);
  errno = saved;
  return good;
}

bool qv_entry_tree_remove(int dir_fd, const char *name)
{
  if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
    return true;
  return (errno == EISDIR || errno == EPERM) && remove_below(dir_fd, name);
}

bool qv_entry_tree_set_mtime(int fd, int64_t mtime_s)
{
  const struct timespec times[2] = {{.tv_sec = mtime_s}, {.tv_sec = mtime_s}};
  return futimens(fd, times) == 0;
}

bool qv_entry_tree_delete(int dir_fd, const char *path, int64_t mtime_s)
{
  QV_AUTOFD int parent = -1;
  for (;;) {
    char part[NAME_MAX + 1];
    size_t n = strcspn(path, "/");
    if (n == 0 || n > NAME_MAX) {
      errno = ENAMETOOLONG;
      return false;
    }
    memcpy(part, path, n);
    part[n] = '\0';
    int at = parent >= 0 ? parent : dir_fd;
    if (path[n] == '\0')
      return qv_entry_tree_remove(at, part) && qv_entry_tree_set_mtime(at, mtime_s);
    int next = qv_entry_tree_open_folder(at, part);
    if (next < 0)
      return errno == ENOENT || errno == ENOTDIR;
    qv_io_close_cleanup(&parent);
    parent = next;
    path += n + 1;
  }
}
