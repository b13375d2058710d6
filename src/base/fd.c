/* SPDX-License-Identifier: Apache-2.0 */
/* Owns file reads and writes with GError. */
#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

static const gsize first_read_bytes = 4096;

void qv_fd_open_standard(void)
{
  int fd;
  do
    fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO);
  qv_io_close_cleanup(&fd);
}

char *qv_fd_read_all(int fd, const char *name, gsize cap, gsize *n, GError **error)
{
  gsize room = MIN(cap, first_read_bytes) + 1;
  g_autofree char *bytes = g_malloc(room + 1);
  gsize done = 0;
  for (;;) {
    ssize_t got = qv_io_read_full(fd, bytes + done, room - done);
    if (got < 0) {
      qv_error_set_errno(error, errno, "reading %s", name);
      return NULL;
    }
    done += (gsize)got;
    if (done > cap) {
      g_set_error(error, QV_ERROR, QV_ERROR_LIMIT, "%s is longer than %" G_GSIZE_FORMAT " bytes", name, cap);
      return NULL;
    }
    if (done < room)
      break;
    room = MIN(cap, 2 * done) + 1;
    bytes = g_realloc(bytes, room + 1);
  }
  bytes[done] = '\0';
  *n = done;
  return g_steal_pointer(&bytes);
}

char *qv_fd_read_file(const char *path, gsize cap, gsize *n, GError **error)
{
  /* Non-blocking, so that a FIFO is refused instead of waited for. */
  QV_AUTOFD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct stat info;
  if (fd < 0 && errno == ENOENT) {
    g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND, "%s does not exist", path);
    return NULL;
  }
  if (fd < 0 || fstat(fd, &info) < 0) {
    qv_error_set_errno(error, errno, "opening %s", path);
    return NULL;
  }
  if (!S_ISREG(info.st_mode)) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "%s is not a regular file", path);
    return NULL;
  }
  return qv_fd_read_all(fd, path, cap, n, error);
}

gboolean qv_fd_write_all(int fd, const char *name, const void *bytes, gsize n, GError **error)
{
  return qv_io_write_full(fd, bytes, n) || qv_error_set_errno(error, errno, "writing %s", name);
}

gboolean qv_fd_write_file(const char *path, const void *bytes, gsize n, mode_t mode, GError **error)
{
  g_autofree char *temporary = g_strdup_printf("%s.XXXXXX", path);
  QV_AUTOFD int fd = g_mkstemp_full(temporary, O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0)
    return qv_error_set_errno(error, errno, "creating %s", temporary);
  if (!qv_io_write_full(fd, bytes, n) || fchmod(fd, mode) < 0 || fsync(fd) < 0 || rename(temporary, path) < 0) {
    int saved = errno;
    unlink(temporary);
    return qv_error_set_errno(error, saved, "writing %s", path);
  }
  return TRUE;
}

gboolean qv_fd_pipe(int pair[2], GError **error)
{
  return pipe2(pair, O_CLOEXEC) == 0 || qv_error_set_errno(error, errno, "pipe");
}

gboolean qv_fd_socketpair(int pair[2], GError **error)
{
  return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0 ||
         qv_error_set_errno(error, errno, "socketpair");
}

/* Room for one descriptor, aligned as a header. */
typedef union {
  struct cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
} Passed;

static void message_init(struct msghdr *message, struct iovec *byte, Passed *passed)
{
  memset(passed, 0, sizeof *passed);
  /* CMSG_SPACE would have room for a second one. */
  *message = (struct msghdr){.msg_iov = byte, .msg_iovlen = 1, .msg_control = passed, .msg_controllen = CMSG_LEN(sizeof(int))};
}

gboolean qv_fd_send(int socket, int fd, GError **error)
{
  Passed passed;
  struct msghdr message;
  struct iovec byte = {(char[]){'\0'}, 1};
  message_init(&message, &byte, &passed);
  passed.header.cmsg_level = SOL_SOCKET;
  passed.header.cmsg_type = SCM_RIGHTS;
  passed.header.cmsg_len = CMSG_LEN(sizeof fd);
  memcpy(CMSG_DATA(&passed.header), &fd, sizeof fd);
  ssize_t n;
  while ((n = sendmsg(socket, &message, MSG_NOSIGNAL)) < 0 && errno == EINTR)
    ;
  return n == 1 || qv_error_set_errno(error, errno, "handing over a descriptor");
}

int qv_fd_receive(int socket)
{
  Passed passed;
  struct msghdr message;
  char text;
  struct iovec byte = {&text, 1};
  message_init(&message, &byte, &passed);
  ssize_t n;
  while ((n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
    ;
  if (n < 0)
    return -1;
  QV_AUTOFD int fd = -1;
  if (message.msg_controllen >= CMSG_LEN(sizeof fd) && passed.header.cmsg_level == SOL_SOCKET &&
      passed.header.cmsg_type == SCM_RIGHTS && passed.header.cmsg_len == CMSG_LEN(sizeof fd))
    memcpy(&fd, CMSG_DATA(&passed.header), sizeof fd);
  gboolean cut = (message.msg_flags & MSG_CTRUNC) != 0;
  errno = cut ? EPROTO : ENODATA;
  return n == 1 && !cut ? qv_io_steal(&fd) : -1;
}

static int remove_below(int dir_fd, const char *name, dev_t device);

/* Empties an open folder; takes FD. Zero or an errno. */
static int empty_folder(int fd, dev_t device)
{
  DIR *folder = fdopendir(fd);
  if (folder == NULL) {
    int saved = errno;
    close(fd);
    return saved;
  }
  int failed = 0;
  struct dirent *entry;
  while (failed == 0 && (errno = 0, entry = readdir(folder)) != NULL) {
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
      failed = remove_below(dirfd(folder), entry->d_name, device);
  }
  if (failed == 0)
    failed = errno;
  closedir(folder);
  return failed;
}

static int remove_below(int dir_fd, const char *name, dev_t device)
{
  if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
    return 0;
  if (errno != EISDIR && errno != EPERM)
    return errno;
  int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat info;
  if (fd < 0)
    return errno == ENOENT ? 0 : errno;
  if (fstat(fd, &info) < 0 || (device != 0 && info.st_dev != device)) {
    close(fd);
    return EXDEV;
  }
  int failed = empty_folder(fd, info.st_dev);
  if (failed != 0)
    return failed;
  return unlinkat(dir_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : errno;
}

gboolean qv_fd_remove_tree(const char *path, GError **error)
{
  int failed = remove_below(AT_FDCWD, path, 0);
  return failed == 0 || qv_error_set_errno(error, failed, "removing %s", path);
}
