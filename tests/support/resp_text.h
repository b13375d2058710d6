/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of Valkey as text, for a test and a fuzz target that compare what comes out of the same bytes in other pieces. */
#pragma once

#include <glib.h>

#include "base/error.h"
#include "queue/resp.h"

/* No reply has a hole, and every text a NUL behind it. */
static void qv_test_reply_text(const QvReply *r, GString *out)
{
  g_assert_true(r->type == QV_REPLY_ARRAY || r->elements_n == 0);
  if (r->text != NULL)
    g_assert_cmpint(r->text[r->len], ==, '\0');
  switch (r->type) {
  case QV_REPLY_NIL:
    g_string_append(out, "nil");
    break;
  case QV_REPLY_INTEGER:
    g_string_append_printf(out, "%" G_GINT64_FORMAT, r->integer);
    break;
  case QV_REPLY_STRING:
    g_string_append_c(out, '\'');
    g_string_append_len(out, r->text, (gssize)r->len);
    g_string_append_c(out, '\'');
    break;
  case QV_REPLY_STATUS:
  case QV_REPLY_ERROR:
    g_string_append_c(out, r->type == QV_REPLY_STATUS ? '+' : '-');
    g_string_append_len(out, r->text, (gssize)r->len);
    break;
  case QV_REPLY_ARRAY:
    g_string_append_c(out, '[');
    for (gsize i = 0; i < r->elements_n; i++) {
      if (i > 0)
        g_string_append_c(out, ' ');
      g_assert_true(r->elements[i] != NULL && qv_reply_at(r, i) == r->elements[i]);
      qv_test_reply_text(r->elements[i], out);
    }
    g_string_append_c(out, ']');
  }
}

/* The replies in BYTES, fed in pieces of PIECE, each with a ";" behind it, and "{bad}" where the reader refuses what comes.
 * EACH, which may be NULL, sees every one of them. */
static GString *qv_test_resp_text(const void *bytes, gsize n, gsize piece, void (*each)(const QvReply *reply))
{
  g_autoptr(QvRespReader) reader = qv_resp_reader_new();
  GString *out = g_string_new(NULL);
  for (gsize at = 0; at < n; at += piece) {
    g_autoptr(GError) error = NULL;
    QvReply *reply = NULL;
    gboolean fine = qv_resp_reader_feed(reader, (const guint8 *)bytes + at, MIN(piece, n - at), &error);
    while (fine && (fine = qv_resp_reader_next(reader, &reply, &error)) && reply != NULL) {
      qv_test_reply_text(reply, out);
      g_string_append_c(out, ';');
      if (each != NULL)
        each(reply);
      qv_reply_free(reply);
    }
    if (fine)
      continue;
    g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
    g_assert_true(g_utf8_validate(error->message, -1, NULL));
    g_string_append(out, "{bad}");
    break;
  }
  return out;
}
