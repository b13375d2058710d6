/* SPDX-License-Identifier: Apache-2.0 */
/* May jobs be fetched? The gate knows what is wrong with the runner (problems.h), works on what can be mended (it
 * sweeps every minute while something of a sandbox is left), looks at the host now and then, and opens and
 * shuts the worker accordingly. */
#pragma once

#include "runner/problems.h"
#include "runner/setup.h"
#include "queue/worker.h"

typedef struct QvGate QvGate;

/* PLACE is borrowed; its `engine` is the gate's to fill while that is watched. CHANGED: the problems are others now. ONE_JOB_MIB:
 * what the host must have left for a job. */
QvGate *qv_gate_new(QvPlace *place, gint64 one_job_mib, void (*changed)(gpointer data), gpointer data);
void qv_gate_free(QvGate *gate);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvGate, qv_gate_free)

/* From now on the gate pauses and resumes WORKER (borrowed), and does so at once. */
void qv_gate_attach(QvGate *gate, QvWorker *worker);

/* The list itself, for whoever has a problem to tell; the gate follows. */
QvProblems *qv_gate_problems(const QvGate *gate);

/* FALSE: what was found out about the backend at the start does not hold any more. */
gboolean qv_gate_fits(const QvGate *gate);

/* What is left of sandbox TEXT. */
void qv_gate_leftover(QvGate *gate, const char *text);
/* Somebody may have removed what was in the way: sweep now, where one is due. */
void qv_gate_hurry(QvGate *gate);
/* No more sweeps, no more fetching. */
void qv_gate_shut(QvGate *gate, const char *why);
/* Valkey's clock against ours. */
void qv_gate_clock(QvGate *gate, gint64 ahead_ms);
/* Memory and disk of the host. */
void qv_gate_look_at_host(QvGate *gate);
