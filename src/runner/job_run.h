/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs in progress: each a QvRun (run_state.h) whose events come from
 * Valkey, clocks and the job process, and whose actions are carried out here. */
#pragma once

#include "runner/run_state.h"
#include "runner/supervisor.h"

/* A job came from the queue. */
void qv_job_run_begin(QvSupervisor *supervisor, QvFetchedJob *fetched);

/* Its lock is lost. */
void qv_job_run_lock_lost(QvSupervisor *supervisor, QvFetchedJob *fetched, const char *why);

/* Somebody says that its cancel key is set: it is read and verified. JOB_ID NULL: any of them. */
void qv_job_run_look_for_cancel(QvSupervisor *supervisor, const char *job_id);

/* A proxy's account of some job's token (TEXT of N bytes, hostile) came. */
void qv_job_run_egress_usage(QvSupervisor *supervisor, const char *text, gsize n);

/* Tells the worker whose jobs are next. */
void qv_job_run_order_tenants(QvSupervisor *supervisor);

/* Every job in progress gets the event. */
void qv_job_run_interrupt_all(QvSupervisor *supervisor, QvRunCause cause);
void qv_job_run_abandon_all(QvSupervisor *supervisor);

/* For the array of the jobs in progress: gives back its reference. */
void qv_job_run_free_func(gpointer run);
