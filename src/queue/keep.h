/* SPDX-License-Identifier: Apache-2.0 */
/* What a job's BullMQ options say about its end: removeOnComplete, removeOnFail,
 * attempts. Options are unsigned; what is not understood counts as absent. */
#pragma once

#include <glib.h>

typedef struct {
  gint64 count; /* how many of that state to keep; 0: not even this one; -1: all */
  gint64 age_s; /* -1: for ever */
  gint64 limit; /* how many may be removed at once */
} QvKeep;

typedef struct {
  QvKeep completed, failed;
  gint64 attempts; /* 0 when absent */
} QvJobOptions;

/* json may be NULL. */
void qv_job_options_parse(const char *json, gsize len, QvJobOptions *options);

/* Options of one producer's jobs differ in the job's id alone, and parsing them was a third of a small job's cost: what was parsed last
 * is remembered with the id cut out. All zero at first. */
typedef struct {
  char *rest; /* NULL: nothing */
  gsize rest_len, id_at;
  QvJobOptions options;
} QvOptionsMemo;

/* qv_job_options_parse of the options of job ID, faster where they are as the last ones. */
void qv_job_options_recall(QvOptionsMemo *memo, const char *json, gsize len, const char *id, QvJobOptions *options);
void qv_options_memo_clear(QvOptionsMemo *memo);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(QvOptionsMemo, qv_options_memo_clear)
