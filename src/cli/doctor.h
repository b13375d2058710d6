/* SPDX-License-Identifier: Apache-2.0 */
/* `quavon doctor` (operations.md): each check adds findings to a list; the verb prints them.
 *
 *   doctor.c         the verb: order, text, JSON, exit status
 *   doctor_worker.c  QD950 and what Valkey says of itself
 *   doctor_runner.c  QD951 to QD958, from health records alone
 *   doctor_host.c    this host */
#pragma once

#include "base/config.h"
#include "client/session.h"
#include "protocol/images_lock.h"

/* A runner reads its keys and images again, in either way that it may be installed: a record does not tell which. */
#define QV_DOCTOR_RELOAD "systemctl reload quavon-sandbox-runner (Compose: docker kill -s HUP quavon-sandbox-runner-1)"

typedef enum { QV_DOCTOR_OK, QV_DOCTOR_WARN, QV_DOCTOR_FAIL } QvVerdict;

typedef struct {
  const char *code; /* of codes.def */
  QvVerdict verdict;
  char *runner_id;  /* or NULL: not of one runner */
  char *found;
  char *remedy;     /* NULL exactly where it is ok; one line */
} QvFinding;

GPtrArray *qv_findings_new(void);
/* The remedy is the code's own until qv_finding_remedy says a better one. */
void qv_finding_add(GPtrArray *findings, const char *code, QvVerdict verdict, const char *runner_id, const char *format,
                    ...) G_GNUC_PRINTF(5, 6);
/* Of the last one added, where that is not ok. */
void qv_finding_remedy(GPtrArray *findings, const char *format, ...) G_GNUC_PRINTF(2, 3);
QvVerdict qv_findings_worst(const GPtrArray *findings);

/* What runners are held against. */
typedef struct {
  const char *pool;
  const char *host_id;       /* of this host; NULL: unknown */
  gboolean enterprise, development;
  const QvImagesLock *lock;  /* of this host; NULL: there is none */
  const char *platform;      /* linux/amd64, linux/arm64 */
  gint64 now_ms;
} QvDoctorWorld;

/* SEEN: of QvRunnerSeen. */
void qv_doctor_runners(GPtrArray *findings, const GPtrArray *seen, const QvDoctorWorld *world);

/* The client, open, or NULL with the finding that says why. */
QuavonClient *qv_doctor_open(GPtrArray *findings, const QvConfig *config);
void qv_doctor_worker(GPtrArray *findings, QuavonClient *client);
/* RUNNING_MAX: jobs at once of all runners. */
void qv_doctor_valkey(GPtrArray *findings, QuavonClient *client, gint64 running_max);
/* From the text of INFO: for qv_doctor_valkey and its test. TRIP_MS: how long the answer took. */
void qv_doctor_valkey_info(GPtrArray *findings, const char *info, gint64 waiting, gint64 running_max, gint64 max_blob_mib,
                           gint64 now_ms, gint64 trip_ms);

void qv_doctor_host(GPtrArray *findings, const QvConfig *config);
/* Names of variables that must not be in a runner's environment. */
gboolean qv_doctor_is_secret_name(const char *name);

/* Asks every runner for a smoke test and waits until the records answer. FALSE: cancelled. */
gboolean qv_doctor_smoke(QuavonClient *client, GPtrArray *findings, gboolean quiet);
