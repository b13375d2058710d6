/* SPDX-License-Identifier: Apache-2.0 */
/* The unpack process as the job process starts it, with the test in the place of both the job process and the guest. */
#pragma once

#include <glib.h>

#include "base/limits.h"

extern const guint8 unpack_stream_key[QV_STREAM_KEY_BYTES];

/* A member as an entry writes it. */
void unpack_add_member(GByteArray *out, const char *path, const char *text);

typedef struct {
  GPid pid;
  int guest, frames; /* our ends */
  int kept;          /* the process's end of the guest's stream, so that what it left unread is not lost; -1: closed */
} UnpackProcess;

/* One step named "step", artefacts "*.bin": at most 4, 1 MiB in all; logs of 64 KiB. */
UnpackProcess unpack_start(gboolean live, gboolean keep);
/* The same with another bound of all artefacts. */
UnpackProcess unpack_start_for(gint64 artefact_bytes, gboolean live, gboolean keep);

typedef struct {
  int verdict; /* -1: none */
  char why[512]; /* its words */
  glong peak_kib;
  gsize payload_bytes;
  guint progress;
  guint32 progress_last;
  char *report;
  GString *live; /* NULL: none */
} UnpackOutcome;

/* Reads all frames and reaps: the process must have ended by itself. Closes our ends. */
UnpackOutcome unpack_finish(UnpackProcess *process);
