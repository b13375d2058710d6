/* SPDX-License-Identifier: Apache-2.0 */
/* The runners of a client's pool as their health records tell (section 8), and what a job may expect of them. */
#pragma once

#include "client/session.h"
#include "protocol/health.h"

/* One runner that was seen in the last 90 s. */
typedef struct {
  char *runner_id;
  QvHealth *health;  /* NULL: its record does not count */
  GError *error;     /* why it does not: AUTH a key or signature, NOT_FOUND it expired, FORMAT all else */
  gboolean current;  /* signed with the current key */
} QvRunnerSeen;

void qv_runner_seen_free(gpointer seen);

/* QvRunnerSeen of each runner, in the order of their last records. AUTH: Valkey does not let us read them. */
GPtrArray *qv_session_runners(QuavonClient *client, GError **error);

/* The records as verified values, from what is stored. RECORDS: GBytes or NULL, parallel to IDS. */
GPtrArray *qv_runners_verify(guint n, const char *const *ids, GBytes *const *records, const QvKeyring *ring,
                             const char *pool, gint64 now_ms);

typedef struct {
  char *const *backends;
  const char *pool;
  const char *image;     /* name */
  const char *digest;    /* the one that is wanted, or NULL: one that all offer */
  const char *preferred; /* where all offer it; may be NULL */
  gboolean development;
} QvRunnerWant;

/* The digest that the job is to name: free with g_free. NULL where no runner is healthy for it, or where no digest is
 * offered by all of them: NOT_FOUND, whose text has a line for each runner with what is wrong with it. */
char *qv_runners_choose(const GPtrArray *runners, const QvRunnerWant *want, gint64 now_ms, GError **error);
