/* SPDX-License-Identifier: Apache-2.0 */
/* One socket's life: connect, TLS, HELLO, then bytes out and replies in, then
 * lost. It never comes back: conn.c and subscriber.c open another one.
 *
 * States: connecting > handshake > hello > up > lost. In every state but `up` with
 * nothing awaited, QV_SILENCE_DEAD_MS without a sign of life (silence.h) end it; in
 * that one QV_SILENCE_ASK_MS call `idle`, whose owner sends a PING. */
#pragma once

#include "queue/address.h"
#include "queue/reply.h"

typedef struct QvLink QvLink;

typedef struct {
  void (*up)(QvLink *link, gpointer user);
  void (*reply)(QvLink *link, const QvReply *reply, gpointer user); /* borrowed */
  void (*idle)(QvLink *link, gpointer user);
  /* The last call. Codes: GONE, TIMEOUT, AUTH, PEER, FORMAT, SYSTEM. */
  void (*lost)(QvLink *link, const GError *why, gpointer user);
  gboolean (*is_message)(const QvReply *reply); /* one that nobody asked for; NULL: there are none */
} QvLinkEvents;

/* On the thread-default main context; no callback runs before this returns. Any callback may close the link, and may turn
 * the loop: what is written there goes out there, and the replies that follow come there. */
QvLink *qv_link_open(QvAddress *address, const char *client_name, const QvLinkEvents *events, gpointer user);
/* No callback runs after this. NULL is fine. */
void qv_link_close(QvLink *link);
gboolean qv_link_is_up(const QvLink *link);
/* Queues bytes (a reference is taken) that will be answered by replies_n replies; sent when the main loop turns. */
void qv_link_write(QvLink *link, GBytes *bytes, guint replies_n);
