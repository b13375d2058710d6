/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of Valkey: whole and byte by byte the same ones come out, to the same end; no reply has a hole, and an error's text
 * is short and printable. */
#include <string.h>

#include "base/error.h"
#include "fuzz.h"
#include "queue/resp.h"

static void describe(const QvReply *r, GString *out)
{
  g_string_append_printf(out, "%d:%" G_GINT64_FORMAT ":%" G_GSIZE_FORMAT ":", r->type, r->integer, r->len);
  if (r->text) {
    QV_FUZZ_CHECK(r->text[r->len] == '\0');
    g_string_append_len(out, r->text, (gssize)r->len);
  }
  QV_FUZZ_CHECK(r->type == QV_REPLY_ARRAY || r->elements_n == 0);
  for (gsize i = 0; i < r->elements_n; i++) {
    QV_FUZZ_CHECK(r->elements[i] && qv_reply_at(r, i) == r->elements[i]);
    describe(r->elements[i], out);
  }
  g_string_append_c(out, ';');
}

static void check_error(const QvReply *r)
{
  g_autoptr(GError) error = NULL;
  QV_FUZZ_CHECK(qv_reply_check(r, &error) == (r->type != QV_REPLY_ERROR));
  if (!error)
    return;
  QV_FUZZ_CHECK(strlen(error->message) < 8192 && g_utf8_validate(error->message, -1, NULL));
  QV_FUZZ_CHECK(qv_reply_error_is_transient(error) == qv_reply_is_transient(r));
  for (const char *c = error->message; *c; c++)
    QV_FUZZ_CHECK(!g_ascii_iscntrl(*c));
}

static GString *read_in(const uint8_t *data, size_t size, size_t step)
{
  g_autoptr(QvRespReader) reader = qv_resp_reader_new();
  GString *out = g_string_new(NULL);
  for (size_t at = 0; at < size; at += step) {
    g_autoptr(GError) error = NULL;
    QvReply *reply = NULL;
    gboolean fine = qv_resp_reader_feed(reader, data + at, MIN(step, size - at), &error);
    while (fine && (fine = qv_resp_reader_next(reader, &reply, &error)) && reply) {
      describe(reply, out);
      check_error(reply);
      qv_reply_free(reply);
    }
    if (fine)
      continue;
    QV_FUZZ_CHECK(g_error_matches(error, QV_ERROR, QV_ERROR_FORMAT) && g_utf8_validate(error->message, -1, NULL));
    g_string_append(out, "bad");
    break;
  }
  return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size > 4096) /* byte by byte is slow, and many arrays are large */
    size = 4096;
  GString *whole = read_in(data, size, size + 1), *single = read_in(data, size, 1);
  QV_FUZZ_CHECK(g_string_equal(whole, single));
  g_string_free(whole, TRUE);
  g_string_free(single, TRUE);
  return 0;
}
