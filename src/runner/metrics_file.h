/* SPDX-License-Identifier: Apache-2.0 */
/* The file of metrics (QUAVON_METRICS_FILE): replaced as a whole every 15 s, and within a second of a change; a reader never sees
 * a part of one. It goes when the runner ends in order; after a crash its quavon_written_time_seconds tells its age. */
#pragma once

#include "queue/conn.h"
#include "runner/metrics.h"

typedef struct QvMetricsFile QvMetricsFile;

/* Fills in all but `waiting` and `at_ms`. */
typedef void (*QvMetricsFill)(QvMetricsNow *now, gpointer user);

/* METRICS, CONN and PREFIX are borrowed. */
QvMetricsFile *qv_metrics_file_new(const char *path, const QvMetrics *metrics, QvConn *conn, const char *prefix,
                                   QvMetricsFill fill, gpointer user);
void qv_metrics_file_free(QvMetricsFile *file);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvMetricsFile, qv_metrics_file_free)

/* Something changed. NULL is fine. */
void qv_metrics_file_touch(QvMetricsFile *file);

/* Replaces PATH by TEXT, mode 0644. */
gboolean qv_metrics_file_write(const char *path, const char *text, GError **error);
