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
