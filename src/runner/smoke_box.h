/* SPDX-License-Identifier: Apache-2.0 */
/* One sandbox of the smoke test: the probe program goes in as the snapshot of an
 * ordinary request, what it prints comes out through the unpack process like any job's output. */
#pragma once

#include <glib.h>

#include "runner/setup.h"
#include "sandbox/backend.h"

enum { QV_SMOKE_STEPS_MAX = 3 };

typedef struct {
  const char *arguments[QV_SMOKE_STEPS_MAX]; /* of the program, one string a step, words separated by a blank */
  gsize steps_n;
  QvSandboxLimits limits;
  const char *network;   /* of the engine; NULL: none */
  gboolean expects_kill; /* by the host, of something in it */
  gboolean waits;        /* a complete run waits for the host to tell of a kill */
} QvSmokePlan;

typedef struct {
  QvHostEnd end;     /* STOPPED: it never started, or its time was over */
  char *why;         /* where it did not complete; hostile text */
  GString *log;      /* of the first step; empty unless complete */
  gint64 age_s;      /* of the sandbox when it ended */
  gint64 wall_ms;    /* of the second step, seen from outside: at least its own time; -1: it never ended */
  gint64 cpu_ms;     /* that the sandbox used meanwhile */
  gboolean clean;    /* nothing of it is left */
} QvSmokeSeen;

/* Runs a main loop of its own and blocks until the sandbox is gone; cleared SEEN is filled in any case. */
void qv_smoke_box_run(QvBackend *backend, const QvTrialImages *image, const QvSmokePlan *plan, QvSmokeSeen *seen);
void qv_smoke_seen_clear(QvSmokeSeen *seen);
