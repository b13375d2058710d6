/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by worker.c (fetching, locks, stalls) and worker_finish.c (the end of a job). */
#pragma once

#include "queue/keep.h"
#include "queue/lock_keeper.h"
#include "queue/script.h"
#include "queue/timer.h"
#include "queue/worker.h"

typedef enum { JOB_HELD, JOB_LOST, JOB_ENDING } JobState;
typedef enum { END_COMPLETE, END_FAIL, END_RELEASE } JobEnd;

typedef struct {
  QvFetchedJob pub; /* first: the caller's pointer is ours */
  QvWorker *worker;
  JobState state;
  gboolean holds; /* its slot stays taken behind its end */
  char *token;
  QvJobOptions options;
  /* While ENDING: */
  JobEnd end;
  char *text;
  gsize text_len;
  char **keys; /* of ours, to be removed with the end; NULL: none */
  gboolean fetch_next, again;
  char *next_token;
  gint64 sent_us, pause_ms;
  guint order_n; /* the worker's when it was sent */
  QvTimer *retry; /* NULL before the first */
  QvFinishFunc func;
  gpointer user;
} Job;

#define QV_NUMBER_SIZE 24

/* What the one fetching loop is about. */
typedef enum {
  LOOP_READY,    /* a fetch may be sent as soon as a slot is free */
  LOOP_FETCHING, /* one is on its way */
  LOOP_BLOCKED,  /* nothing to do: BZPOPMIN is on its way */
  LOOP_RESTING,  /* rate limit or an error: the timer wakes it */
} Loop;

/* worker_wake.c */
typedef struct {
  char *marker;         /* the key that BZPOPMIN waits for */
  gboolean owed;        /* one was popped, and no look has been sent since */
  char *member, *score; /* that one */
  char *pass;           /* what the look on its way gives back if it passes over all that waits; "": nothing */
  char *passed;         /* what was given back last for a look of another's */
} Wake;

struct QvWorker {
  guint refs;
  gboolean freed;
  QvWorkerEvents events;
  gpointer user;
  char *queue; /* P */
  char *name;
  char *uuid;
  guint64 token_n;
  guint concurrency;
  gint64 lock_ms, stalled_ms;
  char lock_ms_text[QV_NUMBER_SIZE], data_max_text[QV_NUMBER_SIZE]; /* the same for every call */
  gsize data_max_bytes;
  QvConn *conn, *blocking;
  QvLockKeeper *keeper;
  GHashTable *jobs; /* token > Job */
  guint held; /* slots besides: of jobs that have ended */
  gboolean paused, draining;
  QvDoneFunc drained_func;
  gpointer drained_user;
  Loop loop;
  char *fetch_token;
  gboolean fetch_again;
  gint64 fetch_sent_us;
  char *order;        /* for take.lua; "" for BullMQ's own */
  guint order_n, fetch_order_n; /* changes of it; as of the fetch on its way, or the last look */
  guint64 blocked_id; /* BZPOPMIN is on its way, maybe beside a fetch */
  Wake wake;
  QvOptionsMemo memo;
  gint64 blocked_us;    /* since when */
  guint fruitless_n;    /* wake-ups in a row that came at once and brought nothing */
  gint64 next_due_ms;   /* of the first delayed job, -1: none known */
  gint64 fetched_at_ms; /* monotonic */
  gboolean troubled;    /* the last thing said through events.state was an error */
  QvTimer *rest, *stalled, *drained;
};

/* "<uuid>:<n>", never used twice. */
char *qv_worker_next_token(QvWorker *worker);
gint64 qv_worker_now_ms(void);
/* N in decimals, NUL-terminated; its length. (printf was a tenth of a small job's cost.) */
gsize qv_worker_number(char out[QV_NUMBER_SIZE], gint64 n);
/* False for what take.lua never answers. */
gboolean qv_worker_is_take(const QvReply *reply);
/* Looks at what a script answered from take (qv_worker_is_take): hands over a job, or remembers why there is none. order_n: as of the question. */
void qv_worker_took(QvWorker *worker, const QvReply *reply, const char *token, gint64 sent_us, guint order_n);
/* Slots that are not free; a fetch under way is not counted. */
guint qv_worker_taken(const QvWorker *worker);
/* Goes on with whatever the loop may do now. */
void qv_worker_pump(QvWorker *worker);
void qv_worker_say(QvWorker *worker, const GError *why);
/* Out of the table, and freed. */
void qv_worker_forget(QvWorker *worker, Job *job);
void qv_worker_ref(QvWorker *worker);
void qv_worker_unref(QvWorker *worker);

/* worker_wake.c */
void qv_wake_init(QvWorker *worker);
void qv_wake_clear(QvWorker *worker);
/* What BZPOPMIN answered. */
void qv_wake_note(QvWorker *worker, const QvReply *reply, const GError *error);
/* The connection is gone, or the time over: nobody knows what the server did. */
gboolean qv_wake_is_no_answer(const GError *error);
/* A look is about to be sent: plans what it passes on. */
void qv_wake_look(QvWorker *worker);
/* The look has been refused: what it popped is to be given back, once. */
void qv_wake_refused(QvWorker *worker);
/* No look follows: what was popped, if anything, is there again for others. */
void qv_wake_give_back(QvWorker *worker);
