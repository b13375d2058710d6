/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a job (section 2) as a value: parsed and held against every row
 * of the tables, or built for a producer. */
#pragma once

#include <glib.h>
#include <jansson.h>

#include "base/limits.h"
#include "protocol/blob.h"
#include "protocol/key.h"
#include "protocol/limits_policy.h"

typedef struct {
  char *name;
  char *value;
} QvStepEnv;

typedef struct {
  char *name;
  char **argv;       /* NULL at the end */
  char *cwd;         /* relative to the repository, or NULL */
  gint64 timeout_ms; /* 0: absent, the job's wallMs holds */
  QvStepEnv *env;    /* sorted by name */
  gsize env_n;
  gboolean continue_on_failure;
} QvStep;

typedef struct {
  char *name;
  char *digest; /* sha256:<64 hex> */
} QvImageRef;

typedef struct {
  char job_id[QV_JOB_ID_BYTES + 1];
  char *tenant_id;
  char *pool;
  char *kind;      /* scan, check */
  char **backends; /* 1 to 5 */
  QvImageRef image;
  QvBlobDescriptor base;
  QvBlobDescriptor *overlay; /* or NULL */
  char **deletes;            /* never NULL */
  QvStep *setup;             /* or NULL */
  char **egress;             /* name:port, never NULL */
  QvStep *run;
  gsize run_n;
  char **artefacts; /* globs, never NULL */
  QvLimits given;   /* as in the job; 0 where absent */
  QvLimits limits;  /* effective, by the reader's policy */
  gint64 issued_at; /* Unix ms */
  gint64 not_after;
} QvJob;

/* The five backend names of the contract. */
gboolean qv_backend_name_valid(const char *name);

/* Parses a body that was verified. QV_ERROR_FORMAT: malformed; the text names
 * the member by its path (run[2].argv). POLICY gives the defaults and the blob bound; ceilings are
 * admission's. */
QvJob *qv_job_parse(const json_t *body, const QvLimitsPolicy *policy, GError **error);

/* An empty job to fill in (members with g_new, g_strdup and so on), for producers. */
QvJob *qv_job_new(void);
void qv_job_free(QvJob *job);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvJob, qv_job_free)
void qv_step_clear(QvStep *step);

/* The body; limits from `given`. Never NULL. Free with json_decref. */
json_t *qv_job_build(const QvJob *job);

/* Builds, checks by the parser's own rules (QV_ERROR_FORMAT), signs: the job
 * data as BullMQ carries it. JOB_SHA256 may be NULL. */
char *qv_job_sign(const QvJob *job, const QvLimitsPolicy *policy, const QvKey *key, gsize *n, char job_sha256[65],
                  GError **error);

/* A step as the job and the entry request write it. */
json_t *qv_step_build(const QvStep *step);

/* The timeout that holds: the step's own or the job's wallMs. */
gint64 qv_job_step_timeout_ms(const QvJob *job, const QvStep *step);
