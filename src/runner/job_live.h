/* SPDX-License-Identifier: Apache-2.0 */
/* Live logs in the job process (protocol.md 10): holds their rate against its own clock and seals them. The bytes are the
 * guest's and go nowhere but into the sealed chunk. */
#pragma once

#include <glib.h>

#include "protocol/job.h"
#include "runner/channel.h"

typedef struct QvJobLive QvJobLive;

/* Copies KEY. The clock starts now: before the entry can have started its own. */
QvJobLive *qv_job_live_new(const QvJob *job, const guint8 key[QV_BLOB_KEY_BYTES], QvChannel *supervisor);
void qv_job_live_free(QvJobLive *live);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvJobLive, qv_job_live_free)

/* Member N came. FALSE: more of them than one a second: a breach. One for which the channel has no room is dropped. */
gboolean qv_job_live_member(QvJobLive *live, guint32 n, const guint8 *bytes, gsize bytes_n);

/* More than N members (0, 1, …) of a run that is ELAPSED_MS old are a breach: one a second, and some slack for clocks that
 * do not run alike. */
gboolean qv_job_live_in_time(guint32 n, gint64 elapsed_ms);
