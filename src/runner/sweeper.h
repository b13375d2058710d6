/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's side of the sweep role: starts it, takes its exit status and what it found of the backend, and
 * says in the log what went wrong. */
#pragma once

#include "base/repeat.h"
#include "runner/setup.h"

typedef struct {
  int status;            /* of sweep.h */
  QvBackendFacts *facts; /* borrowed; NULL where the backend was not tried, or is no good */
} QvSweepEnd;

typedef void (*QvSweeperDone)(const QvSweepEnd *end, gpointer data);

/* SANDBOX_ID NULL: of all; TRIAL NULL: the backend is not tried. SAID, borrowed until DONE: of sweeps that come again and again,
 * what is said of their failures; NULL: each is. DONE is called once, within this call where the process cannot be started. */
void qv_sweeper_start(const QvPlace *place, const char *sandbox_id, const QvTrialImages *trial, QvRepeat *said,
                      QvSweeperDone done, gpointer data);

/* The same with QV_SWEEP_WATCH. HEARD is called with what the engine is (qv_backend_engine), at most once, and before DONE. */
typedef void (*QvSweeperHeard)(const char *engine, gpointer data);
void qv_sweeper_watch(const QvPlace *place, QvRepeat *said, QvSweeperHeard heard, QvSweeperDone done, gpointer data);
