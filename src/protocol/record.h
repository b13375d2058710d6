/* SPDX-License-Identifier: Apache-2.0 */
/* The records of a run, as the entry claims them (section 5) and as results
 * carry them (section 6): one shape, one parser, one builder. */
#pragma once

#include <glib.h>
#include <jansson.h>

#include "base/limits.h"

typedef struct {
  char *name;
  gboolean has_exit_code;
  gint64 exit_code; /* 0 to 255 */
  gboolean has_signal;
  gint64 signal; /* 1 to 64 */
  gboolean timed_out;
  gint64 started_ms; /* since the request line */
  gint64 duration_ms;
  gint64 log_total_bytes;
  gboolean log_truncated;
} QvStepRecord;

/* Exited by itself with 0. */
gboolean qv_step_record_ok(const QvStepRecord *record);

typedef struct {
  char *path; /* without "artefacts/" */
  gint64 size;
  char sha256[65];
} QvArtefact;

/* All that a complete output stream said. */
typedef struct {
  gboolean has_setup;
  QvStepRecord setup;
  QvStepRecord *steps;
  gsize steps_n; /* steps that ran */
  QvArtefact *artefacts;
  gsize artefacts_n;
  gint64 artefacts_dropped;
  gboolean refused; /* status "refused"; code then set */
  char *code;       /* NULL, snapshot_refused, disk */
  gboolean fork_failed;
} QvEntryFacts;

void qv_step_record_clear(QvStepRecord *record);
void qv_entry_facts_clear(QvEntryFacts *facts);
QvEntryFacts *qv_entry_facts_new(void);
void qv_entry_facts_free(QvEntryFacts *facts);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvEntryFacts, qv_entry_facts_free)

/* Parses one record into an empty RECORD. QV_ERROR_FORMAT. */
gboolean qv_step_record_parse(const json_t *json, QvStepRecord *record, GError **error);
json_t *qv_step_record_build(const QvStepRecord *record);

/* The facts as one strict JSON text, for the pipe between the process that
 * unpacks and the one that signs, and back. */
char *qv_entry_facts_format(const QvEntryFacts *facts, gsize *n);
QvEntryFacts *qv_entry_facts_parse(const char *text, gsize n, GError **error);
