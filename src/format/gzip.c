/* SPDX-License-Identifier: Apache-2.0 */
/* Owns how a stream is cut into gzip members; libdeflate writes each of them, with FLG 0, MTIME 0, OS 255. */
#include "format/gzip.h"

#include <libdeflate.h>
#include <string.h>

struct QvGzipCompressor {
  struct libdeflate_compressor *deflate;
};

QvGzipCompressor *qv_gzip_compressor_new(void)
{
  QvGzipCompressor *compressor = g_new0(QvGzipCompressor, 1);
  compressor->deflate = libdeflate_alloc_compressor(QV_GZIP_LEVEL);
  if (!compressor->deflate)
    g_error("out of memory for a compressor"); /* as g_malloc does */
  return compressor;
}

void qv_gzip_compressor_free(QvGzipCompressor *compressor)
{
  if (!compressor)
    return;
  libdeflate_free_compressor(compressor->deflate);
  g_free(compressor);
}

gsize qv_gzip_member_bound(QvGzipCompressor *compressor, gsize n)
{
  return libdeflate_gzip_compress_bound(compressor->deflate, n);
}

gsize qv_gzip_member(QvGzipCompressor *compressor, const void *bytes, gsize n, guint8 *out, gsize out_max)
{
  gsize out_n = libdeflate_gzip_compress(compressor->deflate, bytes, n, out, out_max);
  g_assert(out_n > 0); /* 0: less room than the bound */
  return out_n;
}

struct QvGzipWriter {
  QvGzipCompressor *compressor;
  QvGzipSink sink;
  void *user;
  guint8 *in; /* QV_GZIP_MEMBER_BYTES */
  gsize in_n;
  guint8 *out;
  gsize out_max;
  gboolean any;
};

QvGzipWriter *qv_gzip_writer_new(QvGzipSink sink, void *user)
{
  QvGzipWriter *writer = g_new0(QvGzipWriter, 1);
  writer->compressor = qv_gzip_compressor_new();
  writer->sink = sink;
  writer->user = user;
  writer->in = g_malloc(QV_GZIP_MEMBER_BYTES);
  writer->out_max = qv_gzip_member_bound(writer->compressor, QV_GZIP_MEMBER_BYTES);
  writer->out = g_malloc(writer->out_max);
  return writer;
}

void qv_gzip_writer_free(QvGzipWriter *writer)
{
  if (!writer)
    return;
  qv_gzip_compressor_free(writer->compressor);
  g_free(writer->in);
  g_free(writer->out);
  g_free(writer);
}

static void flush(QvGzipWriter *writer)
{
  gsize n = qv_gzip_member(writer->compressor, writer->in, writer->in_n, writer->out, writer->out_max);
  writer->in_n = 0;
  writer->any = TRUE;
  writer->sink(writer->user, writer->out, n);
}

void qv_gzip_writer_add(QvGzipWriter *writer, const void *bytes, gsize n)
{
  const guint8 *b = bytes;
  while (n > 0) {
    gsize taken = MIN(n, QV_GZIP_MEMBER_BYTES - writer->in_n);
    memcpy(writer->in + writer->in_n, b, taken);
    writer->in_n += taken;
    b += taken;
    n -= taken;
    if (writer->in_n == QV_GZIP_MEMBER_BYTES)
      flush(writer);
  }
}

void qv_gzip_writer_finish(QvGzipWriter *writer)
{
  if (writer->in_n > 0 || !writer->any)
    flush(writer);
}
