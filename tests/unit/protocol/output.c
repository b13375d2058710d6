/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"

#include <string.h>

static const char *const names[] = { "lint", "test" };
static const gboolean continues[] = { TRUE, FALSE };
static const char *const globs[] = { "out/**", "*.bin", NULL };

QvEntryOutputSpec t_output_spec(gboolean setup)
{
  return (QvEntryOutputSpec){ .stream_key = t_stream_key, .setup_name = setup ? "prepare" : NULL, .step_names = names,
                              .continue_on_failure = continues, .steps_n = 2, .log_bytes = 100,
                              .artefact_bytes = 1000, .artefact_count = 3, .artefact_globs = globs };
}

static void on_record(void *user, gssize step, const QvStepRecord *record)
{
  g_string_append_printf(user, "record %d %s %d;", (int)step, record->name, (int)record->exit_code);
}

static void on_log(void *user, gssize step, const char *text, gsize n)
{
  g_string_append_printf(user, "log %d %.*s;", (int)step, (int)n, text);
}

static void on_begin(void *user, const char *path, gint64 size, gboolean executable)
{
  g_string_append_printf(user, "artefact %s %d%s ", path, (int)size, executable ? " x" : "");
}

static void on_bytes(void *user, const guint8 *bytes, gsize n)
{
  g_string_append_len(user, (const char *)bytes, (gssize)n);
}

static void on_end(void *user)
{
  g_string_append_c(user, ';');
}

static void on_live(void *user, gssize step, const guint8 *bytes, gsize n)
{
  g_string_append_printf(user, "live %d %.*s;", (int)step, (int)n, (const char *)bytes);
}

const QvEntryOutputSink t_output_sink = { .record = on_record, .log = on_log, .artefact_begin = on_begin,
                                         .artefact_bytes = on_bytes, .artefact_end = on_end, .live = on_live };

QvEntryOutputVerdict t_output_run(const QvEntryOutputSpec *spec, const TStream *stream, gsize portion, char **heard,
                                  QvEntryFacts **facts, char **why)
{
  GString *text = g_string_new(NULL);
  g_autoptr(QvEntryOutput) output = qv_entry_output_new(spec, &t_output_sink, text);
  QvEntryOutputVerdict verdict = QV_ENTRY_OUTPUT_MORE;
  GError *error = NULL;
  g_assert_null(qv_entry_output_facts(output));
  for (gsize at = 0; at < stream->bytes->len && verdict != QV_ENTRY_OUTPUT_BAD; at += portion) {
    gsize n = MIN(portion, stream->bytes->len - at);
    verdict = qv_entry_output_feed(output, stream->bytes->data + at, n, &error);
    g_assert_cmpint(verdict == QV_ENTRY_OUTPUT_BAD, ==, error != NULL);
    g_assert_cmpint(verdict == QV_ENTRY_OUTPUT_DONE, ==, qv_entry_output_facts(output) != NULL);
  }
  if (verdict == QV_ENTRY_OUTPUT_BAD)
    g_assert_cmpint(qv_entry_output_feed(output, stream->bytes->data, 1, NULL), ==, QV_ENTRY_OUTPUT_BAD);
  if (facts != NULL && verdict == QV_ENTRY_OUTPUT_DONE) {
    gsize n = 0;
    g_autofree char *formatted = qv_entry_facts_format(qv_entry_output_facts(output), &n);
    *facts = qv_entry_facts_parse(formatted, n, &error);
    g_assert_no_error(error);
  }
  if (why != NULL)
    *why = error != NULL ? g_strdup(error->message) : NULL;
  g_clear_error(&error);
  if (heard != NULL)
    *heard = g_string_free(text, FALSE);
  else
    g_string_free(text, TRUE);
  return verdict;
}

void t_output_done(const QvEntryOutputSpec *spec, const TStream *stream)
{
  g_autofree char *why = NULL;
  if (t_output_run(spec, stream, 4096, NULL, NULL, &why) != QV_ENTRY_OUTPUT_DONE)
    g_error("not done: %s", why);
}

void t_output_bad(const QvEntryOutputSpec *spec, const TStream *stream, const char *part)
{
  static const gsize portions[] = { 1, 511, 65536 };
  for (gsize i = 0; i < G_N_ELEMENTS(portions); i++) {
    g_autofree char *why = NULL;
    QvEntryOutputVerdict verdict = t_output_run(spec, stream, portions[i], NULL, NULL, &why);
    if (verdict != QV_ENTRY_OUTPUT_BAD || strstr(why, part) == NULL)
      g_error("verdict %d, \"%s\", expected \"%s\"", verdict, why, part);
  }
}

void t_output_fill(TStream *stream)
{
  t_stream_step(stream, -1, "prepare", 0, "setting up\n");
  t_stream_step(stream, 0, "lint", 1, "one warning\n");
  t_stream_step(stream, 1, "test", 0, "");
  t_stream_text(stream, "artefacts/a.bin", "A");
  t_stream_text(stream, "artefacts/out/b", "");
  t_stream_text(stream, "artefacts/out/b.c", "BCD");
}
