/* SPDX-License-Identifier: Apache-2.0 */
#include "support/zeros.h"

#include "format/gzip.h"
#include "format/tar.h"

static void append(void *user, const guint8 *bytes, gsize n)
{
  g_byte_array_append(user, bytes, (guint)n);
}

GBytes *qv_test_zeros(guint64 size)
{
  guint8 header[QV_TAR_HEADER_BYTES_MAX];
  gsize n;
  g_assert_cmpint(qv_tar_header("big", size, FALSE, header, &n), ==, QV_TAR_OK);
  GByteArray *out = g_byte_array_new();
  g_autoptr(QvGzipWriter) writer = qv_gzip_writer_new(append, out);
  qv_gzip_writer_add(writer, header, n);
  for (guint64 left = size + qv_tar_padding(size) + QV_TAR_END_BYTES; left > 0; left -= n) {
    n = MIN(left, QV_TAR_END_BYTES);
    qv_gzip_writer_add(writer, qv_tar_zeros, n);
  }
  qv_gzip_writer_finish(writer);
  return g_byte_array_free_to_bytes(out);
}
