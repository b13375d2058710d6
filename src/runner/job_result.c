/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the way from a run's end to its signed result. */
#include "runner/job_result.h"

#include <string.h>

#include "base/error.h"
#include "base/hex.h"
#include "base/log.h"
#include "protocol/egress_token.h"
#include "protocol/live.h"

enum { TREE_HEX_N = 64 };

static void derive(const QvKey *key, const guint8 *salt, const char *tenant_id, const char *blob_id, guint8 *out)
{
  g_autoptr(QvSecret) secret = qv_blob_key_derive(key, salt, tenant_id, blob_id);
  memcpy(out, qv_secret_bytes(secret), QV_BLOB_KEY_BYTES);
}

void qv_job_keys_derive(const QvJob *job, const char *job_sha256, const QvKey *key,
                        const guint8 result_salt[QV_SALT_BYTES], QvJobKeys *keys)
{
  char blob_id[QV_BLOB_ID_CAP];
  memset(keys, 0, sizeof *keys);
  memcpy(keys->result_salt, result_salt, QV_SALT_BYTES);
  qv_blob_id_format(job->job_id, "result", blob_id);
  derive(key, result_salt, job->tenant_id, blob_id, keys->result_key);
  derive(key, job->base.salt, job->tenant_id, job->base.blob_id, keys->base_key);
  if (job->overlay != NULL)
    derive(key, job->overlay->salt, job->tenant_id, job->overlay->blob_id, keys->overlay_key);
  g_autoptr(QvSecret) live = qv_live_key_derive(key, job_sha256, job->tenant_id, job->job_id);
  memcpy(keys->live_key, qv_secret_bytes(live), QV_BLOB_KEY_BYTES);
}

static QvRunEnd end_of_host(const QvHostReport *host)
{
  switch (host->end) {
  case QV_HOST_COMPLETE:
    return QV_RUN_COMPLETE;
  case QV_HOST_BAD_OUTPUT:
    return QV_RUN_BAD_OUTPUT;
  case QV_HOST_OOM:
    return QV_RUN_OOM;
  case QV_HOST_PIDS: /* the flag beside it says why it was lost */
  case QV_HOST_CUT:
  case QV_HOST_STOPPED:
    break;
  }
  return QV_RUN_SANDBOX_LOST;
}

QvRunEnd qv_job_result_end(QvRunCause cause, const QvHostReport *host)
{
  switch (cause) {
  case QV_RUN_CAUSE_REPORTED:
    return host != NULL ? end_of_host(host) : QV_RUN_SANDBOX_LOST;
  case QV_RUN_CAUSE_CANCELLED:
    return QV_RUN_CANCELLED;
  case QV_RUN_CAUSE_WALL:
    return QV_RUN_WALL;
  case QV_RUN_CAUSE_SHUTDOWN:
    return QV_RUN_SHUTDOWN;
  case QV_RUN_CAUSE_BLOB_MISSING:
    return QV_RUN_BLOB_MISSING;
  case QV_RUN_CAUSE_BLOB_CORRUPT:
    return QV_RUN_BLOB_CORRUPT;
  case QV_RUN_CAUSE_IMAGE_FAILED:
    return QV_RUN_IMAGE_FAILED;
  case QV_RUN_CAUSE_SANDBOX_FAILED:
    return QV_RUN_SANDBOX_FAILED;
  case QV_RUN_CAUSE_SANDBOX_LOST:
  case QV_RUN_CAUSE_LOCK_LOST:
  case QV_RUN_CAUSE_NONE:
    break;
  }
  return QV_RUN_SANDBOX_LOST;
}

QvEntryFacts *qv_job_report_parse(GBytes *report, char tree[TREE_HEX_N + 1], GError **error)
{
  gsize n;
  const char *text = report != NULL ? g_bytes_get_data(report, &n) : NULL;
  const char *line_end = text != NULL ? memchr(text, '\n', MIN(n, TREE_HEX_N + 1)) : NULL;
  gsize tree_n = line_end != NULL ? (gsize)(line_end - text) : 0;
  gboolean none = tree_n == 1 && text[0] == '-';
  if (!none && (tree_n != TREE_HEX_N || !qv_hex_valid(text, TREE_HEX_N))) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "the unpack process wrote no report");
    return NULL;
  }
  memset(tree, 0, TREE_HEX_N + 1);
  if (!none)
    memcpy(tree, text, TREE_HEX_N);
  return qv_entry_facts_parse(line_end + 1, n - tree_n - 1, error);
}

static QvBlobDescriptor *describe(const QvJobResult *in, const char *tree)
{
  QvBlobDescriptor *payload = g_new0(QvBlobDescriptor, 1);
  qv_blob_id_format(in->job->job_id, "result", payload->blob_id);
  payload->size = in->host->payload_bytes;
  payload->chunks = qv_blob_chunks(payload->size);
  g_strlcpy(payload->sha256, in->host->payload_sha256, sizeof payload->sha256);
  memcpy(payload->salt, in->result_salt, QV_SALT_BYTES);
  g_strlcpy(payload->tree_sha256, tree, sizeof payload->tree_sha256);
  return payload;
}

static char *sign(const QvJobResult *in, QvRunEnd end, const QvEntryFacts *facts, const char *tree, gsize *n,
                  const char **status, const char **code, GError **error)
{
  g_autoptr(QvResult) result = qv_result_new(in->job, in->job_sha256, in->runner_id, in->backend);
  result->started_at = in->started_at;
  result->finished_at = MAX(in->finished_at, in->started_at);
  result->usage.wall_ms = in->wall_ms;
  QvRunFacts run = {.end = end, .facts = facts};
  if (in->host != NULL) {
    result->usage.user_ms = in->host->user_ms;
    result->usage.system_ms = in->host->sys_ms;
    result->usage.max_memory_bytes = in->host->max_memory_bytes;
    run.oom = in->host->oom;
    run.pids = in->host->pids;
  }
  if (facts != NULL && in->host->payload_bytes > 0)
    result->payload = describe(in, tree);
  if (in->usage != NULL && !qv_token_usage_parse(g_bytes_get_data(in->usage, NULL), g_bytes_get_size(in->usage),
                                                 in->token_hash, result, error))
    return NULL;
  qv_result_apply(result, in->job, &run);
  *status = qv_status_text(result->status);
  *code = qv_code_text(result->code);
  return qv_result_sign(result, in->job, in->key, n, error);
}

char *qv_job_result_sign(const QvJobResult *in, gsize *n, const char **status, const char **code)
{
  QvRunEnd end = qv_job_result_end(in->cause, in->host);
  char tree[TREE_HEX_N + 1] = "";
  g_autoptr(GError) error = NULL;
  g_autoptr(QvEntryFacts) facts = NULL;
  if (end == QV_RUN_COMPLETE) {
    facts = qv_job_report_parse(in->facts, tree, &error);
    if (facts != NULL && (in->host->payload_bytes > 0) != (tree[0] != '\0')) {
      g_set_error(&error, QV_ERROR, QV_ERROR_FORMAT, "payload and its digest contradict each other");
      g_clear_pointer(&facts, qv_entry_facts_free);
    }
    if (facts == NULL)
      end = QV_RUN_BAD_OUTPUT;
  }
  char *text = error == NULL ? sign(in, end, facts, tree, n, status, code, &error) : NULL;
  if (text != NULL)
    return text;
  qv_log(QV_LOG_ERROR, "facts of a run are refused", "jobId", in->job->job_id, "error", error->message, NULL);
  g_clear_error(&error);
  text = sign(in, QV_RUN_BAD_OUTPUT, NULL, "", n, status, code, &error);
  if (text == NULL)
    g_error("a result without facts cannot be signed: %s", error->message);
  return text;
}
