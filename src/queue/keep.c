/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/keep.h"

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
