/* SPDX-License-Identifier: Apache-2.0 */
/* Docker's framing of stdout and stderr in one stream, pure and incremental:
 *
 *   byte 0        1 stdout, 2 stderr, 3 the engine's own trouble
 *   bytes 1 to 3  zero
 *   bytes 4 to 7  length of what follows, big endian
 *
 * Nothing is kept but the header: a frame's bytes are handed on as they come.
 * Source: Docker Engine API 1.43, "attach", "Stream format". */
#pragma once

#include <glib.h>

typedef enum { QV_FRAME_STDOUT = 1, QV_FRAME_STDERR = 2, QV_FRAME_TROUBLE = 3 } QvFrameKind;

typedef struct {
  guint8 header[8];
  guint header_n;  /* bytes of it so far */
  guint64 left;    /* of the frame's bytes */
} QvFrames;

/* Takes from BYTES what belongs together: the number of bytes taken, at least 1 of N at least 1. *SLICE_N of
 * them, the last ones taken, are of stream *KIND; 0: they were a part of a header. -1: not a frame (QV_ERROR_FORMAT). */
gssize qv_frames_step(QvFrames *frames, const guint8 *bytes, gsize n, QvFrameKind *kind, gsize *slice_n, GError **error);
/* Is the stream between two frames: may it end here? */
gboolean qv_frames_at_border(const QvFrames *frames);
