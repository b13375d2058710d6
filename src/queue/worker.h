/* SPDX-License-Identifier: Apache-2.0 */
/* A BullMQ worker: takes jobs of the queue `sandbox` under a prefix, keeps their
 * locks, looks for stalled ones, finishes them.
 *
 * Connections: commands, the blocking read (BZPOPMIN on `marker`), and lock
 * renewal in a thread of its own with its own loop, which nothing on the
 * caller's main loop can hold up. All callbacks run on the caller's context.
 *
 * A job belongs to the worker. From `job` on the caller ends it with exactly one
 * of complete, fail, release and drop; the pointer is good until that call's
 * callback has returned (drop: until the call). A slot is free again then (a job
 * whose lock was lost still counts until its sandbox is gone), or later where it is held.
 *
 * maxStalledCount is 0: a stalled job comes back with deferred_failure set. It is
 * handed to the caller like any other, who must fail it and not run it. */
#pragma once

#include "queue/conn.h"

#define QV_WORKER_QUEUE "sandbox"

typedef struct QvWorker QvWorker;

typedef struct {
  char *id;
  char *name;            /* NULL when the hash has none */
  GBytes *data;          /* NULL when absent, or longer than data_max_bytes: see data_bytes */
  gint64 data_bytes;     /* HSTRLEN of data, read first */
  char *deferred_failure; /* `defa`, at most 1 KiB of it, or NULL */
  gboolean has_scheduler, has_parent, has_parent_key, has_dedup; /* rjk, parent, parentKey, deid exist */
  gint64 timestamp_ms;   /* as the producer wrote it; -1 when absent */
  gint64 processed_on_ms; /* our clock at the fetch */
  gint64 attempts_started, stalled_n;
  gpointer caller;       /* the caller's, NULL at first; never touched */
} QvFetchedJob;

typedef enum {
  QV_FINISH_DONE,    /* it is in completed or failed with our text (also when a first try whose reply was lost did it) */
  QV_FINISH_LOST,    /* the lock is another's or gone, or the job is not active: our outcome was not stored */
  QV_FINISH_REMOVED, /* the job was removed meanwhile */
} QvFinish;

/* error (then finish says nothing): AUTH or PEER the server refuses the script; CANCELLED the worker was freed. A lost
 * connection is no error here: it is tried until there is an answer. */
typedef void (*QvFinishFunc)(QvFinish finish, const GError *error, gpointer user);

typedef struct {
  /* A job was fetched and locked. */
  void (*job)(QvWorker *worker, QvFetchedJob *job, gpointer user);
  /* Its lock is lost, or could not be confirmed for the lock's whole life: kill the sandbox, then drop the job. Once a
   * job; never after complete, fail, release or drop. */
  void (*lock_lost)(QvWorker *worker, QvFetchedJob *job, const char *why, gpointer user);
  /* A renewal saw <prefix>:cancel:<id>. At every renewal, until the job ends. May be NULL. */
  void (*cancel_seen)(QvWorker *worker, QvFetchedJob *job, gpointer user);
  /* The command connection or a script failed or works again (why NULL). May be NULL. */
  void (*state)(QvWorker *worker, const GError *why, gpointer user);
} QvWorkerEvents;

typedef struct {
  QvAddress *address; /* a reference is taken */
  const char *prefix; /* "quavon-sandbox" */
  const char *name;   /* shown by Queue.getWorkers and stored in the job (pb); the runner id; may be NULL */
  guint concurrency;  /* at least 1 */
  gint64 lock_ms;     /* 1000 or more; renewed at a quarter of it, 5 s at most */
  gint64 stalled_ms;  /* 1000 or more */
  gsize data_max_bytes;
} QvWorkerOptions;

/* Connects, but fetches nothing before qv_worker_resume. The stall check and everything else runs from here on. */
QvWorker *qv_worker_new(const QvWorkerOptions *options, const QvWorkerEvents *events, gpointer user);
/* Ends without a word to the server about jobs in progress (they stall); pending QvFinishFuncs get CANCELLED. */
void qv_worker_free(QvWorker *worker);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvWorker, qv_worker_free)

/* Fetching off and on. A job that arrives in a reply on its way is given back to the queue (`release`). */
void qv_worker_pause(QvWorker *worker);
void qv_worker_resume(QvWorker *worker);
/* Pauses for good; func is called once, when no job and no fetch is left. */
void qv_worker_drain(QvWorker *worker, QvDoneFunc func, gpointer user);
/* How many jobs may be in progress; those above it end in peace. */
void qv_worker_set_concurrency(QvWorker *worker, guint concurrency);
/* Jobs handed to the caller and not ended. */
guint qv_worker_busy(const QvWorker *worker);
/* The last moment (monotonic ms) at which a fetch was answered, 0 for never: the health of the worker. */
gint64 qv_worker_fetched_at_ms(const QvWorker *worker);
/* Fair fetching. Of the jobs that wait, those of a tenant in SKIP are passed over; the next one is the first whose tenant is
 * not in SERVED (tenants that had a job lately, the latest last), else the first of the tenant that had one longest
 * ago. Both NULL-terminated, of texts without a newline, borrowed for the call. To be called whenever either
 * changes; until the first call jobs come in BullMQ's own order. */
void qv_worker_set_tenants(QvWorker *worker, const char *const *skip, const char *const *served);
/* The connection for commands, for the stores. Borrowed; lives as long as the worker. */
QvConn *qv_worker_conn(QvWorker *worker);

/* completed with value, one JSON text, kept or removed as the job's options say. func may be NULL. */
void qv_worker_complete(QvWorker *worker, QvFetchedJob *job, const char *value, gsize len, QvFinishFunc func,
                        gpointer user);
/* failed with reason, plain text. Final whatever `attempts` says. */
void qv_worker_fail(QvWorker *worker, QvFetchedJob *job, const char *reason, QvFinishFunc func, gpointer user);
/* KEYS (NULL-terminated) go with the end of the job, in the same step as complete or fail: nothing lies in between. */
void qv_worker_take_keys(QvWorker *worker, QvFetchedJob *job, char **take_keys);
/* Back to the head of the queue, unrun. TENANT: as far as the caller knows better than the job's text; may be NULL. */
void qv_worker_release(QvWorker *worker, QvFetchedJob *job, const char *tenant, QvFinishFunc func, gpointer user);
/* JOB's slot stays taken behind its end, until qv_worker_free_slot: no next job comes along with the end. Before complete
 * or fail, once. */
void qv_worker_hold_slot(QvWorker *worker, QvFetchedJob *job);
/* A slot that was held is free. JOB: NULL behind its end, the callback of which has begun. */
void qv_worker_free_slot(QvWorker *worker, QvFetchedJob *job);
/* Forget it and say nothing: for jobs whose lock is lost. */
void qv_worker_drop(QvWorker *worker, QvFetchedJob *job);
/* progress: one JSON text. Best effort, no answer. */
void qv_worker_progress(QvWorker *worker, QvFetchedJob *job, const char *json);
