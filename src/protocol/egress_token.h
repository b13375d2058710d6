/* SPDX-License-Identifier: Apache-2.0 */
/* Egress tokens and usage records (section 7). */
#pragma once

#include <glib.h>

#include "protocol/job.h"
#include "protocol/result.h"

enum { QV_TOKEN_BYTES = 32, QV_TOKEN_LEN = 43, QV_TOKEN_USAGE_BYTES_MAX = 16 * 1024 };

/* base64url without padding, and the hex SHA-256 of that text. */
void qv_token_format(const guint8 bytes[QV_TOKEN_BYTES], char token[QV_TOKEN_LEN + 1]);
gboolean qv_token_valid(const char *token, gsize n);
void qv_token_hash(const char *token, char hex[65]);

/* now + 120 000 + setup's time-out, at most the end of wallMs (WALL_END_MS). */
gint64 qv_token_expires_at(const QvJob *job, gint64 now_ms, gint64 wall_end_ms);

typedef struct {
  char job_id[QV_JOB_ID_BYTES + 1];
  char **hosts; /* name:port */
  char *source; /* IPv4 or NULL */
  gint64 expires_at;
} QvTokenRecord;

char *qv_token_record_format(const QvTokenRecord *record, gsize *n);
QvTokenRecord *qv_token_record_parse(const char *text, gsize n, GError **error);
void qv_token_record_free(QvTokenRecord *record);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvTokenRecord, qv_token_record_free)

/* The usage message of the proxy: into RESULT's egress where it is about HASH; else an error. */
gboolean qv_token_usage_parse(const char *text, gsize n, const char *hash, QvResult *result, GError **error);
