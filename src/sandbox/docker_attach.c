/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the attach connection.
 *
 *   CONNECTING ──head of 101──> STREAMING ──end or error──> OVER
 *
 * Sources: one on the engine's descriptor (in, and out while stdin's bytes wait), one each on
 * the two sockets where they are waited for. */
#include "sandbox/docker_attach.h"

#include <errno.h>
#include <glib-unix.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "sandbox/docker_frames.h"

#define HEAD_BYTES_MAX 16384
#define BUFFER_BYTES 65536
/* Reads a turn, so that one stream does not keep the loop from everything else. */
#define TURNS 8

struct QvAttach {
  int fd;
  int stdin_fd, stdout_fd;
  gboolean streaming, over, end_seen;
  GString *out;            /* to the engine: the request, then stdin */
  gsize out_taken;
  GString *head;           /* of the answer */
  QvFrames frames;
  guint8 in[BUFFER_BYTES]; /* from the engine, not yet handed on */
  gsize in_from, in_to;
  GSource *engine_in, *engine_out, *guest_in, *guest_out, *deadline;
  QvAttachEvents events;
  gpointer data;
};

static void drop(GSource **source)
{
  if (*source == NULL)
    return;
  g_source_destroy(*source);
  g_source_unref(*source);
  *source = NULL;
}

typedef gboolean (*FdFunc)(gint fd, GIOCondition condition, gpointer data);

static void watch(QvAttach *attach, GSource **source, int fd, GIOCondition condition, FdFunc func)
{
  if (*source != NULL || fd < 0)
    return;
  g_autoptr(GMainContext) context = g_main_context_ref_thread_default();
  *source = g_unix_fd_source_new(fd, condition);
  g_source_set_callback(*source, (GSourceFunc)(void (*)(void))func, attach, NULL);
  g_source_attach(*source, context);
}

static void drop_all(QvAttach *attach)
{
  drop(&attach->engine_in);
  drop(&attach->engine_out);
  drop(&attach->guest_in);
  drop(&attach->guest_out);
  drop(&attach->deadline);
}

static void close_all(QvAttach *attach)
{
  qv_io_close_cleanup(&attach->fd);
  qv_io_close_cleanup(&attach->stdin_fd);
  qv_io_close_cleanup(&attach->stdout_fd);
}

static void end(QvAttach *attach, const GError *error)
{
  if (attach->over)
    return;
  attach->over = TRUE;
  drop_all(attach);
  close_all(attach);
  attach->events.ended(error, attach->data);
}

static void end_with(QvAttach *attach, QvError code, const char *text)
{
  g_autoptr(GError) error = g_error_new(QV_ERROR, code, "docker: the attached stream: %s", text);
  end(attach, error);
}

static gboolean on_engine_out(gint fd, GIOCondition condition, gpointer data);
static gboolean on_guest_in(gint fd, GIOCondition condition, gpointer data);
static gboolean on_guest_out(gint fd, GIOCondition condition, gpointer data);
static gboolean on_engine_in(gint fd, GIOCondition condition, gpointer data);

/* ---- towards the engine */

/* TRUE: all of it is written. */
static gboolean flush_out(QvAttach *attach)
{
  while (attach->out_taken < attach->out->len) {
    ssize_t n = send(attach->fd, attach->out->str + attach->out_taken, attach->out->len - attach->out_taken, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0 && errno == EAGAIN)
      return FALSE;
    if (n < 0) {
      /* The reading side says why, and has bytes that are still of interest. */
      attach->out_taken = attach->out->len;
      qv_io_close_cleanup(&attach->stdin_fd);
      drop(&attach->guest_in);
      return TRUE;
    }
    attach->out_taken += (gsize)n;
  }
  g_string_truncate(attach->out, 0);
  attach->out_taken = 0;
  return TRUE;
}

static void pump_out(QvAttach *attach)
{
  if (!flush_out(attach)) {
    drop(&attach->guest_in);
    watch(attach, &attach->engine_out, attach->fd, G_IO_OUT, on_engine_out);
    return;
  }
  drop(&attach->engine_out);
  if (attach->streaming)
    watch(attach, &attach->guest_in, attach->stdin_fd, G_IO_IN | G_IO_HUP | G_IO_ERR, on_guest_in);
}

static gboolean on_engine_out(gint fd, GIOCondition condition, gpointer data)
{
  QvAttach *attach = data;
  if (flush_out(attach)) {
    drop(&attach->engine_out);
    if (attach->streaming)
      pump_out(attach);
  }
  return G_SOURCE_CONTINUE; /* dropped where it is done */
}

static gboolean on_guest_in(gint fd, GIOCondition condition, gpointer data)
{
  QvAttach *attach = data;
  char bytes[BUFFER_BYTES];
  ssize_t n = read(attach->stdin_fd, bytes, sizeof bytes);
  if (n < 0 && (errno == EINTR || errno == EAGAIN))
    return G_SOURCE_CONTINUE;
  if (n <= 0) { /* nobody writes any more; the container's stdin stays open */
    qv_io_close_cleanup(&attach->stdin_fd);
    drop(&attach->guest_in);
    return G_SOURCE_CONTINUE;
  }
  g_string_append_len(attach->out, bytes, n);
  pump_out(attach);
  return G_SOURCE_CONTINUE;
}

/* ---- from the engine */

/* Hands SLICE to the stdout socket: the bytes that it took, or -1 where it is full. A reader that is gone
 * takes everything: the stream is read to its end all the same. */
static gssize give_stdout(QvAttach *attach, const guint8 *slice, gsize n)
{
  while (attach->stdout_fd >= 0) {
    ssize_t sent = send(attach->stdout_fd, slice, n, MSG_NOSIGNAL);
    if (sent >= 0)
      return sent;
    if (errno == EINTR)
      continue;
    if (errno == EAGAIN)
      return -1;
    qv_io_close_cleanup(&attach->stdout_fd);
    }
  return (gssize)n;
}

/* Hands on what is in the buffer. FALSE: it is over, or waits for the stdout socket. */
static gboolean hand_on(QvAttach *attach)
{
  while (attach->in_from < attach->in_to) {
    QvFrames before = attach->frames;
    QvFrameKind kind = QV_FRAME_STDOUT;
    gsize slice_n;
    g_autoptr(GError) error = NULL;
    const guint8 *bytes = attach->in + attach->in_from;
    gssize n = qv_frames_step(&attach->frames, bytes, attach->in_to - attach->in_from, &kind, &slice_n, &error);
    if (n < 0) {
      end(attach, error);
      return FALSE;
    }
    if (slice_n > 0 && kind == QV_FRAME_STDOUT) {
      gssize taken = give_stdout(attach, bytes, slice_n);
      if (taken < (gssize)slice_n) {
        attach->frames = before;
        attach->frames.left -= (guint64)MAX(taken, 0);
        attach->in_from += (gsize)MAX(taken, 0);
        drop(&attach->engine_in);
        watch(attach, &attach->guest_out, attach->stdout_fd, G_IO_OUT | G_IO_ERR | G_IO_HUP, on_guest_out);
        return FALSE;
      }
    } else if (slice_n > 0) {
      attach->events.diagnostics(bytes, slice_n, attach->data);
      if (attach->over)
        return FALSE;
    }
    attach->in_from += (gsize)n;
  }
  attach->in_from = attach->in_to = 0;
  return TRUE;
}

static void finish(QvAttach *attach)
{
  if (!attach->streaming)
    end_with(attach, QV_ERROR_GONE, "the connection was lost before it was ready");
  else if (!qv_frames_at_border(&attach->frames))
    end_with(attach, QV_ERROR_GONE, "it ends within a frame");
  else
    end(attach, NULL);
}

static gboolean on_guest_out(gint fd, GIOCondition condition, gpointer data)
{
  QvAttach *attach = data;
  drop(&attach->guest_out);
  if (!hand_on(attach))
    return G_SOURCE_CONTINUE;
  if (attach->end_seen)
    finish(attach);
  else
    watch(attach, &attach->engine_in, attach->fd, G_IO_IN | G_IO_HUP | G_IO_ERR, on_engine_in);
  return G_SOURCE_CONTINUE;
}

/* FALSE: not complete yet, or over. What is behind the head goes to the buffer. */
static gboolean read_head(QvAttach *attach)
{
  g_string_append_len(attach->head, (char *)attach->in + attach->in_from, (gssize)(attach->in_to - attach->in_from));
  attach->in_from = attach->in_to = 0;
  char *border = strstr(attach->head->str, "\r\n\r\n");
  if (border == NULL) {
    if (attach->head->len > HEAD_BYTES_MAX)
      end_with(attach, QV_ERROR_LIMIT, "the head of the answer is over its cap");
    return FALSE;
  }
  gsize head_n = (gsize)(border - attach->head->str) + 4;
  if (!g_str_has_prefix(attach->head->str, "HTTP/1.1 101 ") && !g_str_has_prefix(attach->head->str, "HTTP/1.1 200 ")) {
    g_autofree char *shown = g_strescape(attach->head->str, NULL);
    shown[MIN(strlen(shown), 400)] = '\0';
    end_with(attach, QV_ERROR_PEER, shown);
    return FALSE;
  }
  attach->in_to = attach->head->len - head_n;
  memcpy(attach->in, attach->head->str + head_n, attach->in_to);
  g_string_truncate(attach->head, 0);
  attach->streaming = TRUE;
  drop(&attach->deadline);
  pump_out(attach);
  attach->events.ready(attach->data);
  return !attach->over;
}

static gboolean on_engine_in(gint fd, GIOCondition condition, gpointer data)
{
  QvAttach *attach = data;
  for (guint turn = 0; turn < TURNS; turn++) {
    ssize_t n = recv(attach->fd, attach->in + attach->in_to, sizeof attach->in - attach->in_to, 0);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0 && errno == EAGAIN)
      return G_SOURCE_CONTINUE;
    if (n < 0) {
      end_with(attach, QV_ERROR_GONE, g_strerror(errno));
      return G_SOURCE_CONTINUE;
    }
    if (n == 0) {
      attach->end_seen = TRUE;
      finish(attach);
      return G_SOURCE_CONTINUE;
    }
    attach->in_to += (gsize)n;
    if ((!attach->streaming && !read_head(attach)) || attach->over) {
      if (attach->over)
        return G_SOURCE_CONTINUE;
      continue;
    }
    if (!hand_on(attach))
      return G_SOURCE_CONTINUE;
  }
  return G_SOURCE_CONTINUE;
}

static gboolean on_deadline(gpointer data)
{
  end_with(data, QV_ERROR_TIMEOUT, "the engine did not answer in time");
  return G_SOURCE_CONTINUE;
}

/* ---- making */

static int connect_to(const char *path, GError **error)
{
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  if (g_strlcpy(to.sun_path, path, sizeof to.sun_path) >= sizeof to.sun_path) {
    g_set_error(error, QV_ERROR, QV_ERROR_LIMIT, "docker: the socket's path %s is too long", path);
    return -1;
  }
  QV_AUTOFD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
    int err = errno;
    g_set_error(error, QV_ERROR, err == EACCES ? QV_ERROR_AUTH : QV_ERROR_GONE, "docker: %s: %s", path, g_strerror(err));
    return -1;
  }
  return qv_io_steal(&fd);
}

QvAttach *qv_attach_new(const char *socket, const char *api, const char *id, int stdin_fd, int stdout_fd,
                        guint deadline_ms, const QvAttachEvents *events, gpointer data, GError **error)
{
  QV_AUTOFD int in = stdin_fd;
  QV_AUTOFD int out = stdout_fd;
  QV_AUTOFD int fd = connect_to(socket, error);
  if (fd < 0)
    return NULL;
  QvAttach *attach = g_new0(QvAttach, 1);
  attach->fd = qv_io_steal(&fd);
  attach->stdin_fd = qv_io_steal(&in);
  attach->stdout_fd = qv_io_steal(&out);
  attach->events = *events;
  attach->data = data;
  attach->head = g_string_new(NULL);
  attach->out = g_string_new(NULL);
  g_string_append_printf(attach->out,
                         "POST /v%s/containers/%s/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\n"
                         "Host: localhost\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n", api, id);
  g_autoptr(GMainContext) context = g_main_context_ref_thread_default();
  attach->deadline = g_timeout_source_new(deadline_ms);
  g_source_set_callback(attach->deadline, on_deadline, attach, NULL);
  g_source_attach(attach->deadline, context);
  watch(attach, &attach->engine_in, attach->fd, G_IO_IN | G_IO_HUP | G_IO_ERR, on_engine_in);
  pump_out(attach);
  return attach;
}

void qv_attach_stop(QvAttach *attach)
{
  if (attach == NULL)
    return;
  attach->over = TRUE;
  drop_all(attach);
  close_all(attach);
}

void qv_attach_free(QvAttach *attach)
{
  if (attach == NULL)
    return;
  qv_attach_stop(attach);
  g_string_free(attach->out, TRUE);
  g_string_free(attach->head, TRUE);
  g_free(attach);
}
