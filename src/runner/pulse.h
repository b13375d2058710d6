/* SPDX-License-Identifier: Apache-2.0 */
/* What those around the runner see of its life: the service manager (base/notify.h), and the file STATE_DIR/alive, which
 * the main loop touches while it turns and `quavon-sandbox-runner --healthcheck` looks at. */
#pragma once

#include <glib.h>

typedef struct QvPulse QvPulse;

/* From now on the watchdog is fed by the thread's main loop. Until the runner is ready, and again while it stops, the
 * manager's time for that is extended as long as the loop turns: the parts that may be slow have clocks of their own. */
QvPulse *qv_pulse_new(const char *state_dir);
/* Removes the file. */
void qv_pulse_free(QvPulse *pulse);

/* The backend was tried and the queue is asked: from now on the file is there. */
void qv_pulse_up(QvPulse *pulse);

/* The first smoke test has ended, so the start is complete: readiness is told once. WHY is the service's state: NULL where
 * jobs are taken (or Valkey is waited for to give some), else why not. A runner that did not pass is ready too: it lives, says
 * so in its health record and tries again, and a manager that waited on would end it in the middle of that. */
void qv_pulse_ready(QvPulse *pulse, const char *why);
void qv_pulse_reloading(QvPulse *pulse);
void qv_pulse_reloaded(QvPulse *pulse);
void qv_pulse_stopping(QvPulse *pulse);

/* main() of --healthcheck: 0 where the file is fresh, else 1 and the reason on stderr. */
int qv_pulse_check_main(const char *state_dir);
