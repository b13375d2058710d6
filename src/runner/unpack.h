/* SPDX-License-Identifier: Apache-2.0 */
/* The process that reads a guest's output. It is started before there is a
 * guest: what it needs of libraries is ready when its socket brings the stream's
 * descriptor, then its configuration. It tells what it found on a third; under its filter it can do nothing else. It
 * holds no key but the one of this stream. */
#pragma once

#include "protocol/entry_output.h"

/* Descriptors, see spawn.h. */
enum { QV_UNPACK_CONFIG_FD = 3, QV_UNPACK_OUT_FD = 4, QV_UNPACK_GUEST_FD = 5 };

typedef enum {
  QV_UNPACK_COMPLETE, /* the two zero blocks; REPORT follows */
  QV_UNPACK_BAD,      /* a breach */
  QV_UNPACK_CUT,      /* the stream ended before the two zero blocks */
} QvUnpackVerdict;

/* Why the process ended without a verdict, from its wait status: a breach of its list of system calls, a limit, a crash. For
 * the log; the job is bad_output in each case. Free with g_free. */
char *qv_unpack_end_text(int wait_status);

/* The configuration as a text for the socket: all of SPEC, the key included. Free with g_free, wiped by the caller. */
char *qv_unpack_config_format(const QvEntryOutputSpec *spec, gsize *n);

/* As its parent has it: CONFIG_FD to it, FRAMES_FD from it. */
typedef struct {
  GPid pid;
  int config_fd, frames_fd;
} QvUnpackProcess;

/* What libraries set up on first use is: for this process and for those that it forks. */
void qv_unpack_warm_up(void);
/* main() of the role; returns its exit status. WARM: it was forked by one that is warmed up. */
int qv_unpack_main(gboolean warm);
