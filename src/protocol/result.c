/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the verdict on a run (status, code, blame), and the building and
 * signing of results. Verifying is result_verify.c's. Source: section 6. */
#include "protocol/result.h"

#include <string.h>

#include "base/error.h"
#include "protocol/envelope.h"
#include "protocol/fields.h"
#include "protocol/job_internal.h"
#include "protocol/record_internal.h"
#include "protocol/result_internal.h"

static const struct {
  const char *text;
  QvStatus status;
} codes[] = {
  [QV_CODE_NONE] = { NULL, QV_STATUS_SUCCEEDED },
#define ROW(name, text, status) [QV_CODE_##name] = { text, QV_STATUS_##status },
  QV_CODE_TABLE(ROW)
#undef ROW
};

static const char *const statuses[] = {
  [QV_STATUS_SUCCEEDED] = "succeeded", [QV_STATUS_FAILED] = "failed", [QV_STATUS_TIMED_OUT] = "timed_out",
  [QV_STATUS_CANCELLED] = "cancelled", [QV_STATUS_ERROR] = "error",
};

const char *qv_status_text(QvStatus status)
{
  return statuses[status];
}

const char *qv_code_text(QvCode code)
{
  return codes[code].text;
}

QvStatus qv_code_status(QvCode code)
{
  return codes[code].status;
}

gboolean qv_code_find(const char *text, QvCode *code)
{
  for (gsize i = 1; i < G_N_ELEMENTS(codes); i++) {
    if (strcmp(codes[i].text, text) == 0) {
      *code = (QvCode)i;
      return TRUE;
    }
  }
  return FALSE;
}

/* ---- the verdict ---- */

/* What each end means, and whether what the cgroup reported explains it better. A cancel, a shutdown and a bad
 * blob are the runner's own doing: nothing of the job explains those. */
static const struct {
  QvCode code;
  gboolean cgroup_explains;
} ends[] = {
  [QV_RUN_CANCELLED] = { QV_CODE_CANCELLED, FALSE },
  [QV_RUN_WALL] = { QV_CODE_WALL, TRUE },
  [QV_RUN_SHUTDOWN] = { QV_CODE_SHUTDOWN, FALSE },
  [QV_RUN_BLOB_MISSING] = { QV_CODE_BLOB_MISSING, FALSE },
  [QV_RUN_BLOB_CORRUPT] = { QV_CODE_BLOB_CORRUPT, FALSE },
  [QV_RUN_BAD_OUTPUT] = { QV_CODE_BAD_OUTPUT, TRUE },
  [QV_RUN_IMAGE_FAILED] = { QV_CODE_IMAGE_FAILED, FALSE },
  [QV_RUN_SANDBOX_FAILED] = { QV_CODE_SANDBOX_FAILED, FALSE },
  [QV_RUN_SANDBOX_LOST] = { QV_CODE_SANDBOX_LOST, TRUE },
  [QV_RUN_OOM] = { QV_CODE_MEMORY, FALSE },
};

/* The record that ended the run, or NULL. */
static const QvStepRecord *deciding_record(const QvJob *job, const QvEntryFacts *facts)
{
  if (facts->has_setup && !qv_step_record_ok(&facts->setup))
    return &facts->setup;
  for (gsize i = 0; i < facts->steps_n && i < job->run_n; i++)
    if (!qv_step_record_ok(&facts->steps[i]) && !job->run[i].continue_on_failure)
      return &facts->steps[i];
  return NULL;
}

static QvCode decide_complete(const QvJob *job, const QvRunFacts *run)
{
  const QvEntryFacts *facts = run->facts;
  gboolean disk = facts->code != NULL && strcmp(facts->code, "disk") == 0;
  if (run->oom)
    return QV_CODE_MEMORY;
  if (facts->refused)
    return disk ? QV_CODE_DISK : QV_CODE_SNAPSHOT_REFUSED;
  const QvStepRecord *record = deciding_record(job, facts);
  if (record == NULL)
    return QV_CODE_NONE;
  if (record->timed_out)
    return QV_CODE_TIMEOUT;
  if (run->pids || facts->fork_failed)
    return QV_CODE_PROCESSES;
  if (disk)
    return QV_CODE_DISK;
  return record == &facts->setup ? QV_CODE_SETUP_FAILED : QV_CODE_STEP_FAILED;
}

QvCode qv_result_decide(const QvJob *job, const QvRunFacts *run)
{
  if (run->end == QV_RUN_COMPLETE)
    return decide_complete(job, run);
  if (ends[run->end].cgroup_explains && run->oom)
    return QV_CODE_MEMORY;
  if (ends[run->end].cgroup_explains && run->pids)
    return QV_CODE_PROCESSES;
  return ends[run->end].code;
}

/* ---- building ---- */

QvResult *qv_result_new(const QvJob *job, const char *job_sha256, const char *runner_id, const char *backend)
{
  QvResult *result = g_new0(QvResult, 1);
  g_strlcpy(result->job_id, job->job_id, sizeof result->job_id);
  g_strlcpy(result->job_sha256, job_sha256, sizeof result->job_sha256);
  result->tenant_id = g_strdup(job->tenant_id);
  result->runner_id = g_strdup(runner_id);
  result->pool = g_strdup(job->pool);
  result->backend = g_strdup(backend);
  result->image.name = g_strdup(job->image.name);
  result->image.digest = g_strdup(job->image.digest);
  return result;
}

void qv_result_free(QvResult *result)
{
  if (result == NULL)
    return;
  g_free(result->tenant_id);
  g_free(result->runner_id);
  g_free(result->pool);
  g_free(result->backend);
  qv_image_ref_clear(&result->image);
  qv_entry_facts_clear(&result->facts);
  for (gsize i = 0; i < result->egress_n; i++)
    g_free(result->egress[i].host);
  g_free(result->egress);
  g_free(result->payload);
  g_free(result);
}

void qv_result_apply(QvResult *result, const QvJob *job, const QvRunFacts *run)
{
  result->code = qv_result_decide(job, run);
  result->status = qv_code_status(result->code);
  result->usage.oom = run->oom || run->end == QV_RUN_OOM;
  qv_entry_facts_clear(&result->facts);
  if (run->end == QV_RUN_COMPLETE)
    qv_entry_facts_copy(run->facts, &result->facts);
  else
    g_clear_pointer(&result->payload, g_free);
}

static json_t *build_usage(const QvResult *result)
{
  json_t *usage = json_object();
  json_object_set_new(usage, "userMs", json_integer(result->usage.user_ms));
  json_object_set_new(usage, "sysMs", json_integer(result->usage.system_ms));
  json_object_set_new(usage, "maxMemoryBytes", json_integer(result->usage.max_memory_bytes));
  json_object_set_new(usage, "wallMs", json_integer(result->usage.wall_ms));
  json_object_set_new(usage, "oom", json_boolean(result->usage.oom));
  return usage;
}

static json_t *build_egress(const QvResult *result)
{
  if (!result->has_egress)
    return json_null();
  json_t *egress = json_array();
  for (gsize i = 0; i < result->egress_n; i++) {
    const QvEgressUsage *usage = &result->egress[i];
    json_t *json = json_object();
    json_object_set_new(json, "host", qv_text_or_null(usage->host));
    json_object_set_new(json, "connections", json_integer(usage->connections));
    json_object_set_new(json, "bytesUp", json_integer(usage->bytes_up));
    json_object_set_new(json, "bytesDown", json_integer(usage->bytes_down));
    json_object_set_new(json, "refused", json_integer(usage->refused));
    json_array_append_new(egress, json);
  }
  return egress;
}

json_t *qv_result_build(const QvResult *result)
{
  json_t *body = json_object();
  json_object_set_new(body, "v", json_integer(1));
  json_object_set_new(body, "jobId", json_string(result->job_id));
  json_object_set_new(body, "jobSha256", json_string(result->job_sha256));
  json_object_set_new(body, "tenantId", qv_text_or_null(result->tenant_id));
  json_object_set_new(body, "runnerId", qv_text_or_null(result->runner_id));
  json_object_set_new(body, "pool", qv_text_or_null(result->pool));
  json_object_set_new(body, "backend", qv_text_or_null(result->backend));
  json_object_set_new(body, "image", qv_image_ref_build(&result->image));
  json_object_set_new(body, "status", json_string(qv_status_text(result->status)));
  json_object_set_new(body, "code", qv_text_or_null(qv_code_text(result->code)));
  json_object_set_new(body, "startedAt", json_integer(result->started_at));
  json_object_set_new(body, "finishedAt", json_integer(result->finished_at));
  qv_facts_write_lists(&result->facts, body);
  json_object_set_new(body, "usage", build_usage(result));
  json_object_set_new(body, "egress", build_egress(result));
  json_object_set_new(body, "payload",
                      result->payload != NULL ? qv_blob_descriptor_build(result->payload) : json_null());
  return body;
}

char *qv_result_sign(const QvResult *result, const QvJob *job, const QvKey *key, gsize *n, GError **error)
{
  json_t *body = qv_result_build(result);
  g_autoptr(QvResult) again = qv_result_parse(body, job, result->job_sha256, error);
  char *text = again != NULL ? qv_envelope_sign(QV_ENVELOPE_RESULT, key, body, n, error) : NULL;
  json_decref(body);
  return text;
}
