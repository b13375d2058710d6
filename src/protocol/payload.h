/* SPDX-License-Identifier: Apache-2.0 */
/* The payload of a result (section 6): a gzipped section 4 tar of logs and
 * artefacts, written by the unpack process and read by the worker. */
#pragma once

#include <glib.h>

#include "protocol/result.h"

typedef struct QvPayloadWriter QvPayloadWriter;
/* Takes compressed bytes; they are valid during the call only. */
typedef void (*QvPayloadSink)(void *user, const guint8 *bytes, gsize n);

QvPayloadWriter *qv_payload_writer_new(QvPayloadSink sink, void *user);
void qv_payload_writer_free(QvPayloadWriter *writer);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvPayloadWriter, qv_payload_writer_free)

/* STEP -1: setup. Logs are kept and written at the end, since paths are sorted. */
void qv_payload_writer_log(QvPayloadWriter *writer, gssize step, const char *text, gsize n);
void qv_payload_writer_artefact_begin(QvPayloadWriter *writer, const char *path, gint64 size, gboolean executable);
void qv_payload_writer_artefact_bytes(QvPayloadWriter *writer, const guint8 *bytes, gsize n);
void qv_payload_writer_artefact_end(QvPayloadWriter *writer);
/* Writes what is left. FALSE where the payload has no member: then nothing at all was
 * written, and the result's payload is null. TREE_SHA256: hex of the tar. */
gboolean qv_payload_writer_finish(QvPayloadWriter *writer, char tree_sha256[65]);

/* For the worker. */
typedef struct QvPayloadReader QvPayloadReader;
typedef struct {
  /* A member of the payload: "logs/0.log", "artefacts/…". FALSE with *ERROR set stops the reader. */
  gboolean (*begin)(void *user, const char *path, gint64 size, gboolean executable, GError **error);
  gboolean (*bytes)(void *user, const guint8 *bytes, gsize n, GError **error);
  gboolean (*end)(void *user, GError **error);
} QvPayloadSinkTable;

/* The names and sizes that RESULT allows and no other; RESULT and JOB are borrowed. */
QvPayloadReader *qv_payload_reader_new(const QvResult *result, const QvJob *job, const QvPayloadSinkTable *sink,
                                       void *user);
void qv_payload_reader_free(QvPayloadReader *reader);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvPayloadReader, qv_payload_reader_free)

/* Plaintext of the blob in any portions; a breach is QV_ERROR_FORMAT or QV_ERROR_LIMIT: bad_result. */
gboolean qv_payload_reader_feed(QvPayloadReader *reader, const guint8 *bytes, gsize n, GError **error);
/* After the last byte: complete, every member there, every digest right. */
gboolean qv_payload_reader_finish(QvPayloadReader *reader, GError **error);
