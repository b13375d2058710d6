/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the cancel record. Source: section 2.3. */
#include "protocol/cancel.h"

#include "base/error.h"
#include "protocol/envelope.h"
#include "protocol/fields.h"

char *qv_cancel_sign(const QvJob *job, gint64 at_ms, const QvKey *key, gsize *n, GError **error)
{
  json_t *body = json_object();
  json_object_set_new(body, "v", json_integer(1));
  json_object_set_new(body, "jobId", json_string(job->job_id));
  json_object_set_new(body, "tenantId", qv_text_or_null(job->tenant_id));
  json_object_set_new(body, "pool", qv_text_or_null(job->pool));
  json_object_set_new(body, "at", json_integer(at_ms));
  char *text = qv_envelope_sign(QV_ENVELOPE_CANCEL, key, body, n, error);
  json_decref(body);
  return text;
}

static gboolean body_is_ours(const json_t *body, const QvJob *job, GError **error)
{
  static const QvJsonMember table[] = {
    { "v", QV_JSON_INTEGER },   { "jobId", QV_JSON_STRING }, { "tenantId", QV_JSON_STRING },
    { "pool", QV_JSON_STRING }, { "at", QV_JSON_INTEGER },
  };
  gint64 number = 0;
  return qv_fields_shape(body, "", table, G_N_ELEMENTS(table), error) &&
         qv_field_integer(body, "", "v", 1, 1, &number, error) &&
         qv_field_is(body, "", "jobId", job->job_id, error) &&
         qv_field_is(body, "", "tenantId", job->tenant_id, error) &&
         qv_field_is(body, "", "pool", job->pool, error) &&
         qv_field_integer(body, "", "at", 0, QV_JSON_INTEGER_MAX, &number, error);
}

gboolean qv_cancel_verify(const char *text, gsize n, const QvJob *job, QvKey *key, GError **error)
{
  json_t *body = NULL;
  if (qv_envelope_verify_key(QV_ENVELOPE_CANCEL, key, text, n, &body, error) != QV_ENVELOPE_OK)
    return FALSE;
  gboolean ours = body_is_ours(body, job, error);
  json_decref(body);
  return ours;
}

gint64 qv_cancel_ttl_ms(const QvJob *job, gint64 now_ms)
{
  return MAX(job->not_after - now_ms + QV_KEY_TTL_EXTRA_MS + job->limits.wall_ms, 1);
}
