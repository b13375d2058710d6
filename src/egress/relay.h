/* SPDX-License-Identifier: Apache-2.0 */
/* One way of a tunnel: bytes from one socket to the other, through one buffer
 * that all tunnels share. What the writing side does not take at once is held on the heap, and nothing is read
 * before it is gone: an idle tunnel holds nothing, a blocked one QV_WAY_HELD_BYTES_MAX a way.
 *
 * What costs is not the copy but the call: each write wakes the reader behind it, each read the writer. So a way that fills
 * the buffer moves more at once, by splice(2) through one pipe that all tunnels share as well: no more than the writing side
 * says it has room for, beside what may be held. Only where the kernel takes less than it said (no memory) is more held,
 * until it is gone.
 *
 * What lies in the kernel's own buffers counts too: it lets them grow to 32 MiB a socket, out of any cache, and by as much for a
 * client that stops reading. Between ends that are near each other that brings nothing, so theirs are bounded. */
#pragma once

#include <glib.h>

enum {
  QV_SIDE_KERNEL_BYTES_MAX = 512 * 1024, /* each way of a bounded socket, as the kernel counts */
  QV_SIDE_NEAR_US = 1000,                /* a round trip in which what is bounded so still moves 250 MB/s and more */
  QV_WAY_HELD_BYTES_MAX = 128 * 1024,   /* a way; two ways a tunnel */
  QV_WAY_SHIFT_BYTES_MAX = 512 * 1024,  /* at once; less than what a pipe of an ordinary user may hold */
  QV_WAY_TURN_BYTES = 512 * 1024,       /* then others have their turn */
};

/* A socket's side as far as it is known: edges that were told and not yet used up. */
typedef struct {
  int fd;
  gboolean readable, writable;
  gboolean hung_up; /* its end, or worse, was told: a short read is not all then */
} QvSide;

/* Is the other end of a connected TCP socket at most RTT_US away? FALSE too where the kernel does not know (0). */
gboolean qv_side_is_near(int fd, guint32 rtt_us);

/* Bounds what the kernel holds of a TCP socket, each way; of a listener: of the sockets that it will accept. Less where
 * the system's own limit (net.core.rmem_max, wmem_max) is less. */
void qv_side_bound(int fd);

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
