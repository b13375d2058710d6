/* SPDX-License-Identifier: Apache-2.0 */
/* Thousands of sockets on one epoll descriptor, which is a single source of
 * GLib's main loop: Valkey, timers and signals stay GLib's, whose poll never sees a tunnel.
 *
 * Readiness is edge-triggered: an event is told once, so `ready` remembers it and works until EAGAIN, or asks for its
 * turn again (qv_loop_again) when it has worked enough for others to wait. */
#pragma once

#include <glib.h>

typedef struct QvLoop QvLoop;

typedef struct QvWatch {
  int fd; /* -1: none */
  void (*ready)(struct QvWatch *watch, guint32 events); /* of EPOLLIN, EPOLLOUT, …; 0 after qv_loop_again */
  GList again;
  gboolean waits; /* for its turn */
} QvWatch;

/* On the default main context. */
QvLoop *qv_loop_new(GError **error);
void qv_loop_free(QvLoop *loop);

/* Watches watch->fd for all that epoll tells, edge-triggered. */
gboolean qv_loop_add(QvLoop *loop, QvWatch *watch, GError **error);
/* Closes the descriptor; no event of it is told any more. */
void qv_loop_close(QvLoop *loop, QvWatch *watch);
/* `ready` is called with 0 before the loop waits again. */
void qv_loop_again(QvLoop *loop, QvWatch *watch);
