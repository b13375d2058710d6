/* SPDX-License-Identifier: Apache-2.0 */
/* One way of a tunnel: bytes from one socket to the other through a pipe, with
 * splice(2), so that they are never copied into this process. A way holds a
 * pipe only while bytes are in it: an idle tunnel has none. */
#pragma once

#include <glib.h>

enum {
  QV_WAY_HELD_BYTES_MAX = 128 * 1024, /* a way; two ways a tunnel */
  QV_WAY_TURN_BYTES = 256 * 1024,     /* then others have their turn */
};

typedef struct QvPipe QvPipe;

/* A socket's side as far as it is known: edges that were told and not yet used up. */
typedef struct {
  int fd;
  gboolean readable, writable;
  gboolean hung_up; /* its end, or worse, was told: a short read is not all then */
} QvSide;

typedef struct {
  QvPipe *pipe;
  guint held;     /* bytes in it */
  gboolean ended; /* the reading side has told its end */
  gboolean done;  /* and all that came before was written: the writing side may be told */
  gboolean shut;  /* it was */
} QvWay;

typedef enum {
  QV_WAY_WAITS, /* for a side */
  QV_WAY_MORE,  /* there is more to do, but it was enough for a turn */
  QV_WAY_BROKEN,
} QvWayState;

/* *MOVED: bytes that were written to OUT. */
QvWayState qv_way_pump(QvWay *way, QvSide *in, QvSide *out, guint64 *moved);
void qv_way_clear(QvWay *way);

/* Closes the pipes that are kept for later. */
void qv_relay_trim(void);
