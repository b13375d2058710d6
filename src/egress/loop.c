/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the epoll descriptor and the events in hand. */
#include "egress/loop.h"

#include <errno.h>
#include <glib-unix.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

/* Who is not had in a slice waits until Valkey, timers and signals had their turn: what cuts a tunnel must not wait for
 * what the tunnels move. */
enum { BATCH = 256, SLICE_MS = 5 };

typedef struct {
  GSource source;
  QvLoop *loop;
  gpointer tag;
} LoopSource;

struct QvLoop {
  int fd;
  LoopSource *source;
  GQueue again;
  /* Those of the present turn that were not told yet: a watch that is closed meanwhile is taken out. */
  struct epoll_event events[BATCH];
  int at, n;
};

static gboolean prepare(GSource *source, int *timeout)
{
  QvLoop *loop = ((LoopSource *)source)->loop;
  *timeout = -1;
  return !g_queue_is_empty(&loop->again) || loop->at < loop->n;
}

static gboolean dispatch(GSource *source, GSourceFunc unused, gpointer data)
{
  QvLoop *loop = ((LoopSource *)source)->loop;
  /* Those that ask again in their turn wait for the next one. */
  gint64 until_ms = qv_clock_mono_ms() + SLICE_MS;
  for (guint turns = loop->again.length; turns > 0 && loop->again.length > 0 && qv_clock_mono_ms() < until_ms; turns--) {
    QvWatch *watch = g_queue_pop_head_link(&loop->again)->data;
    watch->waits = FALSE;
    watch->ready(watch, 0);
  }
  if (loop->at == loop->n) {
    loop->n = epoll_wait(loop->fd, loop->events, BATCH, 0);
    loop->at = MIN(loop->n, 0);
  }
  /* A slice of their own, so that neither kind keeps the other one waiting. */
  until_ms = qv_clock_mono_ms() + SLICE_MS;
  while (loop->at < loop->n && qv_clock_mono_ms() < until_ms) {
    struct epoll_event event = loop->events[loop->at++];
    QvWatch *watch = event.data.ptr;
    if (watch != NULL)
      watch->ready(watch, event.events);
  }
  return G_SOURCE_CONTINUE;
}

static gboolean check(GSource *source)
{
  LoopSource *self = (LoopSource *)source;
  return !g_queue_is_empty(&self->loop->again) || self->loop->at < self->loop->n ||
         g_source_query_unix_fd(source, self->tag) != 0;
}

QvLoop *qv_loop_new(GError **error)
{
  static GSourceFuncs functions = {.prepare = prepare, .check = check, .dispatch = dispatch};
  int fd = epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0) {
    qv_error_set_errno(error, errno, "epoll");
    return NULL;
  }
  QvLoop *loop = g_new0(QvLoop, 1);
  loop->fd = fd;
  loop->source = (LoopSource *)g_source_new(&functions, sizeof(LoopSource));
  loop->source->loop = loop;
  loop->source->tag = g_source_add_unix_fd(&loop->source->source, fd, G_IO_IN);
  g_source_attach(&loop->source->source, NULL);
  return loop;
}

void qv_loop_free(QvLoop *loop)
{
  if (loop == NULL)
    return;
  g_source_destroy(&loop->source->source);
  g_source_unref(&loop->source->source);
  close(loop->fd);
  g_free(loop);
}

gboolean qv_loop_add(QvLoop *loop, QvWatch *watch, GError **error)
{
  struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = watch};
  watch->again = (GList){.data = watch};
  watch->waits = FALSE;
  return epoll_ctl(loop->fd, EPOLL_CTL_ADD, watch->fd, &event) == 0 || qv_error_set_errno(error, errno, "epoll_ctl");
}

void qv_loop_close(QvLoop *loop, QvWatch *watch)
{
  if (watch->waits)
    g_queue_unlink(&loop->again, &watch->again);
  watch->waits = FALSE;
  for (int i = loop->at; i < loop->n; i++)
    if (loop->events[i].data.ptr == watch)
      loop->events[i].data.ptr = NULL;
  /* The close takes it out of epoll as well: nobody else holds it. A process that is started inherits nothing, and
   * starting one returns when that is so. */
  if (watch->fd >= 0)
    close(watch->fd);
  watch->fd = -1;
}

void qv_loop_again(QvLoop *loop, QvWatch *watch)
{
  if (watch->waits)
    return;
  watch->waits = TRUE;
  g_queue_push_tail_link(&loop->again, &watch->again);
}
