/* SPDX-License-Identifier: Apache-2.0 */
/* One job from the request line to the two zero blocks (section 5). */
#pragma once

typedef struct {
  int in_fd, out_fd;
  int signal_fd;    /* of qv_entry_pid1_harden */
  const char *work; /* folder that gets repo, home and, during setup, ca.pem */
  const char *tmp;
  char *const *env; /* the image's own */
} QvEntryPlace;

/* 0: the stream is complete, whatever became of the job. Otherwise an exit status after a line on
 * stderr: 65 the request was refused, 71 the machine, 74 the input ended. A
 * write to out_fd that fails ends the program with 74. */
int qv_entry_run(const QvEntryPlace *place);
