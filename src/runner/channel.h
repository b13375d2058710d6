/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of ipc.h over a descriptor in the main loop: reads and writes as the other side
 * is ready, never blocks. */
#pragma once

#include <glib.h>

#include "runner/ipc.h"

typedef struct QvChannel QvChannel;

/* A frame came. Returning FALSE means that the payload makes no sense: the
 * channel closes with the error. May not free the channel. */
typedef gboolean (*QvChannelFrame)(QvIpcType type, const guint8 *payload, gsize n, gpointer data, GError **error);

/* Called once, last: end of stream (ERROR NULL) or a failure. May free the channel. */
typedef void (*QvChannelEnd)(const GError *error, gpointer data);

/* Owns FD from now on; SENDER is who speaks on the other side. */
QvChannel *qv_channel_new(int fd, unsigned sender, QvChannelFrame frame, QvChannelEnd end, gpointer data);
/* Frees at once, without a call of END; NULL is welcome. */
void qv_channel_free(QvChannel *channel);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvChannel, qv_channel_free)

/* Queues a frame whose payload is HEAD then BODY; either may be empty. BODY is
 * kept, not copied. After the end it has no effect. */
void qv_channel_send(QvChannel *channel, QvIpcType type, const void *head, gsize head_n, GBytes *body);
void qv_channel_send_u32(QvChannel *channel, QvIpcType type, guint32 value);

/* Bytes queued and not yet written. */
gsize qv_channel_queued_bytes(const QvChannel *channel);

/* Writes what is queued here and now, for a caller that will not come back to its loop for a while: waits at most MS for the
 * other side to take it, and what it does not take stays queued. Calls nobody. */
void qv_channel_push(QvChannel *channel, gint ms);

/* Calls DONE once all that is queued now was written; at once where nothing is. */
void qv_channel_flush(QvChannel *channel, void (*done)(gpointer data), gpointer data);
