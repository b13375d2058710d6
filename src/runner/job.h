/* SPDX-License-Identifier: Apache-2.0 */
/* The job process: one a job. It holds the backend and the keys derived for
 * this job, moves bytes between supervisor, sandbox and unpack process, and
 * never looks into what a guest wrote. */
#pragma once

#include "runner/unpack.h"

/* Descriptors, see spawn.h. */
enum { QV_JOB_CHANNEL_FD = 3, QV_JOB_LOCK_FD = 4 };

/* Exit status: an unpack process crashed, however the job ended. */
enum { QV_JOB_UNPACK_CRASHED = 3 };

/* main() of the role; returns its exit status. UNPACK: one that waits already, or NULL. */
int qv_job_main(const QvUnpackProcess *unpack);
