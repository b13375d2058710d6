/* SPDX-License-Identifier: Apache-2.0 */
/* The runner's reader of a hostile stream, as a whole: what is right is accepted in any
 * portions, and every single departure from it is a breach. */
#include <string.h>

#include "format/tar.h"
#include "output.h"

static void test_good(void)
{
  QvEntryOutputSpec spec = t_output_spec(TRUE);
  static const gsize portions[] = { 1, 7, 512, 1000, 100000 };
  g_auto(TStream) stream;
  t_stream_init(&stream);
  t_output_fill(&stream);
  t_stream_exit(&stream, "'artefactsDropped':2,'code':null,'forkFailed':false", "'status':'done','v':1");
  t_stream_end(&stream);
  for (gsize i = 0; i < G_N_ELEMENTS(portions); i++) {
    g_autofree char *heard = NULL;
    g_autoptr(QvEntryFacts) facts = NULL;
    g_assert_cmpint(t_output_run(&spec, &stream, portions[i], &heard, &facts, NULL), ==, QV_ENTRY_OUTPUT_DONE);
    g_assert_cmpstr(heard, ==,
                    "record -1 prepare 0;log -1 setting up\n;record 0 lint 1;log 0 one warning\n;record 1 test 0;log 1 ;"
                    "artefact a.bin 1 A;artefact out/b 0 ;artefact out/b.c 3 BCD;");
    g_assert_true(facts->has_setup);
    g_assert_cmpstr(facts->setup.name, ==, "prepare");
    g_assert_cmpuint(facts->steps_n, ==, 2);
    g_assert_cmpint(facts->steps[0].exit_code, ==, 1);
    g_assert_cmpint(facts->steps[0].log_total_bytes, ==, 12);
    g_assert_cmpuint(facts->artefacts_n, ==, 3);
    g_assert_cmpstr(facts->artefacts[2].path, ==, "out/b.c");
    /* printf BCD | sha256sum */
    g_assert_cmpstr(facts->artefacts[2].sha256, ==, "eff1f7c83bd8f6918571a75d6e1905cc97c246c5d4cf5f16efaeeb9a0141edbb");
    g_assert_cmpint(facts->artefacts_dropped, ==, 2);
    g_assert_false(facts->refused);
    g_assert_null(facts->code);
  }
}

/* Ways to end that are no breach. */
static void test_other_ends(void)
{
  QvEntryOutputSpec with = t_output_spec(TRUE), without = t_output_spec(FALSE);
  static const char *const refusals[] = { "'snapshot_refused'", "'disk'" };
  for (gsize i = 0; i < 2; i++) {
    g_auto(TStream) refused;
    g_autofree char *fields = g_strdup_printf("'artefactsDropped':0,'code':%s,'forkFailed':false", refusals[i]);
    t_stream_init(&refused);
    t_stream_exit(&refused, fields, "'status':'refused','v':1");
    t_stream_end(&refused);
    t_output_done(&with, &refused);
  }
  g_auto(TStream) setup_failed;
  t_stream_init(&setup_failed);
  t_stream_step(&setup_failed, -1, "prepare", 2, "x");
  t_stream_text(&setup_failed, "artefacts/out/log", "why");
  t_stream_exit(&setup_failed, "'artefactsDropped':0,'code':'disk','forkFailed':true", "'status':'done','v':1");
  t_stream_end(&setup_failed);
  t_output_done(&with, &setup_failed);
  g_auto(TStream) step_failed;
  t_stream_init(&step_failed);
  t_stream_step(&step_failed, 0, "lint", 3, "x");
  t_stream_step(&step_failed, 1, "test", 3, "x");
  t_stream_done(&step_failed);
  t_stream_end(&step_failed);
  t_output_done(&without, &step_failed);
  with.continue_on_failure = (const gboolean[]){ FALSE, FALSE };
  g_auto(TStream) first_failed;
  t_stream_init(&first_failed);
  t_stream_step(&first_failed, -1, "prepare", 0, "");
  t_stream_step(&first_failed, 0, "lint", 3, "x");
  t_stream_done(&first_failed);
  t_stream_end(&first_failed);
  t_output_done(&with, &first_failed);
}

/* An end of the stream before the second zero block is never DONE; a byte behind it is a breach. */
static void test_cut_and_trailing(void)
{
  QvEntryOutputSpec spec = t_output_spec(TRUE);
  g_auto(TStream) stream;
  t_stream_init(&stream);
  t_output_fill(&stream);
  t_stream_done(&stream);
  t_stream_end(&stream);
  guint whole = stream.bytes->len;
  for (guint n = 0; n < whole; n += n < whole - 600 ? 97 : 1) {
    TStream cut = { .bytes = g_byte_array_new_take(g_memdup2(stream.bytes->data, n), n) };
    g_assert_cmpint(t_output_run(&spec, &cut, 4096, NULL, NULL, NULL), ==, QV_ENTRY_OUTPUT_MORE);
    g_byte_array_unref(cut.bytes);
  }
  t_stream_raw(&stream, "", 1);
  t_output_bad(&spec, &stream, "behind the two zero blocks");
  stream.bytes->data[whole] = 'x';
  t_output_bad(&spec, &stream, "behind the two zero blocks");
}

/* The code binds every byte: any one that changes makes the stream bad, or never done. */
static void test_every_byte_counts(void)
{
  QvEntryOutputSpec spec = t_output_spec(TRUE);
  g_auto(TStream) stream;
  t_stream_init(&stream);
  t_output_fill(&stream);
  t_stream_done(&stream);
  t_stream_end(&stream);
  for (guint i = 0; i < stream.bytes->len; i += 3) {
    guint8 held = stream.bytes->data[i];
    stream.bytes->data[i] ^= 1;
    g_assert_cmpint(t_output_run(&spec, &stream, 100000, NULL, NULL, NULL), !=, QV_ENTRY_OUTPUT_DONE);
    stream.bytes->data[i] = held;
  }
  t_output_done(&spec, &stream);
}

/* Another key, a forged tail, a replayed exit.json. */
static void test_mac(void)
{
  QvEntryOutputSpec spec = t_output_spec(FALSE);
  guint8 other[32] = { 0 };
  g_auto(TStream) stream;
  t_stream_init(&stream);
  t_stream_step(&stream, 0, "lint", 0, "");
  t_stream_step(&stream, 1, "test", 0, "");
  t_stream_done(&stream);
  t_stream_end(&stream);
  t_output_done(&spec, &stream);
  spec.stream_key = other;
  t_output_bad(&spec, &stream, "somebody else wrote");
  spec.stream_key = t_stream_key;
  /* The end of a good stream behind a shorter beginning of another. */
  g_auto(TStream) first, forged;
  t_stream_init(&first);
  t_stream_step(&first, 0, "lint", 0, "");
  t_stream_init(&forged);
  t_stream_step(&forged, 0, "lint", 0, "x");
  t_stream_raw(&forged, stream.bytes->data + first.bytes->len, stream.bytes->len - first.bytes->len);
  t_output_bad(&spec, &forged, "somebody else wrote");
}

typedef struct {
  const char *before; /* members before, as "path=text" separated by '|' */
  const char *part;
} Departure;

/* One member too early, too late, twice, unknown, or of another step. */
static void test_order(void)
{
#define S "setup.json=@prepare|logs/setup.log=|"
#define L "steps/0.json=@lint|logs/0.log=|"
#define T "steps/1.json=@test|logs/1.log=|"
  static const Departure rows[] = {
    { "logs/setup.log=", "may come here" },
    { "steps/0.json=@lint", "may come here" },
    { "setup.json=@prepare|setup.json=@prepare", "twice" },
    { "setup.json=@prepare|steps/0.json=@lint", "may come here" },
    { "setup.json=@prepare|logs/0.log=", "may come here" },
    { S "setup.json=@prepare", "twice" },
    { S "logs/setup.log=", "twice" },
    { S "steps/1.json=@test", "may come here" },
    { S "logs/0.log=", "may come here" },
    { S L "steps/0.json=@lint", "twice" },
    { S L T "steps/2.json=@test", "may come here" },
    { S L T "logs/1.log=", "twice" },
    { S L T "artefacts/a.bin=A|steps/2.json=@test", "may come here" },
    { S L "artefacts/a.bin=A|steps/1.json=@test", "may come here" },
    { S L T "artefacts/b.bin=A|artefacts/a.bin=A", "path order" },
    { S L T "artefacts/a.bin=A|artefacts/a.bin=A", "twice" },
    { S L T "artefacts/a.txt=A", "asked for" },
    { S L T "artefacts/=A", "" },
    { S L T "artefacts=A", "may come here" },
    { S L T "artefacts/out/..=A", "" },
    { S L T "artefacts/out/c:\\x=A", "" },
    { S L T "artefacts/out/.git/config=A", "" },
    { S L T "artefacts/c:/x.bin=A", "may leave the sandbox" },
    { S L T "extra=A", "may come here" },
    { S L T "live/0.0=A", "may come here" },
    { S L T "exit=A", "may come here" },
    { "setup.json=@lint", "another step's name" },
    { S "steps/0.json=@test", "another step's name" },
    { S L T "steps/1.json=@test", "twice" },
    { "/setup.json=@prepare", "absolute" },
    { "./setup.json=@prepare", "part" },
  };
  QvEntryOutputSpec spec = t_output_spec(TRUE);
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_auto(TStream) stream;
    t_stream_init(&stream);
    g_auto(GStrv) members = g_strsplit(rows[i].before, "|", -1);
    for (guint k = 0; members[k] != NULL; k++) {
      char *text = strchr(members[k], '=');
      *text++ = '\0';
      g_autofree char *record =
          text[0] == '@' ? g_strdup_printf("{\"name\":\"%s\",\"exitCode\":0,\"signal\":null,\"timedOut\":false,\"startedMs\":1,"
                                           "\"durationMs\":5,\"logTotalBytes\":0,\"logTruncated\":false}", text + 1)
                         : g_strdup(text);
      guint8 header[QV_TAR_HEADER_BYTES_MAX];
      gsize n = 0;
      /* The writer refuses bad names: patch a good one of the same length. */
      if (qv_tar_header(members[k], strlen(record), false, header, &n) == QV_TAR_OK) {
        t_stream_text(&stream, members[k], record);
        continue;
      }
      g_autofree char *fake = g_strnfill(strlen(members[k]), 'n');
      guint at = stream.bytes->len;
      t_stream_text(&stream, fake, record);
      memcpy(stream.bytes->data + at, members[k], strlen(members[k]));
      guint sum = 0;
      for (guint b = 0; b < 512; b++)
        sum += b >= 148 && b < 156 ? ' ' : stream.bytes->data[at + b];
      g_snprintf((char *)stream.bytes->data + at + 148, 7, "%06o", sum);
    }
    t_output_bad(&spec, &stream, rows[i].part);
  }
}

/* Without setup its members are breaches; the end without exit.json is one too. */
static void test_no_setup(void)
{
  QvEntryOutputSpec spec = t_output_spec(FALSE);
  g_auto(TStream) stream;
  t_stream_init(&stream);
  t_stream_step(&stream, -1, "prepare", 0, "");
  t_output_bad(&spec, &stream, "may come here");
  g_auto(TStream) empty;
  t_stream_init(&empty);
  t_stream_end(&empty);
  t_output_bad(&spec, &empty, "before exit.json");
  g_auto(TStream) no_exit;
  t_stream_init(&no_exit);
  t_stream_step(&no_exit, 0, "lint", 0, "");
  t_stream_step(&no_exit, 1, "test", 0, "");
  t_stream_end(&no_exit);
  t_output_bad(&spec, &no_exit, "before exit.json");
  g_auto(TStream) twice;
  t_stream_init(&twice);
  t_stream_step(&twice, 0, "lint", 0, "");
  t_stream_step(&twice, 1, "test", 0, "");
  t_stream_done(&twice);
  t_stream_text(&twice, "artefacts/a.bin", "x");
  t_output_bad(&spec, &twice, "may come here");
}

/* exit.json against the records, and its own form. The code is right in every row. */
static void test_exit(void)
{
  static const struct {
    const char *steps; /* of a job with setup: digits are exit codes of setup, lint, test */
    const char *before, *behind, *part;
  } rows[] = {
    { "000", "'artefactsDropped':0,'code':null,'forkFailed':false", "'status':'done','v':1", NULL },
    { "0", "'artefactsDropped':0,'code':null,'forkFailed':false", "'status':'done','v':1", "a step is missing" },
    { "00", "'artefactsDropped':0,'code':null,'forkFailed':false", "'status':'done','v':1", "a step is missing" },
    { "01", "'artefactsDropped':0,'code':null,'forkFailed':false", "'status':'done','v':1", "a step is missing" },
    { "", "'artefactsDropped':0,'code':null,'forkFailed':false", "'status':'done','v':1", "a step is missing" },
    { "1", "'artefactsDropped':0,'code':null,'forkFailed':false", "'status':'done','v':1", NULL },
    { "000", "'artefactsDropped':0,'code':'disk','forkFailed':false", "'status':'done','v':1", NULL },
    { "000", "'artefactsDropped':0,'code':'snapshot_refused','forkFailed':false", "'status':'done','v':1", "do not go together" },
    { "000", "'artefactsDropped':0,'code':'snapshot_refused','forkFailed':false", "'status':'refused','v':1", "something ran" },
    { "0", "'artefactsDropped':0,'code':'disk','forkFailed':false", "'status':'refused','v':1", "something ran" },
    { "", "'artefactsDropped':1,'code':'disk','forkFailed':false", "'status':'refused','v':1", "something ran" },
    { "", "'artefactsDropped':0,'code':null,'forkFailed':false", "'status':'refused','v':1", "do not go together" },
    { "", "'artefactsDropped':0,'code':'other','forkFailed':false", "'status':'refused','v':1", "do not go together" },
    { "000", "'artefactsDropped':0,'code':null,'forkFailed':false", "'status':'good','v':1", "status" },
    { "000", "'artefactsDropped':0,'code':null,'forkFailed':false", "'status':'done','v':2", "v: " },
    { "000", "'artefactsDropped':-1,'code':null,'forkFailed':false", "'status':'done','v':1", "artefactsDropped" },
    { "000", "'artefactsDropped':'0','code':null,'forkFailed':false", "'status':'done','v':1", "artefactsDropped" },
    { "000", "'artefactsDropped':0,'code':null,'extra':1,'forkFailed':false", "'status':'done','v':1", "not known" },
    { "000", "'artefactsDropped':0,'forkFailed':false", "'status':'done','v':1", "code" },
    { "000", "'artefactsDropped':0,'code':null,'forkFailed':0", "'status':'done','v':1", "forkFailed" },
    { "000", "'artefactsDropped':0,'code':null,'forkFailed':false", "'status':'done','v':1,'v':1", "twice" },
    { "000", "'artefactsDropped':0.0,'code':null,'forkFailed':false", "'status':'done','v':1", "fraction" },
  };
  QvEntryOutputSpec spec = t_output_spec(TRUE);
  static const char *const steps[] = { "prepare", "lint", "test" };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_auto(TStream) stream;
    t_stream_init(&stream);
    for (int k = 0; rows[i].steps[k] != '\0'; k++)
      t_stream_step(&stream, k - 1, steps[k], rows[i].steps[k] - '0', "");
    t_stream_exit(&stream, rows[i].before, rows[i].behind);
    t_stream_end(&stream);
    if (rows[i].part == NULL)
      t_output_done(&spec, &stream);
    else
      t_output_bad(&spec, &stream, rows[i].part);
  }
}

static void test_progress(void)
{
  QvEntryOutputSpec spec = t_output_spec(TRUE);
  g_autoptr(GString) text = g_string_new(NULL);
  g_autoptr(QvEntryOutput) output = qv_entry_output_new(&spec, &t_output_sink, text);
  g_auto(TStream) stream;
  t_stream_init(&stream);
  t_output_fill(&stream);
  t_stream_done(&stream);
  guint before_end = stream.bytes->len;
  t_stream_end(&stream);
  g_assert_cmpuint(qv_entry_output_members_n(output), ==, 0);
  g_assert_cmpint(qv_entry_output_feed(output, stream.bytes->data, before_end, NULL), ==, QV_ENTRY_OUTPUT_MORE);
  g_assert_cmpuint(qv_entry_output_members_n(output), ==, 9);
  g_assert_true(qv_entry_output_exit_seen(output));
  g_assert_null(qv_entry_output_facts(output));
  g_assert_cmpint(qv_entry_output_feed(output, stream.bytes->data + before_end, 1024, NULL), ==, QV_ENTRY_OUTPUT_DONE);
  g_assert_cmpint(qv_entry_output_feed(output, NULL, 0, NULL), ==, QV_ENTRY_OUTPUT_DONE);
  g_assert_cmpint(qv_entry_output_feed(output, (const guint8 *)"", 1, NULL), ==, QV_ENTRY_OUTPUT_BAD);
  g_assert_null(qv_entry_output_facts(output));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/entry-output/good", test_good);
  g_test_add_func("/entry-output/other-ends", test_other_ends);
  g_test_add_func("/entry-output/cut-and-trailing", test_cut_and_trailing);
  g_test_add_func("/entry-output/every-byte-counts", test_every_byte_counts);
  g_test_add_func("/entry-output/mac", test_mac);
  g_test_add_func("/entry-output/order", test_order);
  g_test_add_func("/entry-output/no-setup", test_no_setup);
  g_test_add_func("/entry-output/exit", test_exit);
  g_test_add_func("/entry-output/progress", test_progress);
  return g_test_run();
}
