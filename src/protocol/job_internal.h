/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the job's parser that other files of this room need. */
#pragma once

#include "protocol/job.h"

/* Into an empty STEP; on failure it may be half filled: qv_step_clear it. */
gboolean qv_step_parse(const json_t *json, const char *path, gint64 wall_ms, QvStep *step, GError **error);

/* A descriptor of the blob "<job_id>.<part>" of 1 to MAX_BYTES bytes. */
gboolean qv_blob_descriptor_parse(const json_t *json, const char *path, const char *job_id, const char *part,
                                  gint64 max_bytes, QvBlobDescriptor *descriptor, GError **error);
json_t *qv_blob_descriptor_build(const QvBlobDescriptor *descriptor);

/* {name, digest}. Into an empty IMAGE; may be half filled on failure. */
gboolean qv_image_ref_parse(const json_t *json, const char *path, QvImageRef *image, GError **error);
json_t *qv_image_ref_build(const QvImageRef *image);
void qv_image_ref_clear(QvImageRef *image);
