/* SPDX-License-Identifier: Apache-2.0 */
/* A result for people or programs, and the exit status that it means. */
#pragma once

#include <glib.h>

#include "cli/verb.h"
#include "cli/live_view.h"
#include "client/quavon.h"

typedef struct {
  gboolean json, raw, quiet, force;
  const char *output; /* NULL: artefacts are not fetched for themselves */
  gboolean no_payload; /* neither logs nor artefacts */
  gboolean keep;       /* the payload stays in Valkey */
  gboolean no_logs;    /* artefacts alone */
  QvLiveView *live;    /* what came while it ran; NULL: nobody listened */
} QvReportOptions;

/* Prints the result, its logs, writes its artefacts. The exit status of the verb. */
int qv_report(QuavonClient *client, const QuavonResult *result, const QvReportOptions *options);

/* The logs of a payload, without those bytes that the live view has shown; those of the live view where the result has none.
 * FALSE: there are none at all. */
gboolean qv_report_logs(const QuavonResult *result, const QuavonPayload *payload, const QvReportOptions *options);

/* The table of exit statuses. `record`: the step that decided (the last one, or setup), NULL: none ran. */
int qv_exit_status(const char *status, const char *code, const QuavonStepRecord *record);

/* The exit status for an error of libquavon. */
int qv_error_status(QuavonErrorCode code);

/* Says the error, frees it, gives its exit status. */
int qv_fail(QuavonError *error);

/* Whether artefacts can go to this folder: it is absent or empty, or `force`. Before there is any work to lose. */
gboolean qv_output_check(const char *folder, gboolean force);
