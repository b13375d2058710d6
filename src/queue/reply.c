/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/reply.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "format/text.h"

#define ERROR_TEXT_MAX 512 /* of a peer's error, as we say it */
#define ANSWERED "Valkey answered: "

void qv_reply_free(QvReply *reply)
{
  if (!reply)
    return;
  for (gsize i = 0; i < reply->elements_n; i++)
    qv_reply_free(reply->elements[i]);
  g_clear_pointer(&reply->bytes, g_bytes_unref);
  g_free(reply);
}

const QvReply *qv_reply_at(const QvReply *reply, gsize i)
{
  static const QvReply nil = { .type = QV_REPLY_NIL };
  if (!reply || reply->type != QV_REPLY_ARRAY || i >= reply->elements_n || !reply->elements[i])
    return &nil;
  return reply->elements[i];
}

const char *qv_reply_text(const QvReply *reply)
{
  return reply && (reply->type == QV_REPLY_STRING || reply->type == QV_REPLY_STATUS) ? reply->text : NULL;
}

GBytes *qv_reply_bytes(const QvReply *reply)
{
  if (!reply || reply->type != QV_REPLY_STRING)
    return NULL;
  return reply->bytes ? g_bytes_ref(reply->bytes) : g_bytes_new(reply->text, reply->len);
}

gint64 qv_reply_int(const QvReply *reply, gint64 fallback)
{
  gint64 value;
  if (!reply)
    return fallback;
  if (reply->type == QV_REPLY_INTEGER)
    return reply->integer;
  if (reply->type == QV_REPLY_STRING && strlen(reply->text) == reply->len &&
      g_ascii_string_to_signed(reply->text, 10, G_MININT64, G_MAXINT64, &value, NULL))
    return value;
  return fallback;
}

/* A NUL in the text ends no word. */
static gboolean starts_with_word(const char *text, gsize len, const char *word)
{
  gsize n = strlen(word);
  return len >= n && memcmp(text, word, n) == 0 && (len == n || text[n] == ' ');
}

static gboolean is_transient(const char *text, gsize len)
{
  static const char *const words[] = { "LOADING",  "OOM",      "READONLY",    "BUSY",       "MASTERDOWN",
                                       "TRYAGAIN", "MISCONF",  "CLUSTERDOWN", "NOREPLICAS", "UNBLOCKED" };
  for (gsize i = 0; i < G_N_ELEMENTS(words); i++)
    if (starts_with_word(text, len, words[i]))
      return TRUE;
  return FALSE;
}

gboolean qv_reply_is_error(const QvReply *reply, const char *word)
{
  return reply && reply->type == QV_REPLY_ERROR && starts_with_word(reply->text, reply->len, word);
}

gboolean qv_reply_is_transient(const QvReply *reply)
{
  return reply && reply->type == QV_REPLY_ERROR && is_transient(reply->text, reply->len);
}

gboolean qv_reply_error_is_transient(const GError *error)
{
  return g_str_has_prefix(error->message, ANSWERED) && is_transient(error->message + strlen(ANSWERED), strlen(error->message) - strlen(ANSWERED));
}

GError *qv_reply_odd(const char *what)
{
  return g_error_new(QV_ERROR, QV_ERROR_FORMAT, "Valkey's answer to %s has the wrong shape", what);
}

gboolean qv_reply_check(const QvReply *reply, GError **error)
{
  if (reply->type != QV_REPLY_ERROR)
    return TRUE;
  /* A command that is denied inside a script starts with ERR, not with NOPERM. */
  gboolean auth = qv_reply_is_error(reply, "NOPERM") || qv_reply_is_error(reply, "NOAUTH") ||
                  qv_reply_is_error(reply, "WRONGPASS") || g_str_has_prefix(reply->text, "ERR ACL failure");
  /* It goes to logs and terminals. */
  char *text = qv_text_printable_line(reply->text, MIN(reply->len, ERROR_TEXT_MAX));
  g_set_error(error, QV_ERROR, auth ? QV_ERROR_AUTH : QV_ERROR_PEER, ANSWERED "%s%s", text ? text : "an error",
              reply->len > ERROR_TEXT_MAX ? " …" : "");
  free(text);
  return FALSE;
}
