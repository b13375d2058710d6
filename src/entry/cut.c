/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the look at what was the way out. */
#include "entry/cut.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/canary.h"
#include "base/clock.h"

enum { LOOK_MS = 20 };

/* Says this error that the way is gone? A port that nobody listens at is reached all the same; a unix socket is not. What this end lacks,
 * a port, a descriptor, says nothing of the other. */
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
  case ETIMEDOUT:
    return true;
  default:
    return false;
  }
}

typedef enum { THERE, SILENT, GONE } Seen;

/* SILENT: not yet answered. */
static Seen ask(const struct sockaddr *to, socklen_t to_n, int *fd)
{
  *fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (*fd < 0 || connect(*fd, to, to_n) == 0)
    return THERE;
  if (errno == EINPROGRESS)
    return SILENT;
  return says_gone(errno, to->sa_family) ? GONE : THERE;
}

static Seen answer_of(int fd, int family)
{
  int error = 0;
  socklen_t n = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) == 0 && says_gone(error, family) ? GONE : THERE;
}

/* Of all that were asked; one answer will do. */
static Seen sum_up(const Seen *seen, nfds_t n)
{
  nfds_t gone = 0;
  for (nfds_t i = 0; i < n; i++) {
    if (seen[i] == THERE)
      return THERE;
    gone += seen[i] == GONE;
  }
  return gone == n ? GONE : SILENT;
}

static void await_answers(struct pollfd *looks, Seen *seen, nfds_t n, int family)
{
  int64_t until_ms = qv_clock_mono_ms() + QV_ENTRY_CUT_SILENT_MS;
  /* Who stood still until the time was over looks once more: the answer may lie there. */
  for (bool last = false; !last && sum_up(seen, n) == SILENT;) {
    int64_t left_ms = until_ms - qv_clock_mono_ms();
    int ready = poll(looks, n, left_ms > 0 ? (int)left_ms : 0);
    if (ready < 0 && errno == EINTR)
      continue;
    last = left_ms <= 0;
    for (nfds_t i = 0; i < n; i++) {
      if (ready < 0)
        seen[i] = THERE;
      if (ready <= 0 || looks[i].fd < 0 || looks[i].revents == 0)
        continue;
      seen[i] = answer_of(looks[i].fd, family);
      looks[i].fd = -1;
    }
  }
}

static Seen look_at(const struct sockaddr *to, socklen_t to_n)
{
  struct sockaddr_in canary;
  const struct sockaddr *addresses[2] = {to};
  struct pollfd looks[2];
  Seen seen[2];
  int fds[2];
  nfds_t n = 1;
  if (to->sa_family == AF_INET && to_n == sizeof canary) {
    memcpy(&canary, to, sizeof canary);
    canary.sin_port = htons(QV_EGRESS_CANARY_PORT);
    addresses[n++] = (const struct sockaddr *)&canary; /* of the same length */
  }
  for (nfds_t i = 0; i < n; i++) {
    seen[i] = ask(addresses[i], to_n, &fds[i]);
    looks[i] = (struct pollfd){.fd = seen[i] == SILENT ? fds[i] : -1, .events = POLLOUT};
  }
  await_answers(looks, seen, n, to->sa_family);
  for (nfds_t i = 0; i < n; i++)
    if (fds[i] >= 0)
      close(fds[i]);
  return sum_up(seen, n);
}

bool qv_entry_cut_await(const struct sockaddr *to, socklen_t to_n, int ms)
{
  const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
  int64_t until_ms = qv_clock_mono_ms() + ms;
  for (int silent = 0;;) {
    Seen seen = look_at(to, to_n);
    silent = seen == SILENT ? silent + 1 : 0;
    if (seen == GONE || silent == QV_ENTRY_CUT_SILENT_N)
      return true;
    if (seen == THERE) {
      if (qv_clock_mono_ms() >= until_ms)
        return false;
      nanosleep(&pause, NULL);
    }
  }
}
