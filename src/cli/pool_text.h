/* SPDX-License-Identifier: Apache-2.0 */
/* A pool's view as tables for people and as JSON for programs. Ids, names and reasons come from others: printable always. */
#pragma once

#include <glib.h>
#include <jansson.h>

#include "client/pool.h"

/* "4s", "3m04s", "2h05m", "12d". Not known (negative): "-". */
char *qv_age_text(gint64 ms);

/* What an active job does now: "preparing", "setup", "step 2/3 test"; "-" where nobody knows. */
char *qv_job_step_text(const QvViewJob *job, const QvTicket *ticket);

/* Lines, each ended by LF; a head line first unless BARE. STATUS: job id → text of how it ended, or NULL. */
void qv_pool_jobs_text(const QvPoolView *view, GHashTable *status, gboolean bare, GString *out);
void qv_pool_runners_text(const QvPoolView *view, gboolean bare, GString *out);
/* "12 waiting, 2 active, …"; times of the jobs in the view that ended. */
void qv_pool_counts_text(const QvPoolView *view, GString *out);
void qv_pool_times_text(const QvPoolView *view, GString *out);

json_t *qv_pool_counts_json(const QvPoolView *view);
json_t *qv_pool_jobs_json(const QvPoolView *view, GHashTable *status);
json_t *qv_pool_runners_json(const QvPoolView *view);
/* {"jobs", "waitMs": {"p50", "p95"}, "runMs": {…}}: of the jobs in the view that ended; null where there are none. */
json_t *qv_pool_times_json(const QvPoolView *view);

/* The P-th percentile by the nearest rank; sorts. N at least 1. */
gint64 qv_percentile(gint64 *values, gsize n, guint p);

/* Prints JSON and a LF; frees it. */
void qv_json_print(json_t *json);
