/* SPDX-License-Identifier: Apache-2.0 */
/* A BullMQ producer for the queue `sandbox` under a prefix: count, add, remove,
 * state and the wait for an end. Section 2 of protocol.md has the options. */
#pragma once

#include "queue/conn.h"

typedef enum { QV_ADD_ADDED, QV_ADD_DUPLICATE } QvAdd;

typedef enum {
  QV_JOB_UNKNOWN, /* no such job: never added, removed, or cleaned up */
  QV_JOB_WAITING, /* wait, prioritised, delayed or paused */
  QV_JOB_ACTIVE,
  QV_JOB_COMPLETED, /* text: the return value, a JSON text */
  QV_JOB_FAILED,    /* text: failedReason */
} QvJobState;

typedef void (*QvCountFunc)(gint64 count, const GError *error, gpointer user);
typedef void (*QvAddFunc)(QvAdd added, const GError *error, gpointer user);
/* removed: FALSE with no error: it is locked by a worker, or there is none. */
typedef void (*QvRemoveFunc)(gboolean removed, const GError *error, gpointer user);
/* text is borrowed; NULL for the first three states. Texts longer than text_max_bytes are a LIMIT error. */
typedef void (*QvJobStateFunc)(QvJobState state, const char *text, gsize len, const GError *error, gpointer user);

typedef struct QvProducer QvProducer;

/* conn is borrowed; what is on its way when the producer is freed still calls back. deadline_ms: of each call below; 0 for none. */
QvProducer *qv_producer_new(QvConn *conn, const char *prefix, gint64 deadline_ms);
void qv_producer_free(QvProducer *producer);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvProducer, qv_producer_free)

/* wait + prioritised + delayed (+ the `paused` list of 5.x), for queue_full. */
void qv_producer_count(QvProducer *producer, QvCountFunc func, gpointer user);
/* Adds job `id` named `name` with `data`, a JSON text, and the options of section 2. A second try after a lost reply
 * does not make two jobs and is not DUPLICATE. */
void qv_producer_add(QvProducer *producer, const char *id, const char *name, const char *data, gsize len,
                     gint64 now_ms, QvAddFunc func, gpointer user);
void qv_producer_remove(QvProducer *producer, const char *id, QvRemoveFunc func, gpointer user);
void qv_producer_state(QvProducer *producer, const char *id, gsize text_max_bytes, QvJobStateFunc func,
                       gpointer user);

/* Waiting. One waiter serves any number of jobs on one connection of its own (XREAD on the event stream, and a look at
 * the job itself at the start, after each reconnect and every few seconds, since events may be trimmed). */
typedef struct QvWaiter QvWaiter;
/* COMPLETED, FAILED or UNKNOWN (removed, or never there) end a wait: called once with those, and before that with
 * ACTIVE when the job was seen to start. error: AUTH, PEER, LIMIT; ends the wait. */
QvWaiter *qv_waiter_new(QvAddress *address, const char *prefix, gsize text_max_bytes);
void qv_waiter_free(QvWaiter *waiter);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvWaiter, qv_waiter_free)
void qv_waiter_add(QvWaiter *waiter, const char *id, QvJobStateFunc func, gpointer user);
/* progress texts (JSON) of a job that is waited for; func NULL: none. */
typedef void (*QvProgressFunc)(const char *json, gsize len, gpointer user);
void qv_waiter_set_progress(QvWaiter *waiter, const char *id, QvProgressFunc func, gpointer user);
/* The wait's callback will not be called (again). */
void qv_waiter_remove(QvWaiter *waiter, const char *id);
