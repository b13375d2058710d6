/* SPDX-License-Identifier: Apache-2.0 */
/* The attached stream of one container: a raw connection, upgraded from HTTP,
 * pumped between the engine and two sockets of ours.
 *
 *   stdin socket  ──────────────────────────────> engine
 *   stdout socket <── frames of kind 1 ── frames ── engine
 *   stderr callback <── frames of kind 2 ──┘
 *
 * Neither end is ever half-closed: the engine would take it for the end of both
 * (moby#38457), or pass it on to nobody (moby#36516). The protocol's lengths and
 * end marker decide. When the stdout socket is full, the engine is not read from:
 * stderr waits with it. */
#pragma once

#include <glib.h>

typedef struct QvAttach QvAttach;

typedef struct {
  /* The engine has upgraded the connection: the container may be started. */
  void (*ready)(gpointer data);
  /* Bytes of stderr. */
  void (*diagnostics)(const guint8 *bytes, gsize n, gpointer data);
  /* Exactly once: the stream is over, everything of it was handed on and the stdout socket is closed. ERROR NULL: at
   * the border of a frame. */
  void (*ended)(const GError *error, gpointer data);
} QvAttachEvents;

/* Connects to SOCKET and asks for container ID. STDIN_FD (read from) and STDOUT_FD (written to) are our ends of two
 * sockets, non-blocking, taken whatever happens. Events come from the thread's default context. */
QvAttach *qv_attach_new(const char *socket, const char *api, const char *id, int stdin_fd, int stdout_fd,
                        guint deadline_ms, const QvAttachEvents *events, gpointer data, GError **error);
/* Closes everything; no event comes any more. May be called from an event, where the free may not. NULL is fine. */
void qv_attach_stop(QvAttach *attach);
void qv_attach_free(QvAttach *attach);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvAttach, qv_attach_free)
