/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the shared buffer. */
#include "egress/relay.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

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

/* One read and its write. FALSE: broken. */
static gboolean copy(QvWay *way, QvSide *in, QvSide *out, guint64 *moved)
{
  static char bytes[QV_WAY_HELD_BYTES_MAX];
  gssize n = recv(in->fd, bytes, sizeof bytes, 0);
  if (n <= 0) {
    way->ended = n == 0;
    in->readable = n == 0 || errno == EINTR;
    return n == 0 || errno == EAGAIN || errno == EINTR;
  }
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

QvWayState qv_way_pump(QvWay *way, QvSide *in, QvSide *out, guint64 *moved)
{
  *moved = 0;
  while (out->writable && (way->held != NULL || (in->readable && !way->ended))) {
    if (*moved >= QV_WAY_TURN_BYTES)
      return QV_WAY_MORE;
    if (way->held != NULL ? !drain(way, out, moved) : !copy(way, in, out, moved))
      return QV_WAY_BROKEN;
  }
  way->done = way->ended && way->held == NULL;
  return QV_WAY_WAITS;
}
