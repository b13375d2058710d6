/* SPDX-License-Identifier: Apache-2.0 */
/* The runner's reader of an entry's stdout, behind the checks that a fuzzer does not pass by chance: the input is a
 * script that becomes a stream whose headers and code are right. fuzz_entry_output.c feeds bytes as they are.
 *
 *   PATH=TEXT LF …    a member each; "exit.json" gets the code over the stream so far into its member mac
 *                     where TEXT holds "mac":"?"; the two zero blocks come at the end */
#include <string.h>

#include "base/base64.h"
#include "base/sha256.h"
#include "format/jcs.h"
#include "format/json.h"
#include "format/tar.h"
#include "format/text.h"
#include "fuzz.h"
#include "protocol/entry_output.h"

enum { LOG_BYTES = 64, ARTEFACT_BYTES = 100, ARTEFACTS_N = 3 };
static const guint8 stream_key[QV_STREAM_KEY_BYTES] = "fuzz";

/* ---- what is heard ---- */

typedef struct {
  guint64 digest;
  gint64 open_left; /* of the open artefact; -1: none */
  gint64 artefact_bytes;
  guint records_n, logs_n, artefacts_n;
} Heard;

static void mix(Heard *heard, const void *bytes, gsize n)
{
  for (gsize i = 0; i < n; i++)
    heard->digest = (heard->digest ^ ((const guint8 *)bytes)[i]) * 0x100000001b3u;
}

static void on_record(void *user, gssize step, const QvStepRecord *record)
{
  Heard *heard = user;
  QV_FUZZ_CHECK(step >= -1 && step < 2 && record->has_exit_code != record->has_signal);
  heard->records_n++;
  mix(heard, record->name, strlen(record->name));
}

static void on_log(void *user, gssize step, const char *text, gsize n)
{
  Heard *heard = user;
  QV_FUZZ_CHECK(n <= LOG_BYTES && qv_text_is_utf8(text, n) && memchr(text, 0, n) == NULL);
  QV_FUZZ_CHECK(++heard->logs_n == heard->records_n);
  mix(heard, text, n);
}

static void on_artefact_begin(void *user, const char *path, gint64 size, gboolean executable)
{
  Heard *heard = user;
  QV_FUZZ_CHECK(heard->open_left < 0 && heard->logs_n == heard->records_n && ++heard->artefacts_n <= ARTEFACTS_N);
  QV_FUZZ_CHECK(g_str_has_prefix(path, "out/") && qv_tar_path_check(path, strlen(path), true) == QV_TAR_OK);
  heard->open_left = size;
  heard->artefact_bytes += size;
  QV_FUZZ_CHECK(heard->artefact_bytes <= ARTEFACT_BYTES);
  mix(heard, path, strlen(path));
}

static void on_artefact_bytes(void *user, const guint8 *bytes, gsize n)
{
  Heard *heard = user;
  heard->open_left -= (gint64)n;
  QV_FUZZ_CHECK(heard->open_left >= 0);
  mix(heard, bytes, n);
}

static void on_artefact_end(void *user)
{
  Heard *heard = user;
  QV_FUZZ_CHECK(heard->open_left == 0);
  heard->open_left = -1;
}

static void on_live(void *user, gssize step, const guint8 *bytes, gsize n)
{
  QV_FUZZ_CHECK(n <= 16 * 1024);
  mix(user, bytes, n);
}

static void check_facts(const QvEntryFacts *facts, const Heard *heard)
{
  QV_FUZZ_CHECK(facts->steps_n <= 2 && facts->artefacts_n == heard->artefacts_n && heard->open_left < 0);
  QV_FUZZ_CHECK(facts->steps_n + (facts->has_setup ? 1 : 0) == heard->logs_n && facts->refused <= (heard->logs_n == 0));
  gsize n, again_n;
  g_autofree char *text = qv_entry_facts_format(facts, &n);
  g_autoptr(QvEntryFacts) read = qv_entry_facts_parse(text, n, NULL);
  QV_FUZZ_CHECK(read);
  g_autofree char *again = qv_entry_facts_format(read, &again_n);
  QV_FUZZ_CHECK(strcmp(text, again) == 0);
}

static QvEntryOutputVerdict read_all(const guint8 *data, gsize size, gsize portion, gboolean with_setup, guint64 *digest)
{
  static const char *const names[] = {"build", "test"}, *const globs[] = {"out/**", NULL};
  static const gboolean goes_on[] = {TRUE, FALSE};
  static const QvEntryOutputSink sink = {on_record, on_log, on_artefact_begin, on_artefact_bytes, on_artefact_end, on_live};
  QvEntryOutputSpec spec = {.stream_key = stream_key,
                            .setup_name = with_setup ? "setup" : NULL,
                            .step_names = names,
                            .continue_on_failure = goes_on,
                            .steps_n = 2,
                            .log_bytes = LOG_BYTES,
                            .artefact_bytes = ARTEFACT_BYTES,
                            .artefact_count = ARTEFACTS_N,
                            .artefact_globs = globs,
                            .live = TRUE};
  Heard heard = {.open_left = -1};
  g_autoptr(QvEntryOutput) output = qv_entry_output_new(&spec, &sink, &heard);
  QvEntryOutputVerdict verdict = QV_ENTRY_OUTPUT_MORE;
  for (gsize at = 0; at < size && verdict != QV_ENTRY_OUTPUT_BAD; at += portion) {
    g_autoptr(GError) error = NULL;
    verdict = qv_entry_output_feed(output, data + at, MIN(portion, size - at), &error);
    QV_FUZZ_CHECK((verdict == QV_ENTRY_OUTPUT_BAD) == (error != NULL));
  }
  const QvEntryFacts *facts = qv_entry_output_facts(output);
  QV_FUZZ_CHECK((facts != NULL) == (verdict == QV_ENTRY_OUTPUT_DONE));
  if (facts)
    check_facts(facts, &heard);
  *digest = verdict == QV_ENTRY_OUTPUT_DONE ? heard.digest : 0;
  return verdict;
}

/* ---- scripts ---- */

static char *with_mac(const GByteArray *stream, const char *text, gsize n)
{
  json_t *json = qv_json_parse(text, n, QV_RECORD_JSON_BYTES_MAX, QV_JSON_SIGNED, NULL);
  const char *mac_member = json_string_value(json_object_get(json, "mac"));
  if (!mac_member || strcmp(mac_member, "?") != 0) {
    json_decref(json);
    return g_strndup(text, n);
  }
  json_object_del(json, "mac");
  char *bare = qv_jcs(json, NULL);
  QvHmacSha256 hmac;
  guint8 mac[QV_SHA256_BYTES];
  char mac_text[QV_BASE64_LEN(QV_SHA256_BYTES) + 1];
  qv_hmac_sha256_init(&hmac, stream_key, sizeof stream_key);
  qv_hmac_sha256_update(&hmac, stream->data ? stream->data : (const guint8 *)"", stream->len);
  qv_hmac_sha256_update(&hmac, bare, strlen(bare));
  qv_hmac_sha256_final(&hmac, mac);
  qv_base64_encode(mac, sizeof mac, mac_text);
  json_object_set_new(json, "mac", json_string(mac_text));
  char *whole = qv_jcs(json, NULL), *copy = g_strdup(whole);
  free(bare);
  free(whole);
  json_decref(json);
  return copy;
}

static void put_member(GByteArray *stream, const char *path, const char *text, gsize n)
{
  guint8 header[QV_TAR_HEADER_BYTES_MAX];
  gsize header_n = 0;
  if (qv_tar_header(path, n, FALSE, header, &header_n) != QV_TAR_OK)
    return;
  g_byte_array_append(stream, header, (guint)header_n);
  g_byte_array_append(stream, (const guint8 *)text, (guint)n);
  g_byte_array_append(stream, qv_tar_zeros, (guint)qv_tar_padding(n));
}

static GByteArray *play(const char *script, gsize n)
{
  GByteArray *stream = g_byte_array_new();
  for (gsize at = 0; at < n;) {
    const char *line = script + at, *end = memchr(line, '\n', n - at);
    gsize line_n = end ? (gsize)(end - line) : n - at;
    const char *equals = memchr(line, '=', line_n);
    at += line_n + 1;
    if (!equals)
      continue;
    g_autofree char *path = g_strndup(line, (gsize)(equals - line));
    gsize text_n = line_n - (gsize)(equals - line) - 1;
    if (strcmp(path, "exit.json") == 0) {
      g_autofree char *text = with_mac(stream, equals + 1, text_n);
      put_member(stream, path, text, strlen(text));
    } else {
      put_member(stream, path, equals + 1, text_n);
    }
  }
  g_byte_array_append(stream, qv_tar_zeros, QV_TAR_END_BYTES);
  return stream;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  g_autoptr(GByteArray) played = play((const char *)data, size);
  data = played->data;
  size = played->len;
  for (int with_setup = 0; with_setup < 2; with_setup++) {
    guint64 whole, pieces, bytes;
    QvEntryOutputVerdict verdict = read_all(data, size, size, with_setup, &whole);
    QV_FUZZ_CHECK(read_all(data, size, 509, with_setup, &pieces) == verdict && whole == pieces);
    if (size < 16384)
      QV_FUZZ_CHECK(read_all(data, size, 1, with_setup, &bytes) == verdict && whole == bytes);
  }
  return 0;
}
