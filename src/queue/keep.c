/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/keep.h"

#include <string.h>

#include "format/json.h"

#define OPTIONS_BYTES_MAX (64 * 1024)
#define REMOVALS_DEFAULT 1000
#define REMOVALS_MAX 10000

static gint64 number(const json_t *value, gint64 fallback)
{
  if (json_is_integer(value))
    return json_integer_value(value);
  if (json_is_real(value) && json_real_value(value) >= -1e15 && json_real_value(value) <= 1e15)
    return (gint64)json_real_value(value);
  return fallback;
}

static void parse_keep(const json_t *value, QvKeep *keep)
{
  *keep = (QvKeep){ .count = -1, .age_s = -1, .limit = REMOVALS_DEFAULT };
  if (json_is_true(value)) {
    keep->count = 0;
  } else if (json_is_number(value)) {
    keep->count = MAX(number(value, -1), -1);
  } else if (json_is_object(value)) {
    keep->count = MAX(number(json_object_get(value, "count"), -1), -1);
    keep->age_s = CLAMP(number(json_object_get(value, "age"), -1), -1, G_MAXINT32);
    keep->limit = CLAMP(number(json_object_get(value, "limit"), REMOVALS_DEFAULT), 1, REMOVALS_MAX);
  }
}

void qv_job_options_parse(const char *json, gsize len, QvJobOptions *options)
{
  json_t *root = json ? qv_json_parse(json, len, OPTIONS_BYTES_MAX, QV_JSON_ANY, NULL) : NULL;
  parse_keep(json_object_get(root, "removeOnComplete"), &options->completed);
  parse_keep(json_object_get(root, "removeOnFail"), &options->failed);
  options->attempts = CLAMP(number(json_object_get(root, "attempts"), 0), 0, G_MAXINT32);
  json_decref(root);
}

/* Whatever such an id is replaced by of its kind, the text around it means the same. */
static gboolean is_plain(const char *id)
{
  const char *p = id;
  while (g_ascii_isalnum(*p) || *p == '-' || *p == '_')
    p++;
  return p > id && *p == '\0';
}

static gboolean is_remembered(const QvOptionsMemo *memo, const char *json, gsize len, const char *id, gsize id_len)
{
  gsize behind = memo->rest_len - memo->id_at;
  return memo->rest && len == memo->rest_len + id_len && len <= OPTIONS_BYTES_MAX &&
         memcmp(json, memo->rest, memo->id_at) == 0 && memcmp(json + memo->id_at, id, id_len) == 0 &&
         memcmp(json + memo->id_at + id_len, memo->rest + memo->id_at, behind) == 0;
}

void qv_job_options_recall(QvOptionsMemo *memo, const char *json, gsize len, const char *id, QvJobOptions *options)
{
  static const char key[] = "\"jobId\":\"";
  gsize id_len = strlen(id);
  gboolean plain = json && is_plain(id);
  if (plain && is_remembered(memo, json, len, id, id_len)) {
    *options = memo->options;
    return;
  }
  qv_job_options_parse(json, len, options);
  const char *at = plain && len <= OPTIONS_BYTES_MAX ? g_strstr_len(json, len, key) : NULL;
  gsize id_at = at ? (gsize)(at - json) + strlen(key) : 0;
  if (!at || len - id_at <= id_len || memcmp(json + id_at, id, id_len) != 0 || json[id_at + id_len] != '"')
    return;
  g_free(memo->rest);
  memo->rest_len = len - id_len;
  memo->rest = g_malloc(memo->rest_len);
  memcpy(memo->rest, json, id_at);
  memcpy(memo->rest + id_at, json + id_at + id_len, memo->rest_len - id_at);
  memo->id_at = id_at;
  memo->options = *options;
}

void qv_options_memo_clear(QvOptionsMemo *memo)
{
  g_clear_pointer(&memo->rest, g_free);
}
