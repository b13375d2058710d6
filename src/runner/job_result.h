/* SPDX-License-Identifier: Apache-2.0 */
/* From how a run ended to the signed result, and the keys that a job process
 * gets. Pure: times and salts come in. */
#pragma once

#include "protocol/result.h"
#include "runner/run_state.h"
#include "runner/setup.h"

/* Derives the keys of JOB's blobs from the pool key; the caller wipes them. */
void qv_job_keys_derive(const QvJob *job, const char *job_sha256, const QvKey *key,
                        const guint8 result_salt[QV_SALT_BYTES], QvJobKeys *keys);

typedef struct {
  const QvJob *job;
  const char *job_sha256;
  const QvKey *key;
  const char *runner_id;
  const char *backend;
  QvRunCause cause;
  const QvHostReport *host; /* NULL: the job process told nothing */
  GBytes *facts;            /* REPORT as unpack wrote it, or NULL: claims of a process that read hostile bytes */
  GBytes *usage;            /* the proxy's account of the token TOKEN_HASH, or NULL */
  const char *token_hash;
  const guint8 *result_salt;
  gint64 started_at;        /* Unix ms */
  gint64 finished_at;
  gint64 wall_ms;
} QvJobResult;

/* Cause and host together: the first thing that ended the run. */
QvRunEnd qv_job_result_end(QvRunCause cause, const QvHostReport *host);

/* REPORT as unpack wrote it, "<64 hex or -> LF <facts>": TREE is "" for "-". QV_ERROR_FORMAT, also for NULL. */
QvEntryFacts *qv_job_report_parse(GBytes *report, char tree[65], GError **error);

/* The envelope's text; never NULL: what cannot be signed as it is (facts that contradict the job) is
 * signed as bad_output without them. STATUS and CODE (NULL: none) are static texts for the log. */
char *qv_job_result_sign(const QvJobResult *in, gsize *n, const char **status, const char **code);
