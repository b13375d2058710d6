/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the loops around read, write and openat. A path is opened by one openat2
 * where the kernel has it; gVisor's release has none, so else the path is walked,
 * one part at a time with O_NOFOLLOW. */
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

void qv_io_close_cleanup(int *fd)
{
  if (*fd < 0)
    return;
  int saved = errno;
  close(*fd);
  *fd = -1;
  errno = saved;
}

ssize_t qv_io_read_full(int fd, void *bytes, size_t n)
{
  size_t done = 0;
  while (done < n) {
    ssize_t got = read(fd, (char *)bytes + done, n - done);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return -1;
    if (got == 0)
      break;
    done += (size_t)got;
  }
  return (ssize_t)done;
}

bool qv_io_write_full(int fd, const void *bytes, size_t n)
{
  size_t done = 0;
  while (done < n) {
    ssize_t put = write(fd, (const char *)bytes + done, n - done);
    if (put >= 0) {
      done += (size_t)put;
    } else if (errno == EAGAIN) {
      struct pollfd ready = {.fd = fd, .events = POLLOUT};
      if (poll(&ready, 1, -1) < 0 && errno != EINTR)
        return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

/* The length of the first part of PATH, or 0 where it is not allowed. */
static size_t part_len(const char *path)
{
  size_t n = strcspn(path, "/");
  if (n > NAME_MAX || (n == 1 && path[0] == '.') || (n == 2 && path[0] == '.' && path[1] == '.'))
    return 0;
  return n;
}

static int open_folder(int dir_fd, const char *name)
{
  int fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat info;
  /* O_DIRECTORY answers ENOTDIR for a link; the caller is promised ELOOP. */
  if (fd < 0 && errno == ENOTDIR && fstatat(dir_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0)
    errno = S_ISLNK(info.st_mode) ? ELOOP : ENOTDIR;
  return fd;
}

/* Walks to the folder of the last part; MODE makes missing folders where MAKE
 * is set. */
static int open_parent(int dir_fd, const char *path, bool make, mode_t mode, const char **name)
{
  int fd = openat(dir_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
  while (fd >= 0) {
    size_t n = part_len(path);
    if (n == 0) {
      close(fd);
      errno = EINVAL;
      return -1;
    }
    if (path[n] == '\0') {
      *name = path;
      return fd;
    }
    char part[NAME_MAX + 1];
    memcpy(part, path, n);
    part[n] = '\0';
    int next = open_folder(fd, part);
    if (next < 0 && errno == ENOENT && make && (mkdirat(fd, part, mode) == 0 || errno == EEXIST))
      next = open_folder(fd, part);
    int saved = errno;
    close(fd);
    errno = saved;
    fd = next;
    path += n + 1;
  }
  return -1;
}

static bool parts_allowed(const char *path)
{
  for (;;) {
    size_t n = part_len(path);
    if (n == 0 || path[n] == '\0')
      return n > 0;
    path += n + 1;
  }
}

/* False where the walk has to decide: no such call here, or one that a filter refuses, or a path of more bytes than the
 * kernel takes at once, or it cannot say whether the way stayed beneath (EAGAIN, EXDEV: a folder on it was moved meanwhile). */
static bool open_at_once(int dir_fd, const char *path, int flags, mode_t mode, int *fd)
{
  struct open_how how = {
    .flags = (unsigned)flags | O_NOFOLLOW | O_CLOEXEC,
    .mode = flags & O_CREAT ? mode : 0,
    .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
  };
  static const int undecided[] = {ENOSYS, EPERM, ENAMETOOLONG, EINVAL, EAGAIN, EXDEV};
  *fd = (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof how);
  for (size_t i = 0; *fd < 0 && i < sizeof undecided / sizeof *undecided; i++) {
    if (errno == undecided[i])
      return false;
  }
  return true;
}

int qv_io_open_beneath(int dir_fd, const char *path, int flags, mode_t mode)
{
  const char *name;
  int fd;
  if (!(flags & O_DIRECTORY) && parts_allowed(path) && open_at_once(dir_fd, path, flags, mode, &fd))
    return fd;
  QV_AUTOFD int parent = open_parent(dir_fd, path, false, 0, &name);
  if (parent < 0)
    return -1;
  if (flags & O_DIRECTORY) {
    QV_AUTOFD int checked = open_folder(parent, name);
    if (checked < 0)
      return -1;
  }
  return openat(parent, name, flags | O_NOFOLLOW | O_CLOEXEC, mode);
}

int qv_io_make_parents(int dir_fd, const char *path, mode_t mode, const char **name)
{
  return open_parent(dir_fd, path, true, mode, name);
}

bool qv_io_set_cloexec(int fd, bool on)
{
  int flags = fcntl(fd, F_GETFD);
  return flags >= 0 && fcntl(fd, F_SETFD, on ? flags | FD_CLOEXEC : flags & ~FD_CLOEXEC) == 0;
}

bool qv_io_set_nonblock(int fd, bool on)
{
  int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) == 0;
}
