/* SPDX-License-Identifier: Apache-2.0 */
/* Passed smoke tests that outlive the process, where the operator names a folder for them
 * (QUAVON_SANDBOX_SMOKE_MEMORY): for runners that live as long as one job, which `quavon run` starts. A pass counts for
 * the same boot, runner program, runtime program and version, cgroup version, settings and image alone. */
#pragma once

#include "protocol/health.h"
#include "protocol/images_lock.h"
#include "runner/setup.h"

/* What a pass stands for, as a name; NULL where the runner cannot see all of it (a backend behind an engine). Free with
 * g_free. */
char *qv_smoke_identity(const QvPlace *place, const QvBackendFacts *facts, const QvImage *image);

/* A pass that is younger than MAX_AGE_MS, or NULL. FOLDER must be ours alone to write to. */
QvSmokeReport *qv_smoke_memory_find(const char *folder, const char *identity, gint64 now_ms, gint64 max_age_ms);
gboolean qv_smoke_memory_put(const char *folder, const char *identity, const QvSmokeReport *report, GError **error);
