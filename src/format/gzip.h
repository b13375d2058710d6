/* SPDX-License-Identifier: Apache-2.0 */
/* The gzip writer (protocol section 4): members of QV_GZIP_MEMBER_BYTES of input, level
 * QV_GZIP_LEVEL, FLG 0, MTIME 0, OS 255, by libdeflate. The same input gives the same bytes
 * with the same release of libdeflate, however it is cut and on however many threads. Reading: format/inflate.h. */
#pragma once

#include <glib.h>

#include "base/limits.h"

/* One member at a time; one compressor a thread. */
typedef struct QvGzipCompressor QvGzipCompressor;
QvGzipCompressor *qv_gzip_compressor_new(void);
void qv_gzip_compressor_free(QvGzipCompressor *compressor);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvGzipCompressor, qv_gzip_compressor_free)

/* Room that a member of N bytes of input needs at most. */
gsize qv_gzip_member_bound(QvGzipCompressor *compressor, gsize n);
/* The member's length. OUT_MAX is at least the bound. */
gsize qv_gzip_member(QvGzipCompressor *compressor, const void *bytes, gsize n, guint8 *out, gsize out_max);

/* The same for a stream: takes bytes in any portions, gives members to SINK. */
typedef struct QvGzipWriter QvGzipWriter;
/* The bytes are valid during the call only. */
typedef void (*QvGzipSink)(void *user, const guint8 *bytes, gsize n);

QvGzipWriter *qv_gzip_writer_new(QvGzipSink sink, void *user);
void qv_gzip_writer_free(QvGzipWriter *writer);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvGzipWriter, qv_gzip_writer_free)
void qv_gzip_writer_add(QvGzipWriter *writer, const void *bytes, gsize n);
/* Gives out what is left; nothing may be added after it. Without any input: one empty member. */
void qv_gzip_writer_finish(QvGzipWriter *writer);
