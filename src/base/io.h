/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors with libc alone: whole reads and writes, and opening below a
 * folder without following a link. Errors are errno. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <unistd.h>

/* Closes *fd where it is not negative; errno stays. For QV_AUTOFD. */
void qv_io_close_cleanup(int *fd);

/* `QV_AUTOFD int fd = open(…);` is closed when it leaves its scope. */
#define QV_AUTOFD __attribute__((cleanup(qv_io_close_cleanup)))

/* The descriptor itself, and -1 in its place: hands ownership on. */
static inline int qv_io_steal(int *fd)
{
  int stolen = *fd;
  *fd = -1;
  return stolen;
}

/* Reads until N bytes are there or the stream ends: the number read, or -1
 * with errno. EINTR is retried. For a blocking descriptor. */
ssize_t qv_io_read_full(int fd, void *bytes, size_t n);

/* Writes all N bytes: true, or false with errno. EINTR is retried; on a
 * non-blocking descriptor EAGAIN waits for POLLOUT without a deadline. SIGPIPE
 * is the caller's to ignore. */
bool qv_io_write_full(int fd, const void *bytes, size_t n);

/* openat of a relative path, where no part may be a symbolic link, "." or
 * ".." and the path may not be absolute or empty (EINVAL); a link anywhere on
 * it is ELOOP. O_CLOEXEC is always set. Returns the descriptor or -1. */
int qv_io_open_beneath(int dir_fd, const char *path, int flags, mode_t mode);

/* Makes every missing folder of a relative path's parents below DIR_FD, under
 * the rules of qv_io_open_beneath, and opens the parent: the descriptor of the folder that holds
 * the last part, or -1. *NAME is set to the last part, inside PATH. */
int qv_io_make_parents(int dir_fd, const char *path, mode_t mode, const char **name);

bool qv_io_set_cloexec(int fd, bool on);
bool qv_io_set_nonblock(int fd, bool on);
