/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/job_live.h"

#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "protocol/live.h"

enum {
  QUEUED_BYTES_MAX = 256 * 1024, /* waiting for the supervisor: then live logs are what can be spared */
  SLACK_MS = 10000,
};

struct QvJobLive {
  QvChannel *supervisor;
  QvBlobCipher *cipher;
  gint64 started_ms;
};

QvJobLive *qv_job_live_new(const QvJob *job, const guint8 key[QV_BLOB_KEY_BYTES], QvChannel *supervisor)
{
  g_autoptr(QvSecret) secret = qv_secret_new_copy(key, QV_BLOB_KEY_BYTES);
  QvJobLive *live = g_new0(QvJobLive, 1);
  live->supervisor = supervisor;
  live->cipher = qv_live_cipher_new(secret, job->tenant_id, job->job_id);
  live->started_ms = qv_clock_mono_ms();
  return live;
}

void qv_job_live_free(QvJobLive *live)
{
  if (live == NULL)
    return;
  qv_blob_cipher_free(live->cipher);
  g_free(live);
}

gboolean qv_job_live_in_time(guint32 n, gint64 elapsed_ms)
{
  return (gint64)n * QV_LIVE_EVERY_MS <= elapsed_ms + elapsed_ms / 64 + SLACK_MS;
}

gboolean qv_job_live_member(QvJobLive *live, guint32 n, const guint8 *bytes, gsize bytes_n)
{
  if (!qv_job_live_in_time(n, qv_clock_mono_ms() - live->started_ms))
    return FALSE;
  if (qv_channel_queued_bytes(live->supervisor) > QUEUED_BYTES_MAX)
    return TRUE;
  guint8 iv[QV_CHUNK_IV_BYTES];
  gsize sealed_n = bytes_n + QV_CHUNK_IV_BYTES + QV_CHUNK_TAG_BYTES;
  guint8 *sealed = g_malloc(sealed_n);
  qv_random_bytes(iv, sizeof iv);
  qv_blob_cipher_seal(live->cipher, n, iv, bytes, bytes_n, sealed);
  g_autoptr(GBytes) body = g_bytes_new_take(sealed, sealed_n);
  qv_channel_send(live->supervisor, QV_IPC_LIVE, &n, sizeof n, body);
  return TRUE;
}
