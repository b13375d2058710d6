/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for a job before people's eyes: progress on standard error, live logs on standard output. */
#pragma once

#include "cli/live_view.h"
#include "cli/progress.h"

typedef struct {
  gboolean live, no_live; /* as the options say; neither: live where standard output is a terminal */
  gboolean json, raw, quiet;
} QvWatchOptions;

/* quavon_wait with both. VIEW is made here, for qv_report; the caller clears it. NULL: *error, and the view's line is ended. */
QuavonResult *qv_watch(QuavonClient *client, const char *job_id, const QvWatchOptions *options, QvProgress *progress,
                       QvLiveView *view, QuavonError **error);
