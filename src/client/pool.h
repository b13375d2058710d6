/* SPDX-License-Identifier: Apache-2.0 */
/* A pool as an operator sees it: its queue, jobs whose data one of our keys signed, and its runners' health records. For the CLI;
 * not a part of libquavon's interface. */
#pragma once

#include "client/session.h"
#include "protocol/health.h"
#include "queue/view.h"

typedef struct {
  char *runner_id;
  QvHealth *health; /* NULL: no record that counts */
  char *why;        /* then why not */
} QvPoolRunner;

typedef struct {
  QvQueueView *queue;
  GPtrArray *runners; /* of QvPoolRunner, by id */
  GHashTable *tickets; /* job id → QvTicket of the jobs of the view; those that are not ours are missing */
  gint64 at;          /* Unix ms */
} QvPoolView;

void qv_pool_view_free(QvPoolView *view);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvPoolView, qv_pool_view_free)

/* BEFORE (or NULL): an earlier view, whose tickets are taken over; job data never changes. Jobs that ended have none, unless
 * ENDED_TICKETS. */
QvPoolView *qv_pool_view(QuavonClient *client, guint waiting_max, guint ended_max, gboolean ended_tickets,
                         const QvPoolView *before, QuavonError **error);

/* Pauses or resumes. 0, or -1. */
int qv_pool_pause(QuavonClient *client, gboolean pause, QuavonError **error);

/* For programs before people's eyes: while Valkey is away, views fail at once instead of waiting for it. */
void qv_pool_hurry(QuavonClient *client);

/* The pool's name. */
const char *qv_pool_name(const QuavonClient *client);
