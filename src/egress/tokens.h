/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens in use: what their record says, how long it may be relied on, what
 * went through. Pure: times and answers of Valkey come in as arguments.
 *
 * A token comes with the first CONNECT whose look-up found it. From then on it is asked for at least every
 * QV_TOKEN_ASK_MS, and what was found counts from the moment of the question. It ends once: revoked (a message, or a
 * look-up that finds nothing) or expired. Where no answer comes for QV_TOKEN_LEASE_MS its tunnels are cut as
 * UNCONFIRMED and it waits for the next answer: fail closed, and the count goes on. */
#pragma once

#include <glib.h>

#include "egress/reason.h"
#include "protocol/egress_token.h"

enum {
  QV_TOKEN_ASK_MS = 250,
  QV_TOKEN_LEASE_MS = 900,  /* with a turn of the clock (QV_TOKEN_TICK_MS) less than 1 s: section 7 */
  QV_TOKEN_TICK_MS = 50,
  QV_TOKEN_HOSTS_MAX = 64,  /* names that are counted on their own; more are "other", but for the job's hosts */
};

typedef struct {
  char *host_port;
  gint64 connections, bytes_up, bytes_down, refused;
} QvTokenHost;

typedef struct {
  char hash[65];
  QvTokenRecord *record;
  GQueue tunnels;  /* of the owner's links */
  gint64 bytes;    /* both ways, all hosts */
  GPtrArray *hosts; /* of QvTokenHost */
  /* tokens.c's own */
  GBytes *text;
  gint64 confirmed_ms, asked_ms;
  gboolean ended;
} QvToken;

typedef struct QvTokens QvTokens;

typedef struct {
  /* REVOKED or EXPIRED: the last call about the token, which is freed behind it. UNCONFIRMED: it may come back. The
   * owner cuts the tunnels. */
  void (*cut)(QvToken *token, QvReason why, gpointer user);
  /* Look it up, then qv_tokens_answer. */
  void (*ask)(const char *hash, gint64 now_ms, gpointer user);
} QvTokensEvents;

QvTokens *qv_tokens_new(const QvTokensEvents *events, gpointer user);
void qv_tokens_free(QvTokens *tokens);
guint qv_tokens_n(const QvTokens *tokens);
void qv_tokens_foreach(QvTokens *tokens, void (*func)(QvToken *token, gpointer user), gpointer user);

/* An answer to a question of ASKED_MS: TEXT NULL: there is no such key. For a CONNECT (ADMIT) a token that was not
 * known is made, and *REASON says why there is none where NULL is returned. What was revoked meanwhile stays revoked. */
QvToken *qv_tokens_answer(QvTokens *tokens, const char *hash, GBytes *text, gboolean admit, gint64 asked_ms, gint64 now_ms,
                          gint64 now_unix_ms, QvReason *reason);
/* The message of its revocation. */
void qv_tokens_revoke(QvTokens *tokens, const char *hash, gint64 now_ms, gint64 now_unix_ms);
/* Every QV_TOKEN_TICK_MS or later: ends, cuts and asks what is due. Time in which this was not called counts
 * up to two ticks: nothing moved meanwhile, and the answer may lie unread. */
void qv_tokens_tick(QvTokens *tokens, gint64 now_ms, gint64 now_unix_ms);

/* The row of a host, made where there is room. Never NULL. Lives as long as the token. */
QvTokenHost *qv_token_host(QvToken *token, const char *host_port);
/* The message of section 7, at most QV_TOKEN_USAGE_BYTES_MAX. Free with g_free. */
char *qv_token_usage_format(const QvToken *token, gsize *n);
