/* SPDX-License-Identifier: Apache-2.0 */
/* The duties of the first process: what it does to itself before it reads
 * anything, and how it ends everything that a step left behind. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* Out of a step's reach: not dumpable, no new privileges, every descriptor
 * above 2 closed, 0 to 2 open and close-on-exec, every signal that can be is
 * blocked. The descriptor that reports SIGCHLD, or -1 with errno. */
int qv_entry_pid1_harden(void);

/* Forgets reported SIGCHLDs and reaps what has ended, at most a few hundred at a
 * time: true where there may be more. Where MAIN is among them *STATUS is its wait status and
 * *ENDED true. */
bool qv_entry_pid1_reap(int signal_fd, pid_t main, int *status, bool *ended);

/* kill(-1, SIGKILL) and reap until no child is left: double forks, sessions
 * and other groups included, since PID 1 inherits every orphan. MAIN as above.
 * Aborts when this is not PID 1 of its namespace, where it would end
 * processes that are not ours. */
void qv_entry_pid1_kill_all(int signal_fd, pid_t main, int *status, bool *ended);

/* Is the process table full? Starts a few processes that do nothing and share
 * this one's memory; kill_all ends them. */
bool qv_entry_pid1_table_full(void);
