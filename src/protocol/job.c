/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the body of a job: every row of section 2's tables, in the order of the
 * table; building and signing for producers. Ceilings, pools and times are admission's. */
#include "protocol/job.h"

#include <string.h>

#include "base/error.h"
#include "format/glob.h"
#include "protocol/envelope.h"
#include "protocol/fields.h"
#include "protocol/job_internal.h"

static const char *const backend_names[] = { "docker-runsc", "runsc", "firecracker", "kubernetes-runsc",
                                             "docker-runc-insecure", NULL };
static const char *const kind_names[] = { "scan", "check", NULL };

gboolean qv_backend_name_valid(const char *name)
{
  return g_strv_contains(backend_names, name);
}

static gboolean kind_valid(const char *kind)
{
  return g_strv_contains(kind_names, kind);
}

/* Relative to the repository's root: an absolute pattern, or one with a ".." part, would match nothing and is a
 * mistake. */
static gboolean artefact_glob_valid(const char *glob)
{
  if (glob[0] == '/' || !qv_glob_valid(glob, strlen(glob)))
    return FALSE;
  g_auto(GStrv) parts = g_strsplit(glob, "/", -1);
  return !g_strv_contains((const char *const *)parts, "..");
}

QvJob *qv_job_new(void)
{
  QvJob *job = g_new0(QvJob, 1);
  job->deletes = g_new0(char *, 1);
  job->egress = g_new0(char *, 1);
  job->artefacts = g_new0(char *, 1);
  return job;
}

void qv_job_free(QvJob *job)
{
  if (job == NULL)
    return;
  g_free(job->tenant_id);
  g_free(job->pool);
  g_free(job->kind);
  g_strfreev(job->backends);
  qv_image_ref_clear(&job->image);
  g_free(job->overlay);
  g_strfreev(job->deletes);
  if (job->setup != NULL)
    qv_step_clear(job->setup);
  g_free(job->setup);
  g_strfreev(job->egress);
  for (gsize i = 0; i < job->run_n; i++)
    qv_step_clear(&job->run[i]);
  g_free(job->run);
  g_strfreev(job->artefacts);
  g_free(job);
}

static gboolean parse_names(const json_t *body, QvJob *job, GError **error)
{
  gint64 version = 0;
  return qv_field_integer(body, "", "v", 1, 1, &version, error) &&
         qv_field_text_into(body, "", "jobId", qv_job_id_valid, job->job_id, sizeof job->job_id, error) &&
         (job->tenant_id = qv_field_text(body, "", "tenantId", qv_identifier_valid, error)) != NULL &&
         (job->pool = qv_field_text(body, "", "pool", qv_identifier_valid, error)) != NULL &&
         (job->kind = qv_field_text(body, "", "kind", kind_valid, error)) != NULL &&
         (job->backends = qv_field_texts(body, "", "backends", 1, QV_JOB_BACKENDS_MAX, qv_backend_name_valid,
                                         error)) != NULL &&
         qv_image_ref_parse(json_object_get(body, "image"), "image", &job->image, error);
}

static gboolean parse_blobs(const json_t *body, gint64 max_bytes, QvJob *job, GError **error)
{
  if (!qv_blob_descriptor_parse(json_object_get(body, "base"), "base", job->job_id, "base", max_bytes, &job->base,
                                error))
    return FALSE;
  if (qv_field_is_null(body, "overlay"))
    return TRUE;
  job->overlay = g_new0(QvBlobDescriptor, 1);
  return qv_blob_descriptor_parse(json_object_get(body, "overlay"), "overlay", job->job_id, "overlay",
                                  max_bytes - job->base.size, job->overlay, error);
}

static gboolean parse_limits(const json_t *limits, const QvLimitsPolicy *policy, QvJob *job, GError **error)
{
#define ROW(field, name) { name, QV_JSON_INTEGER | QV_JSON_OPTIONAL },
  static const QvJsonMember table[] = { QV_LIMITS_TABLE(ROW) };
#undef ROW
  if (!qv_fields_shape(limits, "limits", table, G_N_ELEMENTS(table), error))
    return FALSE;
#define READ(field, name)                              \
  if (json_object_get(limits, name) != NULL &&         \
      !qv_field_integer(limits, "limits", name, 1, QV_JSON_INTEGER_MAX, &job->given.field, error)) \
    return FALSE;
  QV_LIMITS_TABLE(READ)
#undef READ
  qv_limits_resolve(policy, &job->given, &job->limits);
  return TRUE;
}

static gboolean step_name_is_taken(const QvJob *job, const char *name)
{
  if (job->setup != NULL && strcmp(job->setup->name, name) == 0)
    return TRUE;
  for (gsize i = 0; i < job->run_n; i++)
    if (strcmp(job->run[i].name, name) == 0)
      return TRUE;
  return FALSE;
}

static gboolean parse_steps(const json_t *body, QvJob *job, GError **error)
{
  const json_t *run = json_object_get(body, "run");
  gsize n = json_array_size(run);
  if (!qv_field_is_null(body, "setup")) {
    job->setup = g_new0(QvStep, 1);
    if (!qv_step_parse(json_object_get(body, "setup"), "setup", job->limits.wall_ms, job->setup, error))
      return FALSE;
  }
  if (n < 1 || n > QV_JOB_STEPS_MAX)
    return qv_fields_fail(error, "run", "has %zu steps, not 1 to %d", n, QV_JOB_STEPS_MAX);
  job->run = g_new0(QvStep, n);
  for (gsize i = 0; i < n; i++) {
    QvStep step = { 0 };
    g_autofree char *path = g_strdup_printf("run[%zu]", i);
    gboolean good = qv_step_parse(json_array_get(run, i), path, job->limits.wall_ms, &step, error);
    if (good && step_name_is_taken(job, step.name))
      good = qv_fields_fail(error, path, "the name %s is another step's", step.name);
    if (!good) {
      qv_step_clear(&step);
      return FALSE;
    }
    job->run[job->run_n++] = step;
  }
  return TRUE;
}

static gboolean replace_texts(char ***field, char **texts)
{
  if (texts == NULL)
    return FALSE;
  g_strfreev(*field);
  *field = texts;
  return TRUE;
}

static gboolean parse_body(const json_t *body, const QvLimitsPolicy *policy, QvJob *job, GError **error)
{
  static const QvJsonMember table[] = {
    { "v", QV_JSON_INTEGER },
    { "jobId", QV_JSON_STRING },
    { "tenantId", QV_JSON_STRING },
    { "pool", QV_JSON_STRING },
    { "kind", QV_JSON_STRING },
    { "backends", QV_JSON_ARRAY },
    { "image", QV_JSON_OBJECT },
    { "base", QV_JSON_OBJECT },
    { "overlay", QV_JSON_OBJECT | QV_JSON_NULL },
    { "deletes", QV_JSON_ARRAY },
    { "setup", QV_JSON_OBJECT | QV_JSON_NULL },
    { "egress", QV_JSON_ARRAY },
    { "run", QV_JSON_ARRAY },
    { "artefacts", QV_JSON_ARRAY },
    { "limits", QV_JSON_OBJECT },
    { "issuedAt", QV_JSON_INTEGER },
    { "notAfter", QV_JSON_INTEGER },
  };
  if (!qv_fields_shape(body, "", table, G_N_ELEMENTS(table), error) || !parse_names(body, job, error) ||
      !parse_blobs(body, policy->max_blob_bytes, job, error) ||
      !replace_texts(&job->deletes, qv_field_texts(body, "", "deletes", 0, QV_JOB_DELETES_MAX, qv_relative_path_valid,
                                                   error)) ||
      !parse_limits(json_object_get(body, "limits"), policy, job, error) || !parse_steps(body, job, error) ||
      !replace_texts(&job->egress,
                     qv_field_texts(body, "", "egress", 0, QV_JOB_EGRESS_MAX, qv_host_port_valid, error)))
    return FALSE;
  if (job->egress[0] != NULL && job->setup == NULL)
    return qv_fields_fail(error, "egress", "is for setup, and there is none");
  return replace_texts(&job->artefacts, qv_field_texts(body, "", "artefacts", 0, QV_JOB_ARTEFACT_GLOBS_MAX,
                                                       artefact_glob_valid, error)) &&
         qv_field_integer(body, "", "issuedAt", 0, QV_JSON_INTEGER_MAX, &job->issued_at, error) &&
         qv_field_integer(body, "", "notAfter", 0, QV_JSON_INTEGER_MAX, &job->not_after, error);
}

QvJob *qv_job_parse(const json_t *body, const QvLimitsPolicy *policy, GError **error)
{
  g_autoptr(QvJob) job = qv_job_new();
  return parse_body(body, policy, job, error) ? g_steal_pointer(&job) : NULL;
}

json_t *qv_job_build(const QvJob *job)
{
  json_t *body = json_object();
  json_t *run = json_array();
  json_t *limits = json_object();
  for (gsize i = 0; i < job->run_n; i++)
    json_array_append_new(run, qv_step_build(&job->run[i]));
#define WRITE(field, name)    \
  if (job->given.field != 0)  \
    json_object_set_new(limits, name, json_integer(job->given.field));
  QV_LIMITS_TABLE(WRITE)
#undef WRITE
  json_object_set_new(body, "v", json_integer(1));
  json_object_set_new(body, "jobId", qv_text_or_null(job->job_id));
  json_object_set_new(body, "tenantId", qv_text_or_null(job->tenant_id));
  json_object_set_new(body, "pool", qv_text_or_null(job->pool));
  json_object_set_new(body, "kind", qv_text_or_null(job->kind));
  json_object_set_new(body, "backends", qv_texts_build(job->backends));
  json_object_set_new(body, "image", qv_image_ref_build(&job->image));
  json_object_set_new(body, "base", qv_blob_descriptor_build(&job->base));
  json_object_set_new(body, "overlay", job->overlay != NULL ? qv_blob_descriptor_build(job->overlay) : json_null());
  json_object_set_new(body, "deletes", qv_texts_build(job->deletes));
  json_object_set_new(body, "setup", job->setup != NULL ? qv_step_build(job->setup) : json_null());
  json_object_set_new(body, "egress", qv_texts_build(job->egress));
  json_object_set_new(body, "run", run);
  json_object_set_new(body, "artefacts", qv_texts_build(job->artefacts));
  json_object_set_new(body, "limits", limits);
  json_object_set_new(body, "issuedAt", json_integer(job->issued_at));
  json_object_set_new(body, "notAfter", json_integer(job->not_after));
  return body;
}

char *qv_job_sign(const QvJob *job, const QvLimitsPolicy *policy, const QvKey *key, gsize *n, char job_sha256[65],
                  GError **error)
{
  char digest[65];
  char *text = NULL;
  json_t *body = qv_job_build(job);
  g_autoptr(QvJob) again = qv_job_parse(body, policy, error);
  if (again != NULL && qv_envelope_body_sha256(body, digest, error))
    text = qv_envelope_sign(QV_ENVELOPE_JOB, key, body, n, error);
  json_decref(body);
  if (text != NULL && job_sha256 != NULL)
    memcpy(job_sha256, digest, sizeof digest);
  return text;
}

gint64 qv_job_step_timeout_ms(const QvJob *job, const QvStep *step)
{
  return step->timeout_ms != 0 ? step->timeout_ms : job->limits.wall_ms;
}
