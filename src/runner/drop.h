/* SPDX-License-Identifier: Apache-2.0 */
/* What a job process gives up once its sandbox runs: from then on it moves bytes, kills and removes. */
#pragma once

#include <glib.h>

/* Keeps root's files and the right to signal the sandbox's processes (CAP_KILL); gives up every other capability, for good
 * and for whatever it could start, and by a filter all that starts programs, mounts, loads, traces or changes
 * namespaces: those calls answer EPERM. Only lessens a process that runs as root. QV_ERROR_SYSTEM. */
gboolean qv_drop_after_start(GError **error);
