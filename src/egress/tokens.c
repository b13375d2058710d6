/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the life of tokens in the proxy. */
#include "egress/tokens.h"

#include <string.h>

enum { REVOKED_MAX = 4096, REVOKED_UNKNOWN_MS = 60000 };

struct QvTokens {
  QvTokensEvents events;
  gpointer user;
  GHashTable *by_hash; /* hash to QvToken */
  GHashTable *revoked; /* hash to gint64 *: Unix ms until which it cannot come back */
  gint64 tick_ms;      /* of the last tick */
};

static void host_free(gpointer data)
{
  QvTokenHost *host = data;
  g_free(host->host_port);
  g_free(host);
}

static void token_free(gpointer data)
{
  QvToken *token = data;
  qv_token_record_free(token->record);
  g_bytes_unref(token->text);
  g_ptr_array_unref(token->hosts);
  g_free(token);
}

QvTokens *qv_tokens_new(const QvTokensEvents *events, gpointer user)
{
  QvTokens *tokens = g_new0(QvTokens, 1);
  tokens->events = *events;
  tokens->user = user;
  tokens->by_hash = g_hash_table_new_full(g_str_hash, g_str_equal, NULL, token_free);
  tokens->revoked = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
  return tokens;
}

void qv_tokens_free(QvTokens *tokens)
{
  if (tokens == NULL)
    return;
  g_hash_table_unref(tokens->by_hash);
  g_hash_table_unref(tokens->revoked);
  g_free(tokens);
}

guint qv_tokens_n(const QvTokens *tokens)
{
  return g_hash_table_size(tokens->by_hash);
}

/* As they are now: what is done with one may remove it. */
static GPtrArray *all_of(const QvTokens *tokens)
{
  GPtrArray *all = g_ptr_array_new();
  GHashTableIter iter;
  gpointer value;
  g_hash_table_iter_init(&iter, tokens->by_hash);
  while (g_hash_table_iter_next(&iter, NULL, &value))
    g_ptr_array_add(all, value);
  return all;
}

void qv_tokens_foreach(QvTokens *tokens, void (*func)(QvToken *token, gpointer user), gpointer user)
{
  g_autoptr(GPtrArray) all = all_of(tokens);
  for (guint i = 0; i < all->len; i++)
    func(g_ptr_array_index(all, i), user);
}

/* The owner is told while the token still stands in the table; it is out of reach afterwards. */
static void end(QvTokens *tokens, QvToken *token, QvReason why)
{
  if (token->ended)
    return;
  token->ended = TRUE;
  tokens->events.cut(token, why, tokens->user);
  g_hash_table_remove(tokens->by_hash, token->hash);
}

static gboolean is_over(gpointer key, gpointer value, gpointer now)
{
  return *(gint64 *)value <= *(gint64 *)now;
}

static void remember_revoked(QvTokens *tokens, const char *hash, gint64 until, gint64 now_unix_ms)
{
  if (g_hash_table_size(tokens->revoked) >= REVOKED_MAX)
    g_hash_table_foreach_remove(tokens->revoked, is_over, &now_unix_ms);
  if (g_hash_table_size(tokens->revoked) >= REVOKED_MAX)
    g_hash_table_remove_all(tokens->revoked); /* their keys are gone as well: this is the second lock */
  gint64 *kept = g_new(gint64, 1);
  *kept = until;
  g_hash_table_replace(tokens->revoked, g_strdup(hash), kept);
}

void qv_tokens_revoke(QvTokens *tokens, const char *hash, gint64 now_ms, gint64 now_unix_ms)
{
  if (strlen(hash) != 64)
    return;
  QvToken *token = g_hash_table_lookup(tokens->by_hash, hash);
  gint64 until = token != NULL ? token->record->expires_at : now_unix_ms + REVOKED_UNKNOWN_MS;
  remember_revoked(tokens, hash, until, now_unix_ms);
  if (token != NULL)
    end(tokens, token, QV_REASON_REVOKED);
}

static QvToken *token_new(QvTokens *tokens, const char *hash, GBytes *text, QvTokenRecord *record)
{
  QvToken *token = g_new0(QvToken, 1);
  g_strlcpy(token->hash, hash, sizeof token->hash);
  token->record = record;
  token->text = g_bytes_ref(text);
  token->hosts = g_ptr_array_new_with_free_func(host_free);
  g_hash_table_insert(tokens->by_hash, token->hash, token);
  return token;
}

/* The same text needs no second parse. A record that changed replaces the old one: its writer may narrow it. */
static gboolean take_text(QvToken *token, GBytes *text)
{
  if (g_bytes_equal(token->text, text))
    return TRUE;
  gsize n;
  const char *bytes = g_bytes_get_data(text, &n);
  QvTokenRecord *record = qv_token_record_parse(bytes, n, NULL);
  if (record == NULL)
    return FALSE;
  qv_token_record_free(token->record);
  token->record = record;
  g_bytes_unref(token->text);
  token->text = g_bytes_ref(text);
  return TRUE;
}

static QvToken *make(QvTokens *tokens, const char *hash, GBytes *text)
{
  gsize n;
  const char *bytes = g_bytes_get_data(text, &n);
  QvTokenRecord *record = qv_token_record_parse(bytes, n, NULL);
  return record != NULL ? token_new(tokens, hash, text, record) : NULL;
}

QvToken *qv_tokens_answer(QvTokens *tokens, const char *hash, GBytes *text, gboolean admit, gint64 asked_ms, gint64 now_ms,
                          gint64 now_unix_ms, QvReason *reason)
{
  QvToken *token = g_hash_table_lookup(tokens->by_hash, hash);
  const gint64 *revoked = g_hash_table_lookup(tokens->revoked, hash);
  *reason = QV_REASON_TOKEN_UNKNOWN;
  if (text == NULL || (revoked != NULL && *revoked > now_unix_ms) || (token != NULL && !take_text(token, text))) {
    if (token != NULL)
      end(tokens, token, QV_REASON_REVOKED);
    return NULL;
  }
  if (token == NULL && (!admit || (token = make(tokens, hash, text)) == NULL))
    return NULL;
  if (token->record->expires_at <= now_unix_ms) {
    *reason = QV_REASON_TOKEN_EXPIRED;
    end(tokens, token, QV_REASON_EXPIRED);
    return NULL;
  }
  token->confirmed_ms = MAX(token->confirmed_ms, asked_ms);
  token->asked_ms = MAX(token->asked_ms, asked_ms);
  *reason = QV_REASON_NONE;
  return token;
}

static void tick_token(QvTokens *tokens, QvToken *token, gint64 now_ms, gint64 now_unix_ms)
{
  if (token->record->expires_at <= now_unix_ms) {
    end(tokens, token, QV_REASON_EXPIRED);
    return;
  }
  if (now_ms - token->confirmed_ms >= QV_TOKEN_LEASE_MS && token->tunnels.length > 0)
    tokens->events.cut(token, QV_REASON_UNCONFIRMED, tokens->user);
  /* Also while an answer is awaited: a slow one must not hold up the next question. */
  if (now_ms - token->asked_ms >= QV_TOKEN_ASK_MS) {
    token->asked_ms = now_ms;
    tokens->events.ask(token->hash, now_ms, tokens->user);
  }
}

void qv_tokens_tick(QvTokens *tokens, gint64 now_ms, gint64 now_unix_ms)
{
  gint64 passed = tokens->tick_ms > 0 ? now_ms - tokens->tick_ms : 0;
  gint64 asleep = MAX(passed - 2 * QV_TOKEN_TICK_MS, 0);
  tokens->tick_ms = now_ms;
  g_autoptr(GPtrArray) all = all_of(tokens);
  for (guint i = 0; i < all->len; i++) {
    QvToken *token = g_ptr_array_index(all, i);
    token->confirmed_ms = MIN(token->confirmed_ms + asleep, now_ms);
    tick_token(tokens, token, now_ms, now_unix_ms);
  }
}

QvTokenHost *qv_token_host(QvToken *token, const char *host_port)
{
  for (guint i = 0; i < token->hosts->len; i++) {
    QvTokenHost *host = g_ptr_array_index(token->hosts, i);
    if (strcmp(host->host_port, host_port) == 0)
      return host;
  }
  gboolean own = strcmp(host_port, "other") == 0 || g_strv_contains((const char *const *)token->record->hosts, host_port);
  if (token->hosts->len >= QV_TOKEN_HOSTS_MAX && !own)
    return qv_token_host(token, "other");
  QvTokenHost *host = g_new0(QvTokenHost, 1);
  host->host_port = g_strdup(host_port);
  g_ptr_array_add(token->hosts, host);
  return host;
}

static void append_row(GString *text, const QvTokenHost *host, gboolean first)
{
  /* A name of letters, digits, '-', '.', ':' and, of a literal, brackets: those are no part of what a row may say. */
  g_autofree char *name = g_strdup(host->host_port);
  char *to = name;
  for (const char *from = name; *from != '\0'; from++)
    if (*from != '[' && *from != ']')
      *to++ = *from;
  *to = '\0';
  g_string_append_printf(text,
                         "%s{\"host\":\"%s\",\"connections\":%" G_GINT64_FORMAT ",\"bytesUp\":%" G_GINT64_FORMAT
                         ",\"bytesDown\":%" G_GINT64_FORMAT ",\"refused\":%" G_GINT64_FORMAT "}",
                         first ? "" : ",", name, host->connections, host->bytes_up, host->bytes_down, host->refused);
}

char *qv_token_usage_format(const QvToken *token, gsize *n)
{
  enum { LAST_ROW = 200 }; /* room for "other" and the end */
  GString *text = g_string_new(NULL);
  QvTokenHost other = {.host_port = (char *)"other"};
  gboolean first = TRUE;
  g_string_printf(text, "{\"v\":1,\"token\":\"%s\",\"hosts\":[", token->hash);
  for (guint i = 0; i < token->hosts->len; i++) {
    const QvTokenHost *host = g_ptr_array_index(token->hosts, i);
    gsize before = text->len;
    if (strcmp(host->host_port, "other") != 0) {
      append_row(text, host, first);
      if (text->len + LAST_ROW <= QV_TOKEN_USAGE_BYTES_MAX) {
        first = FALSE;
        continue;
      }
      g_string_truncate(text, before);
    }
    other.connections += host->connections;
    other.bytes_up += host->bytes_up;
    other.bytes_down += host->bytes_down;
    other.refused += host->refused;
  }
  if (other.connections + other.refused > 0)
    append_row(text, &other, first);
  g_string_append(text, "]}");
  *n = text->len;
  return g_string_free(text, FALSE);
}
