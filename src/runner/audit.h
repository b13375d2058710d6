/* SPDX-License-Identifier: Apache-2.0 */
/* The one line that every job leaves in the log, however it ended: the audit trail (docs/LOGGING.md). Pure but for the log. */
#pragma once

#include <glib.h>

#include "protocol/admission.h"
#include "protocol/result.h"
#include "runner/setup.h"

#define QV_AUDIT_MESSAGE "job ends"

/* What is known; all borrowed. */
typedef struct {
  const char *job_id;
  const QvAdmission *admission;
  const char *pool;
  const char *runner_id;
  const char *backend;
  const char *status;
  const char *code;          /* or NULL */
  gint64 added_at;           /* Unix ms; 0: not known, as all times here */
  gint64 taken_at;
  gint64 started_at;
  gint64 finished_at;
  gint64 wall_ms;            /* -1: it did not run */
  const QvHostReport *host;  /* or NULL */
  const QvEgressUsage *egress;
  gsize egress_n;
  gboolean has_egress;
} QvAudit;

void qv_audit_log(const QvAudit *audit);
/* The line in JSON, for tests. */
char *qv_audit_format(const QvAudit *audit);

/* A queue's wait as it can be told: -1 where it is not known. */
gint64 qv_audit_wait_ms(const QvAudit *audit);

/* The page's table: Markdown. */
char *qv_audit_table(void);
