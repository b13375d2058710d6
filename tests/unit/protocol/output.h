/* SPDX-License-Identifier: Apache-2.0 */
/* What the runner's reader of an entry's output makes of a stream: of two steps, with or without setup. */
#pragma once

#include "protocol/entry_output.h"
#include "stream.h"

QvEntryOutputSpec t_output_spec(gboolean setup);
/* Everything that it hears, as text into the GString that is its user. */
extern const QvEntryOutputSink t_output_sink;

/* Feeds STREAM in portions of PORTION bytes. The verdict at its end; HEARD, FACTS and WHY may be NULL. */
QvEntryOutputVerdict t_output_run(const QvEntryOutputSpec *spec, const TStream *stream, gsize portion, char **heard,
                                  QvEntryFacts **facts, char **why);
void t_output_done(const QvEntryOutputSpec *spec, const TStream *stream);
/* A breach for the reason that PART names, whatever the portions. */
void t_output_bad(const QvEntryOutputSpec *spec, const TStream *stream, const char *part);
/* All members before exit.json, of a run with setup. */
void t_output_fill(TStream *stream);
