/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's side of the sweep role: starts it, takes its exit status and what it found of the backend. */
#pragma once

#include "runner/setup.h"

typedef struct {
  int status;            /* of sweep.h */
  QvBackendFacts *facts; /* borrowed; NULL where the backend was not tried, or is no good */
} QvSweepEnd;

typedef void (*QvSweeperDone)(const QvSweepEnd *end, gpointer data);

/* SANDBOX_ID NULL: of all; TRIAL NULL: the backend is not tried. DONE is called once, within this call where the
 * process cannot be started. */
void qv_sweeper_start(const QvPlace *place, const char *sandbox_id, const QvTrialImages *trial, QvSweeperDone done,
                      gpointer data);

/* The same with QV_SWEEP_WATCH. SAID is called with what the engine is (qv_backend_engine), at most once, and before DONE. */
typedef void (*QvSweeperSaid)(const char *engine, gpointer data);
void qv_sweeper_watch(const QvPlace *place, QvSweeperSaid said, QvSweeperDone done, gpointer data);
