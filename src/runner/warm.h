/* SPDX-License-Identifier: Apache-2.0 */
/* Warm sandboxes: started, their entry waiting on stdin before there is a job, each used once.
 *
 *   STARTING ──started──> READY ──10 min──> LEAVING ──gone, reaped──> forgotten
 *        └──take──┐          └──take──> the job's own
 *                 v
 *   a job may take one that still starts: that is sooner than another one
 *
 * Which and how many: warm_plan.h. One starts at a time, in the background, 50 ms after the last was taken. A kind
 * whose sandboxes do not start is tried again after 5 s, then after twice that, up to a minute. */
#pragma once

#include "runner/job_link.h"
#include "runner/supervisor.h"

/* Starts nothing before open. SUPERVISOR is borrowed; its worker must be there at open. */
QvWarmPool *qv_warm_pool_new(QvSupervisor *supervisor);
/* Kills what is left at once: only at the very end. */
void qv_warm_pool_free(QvWarmPool *pool);

void qv_warm_pool_open(QvWarmPool *pool);
/* No more; those that wait are taken down. The supervisor hears of the last one by `released`. */
void qv_warm_pool_close(QvWarmPool *pool);
/* The images are others now. */
void qv_warm_pool_reload(QvWarmPool *pool);

/* A job process with a sandbox of KIND, to be given its job by qv_job_link_assign and owned by the caller from
 * now on; NULL: there is none. SANDBOX_ID: free with g_free. */
QvJobLink *qv_warm_pool_take(QvWarmPool *pool, const QvBoxKind *kind, char **sandbox_id);

/* What jobs in progress use, for memory and demand: once each a job. EGRESS: none is kept warm for such a one. */
void qv_warm_pool_job_begins(QvWarmPool *pool, const QvBoxKind *kind, gboolean egress);
void qv_warm_pool_job_ends(QvWarmPool *pool, const QvBoxKind *kind, gboolean egress);

/* Job processes of the pool that exist, leaving ones included. */
guint qv_warm_pool_n(const QvWarmPool *pool);
