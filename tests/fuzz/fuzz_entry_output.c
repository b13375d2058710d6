/* SPDX-License-Identifier: Apache-2.0 */
/* A hostile entry's stream: one verdict however it is cut, caps hold, a log is text, and DONE means facts that pass
 * the pipe to the supervisor and make a result that a worker accepts. The first byte is flags, and the input may ask for
 * the code of its exit.json to be made right, so that what lies behind that check is reached. */
#include "base/base64.h"
#include "base/sha256.h"
#include "format/tar.h"
#include "format/text.h"
#include "fuzz_protocol.h"
#include "protocol/entry_output.h"
#include "protocol/result.h"

static const guint8 stream_key[QV_STREAM_KEY_BYTES] = "0123456789abcdef0123456789abcde";
static const char *const names[] = { "lint", "test" };
static const gboolean continues[] = { TRUE, FALSE };
static const char *const globs[] = { "**", NULL };

typedef struct {
  gint64 log_bytes, artefact_bytes, left;
  gsize artefacts_n;
  GString *heard;
} Heard;

static void on_log(void *user, gssize step, const char *text, gsize n)
{
  Heard *heard = user;
  QV_FUZZ_CHECK(n <= 100 && qv_text_is_utf8(text, n) && !memchr(text, 0, n));
  g_string_append_printf(heard->heard, "log %d %zu;", (int)step, n);
}

static void on_begin(void *user, const char *path, gint64 size, gboolean executable)
{
  Heard *heard = user;
  heard->artefact_bytes += size;
  heard->left = size;
  QV_FUZZ_CHECK(++heard->artefacts_n <= 3 && heard->artefact_bytes <= 1000 && path[0] != '/');
  g_string_append_printf(heard->heard, "artefact %s %d;", path, executable);
}

static void on_bytes(void *user, const guint8 *bytes, gsize n)
{
  Heard *heard = user;
  heard->left -= (gint64)n;
  QV_FUZZ_CHECK(heard->left >= 0);
  g_string_append_len(heard->heard, (const char *)bytes, (gssize)n);
}

static void on_end(void *user)
{
  QV_FUZZ_CHECK(((Heard *)user)->left == 0);
}

static void on_live(void *user, gssize step, const guint8 *bytes, gsize n)
{
  QV_FUZZ_CHECK(n <= 16384);
  g_string_append_printf(((Heard *)user)->heard, "live %d %zu;", (int)step, n);
}

static QvEntryOutputVerdict run(const guint8 *data, gsize size, guint8 flags, gsize portion, GString *text, char **facts_text)
{
  static const QvEntryOutputSink sink = { .log = on_log, .artefact_begin = on_begin, .artefact_bytes = on_bytes,
                                          .artefact_end = on_end, .live = on_live };
  const QvEntryOutputSpec spec = { .stream_key = stream_key, .setup_name = flags & 1 ? "prepare" : NULL,
                                   .step_names = names, .continue_on_failure = continues, .steps_n = 2, .log_bytes = 100,
                                   .artefact_bytes = 1000, .artefact_count = 3, .artefact_globs = globs,
                                   .live = (flags & 2) != 0 };
  Heard heard = { .heard = text };
  QvEntryOutput *output = qv_entry_output_new(&spec, &sink, &heard);
  QvEntryOutputVerdict verdict = QV_ENTRY_OUTPUT_MORE;
  for (gsize at = 0; at < size && verdict != QV_ENTRY_OUTPUT_BAD; at += portion) {
    g_autoptr(GError) error = NULL;
    verdict = qv_entry_output_feed(output, data + at, MIN(portion, size - at), &error);
    QV_FUZZ_CHECK((verdict == QV_ENTRY_OUTPUT_BAD) == (error != NULL));
  }
  if (verdict == QV_ENTRY_OUTPUT_DONE) {
    gsize n = 0;
    *facts_text = qv_entry_facts_format(qv_entry_output_facts(output), &n);
  }
  qv_entry_output_free(output);
  return verdict;
}

/* Facts of an accepted stream, over the pipe, as a signed result, to the worker. */
static void check_result(const char *facts_text)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvJob) job = fuzz_job();
  g_autoptr(QvKey) key = fuzz_key();
  g_autoptr(QvEntryFacts) facts = qv_entry_facts_parse(facts_text, strlen(facts_text), &error);
  QV_FUZZ_CHECK(facts);
  const QvRunFacts ended = { .end = QV_RUN_COMPLETE, .facts = facts };
  g_autoptr(QvResult) result = qv_result_new(job, FUZZ_HEX64, "r", "runsc");
  qv_result_apply(result, job, &ended);
  gsize n = 0;
  g_autofree char *text = qv_result_sign(result, job, key, &n, &error);
  QV_FUZZ_CHECK(text);
  g_autoptr(QvResult) read = qv_result_verify(text, n, job, FUZZ_HEX64, key, &error);
  QV_FUZZ_CHECK(read);
}

/* Puts the right code in place of the 44 characters behind "mac":" in the last 1,024 bytes, as the contract has it:
 * for members in canonical order without blanks. */
static void mend_mac(guint8 *data, gsize size)
{
  static const char mark[] = "\"mac\":\"";
  gsize mark_n = sizeof mark - 1;
  guint8 *at = NULL;
  for (gsize i = size > 2048 ? size - 2048 : 0; i + mark_n + 46 < size; i++)
    if (memcmp(data + i, mark, mark_n) == 0)
      at = data + i;
  if (at == NULL)
    return;
  guint8 *open = at;
  while (open > data && *open != '{')
    open--;
  guint8 *behind = at + mark_n + 46; /* inside: the loop saw to it */
  guint8 *close = memchr(behind, '}', size - (gsize)(behind - data));
  gsize header_at = (gsize)(open - data);
  if (close == NULL || header_at < QV_TAR_BLOCK_BYTES || at[mark_n + 44] != '"' || at[mark_n + 45] != ',')
    return;
  guint8 mac[32];
  char text[QV_BASE64_LEN(32) + 1];
  QvHmacSha256 hmac;
  qv_hmac_sha256_init(&hmac, stream_key, sizeof stream_key);
  qv_hmac_sha256_update(&hmac, data, header_at - QV_TAR_BLOCK_BYTES);
  qv_hmac_sha256_update(&hmac, open, (gsize)(at - open));
  qv_hmac_sha256_update(&hmac, behind, (gsize)(close + 1 - behind));
  qv_hmac_sha256_final(&hmac, mac);
  qv_base64_encode(mac, sizeof mac, text);
  memcpy(at + mark_n, text, 44);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size == 0 || size > 64 * 1024)
    return 0;
  guint8 flags = data[0];
  gsize n = size - 1;
  g_autofree guint8 *stream = g_memdup2(data + 1, n);
  if (flags & 4)
    mend_mac(stream, n);
  g_autoptr(GString) whole = g_string_new(NULL);
  g_autoptr(GString) pieces = g_string_new(NULL);
  g_autofree char *facts = NULL;
  g_autofree char *facts_again = NULL;
  QvEntryOutputVerdict verdict = run(stream, n, flags, MAX(n, 1), whole, &facts);
  QV_FUZZ_CHECK(run(stream, n, flags, (flags >> 3) + 1, pieces, &facts_again) == verdict);
  QV_FUZZ_CHECK(g_string_equal(whole, pieces) && g_strcmp0(facts, facts_again) == 0);
  if (verdict == QV_ENTRY_OUTPUT_DONE && (flags & 1))
    check_result(facts);
  return 0;
}
