/* SPDX-License-Identifier: Apache-2.0 */
/* Live logs (section 10 of the protocol): while a step runs, what it printed
 * lately, at most once a second. They inform only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "entry/ring.h"

struct QvEntryOutput;

typedef struct {
  struct QvEntryOutput *output;
  int step;        /* negative: setup */
  unsigned next;   /* n of the next member */
  uint64_t at;     /* bytes of this step's output that were sent or passed over */
  uint64_t spent;  /* bytes of the run */
  int64_t last_ms; /* when the last one was written */
} QvEntryLive;

void qv_entry_live_init(QvEntryLive *live, struct QvEntryOutput *output);
void qv_entry_live_begin_step(QvEntryLive *live, int step);

/* ms until a step of it may write something, or -1. */
int qv_entry_live_timeout_ms(const QvEntryLive *live, const QvEntryRing *ring);
void qv_entry_live_step(QvEntryLive *live, const QvEntryRing *ring);
