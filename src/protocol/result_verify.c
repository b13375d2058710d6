/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the worker's checks of a result: the signature, then every member
 * against the tables, against the job, and against each other. A result that fails any of
 * them is bad_result, whatever it says. Source: section 6. */
#include <string.h>

#include "base/error.h"
#include "format/tar.h"
#include "protocol/envelope.h"
#include "protocol/fields.h"
#include "protocol/job_internal.h"
#include "protocol/record_internal.h"
#include "protocol/result_internal.h"

void qv_result_caps(const QvJob *job, QvResultCaps *caps)
{
  const QvLimits *given = &job->given;
  caps->log_bytes = given->log_bytes != 0 ? given->log_bytes : QV_LOG_BYTES_CEILING;
  caps->artefact_bytes = given->artefact_bytes != 0 ? given->artefact_bytes : QV_ARTEFACT_BYTES_CEILING;
  caps->artefact_count = given->artefact_count != 0 ? given->artefact_count : QV_ARTEFACT_COUNT_CEILING;
  gint64 members = caps->artefact_count + (gint64)job->run_n + 1;
  caps->payload_tar_bytes = caps->artefact_bytes + ((gint64)job->run_n + 1) * caps->log_bytes +
                            members * (QV_TAR_HEADER_BYTES_MAX + QV_TAR_BLOCK_BYTES) + QV_TAR_END_BYTES;
  /* Stored deflate costs 5 bytes a 64 KiB block; a member's frame is 18: a hundredth covers both. */
  caps->payload_gzip_bytes = caps->payload_tar_bytes + caps->payload_tar_bytes / 100 + 1024;
}

static gboolean host_valid(const char *host)
{
  gsize n = strlen(host);
  return n >= 1 && n <= QV_EGRESS_HOST_BYTES_MAX && strspn(host, "abcdefghijklmnopqrstuvwxyz0123456789.:-_") == n;
}

gboolean qv_egress_usage_parse(const json_t *array, const char *path, QvResult *result, GError **error)
{
  static const QvJsonMember table[] = {
    { "host", QV_JSON_STRING },       { "connections", QV_JSON_INTEGER }, { "bytesUp", QV_JSON_INTEGER },
    { "bytesDown", QV_JSON_INTEGER }, { "refused", QV_JSON_INTEGER },
  };
  gsize n = json_array_size(array);
  if (n > QV_EGRESS_USAGE_MAX)
    return qv_fields_fail(error, path, "has %zu entries, not up to %d", n, QV_EGRESS_USAGE_MAX);
  g_autofree QvEgressUsage *rows = g_new0(QvEgressUsage, n + 1);
  gsize done = 0;
  for (; done < n; done++) {
    const json_t *json = json_array_get(array, done);
    QvEgressUsage *row = &rows[done];
    g_autofree char *at = g_strdup_printf("%s[%zu]", path, done);
    if (!qv_fields_shape(json, at, table, G_N_ELEMENTS(table), error) ||
        !qv_field_integer(json, at, "connections", 0, QV_JSON_INTEGER_MAX, &row->connections, error) ||
        !qv_field_integer(json, at, "bytesUp", 0, QV_JSON_INTEGER_MAX, &row->bytes_up, error) ||
        !qv_field_integer(json, at, "bytesDown", 0, QV_JSON_INTEGER_MAX, &row->bytes_down, error) ||
        !qv_field_integer(json, at, "refused", 0, QV_JSON_INTEGER_MAX, &row->refused, error) ||
        (row->host = qv_field_text(json, at, "host", host_valid, error)) == NULL)
      break;
  }
  if (done < n) {
    for (gsize i = 0; i < done; i++)
      g_free(rows[i].host);
    return FALSE;
  }
  for (gsize i = 0; i < result->egress_n; i++)
    g_free(result->egress[i].host);
  g_free(result->egress);
  result->egress = g_steal_pointer(&rows);
  result->egress_n = n;
  result->has_egress = TRUE;
  return TRUE;
}

/* Whose result it is: every name against the job. */
static gboolean parse_names(const json_t *body, const QvJob *job, const char *job_sha256, QvResult *result,
                            GError **error)
{
  gint64 version = 0;
  if (!qv_field_integer(body, "", "v", 1, 1, &version, error) || !qv_field_is(body, "", "jobId", job->job_id, error) ||
      !qv_field_is(body, "", "jobSha256", job_sha256, error) ||
      !qv_field_is(body, "", "tenantId", job->tenant_id, error) || !qv_field_is(body, "", "pool", job->pool, error) ||
      !qv_image_ref_parse(json_object_get(body, "image"), "image", &result->image, error) ||
      !qv_field_is(json_object_get(body, "image"), "image", "name", job->image.name, error) ||
      !qv_field_is(json_object_get(body, "image"), "image", "digest", job->image.digest, error) ||
      (result->backend = qv_field_text(body, "", "backend", qv_backend_name_valid, error)) == NULL ||
      (result->runner_id = qv_field_text(body, "", "runnerId", qv_identifier_valid, error)) == NULL)
    return FALSE;
  if (!g_strv_contains((const char *const *)job->backends, result->backend))
    return qv_fields_fail(error, "backend", "is none of the job's");
  g_strlcpy(result->job_id, job->job_id, sizeof result->job_id);
  g_strlcpy(result->job_sha256, job_sha256, sizeof result->job_sha256);
  result->tenant_id = g_strdup(job->tenant_id);
  result->pool = g_strdup(job->pool);
  return TRUE;
}

static gboolean parse_verdict(const json_t *body, QvResult *result, GError **error)
{
  const json_t *code = json_object_get(body, "code");
  if (!json_is_null(code) && !qv_code_find(json_string_value(code), &result->code))
    return qv_fields_fail(error, "code", "is not known");
  result->status = qv_code_status(result->code);
  return qv_field_is(body, "", "status", qv_status_text(result->status), error);
}

static gboolean parse_usage(const json_t *usage, QvResult *result, GError **error)
{
  static const QvJsonMember table[] = {
    { "userMs", QV_JSON_INTEGER }, { "sysMs", QV_JSON_INTEGER }, { "maxMemoryBytes", QV_JSON_INTEGER },
    { "wallMs", QV_JSON_INTEGER }, { "oom", QV_JSON_BOOL },
  };
  if (!qv_fields_shape(usage, "usage", table, G_N_ELEMENTS(table), error) ||
      !qv_field_integer(usage, "usage", "userMs", 0, QV_JSON_INTEGER_MAX, &result->usage.user_ms, error) ||
      !qv_field_integer(usage, "usage", "sysMs", 0, QV_JSON_INTEGER_MAX, &result->usage.system_ms, error) ||
      !qv_field_integer(usage, "usage", "maxMemoryBytes", 0, QV_JSON_INTEGER_MAX, &result->usage.max_memory_bytes,
                        error) ||
      !qv_field_integer(usage, "usage", "wallMs", 0, QV_JSON_INTEGER_MAX, &result->usage.wall_ms, error))
    return FALSE;
  result->usage.oom = qv_field_bool(usage, "oom");
  return TRUE;
}

static gboolean facts_are_the_jobs(const QvResult *result, const QvJob *job, GError **error)
{
  const QvEntryFacts *facts = &result->facts;
  QvResultCaps caps;
  gint64 bytes = 0;
  qv_result_caps(job, &caps);
  if (facts->has_setup && (job->setup == NULL || strcmp(facts->setup.name, job->setup->name) != 0))
    return qv_fields_fail(error, "setup", "is not the job's");
  if (facts->steps_n > job->run_n)
    return qv_fields_fail(error, "steps", "has more entries than the job");
  for (gsize i = 0; i < facts->steps_n; i++)
    if (strcmp(facts->steps[i].name, job->run[i].name) != 0)
      return qv_fields_fail(error, "steps", "entry %zu is not the job's", i);
  for (gsize i = 0; i < facts->artefacts_n; i++) {
    /* Each is held against the cap before it is added: no sum can run over. */
    if (facts->artefacts[i].size > caps.artefact_bytes - bytes)
      return qv_fields_fail(error, "artefacts", "have more bytes than the job's limits allow");
    bytes += facts->artefacts[i].size;
  }
  if ((gint64)facts->artefacts_n > caps.artefact_count)
    return qv_fields_fail(error, "artefacts", "has more entries than the job's limits allow");
  return TRUE;
}

static gboolean ran_to_its_end(const QvResult *result, const QvJob *job)
{
  const QvEntryFacts *facts = &result->facts;
  if (facts->has_setup != (job->setup != NULL) || (facts->has_setup && !qv_step_record_ok(&facts->setup)))
    return FALSE;
  for (gsize i = 0; i < facts->steps_n; i++)
    if (!qv_step_record_ok(&facts->steps[i]) && !job->run[i].continue_on_failure)
      return FALSE;
  return facts->steps_n == job->run_n;
}

/* The record that a failure is blamed on: the last that ran, not ok and not allowed to fail. */
static const QvStepRecord *failed_record(const QvResult *result, const QvJob *job)
{
  const QvEntryFacts *facts = &result->facts;
  const QvStepRecord *last = facts->has_setup ? &facts->setup : NULL;
  if (facts->steps_n > 0)
    last = job->run[facts->steps_n - 1].continue_on_failure ? NULL : &facts->steps[facts->steps_n - 1];
  return last != NULL && !qv_step_record_ok(last) ? last : NULL;
}

/* The verdict against the records: a success without its steps is the lie that matters most. */
static gboolean verdict_fits(const QvResult *result, const QvJob *job, GError **error)
{
  const QvEntryFacts *facts = &result->facts;
  const QvStepRecord *failed = failed_record(result, job);
  gboolean fits = TRUE;
  switch (result->code) {
  case QV_CODE_NONE:
    fits = ran_to_its_end(result, job);
    break;
  case QV_CODE_SETUP_FAILED:
    fits = failed == &facts->setup && facts->has_setup && facts->steps_n == 0;
    break;
  case QV_CODE_STEP_FAILED:
    fits = failed != NULL && facts->steps_n > 0;
    break;
  case QV_CODE_TIMEOUT:
    fits = failed != NULL && failed->timed_out;
    break;
  case QV_CODE_MEMORY:
    fits = result->usage.oom;
    break;
  case QV_CODE_PROCESSES:
  case QV_CODE_DISK:
  case QV_CODE_OUTPUT:
    break;
  default:
    /* Nothing complete was read: nothing can have come of it. */
    fits = !facts->has_setup && facts->steps_n == 0 && facts->artefacts_n == 0 && result->payload == NULL;
    break;
  }
  if (!fits)
    return qv_fields_fail(error, "code", "contradicts the records");
  if (result->finished_at < result->started_at)
    return qv_fields_fail(error, "finishedAt", "is before startedAt");
  return TRUE;
}

static gboolean parse_rest(const json_t *body, const QvJob *job, QvResult *result, GError **error)
{
  QvResultCaps caps;
  qv_result_caps(job, &caps);
  if (!parse_verdict(body, result, error) ||
      !qv_field_integer(body, "", "startedAt", 0, QV_JSON_INTEGER_MAX, &result->started_at, error) ||
      !qv_field_integer(body, "", "finishedAt", 0, QV_JSON_INTEGER_MAX, &result->finished_at, error) ||
      !qv_facts_read_lists(body, &result->facts, error) || !parse_usage(json_object_get(body, "usage"), result, error))
    return FALSE;
  if (!qv_field_is_null(body, "egress") &&
      !qv_egress_usage_parse(json_object_get(body, "egress"), "egress", result, error))
    return FALSE;
  if (qv_field_is_null(body, "payload"))
    return TRUE;
  result->payload = g_new0(QvBlobDescriptor, 1);
  return qv_blob_descriptor_parse(json_object_get(body, "payload"), "payload", job->job_id, "result",
                                  caps.payload_gzip_bytes, result->payload, error);
}

QvResult *qv_result_parse(const json_t *body, const QvJob *job, const char *job_sha256, GError **error)
{
  static const QvJsonMember table[] = {
    { "v", QV_JSON_INTEGER },
    { "jobId", QV_JSON_STRING },
    { "jobSha256", QV_JSON_STRING },
    { "tenantId", QV_JSON_STRING },
    { "runnerId", QV_JSON_STRING },
    { "pool", QV_JSON_STRING },
    { "backend", QV_JSON_STRING },
    { "image", QV_JSON_OBJECT },
    { "status", QV_JSON_STRING },
    { "code", QV_JSON_STRING | QV_JSON_NULL },
    { "startedAt", QV_JSON_INTEGER },
    { "finishedAt", QV_JSON_INTEGER },
    { "setup", QV_JSON_OBJECT | QV_JSON_NULL },
    { "steps", QV_JSON_ARRAY },
    { "artefacts", QV_JSON_ARRAY },
    { "artefactsDropped", QV_JSON_INTEGER },
    { "usage", QV_JSON_OBJECT },
    { "egress", QV_JSON_ARRAY | QV_JSON_NULL },
    { "payload", QV_JSON_OBJECT | QV_JSON_NULL },
  };
  g_autoptr(QvResult) result = g_new0(QvResult, 1);
  if (!qv_fields_shape(body, "", table, G_N_ELEMENTS(table), error) ||
      !parse_names(body, job, job_sha256, result, error) || !parse_rest(body, job, result, error) ||
      !facts_are_the_jobs(result, job, error) || !verdict_fits(result, job, error))
    return NULL;
  return g_steal_pointer(&result);
}

QvResult *qv_result_verify(const char *text, gsize n, const QvJob *job, const char *job_sha256, QvKey *key,
                           GError **error)
{
  json_t *body = NULL;
  if (qv_envelope_verify_key(QV_ENVELOPE_RESULT, key, text, n, &body, error) != QV_ENVELOPE_OK)
    return NULL;
  QvResult *result = qv_result_parse(body, job, job_sha256, error);
  json_decref(body);
  return result;
}
