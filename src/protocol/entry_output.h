/* SPDX-License-Identifier: Apache-2.0 */
/* The runner's reader of an entry's stdout (section 5): hostile bytes in,
 * records and members out. Knows no descriptor; runs in the unpack process.
 *
 * States: setup.json, logs/setup.log, (steps/i.json, logs/i.log)*, artefacts/…*, exit.json, two zero blocks;
 * live/ members between any two where they are on. */
#pragma once

#include <glib.h>

#include "base/limits.h"
#include "protocol/record.h"

/* What the job makes legal. All borrowed for the reader's life. */
typedef struct {
  const guint8 *stream_key; /* QV_STREAM_KEY_BYTES, copied and wiped at the end */
  const char *setup_name;   /* NULL: no setup */
  const char *const *step_names;
  const gboolean *continue_on_failure;
  gsize steps_n;
  gint64 log_bytes;
  gint64 artefact_bytes;
  gint64 artefact_count;
  const char *const *artefact_globs; /* the job's, NULL-terminated; NULL is none: what was not asked for is a breach */
  gboolean live;
} QvEntryOutputSpec;

/* Called in stream order; STEP is -1 for setup. Everything but `live` and `record` is provisional
 * until qv_entry_output_feed says DONE. Unset members are skipped. */
typedef struct {
  void (*record)(void *user, gssize step, const QvStepRecord *record);
  /* The log whole: UTF-8 without NUL, at most log_bytes. */
  void (*log)(void *user, gssize step, const char *text, gsize n);
  void (*artefact_begin)(void *user, const char *path, gint64 size, gboolean executable);
  void (*artefact_bytes)(void *user, const guint8 *bytes, gsize n);
  void (*artefact_end)(void *user);
  /* Raw log bytes as they come, at most 16 KiB. */
  void (*live)(void *user, gssize step, const guint8 *bytes, gsize n);
} QvEntryOutputSink;

typedef enum {
  QV_ENTRY_OUTPUT_MORE, /* go on reading */
  QV_ENTRY_OUTPUT_DONE, /* the two zero blocks: decided, facts are final */
  QV_ENTRY_OUTPUT_BAD,  /* a breach: bad_output, kill the sandbox */
} QvEntryOutputVerdict;

typedef struct QvEntryOutput QvEntryOutput;

QvEntryOutput *qv_entry_output_new(const QvEntryOutputSpec *spec, const QvEntryOutputSink *sink, void *user);
void qv_entry_output_free(QvEntryOutput *output);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvEntryOutput, qv_entry_output_free)

/* An end of the stream while the verdict is MORE is never a success: the caller's sandbox_lost.
 *
 * Bytes in any portions. Once DONE or BAD, it stays BAD: bytes behind the two zero blocks, in the same portion or
 * a later one, are a breach. ERROR is set on BAD. */
QvEntryOutputVerdict qv_entry_output_feed(QvEntryOutput *output, const guint8 *bytes, gsize n, GError **error);

/* Borrowed; NULL before DONE. */
const QvEntryFacts *qv_entry_output_facts(const QvEntryOutput *output);

/* Complete members so far, live ones not counted: for progress. */
guint qv_entry_output_members_n(const QvEntryOutput *output);

/* exit.json was accepted: a cancel has no effect from here on. */
gboolean qv_entry_output_exit_seen(const QvEntryOutput *output);
