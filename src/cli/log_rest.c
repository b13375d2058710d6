/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/log_rest.h"

#include <string.h>

enum { WORK_BYTES_MAX = 64 * 1024 * 1024 }; /* of comparing: hostile logs may fit in very many ways */

typedef struct {
  GBytes *const *chunks;
  gsize chunks_n;
  QvLogTail *logs;
  gsize logs_n;
  gsize work;
  /* from[i][j]: where log i begins (a chunk, 1 + its number) if it ends before chunk j; 0: it cannot. */
  guint **from;
} Fit;

/* Do these bytes stand at this place of the log? Before its tail nobody can tell. */
static gboolean stands_at(Fit *fit, const QvLogTail *log, gint64 at, GBytes *chunk)
{
  gsize n = 0;
  const char *bytes = g_bytes_get_data(chunk, &n);
  gint64 tail = log->total_bytes - (gint64)log->n;
  if (tail < 0 || at + (gint64)n > log->total_bytes)
    return FALSE;
  gint64 skip = CLAMP(tail - at, 0, (gint64)n);
  fit->work += n + 64;
  return memcmp(bytes + skip, log->bytes + (at + skip - tail), n - (gsize)skip) == 0;
}

/* Log i may begin at chunk `start`: marks every chunk before which it may end. */
static void extend(Fit *fit, gsize i, gsize start)
{
  gint64 at = 0;
  for (gsize j = start;; j++) {
    /* A later start shows more again: it wins. */
    fit->from[i][j] = MAX(fit->from[i][j], (guint)start + 1);
    if (j == fit->chunks_n || fit->work > WORK_BYTES_MAX || !stands_at(fit, &fit->logs[i], at, fit->chunks[j]))
      return;
    at += (gint64)g_bytes_get_size(fit->chunks[j]);
  }
}

static void mark_seen(Fit *fit)
{
  gsize end = fit->chunks_n;
  for (gsize i = fit->logs_n; i > 0; i--) {
    QvLogTail *log = &fit->logs[i - 1];
    gsize start = fit->from[i - 1][end] - 1;
    gint64 shown = 0;
    for (gsize j = start; j < end; j++)
      shown += (gint64)g_bytes_get_size(fit->chunks[j]);
    log->seen = (gsize)MAX(shown - (log->total_bytes - (gint64)log->n), 0);
    end = start;
  }
}

gboolean qv_log_rest(GBytes *const *chunks, gsize chunks_n, QvLogTail *logs, gsize logs_n)
{
  Fit fit = { chunks, chunks_n, logs, logs_n, 0, g_new0(guint *, logs_n + 1) };
  for (gsize i = 0; i < logs_n; i++) {
    logs[i].seen = 0;
    fit.from[i] = g_new0(guint, chunks_n + 1);
    for (gsize start = 0; start <= chunks_n; start++) {
      if (i == 0 ? start == 0 : fit.from[i - 1][start] != 0)
        extend(&fit, i, start);
    }
  }
  gboolean fits = logs_n > 0 ? fit.work <= WORK_BYTES_MAX && fit.from[logs_n - 1][chunks_n] != 0 : chunks_n == 0;
  if (fits)
    mark_seen(&fit);
  for (gsize i = 0; i < logs_n; i++)
    g_free(fit.from[i]);
  g_free(fit.from);
  return fits;
}
