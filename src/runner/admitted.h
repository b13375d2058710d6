/* SPDX-License-Identifier: Apache-2.0 */
/* The job ids that this process has admitted: the second line behind the replay
 * guard, should Valkey have lost that (protocol section 2.1, check 6). A job
 * occupies a slot for longer than its id costs memory, so there is no cap. */
#pragma once

#include <glib.h>

/* Free with g_hash_table_unref. */
GHashTable *qv_admitted_new(void);

/* Remembers JOB_ID until UNTIL_MS (Unix ms). TRUE: it was known before. */
gboolean qv_admitted_remember(GHashTable *admitted, const char *job_id, gint64 until_ms);
