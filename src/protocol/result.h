/* SPDX-License-Identifier: Apache-2.0 */
/* Results (section 6): decided from the facts of a run, signed, and verified
 * by the worker. */
#pragma once

#include <glib.h>

#include "protocol/blob.h"
#include "protocol/job.h"
#include "protocol/key.h"
#include "protocol/record.h"

typedef enum {
  QV_STATUS_SUCCEEDED,
  QV_STATUS_FAILED,
  QV_STATUS_TIMED_OUT,
  QV_STATUS_CANCELLED,
  QV_STATUS_ERROR,
} QvStatus;

/* Code, text, the one status it belongs to. */
#define QV_CODE_TABLE(X)                              \
  X(SETUP_FAILED, "setup_failed", FAILED)             \
  X(STEP_FAILED, "step_failed", FAILED)               \
  X(MEMORY, "memory", FAILED)                         \
  X(PROCESSES, "processes", FAILED)                   \
  X(DISK, "disk", FAILED)                             \
  X(OUTPUT, "output", FAILED)                         \
  X(TIMEOUT, "timeout", TIMED_OUT)                    \
  X(WALL, "wall", TIMED_OUT)                          \
  X(CANCELLED, "cancelled", CANCELLED)                \
  X(BLOB_MISSING, "blob_missing", ERROR)              \
  X(BLOB_CORRUPT, "blob_corrupt", ERROR)              \
  X(SNAPSHOT_REFUSED, "snapshot_refused", ERROR)      \
  X(BAD_OUTPUT, "bad_output", ERROR)                  \
  X(IMAGE_FAILED, "image_failed", ERROR)              \
  X(SANDBOX_FAILED, "sandbox_failed", ERROR)          \
  X(SANDBOX_LOST, "sandbox_lost", ERROR)              \
  X(SHUTDOWN, "shutdown", ERROR)

typedef enum {
  QV_CODE_NONE = 0, /* succeeded */
#define QV_CODE_ENUM(name, text, status) QV_CODE_##name,
  QV_CODE_TABLE(QV_CODE_ENUM)
#undef QV_CODE_ENUM
} QvCode;

const char *qv_status_text(QvStatus status);
const char *qv_code_text(QvCode code); /* NULL for NONE */
QvStatus qv_code_status(QvCode code);

/* How a run ended, as the runner saw it: the first thing that ended it. */
typedef enum {
  QV_RUN_COMPLETE,       /* the two zero blocks: facts are there */
  QV_RUN_CANCELLED,
  QV_RUN_WALL,           /* the runner's own clock */
  QV_RUN_SHUTDOWN,
  QV_RUN_BLOB_MISSING,
  QV_RUN_BLOB_CORRUPT,
  QV_RUN_BAD_OUTPUT,
  QV_RUN_IMAGE_FAILED,
  QV_RUN_SANDBOX_FAILED, /* never started */
  QV_RUN_SANDBOX_LOST,   /* ended, or its stream did, before the two zero blocks */
  QV_RUN_OOM,            /* the runner killed it at the first OOM kill */
} QvRunEnd;

/* What the runner measured. */
typedef struct {
  QvRunEnd end;
  const QvEntryFacts *facts; /* set for COMPLETE only */
  gboolean oom;              /* the cgroup reported an OOM kill */
  gboolean pids;             /* pids.events rose */
} QvRunFacts;

/* The table of section 6. */
QvCode qv_result_decide(const QvJob *job, const QvRunFacts *run);

typedef struct {
  char *host;
  gint64 connections;
  gint64 bytes_up;
  gint64 bytes_down;
  gint64 refused;
} QvEgressUsage;

typedef struct {
  char job_id[QV_JOB_ID_BYTES + 1];
  char job_sha256[65];
  char *tenant_id;
  char *runner_id;
  char *pool;
  char *backend;
  QvImageRef image;
  QvStatus status;
  QvCode code;
  gint64 started_at; /* Unix ms */
  gint64 finished_at;
  QvEntryFacts facts; /* setup, steps, artefacts, artefactsDropped; empty where none were accepted */
  struct {
    gint64 user_ms;
    gint64 system_ms;
    gint64 max_memory_bytes;
    gint64 wall_ms;
    gboolean oom;
  } usage;
  QvEgressUsage *egress; /* NULL with has_egress FALSE: null */
  gsize egress_n;
  gboolean has_egress;
  QvBlobDescriptor *payload; /* or NULL */
} QvResult;

/* A result with what the job gives filled in: ids, digest, pool, image. */
QvResult *qv_result_new(const QvJob *job, const char *job_sha256, const char *runner_id, const char *backend);
void qv_result_free(QvResult *result);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvResult, qv_result_free)

/* Sets status and code (and usage.oom) and copies the facts; without a complete stream there are none, and a payload
 * that was set is dropped: its code was never checked. */
void qv_result_apply(QvResult *result, const QvJob *job, const QvRunFacts *run);

json_t *qv_result_build(const QvResult *result);
/* The return value as BullMQ carries it, checked by the reader's own rules. */
char *qv_result_sign(const QvResult *result, const QvJob *job, const QvKey *key, gsize *n, GError **error);

/* The worker's checks, all of them: strict form, signature under the job's key, jobId, jobSha256, tenantId, pool, image,
 * backend, and that the parts do not contradict each other or the job. Any error: bad_result. */
QvResult *qv_result_verify(const char *text, gsize n, const QvJob *job, const char *job_sha256, QvKey *key,
                           GError **error);
