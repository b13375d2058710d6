/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the look at what was the way out. */
#include "entry/cut.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <time.h>

#include "base/clock.h"
#include "base/io.h"

enum { LOOK_MS = 20 };

/* Says this error that the way is gone? A port that nobody listens at is reached all the same; a unix socket is not. */
static bool says_gone(int error, int family)
{
  switch (error) {
  case ECONNREFUSED:
  case ENOENT:
    return family == AF_UNIX;
  case ENETUNREACH:
  case ENETDOWN:
  case EHOSTUNREACH:
  case EHOSTDOWN:
  case EADDRNOTAVAIL:
  case ETIMEDOUT:
    return true;
  default:
    return false;
  }
}

static bool is_gone(const struct sockaddr *to, socklen_t to_n)
{
  QV_AUTOFD int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0 || connect(fd, to, to_n) == 0)
    return false;
  if (errno != EINPROGRESS)
    return says_gone(errno, to->sa_family);
  struct pollfd look = {.fd = fd, .events = POLLOUT};
  int64_t until_ms = qv_clock_mono_ms() + QV_ENTRY_CUT_SILENT_MS;
  int ready, error = 0;
  do {
    int64_t left_ms = until_ms - qv_clock_mono_ms();
    ready = poll(&look, 1, left_ms > 0 ? (int)left_ms : 0);
  } while (ready < 0 && errno == EINTR);
  socklen_t n = sizeof error;
  if (ready <= 0)
    return ready == 0;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) == 0 && says_gone(error, to->sa_family);
}

bool qv_entry_cut_await(const struct sockaddr *to, socklen_t to_n, int ms)
{
  const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
  int64_t until_ms = qv_clock_mono_ms() + ms;
  while (!is_gone(to, to_n)) {
    if (qv_clock_mono_ms() >= until_ms)
      return false;
    nanosleep(&pause, NULL);
  }
  return true;
}
