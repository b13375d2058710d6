/* SPDX-License-Identifier: Apache-2.0 */
/* Owns egress tokens: their text, their record, the usage message. Source:
 * section 7. */
#include "protocol/egress_token.h"

#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/error.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "format/error.h"
#include "protocol/fields.h"
#include "protocol/result_internal.h"

static const char standard[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char url_safe[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void qv_token_format(const guint8 bytes[QV_TOKEN_BYTES], char token[QV_TOKEN_LEN + 1])
{
  char text[QV_BASE64_LEN(QV_TOKEN_BYTES) + 1];
  qv_base64_encode(bytes, QV_TOKEN_BYTES, text);
  for (gsize i = 0; i < QV_TOKEN_LEN; i++)
    token[i] = text[i] == '+' ? '-' : text[i] == '/' ? '_' : text[i];
  token[QV_TOKEN_LEN] = '\0';
  explicit_bzero(text, sizeof text);
}

gboolean qv_token_valid(const char *token, gsize n)
{
  char text[QV_BASE64_LEN(QV_TOKEN_BYTES)];
  guint8 bytes[QV_TOKEN_BYTES];
  gsize bytes_n = 0;
  if (n != QV_TOKEN_LEN)
    return FALSE;
  for (gsize i = 0; i < n; i++) {
    const char *at = token[i] != '\0' ? strchr(url_safe, token[i]) : NULL;
    if (at == NULL)
      return FALSE;
    text[i] = standard[at - url_safe];
  }
  text[QV_TOKEN_LEN] = '=';
  gboolean valid = qv_base64_decode(text, sizeof text, bytes, sizeof bytes, &bytes_n) && bytes_n == QV_TOKEN_BYTES;
  explicit_bzero(text, sizeof text);
  explicit_bzero(bytes, sizeof bytes);
  return valid;
}

void qv_token_hash(const char *token, char hex[65])
{
  guint8 digest[QV_SHA256_BYTES];
  qv_sha256(token, strlen(token), digest);
  qv_hex_encode(digest, sizeof digest, hex);
}

gint64 qv_token_expires_at(const QvJob *job, gint64 now_ms, gint64 wall_end_ms)
{
  gint64 setup_ms = job->setup != NULL ? qv_job_step_timeout_ms(job, job->setup) : 0;
  return MIN(now_ms + QV_KEY_TTL_EXTRA_MS + setup_ms, wall_end_ms);
}

char *qv_token_record_format(const QvTokenRecord *record, gsize *n)
{
  json_t *json = json_object();
  json_object_set_new(json, "v", json_integer(1));
  json_object_set_new(json, "jobId", json_string(record->job_id));
  json_object_set_new(json, "hosts", qv_texts_build(record->hosts));
  json_object_set_new(json, "source", qv_text_or_null(record->source));
  json_object_set_new(json, "expiresAt", json_integer(record->expires_at));
  char *dumped = json_dumps(json, JSON_COMPACT);
  json_decref(json);
  char *text = g_strdup(dumped);
  free(dumped);
  *n = strlen(text);
  return text;
}

void qv_token_record_free(QvTokenRecord *record)
{
  if (record == NULL)
    return;
  g_strfreev(record->hosts);
  g_free(record->source);
  g_free(record);
}

static gboolean parse_record(const json_t *json, QvTokenRecord *record, GError **error)
{
  static const QvJsonMember table[] = {
    { "v", QV_JSON_INTEGER },
    { "jobId", QV_JSON_STRING },
    { "hosts", QV_JSON_ARRAY },
    { "source", QV_JSON_STRING | QV_JSON_NULL },
    { "expiresAt", QV_JSON_INTEGER },
  };
  gint64 version = 0;
  if (!qv_fields_shape(json, "", table, G_N_ELEMENTS(table), error) ||
      !qv_field_integer(json, "", "v", 1, 1, &version, error) ||
      !qv_field_text_into(json, "", "jobId", qv_job_id_valid, record->job_id, sizeof record->job_id, error) ||
      !qv_field_integer(json, "", "expiresAt", 0, QV_JSON_INTEGER_MAX, &record->expires_at, error) ||
      (record->hosts = qv_field_texts(json, "", "hosts", 1, QV_JOB_EGRESS_MAX, qv_host_port_valid, error)) == NULL)
    return FALSE;
  if (qv_field_is_null(json, "source"))
    return TRUE;
  return (record->source = qv_field_text(json, "", "source", qv_ipv4_valid, error)) != NULL;
}

QvTokenRecord *qv_token_record_parse(const char *text, gsize n, GError **error)
{
  g_autoptr(QvTokenRecord) record = g_new0(QvTokenRecord, 1);
  json_t *json = qv_json_load(text, n, QV_RECORD_JSON_BYTES_MAX, QV_JSON_SIGNED, "egress record", error);
  if (json == NULL)
    return NULL;
  gboolean good = parse_record(json, record, error);
  json_decref(json);
  return good ? g_steal_pointer(&record) : NULL;
}

gboolean qv_token_usage_parse(const char *text, gsize n, const char *hash, QvResult *result, GError **error)
{
  static const QvJsonMember table[] = {
    { "v", QV_JSON_INTEGER }, { "token", QV_JSON_STRING }, { "hosts", QV_JSON_ARRAY } };
  gint64 version = 0;
  json_t *json = qv_json_load(text, n, QV_TOKEN_USAGE_BYTES_MAX, QV_JSON_SIGNED, "egress usage", error);
  if (json == NULL)
    return FALSE;
  gboolean good = qv_fields_shape(json, "", table, G_N_ELEMENTS(table), error) &&
                  qv_field_integer(json, "", "v", 1, 1, &version, error) &&
                  qv_field_is(json, "", "token", hash, error) &&
                  qv_egress_usage_parse(json_object_get(json, "hosts"), "hosts", result, error);
  json_decref(json);
  return good;
}
