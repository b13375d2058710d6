/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the pipes. Empty ones are kept for the next way, up to a number. */
#include "egress/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { KEPT_MAX = 64 };

struct QvPipe {
  int out, in; /* as pipe(2) gives them */
  QvPipe *next;
};

static QvPipe *kept;
static guint kept_n;

static QvPipe *take_pipe(void)
{
  int fds[2];
  QvPipe *pipe = kept;
  if (pipe != NULL) {
    kept = pipe->next;
    kept_n--;
    return pipe;
  }
  if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
    return NULL;
  /* Without it a pipe has 16 places for pieces, and a piece may be small. Not granted: slower. */
  (void)fcntl(fds[1], F_SETPIPE_SZ, 256 * 1024);
  pipe = g_new(QvPipe, 1);
  *pipe = (QvPipe){.out = fds[0], .in = fds[1]};
  return pipe;
}

static void close_pipe(QvPipe *pipe)
{
  close(pipe->out);
  close(pipe->in);
  g_free(pipe);
}

static void give_back(QvWay *way)
{
  QvPipe *pipe = g_steal_pointer(&way->pipe);
  if (pipe == NULL)
    return;
  if (way->held > 0 || kept_n == KEPT_MAX) {
    close_pipe(pipe);
    return;
  }
  pipe->next = kept;
  kept = pipe;
  kept_n++;
}

void qv_relay_trim(void)
{
  while (kept != NULL) {
    QvPipe *pipe = kept;
    kept = pipe->next;
    close_pipe(pipe);
  }
  kept_n = 0;
}

void qv_way_clear(QvWay *way)
{
  give_back(way);
  way->held = 0;
}

/* Into the pipe. FALSE: broken. */
static gboolean fill(QvWay *way, QvSide *in, gboolean *progress)
{
  if (way->pipe == NULL && (way->pipe = take_pipe()) == NULL)
    return FALSE;
  ssize_t n = splice(in->fd, NULL, way->pipe->in, NULL, QV_WAY_HELD_BYTES_MAX - way->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
  if (n > 0)
    way->held += (guint)n;
  else if (n == 0)
    way->ended = TRUE;
  else if (errno == EAGAIN && way->held == 0)
    in->readable = FALSE; /* with bytes in the pipe it may have been the pipe that was full */
  else if (errno != EAGAIN && errno != EINTR)
    return FALSE;
  *progress |= n > 0;
  return TRUE;
}

static gboolean drain(QvWay *way, QvSide *out, guint64 *moved, gboolean *progress)
{
  ssize_t n = splice(way->pipe->out, NULL, out->fd, NULL, way->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
  if (n > 0) {
    way->held -= (guint)n;
    *moved += (guint64)n;
    *progress = TRUE;
  } else if (n < 0 && errno == EAGAIN) {
    out->writable = FALSE;
  } else if (n == 0 || errno != EINTR) {
    return FALSE;
  }
  return TRUE;
}

QvWayState qv_way_pump(QvWay *way, QvSide *in, QvSide *out, guint64 *moved)
{
  gboolean progress = TRUE;
  *moved = 0;
  while (progress) {
    progress = FALSE;
    if (*moved >= QV_WAY_TURN_BYTES)
      return QV_WAY_MORE;
    if (!way->ended && in->readable && way->held < QV_WAY_HELD_BYTES_MAX && !fill(way, in, &progress))
      return QV_WAY_BROKEN;
    if (way->held > 0 && out->writable && !drain(way, out, moved, &progress))
      return QV_WAY_BROKEN;
  }
  if (way->held == 0)
    give_back(way);
  way->done = way->ended && way->held == 0;
  return QV_WAY_WAITS;
}
