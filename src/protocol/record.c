/* SPDX-License-Identifier: Apache-2.0 */
/* Owns step records and the facts of a run: their shape, their bounds, and the
 * text that carries them over a pipe. Sources: sections 5 and 6. */
#include "protocol/record.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "format/error.h"
#include "protocol/fields.h"
#include "protocol/record_internal.h"

enum { EXIT_CODE_MAX = 255, SIGNAL_MAX = 64 };

gboolean qv_step_record_ok(const QvStepRecord *record)
{
  return record->has_exit_code && record->exit_code == 0 && !record->timed_out;
}

void qv_step_record_clear(QvStepRecord *record)
{
  g_free(record->name);
  memset(record, 0, sizeof *record);
}

void qv_step_record_copy(const QvStepRecord *from, QvStepRecord *to)
{
  *to = *from;
  to->name = g_strdup(from->name);
}

void qv_entry_facts_clear(QvEntryFacts *facts)
{
  qv_step_record_clear(&facts->setup);
  for (gsize i = 0; i < facts->steps_n; i++)
    qv_step_record_clear(&facts->steps[i]);
  g_free(facts->steps);
  for (gsize i = 0; i < facts->artefacts_n; i++)
    g_free(facts->artefacts[i].path);
  g_free(facts->artefacts);
  g_free(facts->code);
  memset(facts, 0, sizeof *facts);
}

void qv_entry_facts_copy(const QvEntryFacts *from, QvEntryFacts *to)
{
  *to = *from;
  qv_step_record_copy(&from->setup, &to->setup);
  to->code = g_strdup(from->code);
  to->steps = g_new0(QvStepRecord, from->steps_n + 1);
  for (gsize i = 0; i < from->steps_n; i++)
    qv_step_record_copy(&from->steps[i], &to->steps[i]);
  to->artefacts = g_new0(QvArtefact, from->artefacts_n + 1);
  for (gsize i = 0; i < from->artefacts_n; i++) {
    to->artefacts[i] = from->artefacts[i];
    to->artefacts[i].path = g_strdup(from->artefacts[i].path);
  }
}

QvEntryFacts *qv_entry_facts_new(void)
{
  return g_new0(QvEntryFacts, 1);
}

void qv_entry_facts_free(QvEntryFacts *facts)
{
  if (facts == NULL)
    return;
  qv_entry_facts_clear(facts);
  g_free(facts);
}

/* Exactly one of exitCode and signal. */
static gboolean parse_ending(const json_t *json, QvStepRecord *record, GError **error)
{
  record->has_exit_code = !qv_field_is_null(json, "exitCode");
  record->has_signal = !qv_field_is_null(json, "signal");
  if (record->has_exit_code == record->has_signal)
    return qv_fields_fail(error, "", "a step ends with an exit code or by a signal, one of the two");
  if (record->has_exit_code)
    return qv_field_integer(json, "", "exitCode", 0, EXIT_CODE_MAX, &record->exit_code, error);
  return qv_field_integer(json, "", "signal", 1, SIGNAL_MAX, &record->signal, error);
}

gboolean qv_step_record_parse(const json_t *json, QvStepRecord *record, GError **error)
{
  static const QvJsonMember table[] = {
    { "name", QV_JSON_STRING },
    { "exitCode", QV_JSON_INTEGER | QV_JSON_NULL },
    { "signal", QV_JSON_INTEGER | QV_JSON_NULL },
    { "timedOut", QV_JSON_BOOL },
    { "startedMs", QV_JSON_INTEGER },
    { "durationMs", QV_JSON_INTEGER },
    { "logTotalBytes", QV_JSON_INTEGER },
    { "logTruncated", QV_JSON_BOOL },
  };
  QvStepRecord read = { 0 };
  if (!qv_fields_shape(json, "", table, G_N_ELEMENTS(table), error) || !parse_ending(json, &read, error) ||
      !qv_field_integer(json, "", "startedMs", 0, QV_JSON_INTEGER_MAX, &read.started_ms, error) ||
      !qv_field_integer(json, "", "durationMs", 0, QV_JSON_INTEGER_MAX, &read.duration_ms, error) ||
      !qv_field_integer(json, "", "logTotalBytes", 0, QV_JSON_INTEGER_MAX, &read.log_total_bytes, error))
    return FALSE;
  read.timed_out = qv_field_bool(json, "timedOut");
  read.log_truncated = qv_field_bool(json, "logTruncated");
  read.name = qv_field_text(json, "", "name", qv_identifier_valid, error);
  if (read.name == NULL)
    return FALSE;
  *record = read;
  return TRUE;
}

json_t *qv_step_record_build(const QvStepRecord *record)
{
  json_t *json = json_object();
  json_object_set_new(json, "name", qv_text_or_null(record->name));
  json_object_set_new(json, "exitCode", record->has_exit_code ? json_integer(record->exit_code) : json_null());
  json_object_set_new(json, "signal", record->has_signal ? json_integer(record->signal) : json_null());
  json_object_set_new(json, "timedOut", json_boolean(record->timed_out));
  json_object_set_new(json, "startedMs", json_integer(record->started_ms));
  json_object_set_new(json, "durationMs", json_integer(record->duration_ms));
  json_object_set_new(json, "logTotalBytes", json_integer(record->log_total_bytes));
  json_object_set_new(json, "logTruncated", json_boolean(record->log_truncated));
  return json;
}

static gboolean parse_artefact(const json_t *json, const char *path, QvArtefact *artefact, GError **error)
{
  static const QvJsonMember table[] = {
    { "path", QV_JSON_STRING }, { "size", QV_JSON_INTEGER }, { "sha256", QV_JSON_STRING } };
  return qv_fields_shape(json, path, table, G_N_ELEMENTS(table), error) &&
         qv_field_integer(json, path, "size", 0, QV_JSON_INTEGER_MAX, &artefact->size, error) &&
         qv_field_text_into(json, path, "sha256", qv_sha256_hex_valid, artefact->sha256, sizeof artefact->sha256,
                            error) &&
         (artefact->path = qv_field_text(json, path, "path", qv_artefact_path_valid, error)) != NULL;
}

gboolean qv_facts_read_lists(const json_t *json, QvEntryFacts *facts, GError **error)
{
  const json_t *steps = json_object_get(json, "steps");
  const json_t *artefacts = json_object_get(json, "artefacts");
  gsize steps_n = json_array_size(steps);
  gsize artefacts_n = json_array_size(artefacts);
  if (steps_n > QV_JOB_STEPS_MAX)
    return qv_fields_fail(error, "steps", "has %zu entries", steps_n);
  facts->has_setup = !qv_field_is_null(json, "setup");
  if (facts->has_setup && !qv_step_record_parse(json_object_get(json, "setup"), &facts->setup, error)) {
    g_prefix_error(error, "setup: ");
    return FALSE;
  }
  facts->steps = g_new0(QvStepRecord, steps_n + 1);
  while (facts->steps_n < steps_n) {
    gsize i = facts->steps_n++;
    if (!qv_step_record_parse(json_array_get(steps, i), &facts->steps[i], error)) {
      g_prefix_error(error, "steps[%zu]: ", i);
      return FALSE;
    }
  }
  facts->artefacts = g_new0(QvArtefact, artefacts_n + 1);
  while (facts->artefacts_n < artefacts_n) {
    gsize i = facts->artefacts_n++;
    g_autofree char *path = g_strdup_printf("artefacts[%zu]", i);
    if (!parse_artefact(json_array_get(artefacts, i), path, &facts->artefacts[i], error))
      return FALSE;
    if (i > 0 && strcmp(facts->artefacts[i - 1].path, facts->artefacts[i].path) >= 0)
      return qv_fields_fail(error, path, "is not behind the one before it in path order");
  }
  return qv_field_integer(json, "", "artefactsDropped", 0, QV_JSON_INTEGER_MAX, &facts->artefacts_dropped, error);
}

void qv_facts_write_lists(const QvEntryFacts *facts, json_t *json)
{
  json_t *steps = json_array();
  json_t *artefacts = json_array();
  for (gsize i = 0; i < facts->steps_n; i++)
    json_array_append_new(steps, qv_step_record_build(&facts->steps[i]));
  for (gsize i = 0; i < facts->artefacts_n; i++) {
    json_t *artefact = json_object();
    json_object_set_new(artefact, "path", qv_text_or_null(facts->artefacts[i].path));
    json_object_set_new(artefact, "size", json_integer(facts->artefacts[i].size));
    json_object_set_new(artefact, "sha256", qv_text_or_null(facts->artefacts[i].sha256));
    json_array_append_new(artefacts, artefact);
  }
  json_object_set_new(json, "setup", facts->has_setup ? qv_step_record_build(&facts->setup) : json_null());
  json_object_set_new(json, "steps", steps);
  json_object_set_new(json, "artefacts", artefacts);
  json_object_set_new(json, "artefactsDropped", json_integer(facts->artefacts_dropped));
}

gboolean qv_facts_status_valid(gboolean refused, const char *code)
{
  if (code == NULL)
    return !refused;
  return strcmp(code, "disk") == 0 || (refused && strcmp(code, "snapshot_refused") == 0);
}

char *qv_entry_facts_format(const QvEntryFacts *facts, gsize *n)
{
  json_t *json = json_object();
  qv_facts_write_lists(facts, json);
  json_object_set_new(json, "refused", json_boolean(facts->refused));
  json_object_set_new(json, "code", qv_text_or_null(facts->code));
  json_object_set_new(json, "forkFailed", json_boolean(facts->fork_failed));
  char *dumped = json_dumps(json, JSON_COMPACT);
  json_decref(json);
  char *text = g_strdup(dumped);
  free(dumped);
  *n = strlen(text);
  return text;
}

static gboolean parse_facts(const json_t *json, QvEntryFacts *facts, GError **error)
{
  static const QvJsonMember table[] = {
    { "setup", QV_JSON_OBJECT | QV_JSON_NULL }, { "steps", QV_JSON_ARRAY },
    { "artefacts", QV_JSON_ARRAY },             { "artefactsDropped", QV_JSON_INTEGER },
    { "refused", QV_JSON_BOOL },                { "code", QV_JSON_STRING | QV_JSON_NULL },
    { "forkFailed", QV_JSON_BOOL },
  };
  if (!qv_fields_shape(json, "", table, G_N_ELEMENTS(table), error) || !qv_facts_read_lists(json, facts, error))
    return FALSE;
  facts->refused = qv_field_bool(json, "refused");
  facts->fork_failed = qv_field_bool(json, "forkFailed");
  if (!qv_field_is_null(json, "code") && (facts->code = qv_field_text(json, "", "code", NULL, error)) == NULL)
    return FALSE;
  if (!qv_facts_status_valid(facts->refused, facts->code))
    return qv_fields_fail(error, "code", "does not go with the status");
  return TRUE;
}

QvEntryFacts *qv_entry_facts_parse(const char *text, gsize n, GError **error)
{
  g_autoptr(QvEntryFacts) facts = qv_entry_facts_new();
  json_t *json = qv_json_load(text, n, QV_RESULT_JSON_BYTES_MAX, QV_JSON_SIGNED, "facts of a run", error);
  if (json == NULL)
    return NULL;
  gboolean good = parse_facts(json, facts, error);
  json_decref(json);
  return good ? g_steal_pointer(&facts) : NULL;
}
