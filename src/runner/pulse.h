/* SPDX-License-Identifier: Apache-2.0 */
/* What those around the runner see of its life: the service manager (base/notify.h), and the file STATE_DIR/alive, which
 * the main loop touches while it turns and `quavon-sandbox-runner --healthcheck` looks at. */
#pragma once

#include <glib.h>

typedef struct QvPulse QvPulse;

/* From now on the watchdog is fed by the thread's main loop. The file is not there until ready. */
QvPulse *qv_pulse_new(const char *state_dir);
/* Removes the file. */
void qv_pulse_free(QvPulse *pulse);

/* The runner takes jobs, or waits for Valkey to give it some. */
void qv_pulse_ready(QvPulse *pulse);
void qv_pulse_reloading(QvPulse *pulse);
void qv_pulse_reloaded(QvPulse *pulse);
void qv_pulse_stopping(QvPulse *pulse);

/* main() of --healthcheck: 0 where the file is fresh, else 1 and the reason on stderr. */
int qv_pulse_check_main(const char *state_dir);
