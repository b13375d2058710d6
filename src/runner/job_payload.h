/* SPDX-License-Identifier: Apache-2.0 */
/* The payload on its way from the job process to the supervisor: sealed, one chunk at a time. When, is the caller's to say. */
#pragma once

#include "protocol/blob.h"
#include "runner/channel.h"
#include "runner/job_output.h"
#include "runner/setup.h"

/* Of BYTES, more than 0. Free with qv_blob_writer_free. */
QvBlobWriter *qv_job_payload_open(const QvJobKeys *keys, const QvJob *job, gint64 bytes);
/* Queues the next chunk. FALSE is QV_ERROR_SYSTEM: OUTPUT's payload cannot be read back. */
gboolean qv_job_payload_step(QvBlobWriter *sealer, QvJobOutput *output, QvChannel *supervisor, GError **error);
