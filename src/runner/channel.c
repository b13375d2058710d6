/* SPDX-License-Identifier: Apache-2.0 */
/* Owns one descriptor, its reader and its queue of outgoing bytes. */
#include "runner/channel.h"

#include <errno.h>
#include <glib-unix.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"

enum { READ_BYTES = 64 * 1024, READS_A_TURN = 8 };

struct QvChannel {
  int fd;
  QvIpcReader *reader;
  QvChannelFrame frame;
  QvChannelEnd end;
  gpointer data;
  guint in, out;      /* sources; 0: none */
  GQueue queue;       /* of GBytes */
  gsize head_taken;   /* bytes of the queue's head that are written */
  gsize queued_bytes;
  void (*flushed)(gpointer data);
  gpointer flushed_data;
  gboolean ended;
  gboolean *freed;    /* set while a callback runs */
};

static void drop_queue(QvChannel *channel)
{
  GBytes *bytes;
  while ((bytes = g_queue_pop_head(&channel->queue)) != NULL)
    g_bytes_unref(bytes);
  channel->queued_bytes = channel->head_taken = 0;
}

static void stop_sources(QvChannel *channel)
{
  g_clear_handle_id(&channel->in, g_source_remove);
  g_clear_handle_id(&channel->out, g_source_remove);
}

static void finish(QvChannel *channel, const GError *error)
{
  if (channel->ended)
    return;
  channel->ended = TRUE;
  stop_sources(channel);
  drop_queue(channel);
  channel->end(error, channel->data);
}

/* Hands out every whole frame: FALSE when the channel is gone or ended. */
static gboolean hand_out(QvChannel *channel)
{
  QvIpcType type;
  const guint8 *payload;
  gsize n;
  while (qv_ipc_reader_next(channel->reader, &type, &payload, &n)) {
    g_autoptr(GError) error = NULL;
    gboolean freed = FALSE;
    channel->freed = &freed;
    gboolean fine = channel->frame(type, payload, n, channel->data, &error);
    if (freed)
      return FALSE;
    channel->freed = NULL;
    if (channel->ended)
      return FALSE;
    if (!fine) {
      finish(channel, error);
      return FALSE;
    }
  }
  return TRUE;
}

static gboolean on_in(int fd, GIOCondition condition, gpointer data)
{
  QvChannel *channel = data;
  g_autoptr(GError) error = NULL;
  guint8 bytes[READ_BYTES];
  for (int turn = 0; turn < READS_A_TURN; turn++) {
    ssize_t n = read(fd, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0 && errno == EAGAIN)
      return G_SOURCE_CONTINUE;
    if (n < 0 && errno != ECONNRESET)
      qv_error_set_errno(&error, errno, "cannot read a frame");
    else if (n <= 0 && qv_ipc_reader_partial(channel->reader))
      g_set_error(&error, QV_ERROR, QV_ERROR_GONE, "the stream ends inside a frame");
    else if (n > 0)
      qv_ipc_reader_feed(channel->reader, bytes, n, &error);
    if (n <= 0 || error != NULL) {
      channel->in = 0;
      finish(channel, error);
      return G_SOURCE_REMOVE;
    }
    if (!hand_out(channel))
      return G_SOURCE_REMOVE;
  }
  return G_SOURCE_CONTINUE;
}

/* Writes until the other side is full or the queue is empty. */
static gboolean push(QvChannel *channel, GError **error)
{
  GBytes *head;
  while ((head = g_queue_peek_head(&channel->queue)) != NULL) {
    gsize n;
    const guint8 *bytes = g_bytes_get_data(head, &n);
    ssize_t written = write(channel->fd, bytes + channel->head_taken, n - channel->head_taken);
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0 && errno == EAGAIN)
      return TRUE;
    if (written < 0)
      return qv_error_set_errno(error, errno, "cannot write a frame");
    channel->head_taken += written;
    channel->queued_bytes -= written;
    if (channel->head_taken == n) {
      g_bytes_unref(g_queue_pop_head(&channel->queue));
      channel->head_taken = 0;
    }
  }
  return TRUE;
}

static void call_flushed(QvChannel *channel)
{
  if (channel->flushed == NULL || !g_queue_is_empty(&channel->queue))
    return;
  void (*done)(gpointer) = channel->flushed;
  channel->flushed = NULL;
  done(channel->flushed_data);
}

static gboolean on_out(int fd, GIOCondition condition, gpointer data)
{
  QvChannel *channel = data;
  g_autoptr(GError) error = NULL;
  if (!push(channel, &error)) {
    /* What the other side said before it went away still counts: the reading
     * side meets the end of the stream and says so. */
    channel->out = 0;
    drop_queue(channel);
    call_flushed(channel);
    return G_SOURCE_REMOVE;
  }
  if (!g_queue_is_empty(&channel->queue))
    return G_SOURCE_CONTINUE;
  channel->out = 0;
  call_flushed(channel);
  return G_SOURCE_REMOVE;
}

QvChannel *qv_channel_new(int fd, unsigned sender, QvChannelFrame frame, QvChannelEnd end, gpointer data)
{
  QvChannel *channel = g_new0(QvChannel, 1);
  channel->fd = fd;
  channel->reader = qv_ipc_reader_new(sender);
  channel->frame = frame;
  channel->end = end;
  channel->data = data;
  g_queue_init(&channel->queue);
  g_unix_set_fd_nonblocking(fd, TRUE, NULL);
  channel->in = g_unix_fd_add(fd, G_IO_IN | G_IO_HUP | G_IO_ERR, on_in, channel);
  return channel;
}

void qv_channel_free(QvChannel *channel)
{
  if (channel == NULL)
    return;
  if (channel->freed != NULL)
    *channel->freed = TRUE;
  stop_sources(channel);
  drop_queue(channel);
  qv_ipc_reader_free(channel->reader);
  close(channel->fd);
  g_free(channel);
}

typedef struct {
  guint8 *bytes;
  gsize n;
} Front;

static void wipe_front(gpointer data)
{
  Front *front = data;
  explicit_bzero(front->bytes, front->n);
  g_free(front->bytes);
  g_free(front);
}

void qv_channel_send(QvChannel *channel, QvIpcType type, const void *head, gsize head_n, GBytes *body)
{
  if (channel->ended)
    return;
  gsize body_n = body != NULL ? g_bytes_get_size(body) : 0;
  guint8 *front = g_malloc(QV_IPC_HEADER_BYTES + head_n);
  qv_ipc_header(type, head_n + body_n, front);
  if (head_n > 0)
    memcpy(front + QV_IPC_HEADER_BYTES, head, head_n);
  /* Heads are small, and one of them holds a job's keys: wiped when they were written. */
  Front *owned = g_new(Front, 1);
  *owned = (Front){front, QV_IPC_HEADER_BYTES + head_n};
  g_queue_push_tail(&channel->queue, g_bytes_new_with_free_func(front, owned->n, wipe_front, owned));
  if (body_n > 0)
    g_queue_push_tail(&channel->queue, g_bytes_ref(body));
  channel->queued_bytes += QV_IPC_HEADER_BYTES + head_n + body_n;
  if (channel->out == 0)
    channel->out = g_unix_fd_add(channel->fd, G_IO_OUT | G_IO_HUP | G_IO_ERR, on_out, channel);
}

void qv_channel_send_u32(QvChannel *channel, QvIpcType type, guint32 value)
{
  qv_channel_send(channel, type, &value, sizeof value, NULL);
}

gsize qv_channel_queued_bytes(const QvChannel *channel)
{
  return channel->queued_bytes;
}

void qv_channel_flush(QvChannel *channel, void (*done)(gpointer data), gpointer data)
{
  channel->flushed = done;
  channel->flushed_data = data;
  call_flushed(channel);
}

/* A failure is met again by the loop, which says so. */
void qv_channel_push(QvChannel *channel, gint ms)
{
  gint64 until_ms = qv_clock_mono_ms() + ms;
  while (!channel->ended && push(channel, NULL) && !g_queue_is_empty(&channel->queue)) {
    struct pollfd other = {.fd = channel->fd, .events = POLLOUT};
    gint64 left_ms = until_ms - qv_clock_mono_ms();
    if (left_ms <= 0 || (poll(&other, 1, (int)left_ms) < 0 && errno != EINTR))
      return;
  }
}
