/* SPDX-License-Identifier: Apache-2.0 */
/* One step: started, watched, ended with everything that it left behind. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "entry/forward.h"
#include "entry/live.h"
#include "entry/request.h"
#include "entry/ring.h"

/* What all steps of a run share. Borrowed. */
typedef struct {
  int root_fd;    /* the repository: by descriptor, since a step may move the folder and put a link there */
  int work_fd;    /* the two work folders, watched for being full */
  int tmp_fd;
  int null_fd;    /* /dev/null */
  int signal_fd;  /* of qv_entry_pid1_harden */
  int64_t origin_ms;
  QvEntryRing *ring;
  char *scratch;  /* for reads from the step's pipe */
  size_t scratch_n;
} QvEntryStage;

typedef struct {
  int exit_code; /* -1: ended by SIGNAL */
  int signal;    /* 0: none */
  bool timed_out;
  int64_t started_ms; /* since origin_ms */
  int64_t duration_ms;
  bool disk_full;   /* failed, and a work folder was full at its end */
  bool fork_failed; /* failed, and a fork of our own got EAGAIN */
} QvEntryOutcome;

/* Exited by itself with 0? */
bool qv_entry_outcome_ok(const QvEntryOutcome *outcome);

/* Runs STEP with exactly the environment ENV ("NAME=value", NULL at the end). FORWARD and LIVE may
 * be NULL. When it returns no process but this one is left, and the ring holds the
 * tail of what the step printed. False with errno where not even a pipe
 * could be made. */
bool qv_entry_step_run(const QvEntryStage *stage, const QvEntryStep *step, char *const *env,
                       QvEntryForward *forward, QvEntryLive *live, QvEntryOutcome *outcome);
