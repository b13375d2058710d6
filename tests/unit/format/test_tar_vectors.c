/* SPDX-License-Identifier: Apache-2.0 */
/* Archives of others (shared vectors, tar/): every REJECT is refused, every ACCEPT within the profile is accepted with
 * equal content, every other ACCEPT is refused for the reason that tar_verdicts.tsv names. Each archive
 * is fed whole and one byte at a time. */
#include <string.h>

#include "base/sha256.h"
#include "format/inflate.h"
#include "format/json.h"
#include "format/tar.h"
#include "vectors.h"

typedef struct {
  char *reason; /* "OK", a QV_TAR_ or QV_GZIP_ name; of made-here also "EXIT_JSON" */
  GString *listing; /* "name size sha256\n" a file */
  gboolean exit_json; /* there, and strict JSON */
} Outcome;

typedef struct {
  QvTarReader tar;
  Outcome *outcome;
  QvSha256 digest;
  GByteArray *exit_json; /* while it is read */
} Reading;

static void take(Reading *reading, QvTarEvent event)
{
  QvTarReader *tar = &reading->tar;
  if (event == QV_TAR_ENTRY) {
    qv_sha256_init(&reading->digest);
    g_byte_array_set_size(reading->exit_json, 0);
  } else if (event == QV_TAR_DATA) {
    qv_sha256_update(&reading->digest, tar->data, tar->data_n);
    g_byte_array_append(reading->exit_json, tar->data, (guint)tar->data_n);
  } else if (event == QV_TAR_ENTRY_END) {
    guint8 digest[QV_SHA256_BYTES];
    qv_sha256_final(&reading->digest, digest);
    g_string_append_printf(reading->outcome->listing, "%s %" G_GUINT64_FORMAT " ", tar->entry.path, tar->entry.size);
    for (gsize i = 0; i < sizeof digest; i++)
      g_string_append_printf(reading->outcome->listing, "%02x", digest[i]);
    g_string_append_c(reading->outcome->listing, '\n');
    if (strcmp(tar->entry.path, "exit.json") == 0) {
      GByteArray *text = reading->exit_json;
      json_t *value = qv_json_parse(text->data ? text->data : (guint8 *)"", text->len, 65536, QV_JSON_SIGNED, NULL);
      reading->outcome->exit_json = value != NULL;
      json_decref(value);
    }
  }
}

static void feed_tar(Reading *reading, const guint8 *bytes, gsize n, gsize portion)
{
  for (gsize at = 0; at < n;) {
    gsize part = MIN(portion, n - at);
    const guint8 *b = bytes + at;
    at += part;
    QvTarEvent event;
    while ((event = qv_tar_reader_step(&reading->tar, &b, &part)) != QV_TAR_MORE && event != QV_TAR_BAD)
      take(reading, event);
  }
}

static QvGzipReason feed_gzip(Reading *reading, const guint8 *bytes, gsize n, gsize portion)
{
  static guint8 out[65536];
  QvGunzip *gunzip = qv_gunzip_new(64 << 20);
  for (gsize at = 0; at < n;) {
    gsize part = MIN(portion, n - at), out_n;
    const guint8 *b = bytes + at;
    at += part;
    QvGunzipStatus status;
    do {
      status = qv_gunzip_step(gunzip, &b, &part, out, portion == 1 ? 7 : sizeof out, &out_n);
      if (status != QV_GUNZIP_BAD)
        feed_tar(reading, out, out_n, portion == 1 ? 1 : out_n);
    } while (status == QV_GUNZIP_OUTPUT);
    /* The tar of a bomb is refused long before its gzip is through. */
    if (reading->tar.reason != QV_TAR_OK)
      break;
  }
  QvGzipReason reason = reading->tar.reason == QV_TAR_OK ? qv_gunzip_finish(gunzip) : QV_GZIP_OK;
  qv_gunzip_free(gunzip);
  return reason;
}

static Outcome read_archive(const char *name, gsize portion)
{
  static const QvTarCaps caps = {.entries_max = 10000, .total_bytes_max = 256 << 20, .file_bytes_max = 64 << 20, .portable = true};
  gsize n;
  g_autofree char *bytes = vector_read(name, &n);
  Outcome outcome = {.listing = g_string_new(NULL)};
  Reading reading = {.outcome = &outcome, .exit_json = g_byte_array_new()};
  qv_tar_reader_init(&reading.tar, &caps);
  QvGzipReason gzip = QV_GZIP_OK;
  if (g_str_has_suffix(name, "gz"))
    gzip = feed_gzip(&reading, (const guint8 *)bytes, n, portion);
  else
    feed_tar(&reading, (const guint8 *)bytes, n, portion);
  const char *reason;
  if (gzip != QV_GZIP_OK)
    reason = qv_gzip_reason_name(gzip);
  else
    reason = qv_tar_reason_name(qv_tar_reader_finish(&reading.tar));
  if (g_str_has_prefix(name, "tar/made-here/") && strcmp(reason, "QV_TAR_OK") == 0 && !outcome.exit_json)
    reason = "EXIT_JSON";
  outcome.reason = g_strdup(strcmp(reason, "QV_TAR_OK") == 0 ? "OK" : reason);
  qv_tar_reader_clear(&reading.tar);
  g_byte_array_unref(reading.exit_json);
  return outcome;
}

/* Both ways of feeding say the same; the caller frees what is returned. */
static Outcome read_both_ways(const char *name)
{
  Outcome whole = read_archive(name, G_MAXSIZE);
  gsize n;
  g_free(vector_read(name, &n));
  /* A byte at a time through the largest archives takes minutes under sanitizers. */
  Outcome pieces = read_archive(name, n > 300000 ? 509 : 1);
  g_assert_cmpstr(whole.reason, ==, pieces.reason);
  if (strcmp(whole.reason, "OK") == 0) /* else it depends on the portions how much was seen before */
    g_assert_cmpstr(whole.listing->str, ==, pieces.listing->str);
  g_free(pieces.reason);
  g_string_free(pieces.listing, TRUE);
  return whole;
}

/* VERDICT of the suite, our outcome, and what the table says: "" on agreement. */
static void judge(GPtrArray *table, const char *name, const char *verdict, const Outcome *outcome, const char *expected)
{
  char **row = table_find(table, name);
  const char *named = row ? row[1] : "OK";
  if (strcmp(outcome->reason, named) != 0)
    g_error("%s: %s, but the table says %s", name, outcome->reason, named);
  gboolean accepted = strcmp(outcome->reason, "OK") == 0;
  if (strcmp(verdict, "REJECT") == 0)
    g_assert_false(accepted);
  if (accepted && expected)
    g_assert_cmpstr(outcome->listing->str, ==, expected);
}

static void clear(Outcome *outcome)
{
  g_free(outcome->reason);
  g_string_free(outcome->listing, TRUE);
}

/* Regular files alone: an archive with anything else is never accepted. */
static char *expected_listing(json_t *entries)
{
  GString *listing = g_string_new(NULL);
  gsize i;
  json_t *entry;
  json_array_foreach(entries, i, entry)
  {
    const char *sha256 = json_string_value(json_object_get(entry, "sha256"));
    g_string_append_printf(listing, "%s %" JSON_INTEGER_FORMAT " %s\n", json_string_value(json_object_get(entry, "name")),
                           json_integer_value(json_object_get(entry, "size")), sha256 ? sha256 : "none");
  }
  return g_string_free(listing, FALSE);
}

static void test_public(void)
{
  if (!vectors_here())
    return;
  g_autoptr(GPtrArray) table = table_read("tar_verdicts.tsv");
  gsize n;
  g_autofree char *text = vector_read("tar/expect.jsonl", &n);
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  guint rows = 0;
  for (guint i = 0; lines[i]; i++) {
    if (!*lines[i])
      continue;
    json_t *row = qv_json_parse(lines[i], strlen(lines[i]), G_MAXSIZE, QV_JSON_ANY, NULL);
    g_assert_nonnull(row);
    g_autofree char *name = g_strdup_printf("tar/%s", json_string_value(json_object_get(row, "file")));
    json_t *entries = json_object_get(row, "entries");
    g_autofree char *expected = entries ? expected_listing(entries) : NULL;
    Outcome outcome = read_both_ways(name);
    judge(table, name, json_string_value(json_object_get(row, "verdict")), &outcome, expected);
    clear(&outcome);
    json_decref(row);
    rows++;
  }
  g_assert_cmpuint(rows, ==, 97);
  g_test_message("tar: %u public archives; node-tar/expect (14 traces) is informative, and not asked", rows);
}

static void test_made_here(void)
{
  if (!vectors_here())
    return;
  g_autoptr(GPtrArray) table = table_read("tar_verdicts.tsv");
  g_autoptr(GPtrArray) rows = vector_table("tar/made-here/EXPECT.tsv");
  g_assert_cmpuint(rows->len, ==, 67);
  for (guint i = 0; i < rows->len; i++) {
    char **row = rows->pdata[i];
    g_autofree char *name = g_strdup_printf("tar/made-here/%s", row[0]);
    Outcome outcome = read_both_ways(name);
    judge(table, name, row[2], &outcome, NULL);
    clear(&outcome);
  }
  g_test_message("tar: %u archives made here", rows->len);
}

/* The table has no row that nothing stands behind. */
static void test_table(void)
{
  if (!vectors_here())
    return;
  g_autoptr(GPtrArray) table = table_read("tar_verdicts.tsv");
  for (guint i = 0; i < table->len; i++) {
    char **row = table->pdata[i];
    g_autofree char *path = vector_path(row[0]);
    g_assert_true(g_file_test(path, G_FILE_TEST_EXISTS));
    for (guint k = 0; k < i; k++)
      g_assert_cmpstr(((char **)table->pdata[k])[0], !=, row[0]);
  }
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  if (argc == 3 && strcmp(argv[1], "--print") == 0) { /* one row of the table, for a new archive */
    Outcome outcome = read_both_ways(argv[2]);
    g_print("%s\t%s\n", argv[2], outcome.reason);
    clear(&outcome);
    return 0;
  }
  g_test_add_func("/tar/vectors/public", test_public);
  g_test_add_func("/tar/vectors/made-here", test_made_here);
  g_test_add_func("/tar/vectors/table", test_table);
  return g_test_run();
}
