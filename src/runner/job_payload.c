/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the sealing of what a job leaves: the supervisor, which stores it, never has it in plain. */
#include "runner/job_payload.h"

#include "base/random.h"

QvBlobWriter *qv_job_payload_open(const QvJobKeys *keys, const QvJob *job, gint64 bytes)
{
  g_autoptr(QvSecret) key = qv_secret_new_copy(keys->result_key, QV_BLOB_KEY_BYTES);
  char blob_id[QV_BLOB_ID_CAP];
  qv_blob_id_format(job->job_id, "result", blob_id);
  return qv_blob_writer_new(key, keys->result_salt, job->tenant_id, blob_id, bytes);
}

gboolean qv_job_payload_step(QvBlobWriter *sealer, QvJobOutput *output, QvChannel *supervisor, GError **error)
{
  guint32 head[2] = {qv_blob_writer_next(sealer), 0};
  gsize n = qv_blob_writer_want(sealer);
  g_autofree guint8 *plain = g_malloc(n);
  guint8 *sealed = g_malloc(n + QV_CHUNK_IV_BYTES + QV_CHUNK_TAG_BYTES), iv[QV_CHUNK_IV_BYTES];
  g_autoptr(GBytes) body = g_bytes_new_take(sealed, n + QV_CHUNK_IV_BYTES + QV_CHUNK_TAG_BYTES);
  if (!qv_job_output_read(output, (gint64)head[0] * QV_CHUNK_BYTES, plain, n, error))
    return FALSE;
  qv_random_bytes(iv, sizeof iv);
  qv_blob_writer_step(sealer, iv, plain, sealed);
  qv_channel_send(supervisor, QV_IPC_PAYLOAD, head, sizeof head, body);
  return TRUE;
}
