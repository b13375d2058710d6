/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots for the unit tests of this folder. */
#pragma once

#include <glib.h>
#include <string.h>

#include "format/gzip.h"
#include "format/tar.h"

static inline void snapshot_append(void *user, const guint8 *bytes, gsize n)
{
  g_byte_array_append(user, bytes, (guint)n);
}

/* A tar without its end. TEXT NULL: a file without bytes. */
static inline void snapshot_add(GByteArray *tar, const char *path, const char *text, gboolean executable)
{
  uint8_t header[QV_TAR_HEADER_BYTES_MAX];
  size_t header_n, n = text ? strlen(text) : 0;
  g_assert_cmpint(qv_tar_header(path, n, executable, header, &header_n), ==, QV_TAR_OK);
  g_byte_array_append(tar, header, (guint)header_n);
  if (n > 0)
    g_byte_array_append(tar, (const guint8 *)text, (guint)n);
  g_byte_array_append(tar, qv_tar_zeros, (guint)qv_tar_padding(n));
}

/* The gzip of TAR and the two zero blocks; TAR is taken. */
static inline GByteArray *snapshot_finish(GByteArray *tar)
{
  GByteArray *blob = g_byte_array_new();
  g_byte_array_append(tar, qv_tar_zeros, QV_TAR_END_BYTES);
  g_autoptr(QvGzipWriter) writer = qv_gzip_writer_new(snapshot_append, blob);
  qv_gzip_writer_add(writer, tar->data, tar->len);
  qv_gzip_writer_finish(writer);
  g_byte_array_unref(tar);
  return blob;
}
