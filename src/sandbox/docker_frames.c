/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the framing, see the head of docker_frames.h. */
#include "sandbox/docker_frames.h"

#include "base/error.h"

gboolean qv_frames_at_border(const QvFrames *frames)
{
  return frames->header_n == 0 && frames->left == 0;
}

static gboolean check_header(const guint8 header[8], GError **error)
{
  if (header[0] >= QV_FRAME_STDOUT && header[0] <= QV_FRAME_TROUBLE && header[1] == 0 && header[2] == 0 && header[3] == 0)
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "docker: the attached stream has no frame where one must be (%02x %02x %02x %02x)",
              header[0], header[1], header[2], header[3]);
  return FALSE;
}

gssize qv_frames_step(QvFrames *frames, const guint8 *bytes, gsize n, QvFrameKind *kind, gsize *slice_n, GError **error)
{
  *slice_n = 0;
  if (frames->left == 0) {
    gsize take = MIN(n, sizeof frames->header - frames->header_n);
    for (gsize i = 0; i < take; i++)
      frames->header[frames->header_n++] = bytes[i];
    if (frames->header_n < sizeof frames->header)
      return (gssize)take;
    if (!check_header(frames->header, error))
      return -1;
    frames->header_n = 0;
    frames->left = (guint64)frames->header[4] << 24 | (guint64)frames->header[5] << 16 |
                   (guint64)frames->header[6] << 8 | frames->header[7];
    return (gssize)take;
  }
  gsize take = (gsize)MIN((guint64)n, frames->left);
  frames->left -= take;
  *kind = (QvFrameKind)frames->header[0];
  *slice_n = take;
  return (gssize)take;
}
