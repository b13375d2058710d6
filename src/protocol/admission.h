/* SPDX-License-Identifier: Apache-2.0 */
/* The runner's checks (section 2.1) as two ordered tables of pure functions,
 * one before the replay guard (checks 1 to 5) and one after it (7). The guard
 * (6) and the cancel key (8) are the caller's: they need Valkey. */
#pragma once

#include <glib.h>

#include "protocol/images_lock.h"
#include "protocol/job.h"
#include "protocol/key.h"
#include "protocol/registries.h"

/* In the order of the checks. */
#define QV_REJECT_TABLE(X)                           \
  X(STALLED, "stalled")                              \
  X(UNSUPPORTED, "unsupported")                      \
  X(MALFORMED, "malformed")                          \
  X(UNKNOWN_KEY, "unknown_key")                      \
  X(BAD_SIGNATURE, "bad_signature")                  \
  X(WRONG_POOL, "wrong_pool")                        \
  X(JOB_ID_MISMATCH, "job_id_mismatch")              \
  X(EXPIRED, "expired")                              \
  X(NOT_AFTER_TOO_FAR, "not_after_too_far")          \
  X(REPLAYED, "replayed")                            \
  X(BACKEND_NOT_ALLOWED, "backend_not_allowed")      \
  X(UNKNOWN_IMAGE, "unknown_image")                  \
  X(LIMITS, "limits")                                \
  X(EGRESS_NOT_ALLOWED, "egress_not_allowed")

typedef enum {
  QV_REJECT_NONE = 0,
#define QV_REJECT_ENUM(name, code) QV_REJECT_##name,
  QV_REJECT_TABLE(QV_REJECT_ENUM)
#undef QV_REJECT_ENUM
} QvReject;

/* "malformed" and so on; "none". */
const char *qv_reject_code(QvReject reject);
/* BullMQ's failedReason: "stalled" or "rejected: <code>". */
const char *qv_reject_failed_reason(QvReject reject);

/* What BullMQ's job hash says, unsigned. */
typedef struct {
  const char *bullmq_id;
  gboolean has_defa;        /* deferred failure */
  gboolean has_unsupported; /* any of rjk, parent, parentKey, deid */
  const char *data;         /* or NULL where it was too long to be read */
  gsize data_n;
} QvAdmissionFields;

/* What the runner is. All borrowed. */
typedef struct {
  const QvKeyring *ring;
  const char *pool;
  const char *backend;
  const char *platform; /* linux/amd64, linux/arm64 */
  const QvImagesLock *images;
  const QvLimitsPolicy *limits;
  const QvRegistries *registries; /* NULL or empty: no egress */
} QvAdmissionPolicy;

/* What is known of a job once checks 1 to 5 have run. */
typedef struct {
  QvJob *job; /* NULL until signature and tables held */
  QvKey *key;
  char job_sha256[65];
  char *detail; /* why, for the log; NULL where nothing was wrong */
} QvAdmission;

void qv_admission_clear(QvAdmission *admission);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(QvAdmission, qv_admission_clear)

/* Checks 1 to 5. On STALLED, job and key are set where signature, tables, pool
 * and job id held: that runner sets the guard and UNLINKs the input chunks, and no
 * other rejection does. */
QvReject qv_admission_before_guard(const QvAdmissionFields *fields, const QvAdmissionPolicy *policy, gint64 now_ms,
                                   QvAdmission *admission);

/* Check 7, for a job that passed. Sets *IMAGE (borrowed from the lock) on NONE; DETAIL as in QvAdmission, free with
 * g_free. */
QvReject qv_admission_after_guard(const QvJob *job, const QvAdmissionPolicy *policy, const QvImage **image,
                                  char **detail);

/* PX of the guard, of the blobs: notAfter - now + 120 000, at least 1. */
gint64 qv_admission_guard_ttl_ms(const QvJob *job, gint64 now_ms);
