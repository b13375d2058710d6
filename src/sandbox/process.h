/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a program so that nothing of ours goes along: closed descriptors,
 * default signals, its own session, no core files, and an end when our thread ends. */
#pragma once

#include <glib.h>
#include <sys/types.h>

typedef struct {
  const char *program;      /* absolute path */
  const char *const *argv;
  int stdin_fd;             /* -1: /dev/null */
  int stdout_fd;
  int stderr_fd;
  const int *join_fds;      /* files into which "0" is written before the program runs */
  int join_n;
} QvProcessPlan;

/* The process id, once the program has been executed; -1 with an error that names the program when
 * it could not be, then nothing is left. */
pid_t qv_process_spawn(const QvProcessPlan *plan, GError **error);

/* Runs a short program and collects at most CAP bytes of its stdout and stderr
 * together. After DEADLINE_MS it is killed: QV_ERROR_TIMEOUT. */
char *qv_process_output(const char *program, const char *const *argv, guint deadline_ms, gsize cap, int *wait_status,
                        GError **error);
