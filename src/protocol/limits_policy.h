/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of a job (section 2): names, defaults, ceilings, in one table. */
#pragma once

#include <glib.h>

/* field, JSON name. All are integers of at least 1. */
#define QV_LIMITS_TABLE(X)                \
  X(wall_ms, "wallMs")                    \
  X(memory_mib, "memoryMiB")              \
  X(milli_cpus, "milliCpus")              \
  X(pids, "pids")                         \
  X(work_mib, "workMiB")                  \
  X(log_bytes, "logBytes")                \
  X(artefact_bytes, "artefactBytes")      \
  X(artefact_count, "artefactCount")

typedef struct {
#define QV_LIMITS_FIELD(field, name) gint64 field;
  QV_LIMITS_TABLE(QV_LIMITS_FIELD)
#undef QV_LIMITS_FIELD
} QvLimits;

/* What an operator may set. A default above its ceiling counts as the ceiling. */
typedef struct {
  QvLimits defaults;
  QvLimits ceilings;
  gint64 max_blob_bytes; /* base and overlay together, gzip */
} QvLimitsPolicy;

/* The contract's numbers for a machine of CORES cores. */
void qv_limits_policy_standard(QvLimitsPolicy *policy, guint cores);

/* GIVEN with a default in place of each 0 (absent). */
void qv_limits_resolve(const QvLimitsPolicy *policy, const QvLimits *given, QvLimits *effective);

/* The JSON name of the first limit above its ceiling, or NULL. */
const char *qv_limits_over(const QvLimitsPolicy *policy, const QvLimits *effective);
