/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the shared buffer and the shared pipe, which is empty between two calls. */
#include "egress/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int pipe_fds[2] = {-1, -1};
static gsize pipe_bytes; /* 0: not made, or of no use */

gboolean qv_side_is_near(int fd, guint32 rtt_us)
{
  struct tcp_info info = {0};
  socklen_t n = sizeof info;
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0 && info.tcpi_rtt > 0 && info.tcpi_rtt <= rtt_us;
}

void qv_side_bound(int fd)
{
  const int half = QV_SIDE_KERNEL_BYTES_MAX / 2; /* the kernel doubles it */
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &half, sizeof half);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &half, sizeof half);
}

void qv_way_clear(QvWay *way)
{
  g_clear_pointer(&way->held, g_free);
  way->from = way->to = 0;
}

/* Writes what it can of N bytes: their number, or -1 where the side is broken. */
static gssize put(QvSide *out, const char *bytes, gsize n, guint64 *moved)
{
  gssize done = send(out->fd, bytes, n, MSG_NOSIGNAL);
  if (done < 0 && errno != EAGAIN && errno != EINTR)
    return -1;
  done = MAX(done, 0);
  *moved += (guint64)done;
  if ((gsize)done < n)
    out->writable = FALSE;
  return done;
}

/* What was held before. FALSE: broken. */
static gboolean drain(QvWay *way, QvSide *out, guint64 *moved)
{
  gssize done = put(out, way->held + way->from, way->to - way->from, moved);
  if (done < 0)
    return FALSE;
  way->from += (guint)done;
  if (way->from == way->to)
    qv_way_clear(way);
  return TRUE;
}

/* A read that brought nothing: FALSE where the side is broken. */
static gboolean nothing(QvWay *way, QvSide *in, gssize n)
{
  way->ended = n == 0;
  way->bulk = FALSE;
  in->readable = n == 0 || errno == EINTR;
  return n == 0 || errno == EAGAIN || errno == EINTR;
}

/* One read and its write. FALSE: broken. */
static gboolean copy(QvWay *way, QvSide *in, QvSide *out, guint64 *moved)
{
  static char bytes[QV_WAY_HELD_BYTES_MAX];
  gssize n = recv(in->fd, bytes, sizeof bytes, 0);
  if (n <= 0)
    return nothing(way, in, n);
  way->bulk = n == sizeof bytes;
  gssize done = put(out, bytes, (gsize)n, moved);
  if (done < 0)
    return FALSE;
  if (done < n) {
    way->to = (guint)(n - done);
    way->held = g_malloc(way->to);
    memcpy(way->held, bytes + done, way->to);
  }
  return TRUE;
}

/* ---- much at once */

static gboolean has_pipe(void)
{
  static gboolean tried = FALSE;
  if (tried)
    return pipe_bytes > 0;
  tried = TRUE;
  if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0)
    return FALSE;
  int size = fcntl(pipe_fds[1], F_SETPIPE_SZ, QV_WAY_SHIFT_BYTES_MAX);
  pipe_bytes = size >= 4 * QV_WAY_HELD_BYTES_MAX ? (gsize)MIN(size, QV_WAY_SHIFT_BYTES_MAX) : 0;
  return pipe_bytes > 0;
}

/* What OUT takes for certain: the kernel counts more than the bytes. */
static gsize room(const QvSide *out)
{
  guint32 info[SK_MEMINFO_VARS] = {0};
  socklen_t n = sizeof info;
  if (getsockopt(out->fd, SOL_SOCKET, SO_MEMINFO, info, &n) != 0)
    return 0;
  guint32 used = MAX(info[SK_MEMINFO_WMEM_QUEUED], info[SK_MEMINFO_WMEM_ALLOC]);
  return info[SK_MEMINFO_SNDBUF] > used ? (info[SK_MEMINFO_SNDBUF] - used) / 4 * 3 : 0;
}

/* Empties the pipe of its N bytes, to TO. */
static void take_rest(char *to, gsize n)
{
  while (n > 0) {
    gssize got = read(pipe_fds[0], to, n);
    g_assert(got > 0 || errno == EINTR);
    to += MAX(got, 0);
    n -= (gsize)MAX(got, 0);
  }
}

/* As copy. */
static gboolean shift(QvWay *way, QvSide *in, QvSide *out, guint64 *moved)
{
  const guint how = SPLICE_F_MOVE | SPLICE_F_NONBLOCK;
  gboolean fine = TRUE;
  gssize n = splice(in->fd, NULL, pipe_fds[1], NULL, MIN(pipe_bytes, QV_WAY_HELD_BYTES_MAX + room(out)), how);
  if (n == 0) {
    way->bulk = FALSE; /* not in every case the end: recv says */
    return TRUE;
  }
  if (n < 0)
    return nothing(way, in, n);
  way->bulk = n >= QV_WAY_HELD_BYTES_MAX;
  gsize left = (gsize)n;
  while (left > 0 && fine && out->writable) {
    gssize done = splice(pipe_fds[0], NULL, out->fd, NULL, left, how);
    fine = done > 0 || errno == EAGAIN || errno == EINTR;
    out->writable = done > 0 || errno == EINTR;
    left -= (gsize)MAX(done, 0);
  }
  *moved += (guint64)n - left;
  if (left > 0) {
    way->to = (guint)left;
    way->held = g_malloc(left);
    take_rest(way->held, left);
  }
  return fine;
}

QvWayState qv_way_pump(QvWay *way, QvSide *in, QvSide *out, guint64 *moved)
{
  *moved = 0;
  while (out->writable && (way->held != NULL || (in->readable && !way->ended))) {
    if (*moved >= QV_WAY_TURN_BYTES)
      return QV_WAY_MORE;
    gboolean fine = way->held != NULL              ? drain(way, out, moved)
                    : way->bulk && has_pipe() ? shift(way, in, out, moved)
                                              : copy(way, in, out, moved);
    if (!fine)
      return QV_WAY_BROKEN;
  }
  way->done = way->ended && way->held == NULL;
  return QV_WAY_WAITS;
}
