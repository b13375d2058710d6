/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of results that other files of this room need. */
#pragma once

#include "protocol/result.h"

enum { QV_EGRESS_USAGE_MAX = 256, QV_EGRESS_HOST_BYTES_MAX = 260 };

gboolean qv_code_find(const char *text, QvCode *code);

/* A body whose signature is not this function's matter, against the job. */
QvResult *qv_result_parse(const json_t *body, const QvJob *job, const char *job_sha256, GError **error);

/* The array of {host, connections, bytesUp, bytesDown, refused}. On failure RESULT's egress is as it was. */
gboolean qv_egress_usage_parse(const json_t *array, const char *path, QvResult *result, GError **error);

/* What a job's limits allow at most, where the reader cannot know the runner's defaults: the given value, else the
 * contract's ceiling. */
typedef struct {
  gint64 log_bytes;
  gint64 artefact_bytes;
  gint64 artefact_count;
  gint64 payload_tar_bytes;
  gint64 payload_gzip_bytes;
} QvResultCaps;
void qv_result_caps(const QvJob *job, QvResultCaps *caps);
