/* SPDX-License-Identifier: Apache-2.0 */
/* The smoke test (operations.md): the probes of sandbox/probes.def in three
 * sandboxes of the runner's own backend, one after another, judged on the host. Some seconds in all; it
 * touches nothing of the jobs that run, and holds no key.
 *
 *   supervisor ──order──> smoke role ──JSON on descriptor 3──> supervisor
 *
 *   facts   everything that can be asked
 *   forks   more processes than there may be
 *   hog     a processor that is shared, then more memory than there is */
#pragma once

#include <glib.h>

#include "base/config.h"
#include "protocol/health.h"
#include "runner/setup.h"

/* Descriptor of the role's answer, see spawn.h. */
enum { QV_SMOKE_OUT_FD = 3 };

typedef struct {
  QvPlace place;
  QvTrialImages image; /* the first digest, and where the backend takes one the checked file */
  char *only;        /* NULL: all; one of the four names: the probes of the others are missing, so it cannot pass */
} QvSmokeOrder;

char *qv_smoke_order_format(const QvSmokeOrder *order);
gboolean qv_smoke_order_parse(const char *text, QvSmokeOrder *order, GError **error);
void qv_smoke_order_clear(QvSmokeOrder *order);

/* main() of the role: 0 where an answer was given, whatever it is. */
int qv_smoke_main(const char *order);

/* quavon-sandbox-runner --smoke: a line a probe, 0 where all passed. Beside a runner that works, if there is one. */
int qv_smoke_print_main(const QvConfig *config);

/* Takes REPORT (qv_smoke_report_free): `at` is set, request_id is NULL. Called exactly once, from the main loop, never within
 * the start. A role that could not be started, crashed or hung is a report that has not passed, whose failed probe is
 * `started`; what it left has then been swept. */
typedef void (*QvSmokeDone)(QvSmokeReport *report, gpointer data);

/* IMAGE: as in the order. One at a time: the caller's business. There is no way to stop one but the end of the program,
 * which ends it. */
void qv_smoke_start(const QvPlace *place, const QvTrialImages *image, QvSmokeDone done, gpointer data);
