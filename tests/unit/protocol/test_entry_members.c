/* SPDX-License-Identifier: Apache-2.0 */
/* The members of an entry's output: what a record, a log, an artefact and a live log may hold, and what becomes of their text. */
#include <string.h>

#include "format/tar.h"
#include "output.h"

static void record_row(const char *record, gsize log_n, const char *part)
{
  QvEntryOutputSpec spec = t_output_spec(FALSE);
  g_auto(TStream) stream;
  g_autofree char *text = g_strdelimit(g_strdup(record), "'", '"');
  g_autofree char *log = g_strnfill(log_n, 'l');
  t_stream_init(&stream);
  t_stream_text(&stream, "steps/0.json", text);
  t_stream_text(&stream, "logs/0.log", log);
  if (part == NULL)
    g_assert_cmpint(t_output_run(&spec, &stream, 4096, NULL, NULL, NULL), ==, QV_ENTRY_OUTPUT_MORE);
  else
    t_output_bad(&spec, &stream, part);
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
  QvEntryOutputSpec spec = t_output_spec(FALSE);
  g_auto(TStream) back;
  t_stream_init(&back);
  t_stream_step(&back, 0, "lint", 0, "");
  t_stream_text(&back, "steps/1.json", "{\"name\":\"test\",\"exitCode\":0,\"signal\":null,\"timedOut\":false,\"startedMs\":9,"
                                       "\"durationMs\":0,\"logTotalBytes\":0,\"logTruncated\":false}");
  t_output_bad(&spec, &back, "before the step before it");
}

/* Caps are held at the header, before a byte of the member was seen. */
static void test_caps(void)
{
  QvEntryOutputSpec spec = t_output_spec(FALSE);
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
    t_output_bad(&spec, &stream, rows[i].part);
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
  t_output_done(&spec, &full);
  g_byte_array_set_size(full.bytes, at);
  t_stream_text(&full, "artefacts/d.bin", "");
  t_output_bad(&spec, &full, "artefactCount");
  g_byte_array_set_size(full.bytes, at - 512);
  t_stream_text(&full, "artefacts/c.bin", "x");
  t_output_bad(&spec, &full, "artefactBytes");
}

static void test_live(void)
{
  QvEntryOutputSpec spec = t_output_spec(TRUE);
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
  g_assert_cmpint(t_output_run(&spec, &stream, 100, &heard, NULL, NULL), ==, QV_ENTRY_OUTPUT_DONE);
  g_assert_cmpstr(heard, ==, "live -1 s0;record -1 prepare 0;log -1 ;live 0 l1;live 0 l2;record 0 lint 0;log 0 ;record 1 test 0;log 1 ;");
  static const char *const bad[] = { "live/1.2", "live/1.4", "live/0.3", "live/setup.3", "live/1.03", "live/1", "live/2.3", "live/1.3x" };
  for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
    g_byte_array_set_size(stream.bytes, before_last);
    t_stream_text(&stream, bad[i], "x");
    t_output_bad(&spec, &stream, "live member");
  }
  g_byte_array_set_size(stream.bytes, at);
  t_stream_text(&stream, "live/2.3", "x");
  t_output_bad(&spec, &stream, "live member");
  g_autofree char *big = g_strnfill(16385, 'b');
  g_byte_array_set_size(stream.bytes, before_last);
  t_stream_member(&stream, "live/1.3", big, 16384);
  g_assert_cmpint(t_output_run(&spec, &stream, 4096, NULL, NULL, NULL), ==, QV_ENTRY_OUTPUT_MORE);
  g_byte_array_set_size(stream.bytes, before_last);
  t_stream_member(&stream, "live/1.3", big, 16385);
  t_output_bad(&spec, &stream, "cap of live");
  g_byte_array_set_size(stream.bytes, before_last);
  for (int i = 0; i < 256; i++) {
    g_autofree char *path = g_strdup_printf("live/1.%d", i + 3);
    t_stream_member(&stream, path, big, i == 255 ? 16384 - 6 : 16384);
  }
  g_assert_cmpint(t_output_run(&spec, &stream, 65536, NULL, NULL, NULL), ==, QV_ENTRY_OUTPUT_MORE);
  t_stream_text(&stream, "live/1.259", "x");
  t_output_bad(&spec, &stream, "cap of live");
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
    QvEntryOutputSpec spec = t_output_spec(FALSE);
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
    g_assert_cmpint(t_output_run(&spec, &stream, 4096, &heard, &facts, NULL), ==, QV_ENTRY_OUTPUT_DONE);
    g_assert_cmpstr(heard, ==, want);
    g_assert_cmpint(facts->steps[0].log_truncated, ==, rows[i].truncated);
  }
  /* 100 invalid bytes are 300 as text: what is kept is the tail of logBytes. */
  QvEntryOutputSpec spec = t_output_spec(FALSE);
  g_auto(TStream) stream;
  g_autofree char *heard = NULL;
  g_autoptr(QvEntryFacts) facts = NULL;
  g_autofree char *noise = g_strnfill(100, '\xff');
  t_stream_init(&stream);
  t_stream_step(&stream, 0, "lint", 0, noise);
  t_stream_step(&stream, 1, "test", 0, "");
  t_stream_done(&stream);
  t_stream_end(&stream);
  g_assert_cmpint(t_output_run(&spec, &stream, 4096, &heard, &facts, NULL), ==, QV_ENTRY_OUTPUT_DONE);
  g_assert_true(facts->steps[0].log_truncated);
  g_assert_cmpuint(strlen(heard), ==, strlen("record 0 lint 0;log 0 ;record 1 test 0;log 1 ;") + 99);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/entry-output/records", test_records);
  g_test_add_func("/entry-output/caps", test_caps);
  g_test_add_func("/entry-output/live", test_live);
  g_test_add_func("/entry-output/text", test_text);
  return g_test_run();
}
