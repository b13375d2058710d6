/* SPDX-License-Identifier: Apache-2.0 */
/* The entry's stdout (section 5 of the protocol): a tar of records, logs and
 * artefacts, each member written as soon as it is known, and at the end exit.json with the
 * code over every byte before it. Writes block; one that fails ends the
 * program, since nobody is there to be told. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"
#include "entry/ring.h"
#include "entry/step.h"

typedef struct QvEntryOutput {
  int fd;
  QvHmacSha256 mac;
  uint64_t member_left; /* bytes of the open member that are still to come */
  uint64_t member_bytes;
} QvEntryOutput;

typedef struct {
  bool refused;     /* else done */
  const char *code; /* NULL, "snapshot_refused" or "disk" */
  uint64_t artefacts_dropped;
  bool fork_failed;
} QvEntryExit;

void qv_entry_output_init(QvEntryOutput *output, int fd, const uint8_t stream_key[QV_STREAM_KEY_BYTES]);

/* A member in parts: begin, bytes until SIZE is reached, end. */
void qv_entry_output_begin(QvEntryOutput *output, const char *path, uint64_t size, bool executable);
void qv_entry_output_bytes(QvEntryOutput *output, const void *bytes, size_t n);
void qv_entry_output_end(QvEntryOutput *output);
/* A whole member. */
void qv_entry_output_member(QvEntryOutput *output, const char *path, const void *bytes, size_t n);

/* The record and the log of step I, or of setup where I is negative. */
void qv_entry_output_step(QvEntryOutput *output, int i, const char *name, const QvEntryOutcome *outcome,
                          const QvEntryRing *ring);

/* exit.json and the two zero blocks. The key's state is wiped. */
void qv_entry_output_exit(QvEntryOutput *output, const QvEntryExit *facts);
