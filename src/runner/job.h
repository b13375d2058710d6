/* SPDX-License-Identifier: Apache-2.0 */
/* The job process: one a job. It holds the backend and the keys derived for
 * this job, moves bytes between supervisor, sandbox and unpack process, and
 * never looks into what a guest wrote. */
#pragma once

/* Descriptors, see spawn.h. */
enum { QV_JOB_CHANNEL_FD = 3, QV_JOB_LOCK_FD = 4 };

/* main() of the role; returns its exit status. */
int qv_job_main(void);
