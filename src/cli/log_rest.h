/* SPDX-License-Identifier: Apache-2.0 */
/* After a live view of a job's logs: what of the final logs has not been seen? Pure.
 *
 * Live chunks do not say which step printed them, may start in the middle and may be missing. So chunks and final logs are
 * fitted together: each log must begin with the chunks that are taken for its own. Where they fit in several ways the one
 * that shows more again is taken; where they do not fit (a gap, a flood, bytes that were repaired), nothing counts as seen. */
#pragma once

#include <glib.h>

typedef struct {
  const char *bytes; /* the tail of the log */
  gsize n;
  gint64 total_bytes; /* of the whole log, as the step wrote it */
  gsize seen;        /* out: this many bytes of the tail were in the live view */
} QvLogTail;

/* CHUNKS: GBytes in their order, without gaps. FALSE: they do not fit, all `seen` are 0. */
gboolean qv_log_rest(GBytes *const *chunks, gsize chunks_n, QvLogTail *logs, gsize logs_n);
