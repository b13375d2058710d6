/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the table of limits: what a job may leave out and how far it may go. */
#include "protocol/limits_policy.h"

#include "base/limits.h"

static const gint64 mib = 1024 * 1024;

void qv_limits_policy_standard(QvLimitsPolicy *policy, guint cores)
{
  *policy = (QvLimitsPolicy){
    .defaults = { .wall_ms = QV_WALL_MS_DEFAULT,
                  .memory_mib = QV_MEMORY_MIB_DEFAULT,
                  .milli_cpus = QV_MILLI_CPUS_DEFAULT,
                  .pids = QV_PIDS_DEFAULT,
                  .work_mib = QV_WORK_MIB_DEFAULT,
                  .log_bytes = QV_LOG_BYTES_DEFAULT,
                  .artefact_bytes = QV_ARTEFACT_BYTES_DEFAULT,
                  .artefact_count = QV_ARTEFACT_COUNT_DEFAULT },
    .ceilings = { .wall_ms = QV_WALL_MS_CEILING,
                  .memory_mib = QV_MEMORY_MIB_CEILING,
                  .milli_cpus = (gint64)QV_MILLI_CPUS_PER_CORE * MAX(cores, 1),
                  .pids = QV_PIDS_CEILING,
                  .work_mib = QV_WORK_MIB_CEILING,
                  .log_bytes = QV_LOG_BYTES_CEILING,
                  .artefact_bytes = QV_ARTEFACT_BYTES_CEILING,
                  .artefact_count = QV_ARTEFACT_COUNT_CEILING },
    .max_blob_bytes = QV_BLOB_MIB_DEFAULT * mib,
  };
}

void qv_limits_resolve(const QvLimitsPolicy *policy, const QvLimits *given, QvLimits *effective)
{
  QvLimits result;
#define RESOLVE(field, name) \
  result.field = given->field != 0 ? given->field : MIN(policy->defaults.field, policy->ceilings.field);
  QV_LIMITS_TABLE(RESOLVE)
#undef RESOLVE
  *effective = result;
}

const char *qv_limits_over(const QvLimitsPolicy *policy, const QvLimits *effective)
{
#define OVER(field, name)                            \
  if (effective->field > policy->ceilings.field)     \
    return name;
  QV_LIMITS_TABLE(OVER)
#undef OVER
  return NULL;
}
