/* SPDX-License-Identifier: Apache-2.0 */
/* What a runner counts, in Prometheus' text format (version 0.0.4). Pure: what it cannot count itself comes in as values. */
#pragma once

#include <glib.h>

#include "protocol/health.h"
#include "runner/audit.h"
#include "runner/problems.h"

typedef struct QvMetrics QvMetrics;

/* Texts are copied. */
QvMetrics *qv_metrics_new(const char *version, const char *pool, const char *runner_id, const char *backend,
                          gint64 started_at_ms);
void qv_metrics_free(QvMetrics *metrics);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvMetrics, qv_metrics_free)

/* A job has ended. */
void qv_metrics_job(QvMetrics *metrics, const QvAudit *audit);

typedef struct {
  gint64 at_ms;       /* Unix */
  gint64 running;
  gint64 concurrency;
  gint64 waiting;     /* in the pool's queue; -1: nobody knows */
  gboolean valkey;    /* it answers */
  gboolean fetching;  /* jobs are taken */
  const QvProblems *problems;
  const QvSmokeReport *smoke; /* NULL: none yet */
} QvMetricsNow;

/* The file's text. Free with g_free. */
char *qv_metrics_format(const QvMetrics *metrics, const QvMetricsNow *now);
