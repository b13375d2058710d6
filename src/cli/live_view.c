/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/live_view.h"

static void to_stream(void *stream, const char *text, size_t n)
{
  fwrite(text, 1, n, stream);
}

void qv_live_view_init(QvLiveView *view, FILE *out, gboolean show, gboolean raw)
{
  *view = (QvLiveView){ .out = out, .show = show, .raw = raw };
  view->chunks = g_ptr_array_new_with_free_func((GDestroyNotify)g_bytes_unref);
  qv_text_printer_init(&view->printer, TRUE, to_stream, out);
}

void qv_live_view_clear(QvLiveView *view)
{
  g_clear_pointer(&view->chunks, g_ptr_array_unref);
}

void qv_live_view_add(const char *bytes, size_t n, int64_t chunk, void *data)
{
  QvLiveView *view = data;
  if (n == 0)
    return;
  view->gap |= chunk != view->next;
  view->next = chunk + 1;
  g_ptr_array_add(view->chunks, g_bytes_new(bytes, n)); /* 4 MiB in all: section 10 */
  if (!view->show)
    return;
  if (view->before != NULL)
    view->before(view->user);
  fflush(stderr);
  if (view->raw)
    fwrite(bytes, 1, n, view->out);
  else
    qv_text_printer_add(&view->printer, bytes, n);
  view->line_open = bytes[n - 1] != '\n';
  fflush(view->out);
}

void qv_live_view_end(QvLiveView *view)
{
  if (view->show && !view->raw)
    qv_text_printer_finish(&view->printer);
  fflush(view->out);
}

void qv_live_view_break(QvLiveView *view)
{
  if (view->line_open && view->show && !view->raw) {
    fputc('\n', view->out);
    fflush(view->out);
  }
  view->line_open = FALSE;
}

gboolean qv_live_view_empty(const QvLiveView *view)
{
  return view->chunks->len == 0;
}

gboolean qv_live_view_rest(const QvLiveView *view, QvLogTail *logs, gsize logs_n)
{
  for (gsize i = 0; i < logs_n; i++)
    logs[i].seen = 0;
  return !view->gap && qv_log_rest((GBytes *const *)view->chunks->pdata, view->chunks->len, logs, logs_n);
}
