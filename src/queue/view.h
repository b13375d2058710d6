/* SPDX-License-Identifier: Apache-2.0 */
/* What people want to see of a pool's queue, and its pause. Read by an operator or a worker side; unsigned, all of it. */
#pragma once

#include "queue/conn.h"

typedef enum { QV_VIEW_WAITING, QV_VIEW_ACTIVE, QV_VIEW_COMPLETED, QV_VIEW_FAILED } QvViewState;

typedef struct {
  QvViewState state;
  char *id;             /* as the queue has it: anything */
  gint64 timestamp;     /* added; Unix ms, 0: not known */
  gint64 processed_on;
  gint64 finished_on;
  char *worker;         /* runner id as the runner gave it, or NULL */
  char *progress;       /* JSON, or NULL */
  char *failed_reason;  /* or NULL */
} QvViewJob;

typedef struct {
  gboolean paused;
  gint64 waiting, prioritised, delayed, active, completed, failed; /* all there are */
  GPtrArray *jobs; /* of QvViewJob: waiting in the order in which they are taken, active, then the newest ended ones */
} QvQueueView;

void qv_queue_view_free(QvQueueView *view);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvQueueView, qv_queue_view_free)

/* VIEW is the callback's; NULL with an error. */
typedef void (*QvQueueViewFunc)(QvQueueView *view, const GError *error, gpointer user);
/* At most waiting_max waiting jobs and ended_max of each kind of ended ones; up to 1000 active. */
void qv_queue_view(QvConn *conn, const char *prefix, guint waiting_max, guint ended_max, gint64 deadline_ms,
                   QvQueueViewFunc func, gpointer user);

/* Nothing is taken from a paused queue; what runs goes on. */
void qv_queue_pause(QvConn *conn, const char *prefix, gboolean pause, gint64 deadline_ms, QvDoneFunc func, gpointer user);
