/* SPDX-License-Identifier: Apache-2.0 */
/* The attack corpus against the runner's reader of an entry's output: tests/attack/output.attack, one
 * case a transcript, fed whole, in blocks and byte by byte. */
#include <stdlib.h>
#include <string.h>

#include "protocol/entry_output.h"
#include "stream.h"
#include "support/attack.h"

enum { ATTACKS_MIN = 130, PORTION_SMALL_MAX = 65536 };

static const char *const names[] = {"lint", "test"};
static const gboolean continues[] = {TRUE, FALSE};
static const char *const globs[] = {"out/**", "*.bin", NULL};

static void put_step(TStream *stream, const char *arguments)
{
  g_auto(GStrv) words = g_strsplit(arguments, " ", 4);
  g_autoptr(GByteArray) log = attack_unescape(words[3]);
  g_autofree char *record_path = words[0][0] == '-' ? g_strdup("setup.json") : g_strdup_printf("steps/%s.json", words[0]);
  g_autofree char *log_path = words[0][0] == '-' ? g_strdup("logs/setup.log") : g_strdup_printf("logs/%s.log", words[0]);
  g_autofree char *record =
    g_strdup_printf("{\"name\":\"%s\",\"exitCode\":%s,\"signal\":null,\"timedOut\":false,\"startedMs\":%d,\"durationMs\":5,"
                    "\"logTotalBytes\":%u,\"logTruncated\":false}", words[1], words[2], 10 + atoi(words[0]), log->len);
  t_stream_text(stream, record_path, record);
  t_stream_member(stream, log_path, log->data, log->len);
}

static void put_exit(TStream *stream, const char *arguments)
{
  if (*arguments == '\0') {
    t_stream_done(stream);
    return;
  }
  g_auto(GStrv) parts = g_strsplit(arguments, " | ", 2);
  t_stream_exit(stream, parts[0], parts[1]);
}

static void obey(const char *command, const char *arguments, GByteArray *bytes, gpointer data)
{
  TStream *stream = data;
  if (strcmp(command, "step") == 0) {
    put_step(stream, arguments);
  } else if (strcmp(command, "run") == 0) {
    put_step(stream, "0 lint 0 x");
    put_step(stream, "1 test 0 x");
  } else if (strcmp(command, "exit") == 0) {
    put_exit(stream, arguments);
  } else {
    g_error("unknown command: %s", command);
  }
}

static char *judge(const Attack *attack, const TStream *stream, gsize portion)
{
  QvEntryOutputSpec spec = {.stream_key = t_stream_key, .setup_name = strstr(attack->with, "setup") != NULL ? "prepare" : NULL, .step_names = names,
                            .continue_on_failure = continues, .steps_n = 2, .log_bytes = 100, .artefact_bytes = 1000,
                            .artefact_count = 3, .artefact_globs = globs, .live = strstr(attack->with, "live") != NULL};
  static const QvEntryOutputSink sink = {0};
  g_autoptr(QvEntryOutput) output = qv_entry_output_new(&spec, &sink, NULL);
  QvEntryOutputVerdict verdict = QV_ENTRY_OUTPUT_MORE;
  g_autoptr(GError) error = NULL;
  for (gsize at = 0; at < stream->bytes->len && verdict != QV_ENTRY_OUTPUT_BAD; at += portion)
    verdict = qv_entry_output_feed(output, stream->bytes->data + at, MIN(portion, stream->bytes->len - at), &error);
  if (verdict == QV_ENTRY_OUTPUT_BAD)
    return g_strconcat("BAD ", error->message, NULL);
  return g_strdup(verdict == QV_ENTRY_OUTPUT_DONE ? "DONE" : "CUT");
}

static void test_attack(gconstpointer data)
{
  static const gsize portions[] = {G_MAXSIZE / 2, 512, 7, 1};
  const Attack *attack = data;
  g_auto(TStream) stream;
  t_stream_init(&stream);
  attack_play(attack, stream.bytes, obey, &stream);
  for (gsize i = 0; i < G_N_ELEMENTS(portions); i++) {
    if (portions[i] < 100 && stream.bytes->len > PORTION_SMALL_MAX)
      continue;
    g_autofree char *reached = judge(attack, &stream, portions[i]);
    g_auto(GStrv) wanted = g_strsplit(attack->verdict, " ", 2);
    if (!g_str_has_prefix(reached, wanted[0]) || (wanted[1] != NULL && strstr(reached, wanted[1]) == NULL))
      g_test_fail_printf("%s in portions of %zu: expected %s, reached %s", attack->name, portions[i], attack->verdict, reached);
  }
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_autoptr(GPtrArray) attacks = attack_load("output.attack", ATTACKS_MIN);
  attack_add_tests(attacks, "/attack/output/", test_attack);
  return g_test_run();
}
