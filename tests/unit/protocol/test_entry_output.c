/* SPDX-License-Identifier: Apache-2.0 */
/* The runner's reader of a hostile stream: what is right is accepted in any
 * portions, and every single departure from it is a breach. */
#include <string.h>

#include "base/error.h"
#include "format/tar.h"
#include "protocol/entry_output.h"
#include "stream.h"
#include "support.h"

static const char *const names[] = { "lint", "test" };
static const gboolean continues[] = { TRUE, FALSE };
static const char *const globs[] = { "out/**", "*.bin", NULL };

static QvEntryOutputSpec spec_of(gboolean setup)
{
  return (QvEntryOutputSpec){ .stream_key = t_stream_key, .setup_name = setup ? "prepare" : NULL, .step_names = names,
                              .continue_on_failure = continues, .steps_n = 2, .log_bytes = 100,
                              .artefact_bytes = 1000, .artefact_count = 3, .artefact_globs = globs };
}

/* Everything that the sink hears, as text. */
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

static const QvEntryOutputSink sink = { .record = on_record, .log = on_log, .artefact_begin = on_begin,
                                        .artefact_bytes = on_bytes, .artefact_end = on_end, .live = on_live };

/* Feeds STREAM in portions of PORTION bytes. The verdict at its end. */
static QvEntryOutputVerdict run(const QvEntryOutputSpec *spec, const TStream *stream, gsize portion, char **heard,
                                QvEntryFacts **facts, char **why)
{
  GString *text = g_string_new(NULL);
  g_autoptr(QvEntryOutput) output = qv_entry_output_new(spec, &sink, text);
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

static void expect_done(const QvEntryOutputSpec *spec, const TStream *stream)
{
  g_autofree char *why = NULL;
  if (run(spec, stream, 4096, NULL, NULL, &why) != QV_ENTRY_OUTPUT_DONE)
    g_error("not done: %s", why);
}

/* A breach for the reason that PART names, whatever the portions. */
static void expect_bad(const QvEntryOutputSpec *spec, const TStream *stream, const char *part)
{
  static const gsize portions[] = { 1, 511, 65536 };
  for (gsize i = 0; i < G_N_ELEMENTS(portions); i++) {
    g_autofree char *why = NULL;
    QvEntryOutputVerdict verdict = run(spec, stream, portions[i], NULL, NULL, &why);
    if (verdict != QV_ENTRY_OUTPUT_BAD || strstr(why, part) == NULL)
      g_error("verdict %d, \"%s\", expected \"%s\"", verdict, why, part);
  }
}

static void fill(TStream *stream)
{
  t_stream_step(stream, -1, "prepare", 0, "setting up\n");
  t_stream_step(stream, 0, "lint", 1, "one warning\n");
  t_stream_step(stream, 1, "test", 0, "");
  t_stream_text(stream, "artefacts/a.bin", "A");
  t_stream_text(stream, "artefacts/out/b", "");
  t_stream_text(stream, "artefacts/out/b.c", "BCD");
}

static void test_good(void)
{
  QvEntryOutputSpec spec = spec_of(TRUE);
  static const gsize portions[] = { 1, 7, 512, 1000, 100000 };
  g_auto(TStream) stream;
  t_stream_init(&stream);
  fill(&stream);
  t_stream_exit(&stream, "'artefactsDropped':2,'code':null,'forkFailed':false", "'status':'done','v':1");
  t_stream_end(&stream);
  for (gsize i = 0; i < G_N_ELEMENTS(portions); i++) {
    g_autofree char *heard = NULL;
    g_autoptr(QvEntryFacts) facts = NULL;
    g_assert_cmpint(run(&spec, &stream, portions[i], &heard, &facts, NULL), ==, QV_ENTRY_OUTPUT_DONE);
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
  QvEntryOutputSpec with = spec_of(TRUE), without = spec_of(FALSE);
  static const char *const refusals[] = { "'snapshot_refused'", "'disk'" };
  for (gsize i = 0; i < 2; i++) {
    g_auto(TStream) refused;
    g_autofree char *fields = g_strdup_printf("'artefactsDropped':0,'code':%s,'forkFailed':false", refusals[i]);
    t_stream_init(&refused);
    t_stream_exit(&refused, fields, "'status':'refused','v':1");
    t_stream_end(&refused);
    expect_done(&with, &refused);
  }
  g_auto(TStream) setup_failed;
  t_stream_init(&setup_failed);
  t_stream_step(&setup_failed, -1, "prepare", 2, "x");
  t_stream_text(&setup_failed, "artefacts/out/log", "why");
  t_stream_exit(&setup_failed, "'artefactsDropped':0,'code':'disk','forkFailed':true", "'status':'done','v':1");
  t_stream_end(&setup_failed);
  expect_done(&with, &setup_failed);
  g_auto(TStream) step_failed;
  t_stream_init(&step_failed);
  t_stream_step(&step_failed, 0, "lint", 3, "x");
  t_stream_step(&step_failed, 1, "test", 3, "x");
  t_stream_done(&step_failed);
  t_stream_end(&step_failed);
  expect_done(&without, &step_failed);
  with.continue_on_failure = (const gboolean[]){ FALSE, FALSE };
  g_auto(TStream) first_failed;
  t_stream_init(&first_failed);
  t_stream_step(&first_failed, -1, "prepare", 0, "");
  t_stream_step(&first_failed, 0, "lint", 3, "x");
  t_stream_done(&first_failed);
  t_stream_end(&first_failed);
  expect_done(&with, &first_failed);
}

/* An end of the stream before the second zero block is never DONE; a byte behind it is a breach. */
static void test_cut_and_trailing(void)
{
  QvEntryOutputSpec spec = spec_of(TRUE);
  g_auto(TStream) stream;
  t_stream_init(&stream);
  fill(&stream);
  t_stream_done(&stream);
  t_stream_end(&stream);
  guint whole = stream.bytes->len;
  for (guint n = 0; n < whole; n += n < whole - 600 ? 97 : 1) {
    TStream cut = { .bytes = g_byte_array_new_take(g_memdup2(stream.bytes->data, n), n) };
    g_assert_cmpint(run(&spec, &cut, 4096, NULL, NULL, NULL), ==, QV_ENTRY_OUTPUT_MORE);
    g_byte_array_unref(cut.bytes);
  }
  t_stream_raw(&stream, "", 1);
  expect_bad(&spec, &stream, "behind the two zero blocks");
  stream.bytes->data[whole] = 'x';
  expect_bad(&spec, &stream, "behind the two zero blocks");
}

/* The code binds every byte: any one that changes makes the stream bad, or never done. */
static void test_every_byte_counts(void)
{
  QvEntryOutputSpec spec = spec_of(TRUE);
  g_auto(TStream) stream;
  t_stream_init(&stream);
  fill(&stream);
  t_stream_done(&stream);
  t_stream_end(&stream);
  for (guint i = 0; i < stream.bytes->len; i += 3) {
    guint8 held = stream.bytes->data[i];
    stream.bytes->data[i] ^= 1;
    g_assert_cmpint(run(&spec, &stream, 100000, NULL, NULL, NULL), !=, QV_ENTRY_OUTPUT_DONE);
    stream.bytes->data[i] = held;
  }
  expect_done(&spec, &stream);
}

/* Another key, a forged tail, a replayed exit.json. */
static void test_mac(void)
{
  QvEntryOutputSpec spec = spec_of(FALSE);
  guint8 other[32] = { 0 };
  g_auto(TStream) stream;
  t_stream_init(&stream);
  t_stream_step(&stream, 0, "lint", 0, "");
  t_stream_step(&stream, 1, "test", 0, "");
  t_stream_done(&stream);
  t_stream_end(&stream);
  expect_done(&spec, &stream);
  spec.stream_key = other;
  expect_bad(&spec, &stream, "somebody else wrote");
  spec.stream_key = t_stream_key;
  /* The end of a good stream behind a shorter beginning of another. */
  g_auto(TStream) first, forged;
  t_stream_init(&first);
  t_stream_step(&first, 0, "lint", 0, "");
  t_stream_init(&forged);
  t_stream_step(&forged, 0, "lint", 0, "x");
  t_stream_raw(&forged, stream.bytes->data + first.bytes->len, stream.bytes->len - first.bytes->len);
  expect_bad(&spec, &forged, "somebody else wrote");
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
  QvEntryOutputSpec spec = spec_of(TRUE);
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
    expect_bad(&spec, &stream, rows[i].part);
  }
}

/* Without setup its members are breaches; the end without exit.json is one too. */
static void test_no_setup(void)
{
  QvEntryOutputSpec spec = spec_of(FALSE);
  g_auto(TStream) stream;
  t_stream_init(&stream);
  t_stream_step(&stream, -1, "prepare", 0, "");
  expect_bad(&spec, &stream, "may come here");
  g_auto(TStream) empty;
  t_stream_init(&empty);
  t_stream_end(&empty);
  expect_bad(&spec, &empty, "before exit.json");
  g_auto(TStream) no_exit;
  t_stream_init(&no_exit);
  t_stream_step(&no_exit, 0, "lint", 0, "");
  t_stream_step(&no_exit, 1, "test", 0, "");
  t_stream_end(&no_exit);
  expect_bad(&spec, &no_exit, "before exit.json");
  g_auto(TStream) twice;
  t_stream_init(&twice);
  t_stream_step(&twice, 0, "lint", 0, "");
  t_stream_step(&twice, 1, "test", 0, "");
  t_stream_done(&twice);
  t_stream_text(&twice, "artefacts/a.bin", "x");
  expect_bad(&spec, &twice, "may come here");
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
  QvEntryOutputSpec spec = spec_of(TRUE);
  static const char *const steps[] = { "prepare", "lint", "test" };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_auto(TStream) stream;
    t_stream_init(&stream);
    for (int k = 0; rows[i].steps[k] != '\0'; k++)
      t_stream_step(&stream, k - 1, steps[k], rows[i].steps[k] - '0', "");
    t_stream_exit(&stream, rows[i].before, rows[i].behind);
    t_stream_end(&stream);
    if (rows[i].part == NULL)
      expect_done(&spec, &stream);
    else
      expect_bad(&spec, &stream, rows[i].part);
  }
}

static void record_row(const char *record, gsize log_n, const char *part)
{
  QvEntryOutputSpec spec = spec_of(FALSE);
  g_auto(TStream) stream;
  g_autofree char *text = g_strdelimit(g_strdup(record), "'", '"');
  g_autofree char *log = g_strnfill(log_n, 'l');
  t_stream_init(&stream);
  t_stream_text(&stream, "steps/0.json", text);
  t_stream_text(&stream, "logs/0.log", log);
  if (part == NULL)
    g_assert_cmpint(run(&spec, &stream, 4096, NULL, NULL, NULL), ==, QV_ENTRY_OUTPUT_MORE);
  else
    expect_bad(&spec, &stream, part);
}

static void test_records(void)
{
#define REST "'timedOut':false,'startedMs':0,'durationMs':0,"
#define NOLOG "'logTotalBytes':0,'logTruncated':false}"
  record_row("{'name':'lint','exitCode':255,'signal':null," REST NOLOG, 0, NULL);
  record_row("{'name':'lint','exitCode':256,'signal':null," REST NOLOG, 0, "exitCode");
  record_row("{'name':'lint','exitCode':-1,'signal':null," REST NOLOG, 0, "exitCode");
  record_row("{'name':'lint','exitCode':4294967296,'signal':null," REST NOLOG, 0, "exitCode");
  record_row("{'name':'lint','exitCode':'0','signal':null," REST NOLOG, 0, "exitCode");
  record_row("{'name':'lint','exitCode':0.0,'signal':null," REST NOLOG, 0, "fraction");
  record_row("{'name':'lint','exitCode':null,'signal':1," REST NOLOG, 0, NULL);
  record_row("{'name':'lint','exitCode':null,'signal':64," REST NOLOG, 0, NULL);
  record_row("{'name':'lint','exitCode':null,'signal':65," REST NOLOG, 0, "signal");
  record_row("{'name':'lint','exitCode':null,'signal':0," REST NOLOG, 0, "signal");
  record_row("{'name':'lint','exitCode':null,'signal':null," REST NOLOG, 0, "one of the two");
  record_row("{'name':'lint','exitCode':0,'signal':9," REST NOLOG, 0, "one of the two");
  record_row("{'name':'lint','exitCode':0,'signal':null,'timedOut':false,'startedMs':-1,'durationMs':0," NOLOG, 0, "startedMs");
  record_row("{'name':'lint','exitCode':0,'signal':null,'timedOut':false,'startedMs':0," NOLOG, 0, "durationMs");
  record_row("{'name':'lint','exitCode':0,'signal':null,'more':1," REST NOLOG, 0, "not known");
  record_row("[]", 0, "object");
  record_row("", 0, "steps/0.json");
  record_row("{'name':'lint'", 0, "steps/0.json");
  /* The log against the record and logBytes (100). */
  record_row("{'name':'lint','exitCode':0,'signal':null," REST "'logTotalBytes':5,'logTruncated':false}", 5, NULL);
  record_row("{'name':'lint','exitCode':0,'signal':null," REST "'logTotalBytes':5,'logTruncated':false}", 4, "contradicts");
  record_row("{'name':'lint','exitCode':0,'signal':null," REST "'logTotalBytes':5,'logTruncated':false}", 6, "contradicts");
  record_row("{'name':'lint','exitCode':0,'signal':null," REST "'logTotalBytes':5,'logTruncated':true}", 4, NULL);
  record_row("{'name':'lint','exitCode':0,'signal':null," REST "'logTotalBytes':5,'logTruncated':true}", 5, "contradicts");
  record_row("{'name':'lint','exitCode':0,'signal':null," REST "'logTotalBytes':100,'logTruncated':false}", 100, NULL);
  record_row("{'name':'lint','exitCode':0,'signal':null," REST "'logTotalBytes':101,'logTruncated':false}", 101, "logBytes");
  record_row("{'name':'lint','exitCode':0,'signal':null," REST "'logTotalBytes':9007199254740991,'logTruncated':true}", 100, NULL);
  /* Steps go forward in time. */
  QvEntryOutputSpec spec = spec_of(FALSE);
  g_auto(TStream) back;
  t_stream_init(&back);
  t_stream_step(&back, 0, "lint", 0, "");
  t_stream_text(&back, "steps/1.json", "{\"name\":\"test\",\"exitCode\":0,\"signal\":null,\"timedOut\":false,\"startedMs\":9,"
                                       "\"durationMs\":0,\"logTotalBytes\":0,\"logTruncated\":false}");
  expect_bad(&spec, &back, "before the step before it");
}

/* Caps are held at the header, before a byte of the member was seen. */
static void test_caps(void)
{
  QvEntryOutputSpec spec = spec_of(FALSE);
  static const struct {
    const char *path;
    guint64 size;
    const char *part;
  } rows[] = {
    { "artefacts/a.bin", 1001, "artefactBytes" },
    { "artefacts/a.bin", G_GUINT64_CONSTANT(8589934591), "" },
    { "exit.json", 65537, "size cap" },
    { "exit.json", 65537, "record may be" }, /* where artefacts may be larger than a record */
  };
  g_auto(TStream) begun;
  t_stream_init(&begun);
  t_stream_step(&begun, 0, "lint", 0, "");
  t_stream_step(&begun, 1, "test", 0, "");
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_auto(TStream) stream;
    guint8 header[QV_TAR_HEADER_BYTES_MAX];
    gsize n = 0;
    t_stream_init(&stream);
    t_stream_raw(&stream, begun.bytes->data, begun.bytes->len);
    g_assert_cmpint(qv_tar_header(rows[i].path, rows[i].size, false, header, &n), ==, QV_TAR_OK);
    t_stream_raw(&stream, header, n);
    spec.artefact_bytes = i == 3 ? 100000 : 1000;
    expect_bad(&spec, &stream, rows[i].part);
  }
  spec.artefact_bytes = 1000;
  g_autofree char *thousand = g_strnfill(1000, 'a');
  g_auto(TStream) full;
  t_stream_init(&full);
  t_stream_raw(&full, begun.bytes->data, begun.bytes->len);
  t_stream_text(&full, "artefacts/a.bin", thousand);
  t_stream_text(&full, "artefacts/b.bin", "");
  t_stream_text(&full, "artefacts/c.bin", "");
  guint at = full.bytes->len;
  t_stream_done(&full);
  t_stream_end(&full);
  expect_done(&spec, &full);
  g_byte_array_set_size(full.bytes, at);
  t_stream_text(&full, "artefacts/d.bin", "");
  expect_bad(&spec, &full, "artefactCount");
  g_byte_array_set_size(full.bytes, at - 512);
  t_stream_text(&full, "artefacts/c.bin", "x");
  expect_bad(&spec, &full, "artefactBytes");
}

static void test_live(void)
{
  QvEntryOutputSpec spec = spec_of(TRUE);
  spec.live = TRUE;
  g_auto(TStream) stream;
  t_stream_init(&stream);
  t_stream_text(&stream, "live/setup.0", "s0");
  t_stream_step(&stream, -1, "prepare", 0, "");
  t_stream_text(&stream, "live/0.1", "l1");
  t_stream_text(&stream, "live/0.2", "l2");
  t_stream_step(&stream, 0, "lint", 0, "");
  guint before_last = stream.bytes->len;
  t_stream_step(&stream, 1, "test", 0, "");
  guint at = stream.bytes->len;
  t_stream_done(&stream);
  t_stream_end(&stream);
  g_autofree char *heard = NULL;
  g_assert_cmpint(run(&spec, &stream, 100, &heard, NULL, NULL), ==, QV_ENTRY_OUTPUT_DONE);
  g_assert_cmpstr(heard, ==, "live -1 s0;record -1 prepare 0;log -1 ;live 0 l1;live 0 l2;record 0 lint 0;log 0 ;record 1 test 0;log 1 ;");
  static const char *const bad[] = { "live/1.2", "live/1.4", "live/0.3", "live/setup.3", "live/1.03", "live/1", "live/2.3", "live/1.3x" };
  for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
    g_byte_array_set_size(stream.bytes, before_last);
    t_stream_text(&stream, bad[i], "x");
    expect_bad(&spec, &stream, "live member");
  }
  g_byte_array_set_size(stream.bytes, at);
  t_stream_text(&stream, "live/2.3", "x");
  expect_bad(&spec, &stream, "live member");
  g_autofree char *big = g_strnfill(16385, 'b');
  g_byte_array_set_size(stream.bytes, before_last);
  t_stream_member(&stream, "live/1.3", big, 16384);
  g_assert_cmpint(run(&spec, &stream, 4096, NULL, NULL, NULL), ==, QV_ENTRY_OUTPUT_MORE);
  g_byte_array_set_size(stream.bytes, before_last);
  t_stream_member(&stream, "live/1.3", big, 16385);
  expect_bad(&spec, &stream, "cap of live");
  g_byte_array_set_size(stream.bytes, before_last);
  for (int i = 0; i < 256; i++) {
    g_autofree char *path = g_strdup_printf("live/1.%d", i + 3);
    t_stream_member(&stream, path, big, i == 255 ? 16384 - 6 : 16384);
  }
  g_assert_cmpint(run(&spec, &stream, 65536, NULL, NULL, NULL), ==, QV_ENTRY_OUTPUT_MORE);
  t_stream_text(&stream, "live/1.259", "x");
  expect_bad(&spec, &stream, "cap of live");
}

/* What enters a result is text: invalid bytes replaced, NUL dropped, cut at a character's border. */
static void test_text(void)
{
  static const struct {
    const char *log;
    gsize n;
    gboolean cut;
    const char *want;
    gboolean truncated;
  } rows[] = {
    { "a\0b", 3, FALSE, "ab", FALSE },
    { "a\xff" "b", 3, FALSE, "a\xef\xbf\xbd" "b", FALSE },
    { "\x82\xac" "b", 3, TRUE, "b", TRUE }, /* the rest of a cut euro sign */
    { "\xe2\x82\xac", 3, TRUE, "\xe2\x82\xac", TRUE },
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    QvEntryOutputSpec spec = spec_of(FALSE);
    g_auto(TStream) stream;
    g_autofree char *heard = NULL;
    g_autoptr(QvEntryFacts) facts = NULL;
    g_autofree char *want = g_strdup_printf("record 0 lint 0;log 0 %s;record 1 test 0;log 1 ;", rows[i].want);
    g_autofree char *record = g_strdup_printf("{\"name\":\"lint\",\"exitCode\":0,\"signal\":null,\"timedOut\":false,"
                                              "\"startedMs\":1,\"durationMs\":5,\"logTotalBytes\":%d,\"logTruncated\":%s}",
                                              (int)rows[i].n + rows[i].cut, rows[i].cut ? "true" : "false");
    t_stream_init(&stream);
    t_stream_text(&stream, "steps/0.json", record);
    t_stream_member(&stream, "logs/0.log", rows[i].log, rows[i].n);
    t_stream_step(&stream, 1, "test", 0, "");
    t_stream_done(&stream);
    t_stream_end(&stream);
    g_assert_cmpint(run(&spec, &stream, 4096, &heard, &facts, NULL), ==, QV_ENTRY_OUTPUT_DONE);
    g_assert_cmpstr(heard, ==, want);
    g_assert_cmpint(facts->steps[0].log_truncated, ==, rows[i].truncated);
  }
  /* 100 invalid bytes are 300 as text: what is kept is the tail of logBytes. */
  QvEntryOutputSpec spec = spec_of(FALSE);
  g_auto(TStream) stream;
  g_autofree char *heard = NULL;
  g_autoptr(QvEntryFacts) facts = NULL;
  g_autofree char *noise = g_strnfill(100, '\xff');
  t_stream_init(&stream);
  t_stream_step(&stream, 0, "lint", 0, noise);
  t_stream_step(&stream, 1, "test", 0, "");
  t_stream_done(&stream);
  t_stream_end(&stream);
  g_assert_cmpint(run(&spec, &stream, 4096, &heard, &facts, NULL), ==, QV_ENTRY_OUTPUT_DONE);
  g_assert_true(facts->steps[0].log_truncated);
  g_assert_cmpuint(strlen(heard), ==, strlen("record 0 lint 0;log 0 ;record 1 test 0;log 1 ;") + 99);
}

static void test_progress(void)
{
  QvEntryOutputSpec spec = spec_of(TRUE);
  g_autoptr(GString) text = g_string_new(NULL);
  g_autoptr(QvEntryOutput) output = qv_entry_output_new(&spec, &sink, text);
  g_auto(TStream) stream;
  t_stream_init(&stream);
  fill(&stream);
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
  g_test_add_func("/entry-output/records", test_records);
  g_test_add_func("/entry-output/caps", test_caps);
  g_test_add_func("/entry-output/live", test_live);
  g_test_add_func("/entry-output/text", test_text);
  g_test_add_func("/entry-output/progress", test_progress);
  return g_test_run();
}
