/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the text of a run's progress. Names are identifiers: none needs an escape. */
#include "protocol/progress.h"

#include <jansson.h>
#include <string.h>

#include "format/json.h"

enum { PROGRESS_BYTES_MAX = 1024, STEPS_MAX = 1000 };

static const char *const stages[] = {
#define X(name, text) text,
  QV_RUN_STAGES(X)
#undef X
};

char *qv_run_progress_format(const QvRunProgress *progress)
{
  GString *out = g_string_new(NULL);
  g_string_append_printf(out, "{\"stage\":\"%s\"", stages[progress->stage]);
  if (progress->stage == QV_RUN_STAGE_STEP)
    g_string_append_printf(out, ",\"step\":%u,\"steps\":%u", progress->step, progress->steps_n);
  if (progress->name != NULL)
    g_string_append_printf(out, ",\"name\":\"%s\"", progress->name);
  g_string_append_printf(out, ",\"elapsedMs\":%" G_GINT64_FORMAT "}", MAX(progress->elapsed_ms, 0));
  return g_string_free(out, FALSE);
}

static gboolean read_number(json_t *root, const char *name, gint64 least, gint64 most, gint64 *out)
{
  json_t *value = json_object_get(root, name);
  if (!json_is_integer(value) || json_integer_value(value) < least || json_integer_value(value) > most)
    return FALSE;
  *out = json_integer_value(value);
  return TRUE;
}

static gboolean read_progress(json_t *root, QvRunProgress *out)
{
  const char *text = json_string_value(json_object_get(root, "stage"));
  gint64 step = 0, steps_n = 0;
  for (guint i = 0; text != NULL && i < QV_RUN_STAGES_N; i++) {
    if (strcmp(text, stages[i]) != 0)
      continue;
    out->stage = i;
    if (i == QV_RUN_STAGE_STEP && (!read_number(root, "steps", 1, STEPS_MAX, &steps_n) ||
                                   !read_number(root, "step", 1, steps_n, &step)))
      return FALSE;
    out->step = step;
    out->steps_n = steps_n;
    return read_number(root, "elapsedMs", 0, G_MAXINT64, &out->elapsed_ms);
  }
  return FALSE;
}

gboolean qv_run_progress_parse(const char *json, gsize len, QvRunProgress *progress)
{
  QvRunProgress out = {0};
  if (len > PROGRESS_BYTES_MAX)
    return FALSE;
  json_t *root = qv_json_parse(json, len, PROGRESS_BYTES_MAX, QV_JSON_SIGNED, NULL);
  gboolean fine = json_is_object(root) && read_progress(root, &out);
  json_decref(root);
  if (fine)
    *progress = out;
  return fine;
}
