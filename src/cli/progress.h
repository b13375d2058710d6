/* SPDX-License-Identifier: Apache-2.0 */
/* Progress for people, on stderr: one line that is rewritten on a terminal, else a line a stage. */
#pragma once

#include <glib.h>

#include "cli/embedded.h"
#include "client/quavon.h"

typedef struct {
  gboolean quiet, terminal;
  QvEmbedded *embedded; /* or NULL: watched, since waiting is in vain when it is gone */
  QuavonStage stage;
  gint64 done; /* step that was said last */
  gboolean any, line_open;
  const gboolean *busy; /* or NULL; while TRUE, something else has begun a line on the terminal */
} QvProgress;

void qv_progress_init(QvProgress *progress, gboolean quiet, QvEmbedded *embedded);

/* A QuavonProgressFunction; data: the QvProgress. Asks for a cancel after a signal (qv_interrupt_watch), abandons the
 * wait when the private runner has ended. */
int qv_progress_show(const QuavonProgress *now, void *progress);

/* Ends the open line, if any, so that something else can be printed. */
void qv_progress_end_line(QvProgress *progress);

/* From here on the first SIGINT, SIGTERM or SIGHUP is remembered, a second one ends the process with status 130. */
void qv_interrupt_watch(void);
gboolean qv_interrupted(void);
