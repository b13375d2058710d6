/* SPDX-License-Identifier: Apache-2.0 */
/* Owns a step: its parser, its builder. Source: section 2. */
#include <string.h>

#include "protocol/fields.h"
#include "protocol/job_internal.h"

void qv_step_clear(QvStep *step)
{
  g_free(step->name);
  g_strfreev(step->argv);
  g_free(step->cwd);
  for (gsize i = 0; i < step->env_n; i++) {
    g_free(step->env[i].name);
    g_free(step->env[i].value);
  }
  g_free(step->env);
  memset(step, 0, sizeof *step);
}

static gboolean env_name_valid(const char *name)
{
  gsize n = strlen(name);
  if (n == 0 || n > QV_STEP_ENV_NAME_BYTES_MAX || g_ascii_isdigit(name[0]))
    return FALSE;
  for (gsize i = 0; i < n; i++)
    if (!g_ascii_isalnum(name[i]) && name[i] != '_')
      return FALSE;
  return TRUE;
}

static int compare_env(const void *a, const void *b)
{
  return strcmp(((const QvStepEnv *)a)->name, ((const QvStepEnv *)b)->name);
}

static gboolean parse_env(const json_t *env, const char *path, QvStep *step, GError **error)
{
  gsize n = json_object_size(env);
  if (n > QV_STEP_ENV_MAX)
    return qv_fields_fail(error, path, "env has %zu names, not up to %d", n, QV_STEP_ENV_MAX);
  step->env = g_new0(QvStepEnv, n + 1);
  const char *name;
  json_t *value;
  json_object_foreach ((json_t *)env, name, value) {
    gsize value_n = json_string_length(value);
    if (!env_name_valid(name))
      return qv_fields_fail(error, path, "env has a name that is none");
    if (!json_is_string(value) || strlen(json_string_value(value)) != value_n || value_n > QV_STEP_ENV_VALUE_BYTES_MAX)
      return qv_fields_fail(error, path, "env.%s is no text of at most %d bytes", name, QV_STEP_ENV_VALUE_BYTES_MAX);
    step->env[step->env_n].name = g_strdup(name);
    step->env[step->env_n++].value = g_strdup(json_string_value(value));
  }
  qsort(step->env, step->env_n, sizeof *step->env, compare_env);
  return TRUE;
}

static gboolean cwd_valid(const char *cwd)
{
  return strcmp(cwd, ".") == 0 || qv_relative_path_valid(cwd);
}

static gboolean parse_cwd(const json_t *json, const char *path, QvStep *step, GError **error)
{
  step->cwd = qv_field_text(json, path, "cwd", cwd_valid, error);
  /* "." is what absence means: one form from here on. */
  if (step->cwd != NULL && strcmp(step->cwd, ".") == 0)
    g_clear_pointer(&step->cwd, g_free);
  else if (step->cwd == NULL)
    return FALSE;
  return TRUE;
}

gboolean qv_step_parse(const json_t *json, const char *path, gint64 wall_ms, QvStep *step, GError **error)
{
  static const QvJsonMember table[] = {
    { "name", QV_JSON_STRING },
    { "argv", QV_JSON_ARRAY },
    { "cwd", QV_JSON_STRING | QV_JSON_OPTIONAL },
    { "timeoutMs", QV_JSON_INTEGER | QV_JSON_OPTIONAL },
    { "env", QV_JSON_OBJECT | QV_JSON_OPTIONAL },
    { "continueOnFailure", QV_JSON_BOOL | QV_JSON_OPTIONAL },
  };
  gsize argv_bytes = 0;
  if (!qv_fields_shape(json, path, table, G_N_ELEMENTS(table), error))
    return FALSE;
  if ((step->name = qv_field_text(json, path, "name", qv_identifier_valid, error)) == NULL)
    return FALSE;
  if ((step->argv = qv_field_texts(json, path, "argv", 1, QV_STEP_ARGV_MAX, NULL, error)) == NULL)
    return FALSE;
  for (gsize i = 0; step->argv[i] != NULL; i++)
    argv_bytes += strlen(step->argv[i]);
  if (argv_bytes > QV_STEP_ARGV_BYTES_MAX)
    return qv_fields_fail(error, path, "argv has %zu bytes, not up to %d", argv_bytes, QV_STEP_ARGV_BYTES_MAX);
  if (json_object_get(json, "cwd") != NULL && !parse_cwd(json, path, step, error))
    return FALSE;
  if (json_object_get(json, "timeoutMs") != NULL &&
      !qv_field_integer(json, path, "timeoutMs", 1, wall_ms, &step->timeout_ms, error))
    return FALSE;
  if (json_object_get(json, "env") != NULL && !parse_env(json_object_get(json, "env"), path, step, error))
    return FALSE;
  step->continue_on_failure = qv_field_bool(json, "continueOnFailure");
  return TRUE;
}

json_t *qv_step_build(const QvStep *step)
{
  json_t *json = json_object();
  json_object_set_new(json, "name", qv_text_or_null(step->name));
  json_object_set_new(json, "argv", qv_texts_build(step->argv));
  if (step->cwd != NULL)
    json_object_set_new(json, "cwd", qv_text_or_null(step->cwd));
  if (step->timeout_ms != 0)
    json_object_set_new(json, "timeoutMs", json_integer(step->timeout_ms));
  if (step->env_n > 0) {
    json_t *env = json_object();
    for (gsize i = 0; i < step->env_n; i++)
      json_object_set_new(env, step->env[i].name, qv_text_or_null(step->env[i].value));
    json_object_set_new(json, "env", env);
  }
  if (step->continue_on_failure)
    json_object_set_new(json, "continueOnFailure", json_true());
  return json;
}
