/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of records and facts that other files of this room need. */
#pragma once

#include "protocol/record.h"

/* Deep copies into an uninitialised TO. */
void qv_step_record_copy(const QvStepRecord *from, QvStepRecord *to);
void qv_entry_facts_copy(const QvEntryFacts *from, QvEntryFacts *to);

/* The members that facts and results share: setup, steps, artefacts, artefactsDropped. The shape was checked. */
gboolean qv_facts_read_lists(const json_t *json, QvEntryFacts *facts, GError **error);
void qv_facts_write_lists(const QvEntryFacts *facts, json_t *json);

/* Status and code of exit.json that go together. CODE may be NULL. */
gboolean qv_facts_status_valid(gboolean refused, const char *code);

/* A path that leaves the sandbox (portable), "artefacts/" not included. */
gboolean qv_artefact_path_valid(const char *path);
