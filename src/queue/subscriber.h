/* SPDX-License-Identifier: Apache-2.0 */
/* Pub/sub on a connection of its own. Messages inform only: what was published
 * while the connection was away is lost, so `ready` is called after every
 * (re)subscription and its owner then looks at what the messages would have told. */
#pragma once

#include "queue/conn.h"

typedef struct QvSubscriber QvSubscriber;

typedef struct {
  /* text has len bytes and a NUL behind; borrowed. */
  void (*message)(const char *channel, const char *text, gsize len, gpointer user);
  /* All channels are subscribed. May be NULL. */
  void (*ready)(gpointer user);
  /* The connection was lost or refused, or a channel is forbidden (AUTH). May be NULL. */
  void (*failed)(const GError *why, gpointer user);
} QvSubscriberEvents;

/* channels: NULL-terminated, copied. */
QvSubscriber *qv_subscriber_new(QvAddress *address, const char *client_name, const char *const *channels,
                                const QvSubscriberEvents *events, gpointer user);
void qv_subscriber_free(QvSubscriber *subscriber);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvSubscriber, qv_subscriber_free)
