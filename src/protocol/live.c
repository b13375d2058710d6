/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/live.h"

#include <string.h>

#include "base/hex.h"

void qv_live_salt(const char job_sha256[65], guint8 salt[QV_SALT_BYTES])
{
  gboolean is_hex = qv_hex_decode(job_sha256, 2 * QV_SALT_BYTES, salt, QV_SALT_BYTES);
  g_assert(is_hex);
}

QvSecret *qv_live_key_derive(const QvKey *key, const char job_sha256[65], const char *tenant_id, const char *job_id)
{
  guint8 salt[QV_SALT_BYTES];
  char blob_id[QV_BLOB_ID_CAP];
  qv_live_salt(job_sha256, salt);
  qv_blob_id_format(job_id, QV_LIVE_PART, blob_id);
  return qv_blob_key_derive(key, salt, tenant_id, blob_id);
}

QvBlobCipher *qv_live_cipher_new(const QvSecret *live_key, const char *tenant_id, const char *job_id)
{
  char blob_id[QV_BLOB_ID_CAP];
  qv_blob_id_format(job_id, QV_LIVE_PART, blob_id);
  return qv_blob_cipher_new(live_key, tenant_id, blob_id, QV_BLOB_CHUNKS_UNKNOWN);
}

gboolean qv_live_message_parse(const char *text, gsize len, const char *job_id, guint *n)
{
  gsize id_n = strlen(job_id);
  if (len <= id_n + 1 || len > id_n + 6 || memcmp(text, job_id, id_n) != 0 || text[id_n] != ' ')
    return FALSE;
  const char *digits = text + id_n + 1;
  gsize digits_n = len - id_n - 1;
  guint value = 0;
  for (gsize i = 0; i < digits_n; i++) {
    if (!g_ascii_isdigit(digits[i]))
      return FALSE;
    value = value * 10 + (guint)(digits[i] - '0');
  }
  if ((digits_n > 1 && digits[0] == '0') || value >= QV_LIVE_MEMBERS_MAX)
    return FALSE;
  *n = value;
  return TRUE;
}
