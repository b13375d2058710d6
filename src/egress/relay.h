/* SPDX-License-Identifier: Apache-2.0 */
/* One way of a tunnel: bytes from one socket to the other, through one buffer
 * that all tunnels share. What the writing side does not take at once is held on the heap, and nothing is read
 * before it is gone: an idle tunnel holds nothing, a blocked one QV_WAY_HELD_BYTES_MAX a way.
 *
 * What costs is not the copy but the call: each write wakes the reader behind it, each read the writer. So a way that fills
 * the buffer moves more at once, by splice(2) through one pipe that all tunnels share as well: no more than the writing side
 * says it has room for, beside what may be held. Measured (loopback, CPU time of the proxy a byte, 128 KiB copied = 1): 512 KiB copied 0.7,
 * 1 MiB spliced 0.55, 128 KiB spliced 0.95. Only where the kernel takes less than it said (no memory) is more held, until it is gone. */
#pragma once

#include <glib.h>

enum {
  QV_WAY_HELD_BYTES_MAX = 128 * 1024,   /* a way; two ways a tunnel */
  QV_WAY_SHIFT_BYTES_MAX = 1024 * 1024, /* at once; what a pipe of an ordinary user may hold */
  QV_WAY_TURN_BYTES = 512 * 1024,       /* then others have their turn */
};

/* A socket's side as far as it is known: edges that were told and not yet used up. */
typedef struct {
  int fd;
  gboolean readable, writable;
  gboolean hung_up; /* its end, or worse, was told: a short read is not all then */
} QvSide;

typedef struct {
  char *held;      /* what was read and not yet written */
  guint from, to;
  gboolean bulk;  /* the last read filled the buffer */
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
