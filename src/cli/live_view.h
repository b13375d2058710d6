/* SPDX-License-Identifier: Apache-2.0 */
/* A job's live logs on standard output, and afterwards the part of the final logs that was not among them. */
#pragma once

#include <glib.h>
#include <stdio.h>

#include "cli/log_rest.h"
#include "client/quavon.h"
#include "format/text.h"

typedef struct {
  FILE *out;
  gboolean show;     /* FALSE: only kept, for a job that ends without logs */
  gboolean raw;
  void (*before)(gpointer user); /* called before anything is printed: a progress line makes room. May be NULL */
  gpointer user;
  /* below: its own */
  QvTextPrinter printer;
  GPtrArray *chunks;
  gint64 next;       /* chunk */
  gboolean gap;      /* one was missing */
  gboolean line_open;
} QvLiveView;

void qv_live_view_init(QvLiveView *view, FILE *out, gboolean show, gboolean raw);
void qv_live_view_clear(QvLiveView *view);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(QvLiveView, qv_live_view_clear)

/* A QuavonLogFunction; data: the QvLiveView. Escapes what terminals obey, unless raw. */
void qv_live_view_add(const char *bytes, size_t n, int64_t chunk, void *view);

/* No more comes. A line may still be open: qv_live_view_break ends it. */
void qv_live_view_end(QvLiveView *view);
void qv_live_view_break(QvLiveView *view);

/* Anything at all? */
gboolean qv_live_view_empty(const QvLiveView *view);

/* qv_log_rest over what was shown. */
gboolean qv_live_view_rest(const QvLiveView *view, QvLogTail *logs, gsize logs_n);
