/* SPDX-License-Identifier: Apache-2.0 */
/* The payload of a result: written, read back, and every way in which it can
 * differ from what the result says. */
#include <string.h>

#include "base/error.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "format/gzip.h"
#include "format/inflate.h"
#include "protocol/payload.h"
#include "stream.h"
#include "support.h"

static void collect(void *user, const guint8 *bytes, gsize n)
{
  g_byte_array_append(user, bytes, (guint)n);
}

/* The result that goes with the payloads of these tests. */
static QvResult *result_of(const QvJob *job)
{
  QvResult *result = qv_result_new(job, T_HEX64, "r", "runsc");
  QvEntryFacts *facts = &result->facts;
  facts->has_setup = TRUE;
  facts->steps = g_new0(QvStepRecord, 2);
  facts->steps_n = 2;
  facts->artefacts = g_new0(QvArtefact, 2);
  facts->artefacts_n = 2;
  facts->artefacts[0] = (QvArtefact){ .path = g_strdup("build/a"), .size = 5 };
  facts->artefacts[1] = (QvArtefact){ .path = g_strdup("build/b"), .size = 0 };
  g_strlcpy(facts->artefacts[0].sha256, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", 65); /* hello */
  g_strlcpy(facts->artefacts[1].sha256, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", 65);
  return result;
}

static GString *heard;

static gboolean on_begin(void *user, const char *path, gint64 size, gboolean executable, GError **error)
{
  g_string_append_printf(user, "%s %d%s ", path, (int)size, executable ? " x" : "");
  return TRUE;
}

static gboolean on_bytes(void *user, const guint8 *bytes, gsize n, GError **error)
{
  g_string_append_len(user, (const char *)bytes, (gssize)n);
  return TRUE;
}

static gboolean on_end(void *user, GError **error)
{
  g_string_append_c(user, ';');
  return TRUE;
}

static const QvPayloadSinkTable table = { on_begin, on_bytes, on_end };

static gboolean read_gzip(const GByteArray *gzip, gsize portion, GError **error)
{
  g_autoptr(QvJob) job = t_job();
  g_autoptr(QvResult) result = result_of(job);
  g_string_truncate(heard, 0);
  g_autoptr(QvPayloadReader) reader = qv_payload_reader_new(result, job, &table, heard);
  for (gsize at = 0; at < gzip->len; at += portion) {
    if (!qv_payload_reader_feed(reader, gzip->data + at, MIN(portion, gzip->len - at), error)) {
      /* A breach is final. */
      g_assert_false(qv_payload_reader_feed(reader, gzip->data, 1, NULL));
      g_assert_false(qv_payload_reader_finish(reader, NULL));
      return FALSE;
    }
  }
  return qv_payload_reader_finish(reader, error);
}

static GByteArray *write_good(char tree[65])
{
  GByteArray *gzip = g_byte_array_new();
  g_autoptr(QvPayloadWriter) writer = qv_payload_writer_new(collect, gzip);
  qv_payload_writer_log(writer, -1, "setting up", 10);
  qv_payload_writer_log(writer, 0, "", 0);
  qv_payload_writer_log(writer, 1, "tested", 6);
  qv_payload_writer_artefact_begin(writer, "build/a", 5, TRUE);
  qv_payload_writer_artefact_bytes(writer, (const guint8 *)"he", 2);
  qv_payload_writer_artefact_bytes(writer, (const guint8 *)"llo", 3);
  qv_payload_writer_artefact_end(writer);
  qv_payload_writer_artefact_begin(writer, "build/b", 0, FALSE);
  qv_payload_writer_artefact_end(writer);
  g_assert_true(qv_payload_writer_finish(writer, tree));
  return gzip;
}

static void test_round_trip(void)
{
  char tree[65], hex[65];
  g_autoptr(GByteArray) gzip = write_good(tree);
  static const gsize portions[] = { 1, 100, 100000 };
  for (gsize i = 0; i < G_N_ELEMENTS(portions); i++) {
    GError *error = NULL;
    g_assert_true(read_gzip(gzip, portions[i], &error));
    g_assert_no_error(error);
    g_assert_cmpstr(heard->str, ==, "artefacts/build/a 5 x hello;artefacts/build/b 0 ;logs/0.log 0 ;logs/1.log 6 tested;"
                                    "logs/setup.log 10 setting up;");
  }
  /* treeSha256 is the digest of the tar inside. */
  guint8 tar[64 * 1024], digest[32];
  const guint8 *in = gzip->data;
  gsize in_n = gzip->len, n = 0;
  QvGunzip *gunzip = qv_gunzip_new(sizeof tar);
  g_assert_cmpint(qv_gunzip_step(gunzip, &in, &in_n, tar, sizeof tar, &n), ==, QV_GUNZIP_MORE);
  qv_gunzip_free(gunzip);
  qv_sha256(tar, n, digest);
  qv_hex_encode(digest, 32, hex);
  g_assert_cmpstr(tree, ==, hex);
}

/* Nothing at all is written where there is no member. */
static void test_empty(void)
{
  char tree[65] = "untouched";
  g_autoptr(GByteArray) gzip = g_byte_array_new();
  g_autoptr(QvPayloadWriter) writer = qv_payload_writer_new(collect, gzip);
  g_assert_false(qv_payload_writer_finish(writer, tree));
  g_assert_cmpuint(gzip->len, ==, 0);
  g_assert_cmpstr(tree, ==, "untouched");
}

/* Ten and more steps: path order is by bytes, not by number. */
static void test_log_order(void)
{
  char tree[65];
  g_autoptr(QvJob) job = t_job();
  g_autoptr(GByteArray) gzip = g_byte_array_new();
  g_autoptr(QvPayloadWriter) writer = qv_payload_writer_new(collect, gzip);
  for (int i = 0; i < 12; i++)
    qv_payload_writer_log(writer, i, "x", 1);
  g_assert_true(qv_payload_writer_finish(writer, tree));
  g_autoptr(QvResult) result = qv_result_new(job, T_HEX64, "r", "runsc");
  result->facts.steps = g_new0(QvStepRecord, 12);
  result->facts.steps_n = 12;
  g_string_truncate(heard, 0);
  g_autoptr(QvPayloadReader) reader = qv_payload_reader_new(result, job, &table, heard);
  GError *error = NULL;
  qv_payload_reader_feed(reader, gzip->data, gzip->len, &error);
  g_assert_no_error(error);
  g_assert_true(qv_payload_reader_finish(reader, &error));
  g_assert_true(g_str_has_prefix(heard->str, "logs/0.log 1 x;logs/1.log 1 x;logs/10.log 1 x;logs/11.log 1 x;logs/2.log"));
}

#define A "artefacts/build/a=hello|"
#define B "artefacts/build/b=|"
#define L "logs/0.log=|logs/1.log=tested|logs/setup.log=setting up"

static void test_departures(void)
{
  g_autofree char *thousand = g_strnfill(1000, 'l');
  g_autofree char *fits = g_strconcat(A B "logs/0.log=", thousand, "|logs/1.log=|logs/setup.log=", NULL);
  g_autofree char *over = g_strconcat(A B "logs/0.log=l", thousand, "|logs/1.log=|logs/setup.log=", NULL);
  const struct {
    const char *members, *part;
  } rows[] = {
    { A B L, NULL },
    { fits, NULL },
    { over, "size" },
    { A B L, "two zero blocks" }, /* without them */
    { B L, "in its place" },
    { A L, "in its place" },
    { A B "logs/0.log=|logs/1.log=tested", "missing" },
    { A B "logs/0.log=|logs/setup.log=", "in its place" },
    { B A L, "in its place" },
    { A B L "|logs/2.log=", "" },
    { A B "extra=|" L, "in its place" },
    { "artefacts/build/a=hellO|" B L, "SHA-256" },
    { "artefacts/build/a=hell|" B L, "size" },
    { "artefacts/build/a=hello!|" B L, "size" },
    { "artefacts/build/A=hello|" B L, "in its place" },
    { A A B L, "" },
    { "build/a=hello|" B L, "in its place" },
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    GError *error = NULL;
    g_auto(TStream) tar;
    t_stream_init(&tar);
    g_auto(GStrv) members = g_strsplit(rows[i].members, "|", -1);
    for (guint k = 0; members[k] != NULL; k++) {
      char *text = strchr(members[k], '=');
      *text++ = '\0';
      t_stream_text(&tar, members[k], text);
    }
    if (rows[i].part == NULL || strcmp(rows[i].part, "two zero blocks") != 0)
      t_stream_end(&tar);
    g_autoptr(GByteArray) gzip = g_byte_array_new();
    QvGzipWriter *writer = qv_gzip_writer_new(collect, gzip);
    qv_gzip_writer_add(writer, tar.bytes->data, tar.bytes->len);
    qv_gzip_writer_finish(writer);
    qv_gzip_writer_free(writer);
    gboolean good = read_gzip(gzip, 4096, &error);
    if (good != (rows[i].part == NULL) || (!good && strstr(error->message, rows[i].part) == NULL))
      g_error("%s: %s", rows[i].members, error != NULL ? error->message : "accepted");
    g_clear_error(&error);
  }
}

/* Cut anywhere, or with any byte behind it, it is refused. */
static void test_cut_and_trailing(void)
{
  char tree[65];
  g_autoptr(GByteArray) gzip = write_good(tree);
  guint whole = gzip->len;
  for (guint n = 0; n < whole; n++) {
    g_byte_array_set_size(gzip, n);
    g_assert_false(read_gzip(gzip, 100000, NULL));
  }
  g_byte_array_unref(g_steal_pointer(&gzip));
  gzip = write_good(tree);
  g_byte_array_append(gzip, (const guint8 *)"x", 1);
  g_assert_false(read_gzip(gzip, 100000, NULL));
}

/* A megabyte of zeros behind a few bytes of gzip meets the cap of the job. */
static void test_bomb(void)
{
  GError *error = NULL;
  g_autofree guint8 *zeros = g_malloc0(8 * 1024 * 1024);
  g_autoptr(GByteArray) gzip = g_byte_array_new();
  QvGzipWriter *writer = qv_gzip_writer_new(collect, gzip);
  qv_gzip_writer_add(writer, zeros, 8 * 1024 * 1024);
  qv_gzip_writer_finish(writer);
  qv_gzip_writer_free(writer);
  g_assert_false(read_gzip(gzip, 4096, &error));
  g_assert_nonnull(error);
  g_clear_error(&error);
}

static gboolean refuse_begin(void *user, const char *path, gint64 size, gboolean executable, GError **error)
{
  g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "disk full");
  return FALSE;
}

static void test_sink_refuses(void)
{
  static const QvPayloadSinkTable refusing = { refuse_begin, on_bytes, on_end };
  char tree[65];
  GError *error = NULL;
  g_autoptr(QvJob) job = t_job();
  g_autoptr(QvResult) result = result_of(job);
  g_autoptr(GByteArray) gzip = write_good(tree);
  g_autoptr(QvPayloadReader) reader = qv_payload_reader_new(result, job, &refusing, heard);
  g_assert_false(qv_payload_reader_feed(reader, gzip->data, gzip->len, &error));
  t_assert_error(&error, QV_ERROR_SYSTEM, "disk full");
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  heard = g_string_new(NULL);
  g_test_add_func("/payload/round-trip", test_round_trip);
  g_test_add_func("/payload/empty", test_empty);
  g_test_add_func("/payload/log-order", test_log_order);
  g_test_add_func("/payload/departures", test_departures);
  g_test_add_func("/payload/cut-and-trailing", test_cut_and_trailing);
  g_test_add_func("/payload/bomb", test_bomb);
  g_test_add_func("/payload/sink-refuses", test_sink_refuses);
  int failed = g_test_run();
  g_string_free(heard, TRUE);
  return failed;
}
