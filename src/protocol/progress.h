/* SPDX-License-Identifier: Apache-2.0 */
/* What a runner says of a running job through BullMQ's progress
 * (qv_worker_progress): unsigned, best effort, to inform people only. One JSON object:
 *
 *   {"stage":"preparing","elapsedMs":N}   admitted: the sandbox starts and takes its snapshot
 *   {"stage":"setup","name":S,"elapsedMs":N}
 *   {"stage":"step","step":I,"steps":N,"name":S,"elapsedMs":N}   I from 1
 *   {"stage":"collecting","elapsedMs":N}  the steps are over: artefacts, and their way to Valkey
 *
 * elapsedMs: how long this stage lasts already. */
#pragma once

#include <glib.h>

#define QV_RUN_STAGES(X) X(PREPARING, "preparing") X(SETUP, "setup") X(STEP, "step") X(COLLECTING, "collecting")

typedef enum {
#define X(name, text) QV_RUN_STAGE_##name,
  QV_RUN_STAGES(X)
#undef X
  QV_RUN_STAGES_N
} QvRunStage;

typedef struct {
  QvRunStage stage;
  guint step, steps_n; /* STEP: from 1; else 0 */
  const char *name;    /* SETUP and STEP: an identifier; else NULL. Parsed: always NULL, the worker side has the job */
  gint64 elapsed_ms;
} QvRunProgress;

/* Free with g_free. */
char *qv_run_progress_format(const QvRunProgress *progress);
/* FALSE: not of this form; the output is untouched. */
gboolean qv_run_progress_parse(const char *json, gsize len, QvRunProgress *progress);
