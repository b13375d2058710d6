/* SPDX-License-Identifier: Apache-2.0 */
/* QuavonJob: what the caller said of a job, before it is packed and signed. */
#pragma once

#include "client/quavon.h"
#include "client/snapshot.h"
#include "protocol/job.h"

struct QuavonJob {
  QvJob *job; /* all but ids, pool, image's digest, base and times */
  GPtrArray *backends, *egress, *artefacts; /* char * */
  GPtrArray *steps;                         /* QuavonStep *, in order */
  QuavonStep *setup;
  char *folder, *revision;
  gboolean all;
  gint64 admission_ms;
  char *unknown_limit; /* the first limit that there is none of that name, or NULL */
};

/* What goes into the snapshot; borrows from the job. */
void qv_description_snapshot(const QuavonJob *description, QvSnapshotOptions *options);

/* The job to be signed, with a copy of everything; ids, pool, digest, base, times are still to be set.
 * FORMAT: a limit's name that is none. */
QvJob *qv_description_build(const QuavonJob *description, GError **error);
