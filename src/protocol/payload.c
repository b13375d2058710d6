/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the payload of a result: which members it has, in which order, and the
 * worker's strict reading of it. Members in path order, as every tar of
 * section 4: artefacts as they come, then logs, which are kept until the end.
 * Source: section 6. */
#include "protocol/payload.h"

#include <string.h>

#include "base/error.h"
#include "format/error.h"
#include "format/gzip.h"
#include "format/inflate.h"
#include "format/tar.h"
#include "protocol/crypto.h"
#include "protocol/result_internal.h"

static void log_path(gssize step, char path[32])
{
  if (step < 0)
    g_strlcpy(path, "logs/setup.log", 32);
  else
    g_snprintf(path, 32, "logs/%d.log", (int)step);
}

/* ---- writer ---- */

typedef struct {
  char path[32];
  GBytes *text;
} Log;

struct QvPayloadWriter {
  QvGzipWriter *gzip;
  QvDigest *tree;
  GArray *logs; /* Log */
  gsize members_n;
  gint64 size; /* of the open artefact */
  gint64 left;
};

static void clear_log(gpointer log)
{
  g_bytes_unref(((Log *)log)->text);
}

QvPayloadWriter *qv_payload_writer_new(QvPayloadSink sink, void *user)
{
  QvPayloadWriter *writer = g_new0(QvPayloadWriter, 1);
  writer->gzip = qv_gzip_writer_new(sink, user);
  writer->tree = qv_digest_new_sha256();
  writer->logs = g_array_new(FALSE, TRUE, sizeof(Log));
  g_array_set_clear_func(writer->logs, clear_log);
  return writer;
}

void qv_payload_writer_free(QvPayloadWriter *writer)
{
  if (writer == NULL)
    return;
  qv_gzip_writer_free(writer->gzip);
  qv_digest_free(writer->tree);
  g_array_unref(writer->logs);
  g_free(writer);
}

static void put(QvPayloadWriter *writer, const void *bytes, gsize n)
{
  qv_digest_update(writer->tree, bytes, n);
  qv_gzip_writer_add(writer->gzip, bytes, n);
}

static void put_header(QvPayloadWriter *writer, const char *path, gint64 size, gboolean executable)
{
  guint8 header[QV_TAR_HEADER_BYTES_MAX];
  gsize n = 0;
  QvTarReason reason = qv_tar_header(path, (guint64)size, executable, header, &n);
  g_assert(reason == QV_TAR_OK);
  put(writer, header, n);
  writer->members_n++;
}

void qv_payload_writer_log(QvPayloadWriter *writer, gssize step, const char *text, gsize n)
{
  Log log = { .text = g_bytes_new(text, n) };
  log_path(step, log.path);
  g_array_append_val(writer->logs, log);
}

void qv_payload_writer_artefact_begin(QvPayloadWriter *writer, const char *path, gint64 size, gboolean executable)
{
  g_assert(writer->left == 0);
  g_autofree char *member = g_strconcat("artefacts/", path, NULL);
  put_header(writer, member, size, executable);
  writer->size = writer->left = size;
}

void qv_payload_writer_artefact_bytes(QvPayloadWriter *writer, const guint8 *bytes, gsize n)
{
  g_assert((gint64)n <= writer->left);
  put(writer, bytes, n);
  writer->left -= (gint64)n;
}

void qv_payload_writer_artefact_end(QvPayloadWriter *writer)
{
  g_assert(writer->left == 0);
  put(writer, qv_tar_zeros, qv_tar_padding((guint64)writer->size));
}

static int compare_logs(gconstpointer a, gconstpointer b)
{
  return strcmp(((const Log *)a)->path, ((const Log *)b)->path);
}

gboolean qv_payload_writer_finish(QvPayloadWriter *writer, char tree_sha256[65])
{
  g_assert(writer->left == 0);
  g_array_sort(writer->logs, compare_logs);
  for (guint i = 0; i < writer->logs->len; i++) {
    const Log *log = &g_array_index(writer->logs, Log, i);
    gsize n = 0;
    const void *text = g_bytes_get_data(log->text, &n);
    put_header(writer, log->path, (gint64)n, FALSE);
    if (n > 0)
      put(writer, text, n);
    put(writer, qv_tar_zeros, qv_tar_padding(n));
  }
  if (writer->members_n == 0)
    return FALSE;
  put(writer, qv_tar_zeros, QV_TAR_END_BYTES);
  qv_gzip_writer_finish(writer->gzip);
  qv_digest_final_hex(writer->tree, tree_sha256);
  return TRUE;
}

/* ---- reader ---- */

typedef struct {
  char *path;
  gint64 size; /* -1: a log, up to its cap */
  const char *sha256;
} Expected;

struct QvPayloadReader {
  QvPayloadSinkTable sink;
  void *user;
  QvGunzip *gunzip;
  QvTarReader tar;
  GArray *expected; /* Expected, in path order */
  guint next;
  gint64 log_bytes;
  QvDigest *digest; /* of the open artefact */
  gboolean failed;
};

static void clear_expected(gpointer expected)
{
  g_free(((Expected *)expected)->path);
}

static int compare_expected(gconstpointer a, gconstpointer b)
{
  return strcmp(((const Expected *)a)->path, ((const Expected *)b)->path);
}

static void expect_log(QvPayloadReader *reader, gssize step)
{
  char path[32];
  log_path(step, path);
  Expected expected = { .path = g_strdup(path), .size = -1 };
  g_array_append_val(reader->expected, expected);
}

QvPayloadReader *qv_payload_reader_new(const QvResult *result, const QvJob *job, const QvPayloadSinkTable *sink,
                                       void *user)
{
  QvPayloadReader *reader = g_new0(QvPayloadReader, 1);
  QvResultCaps caps;
  qv_result_caps(job, &caps);
  reader->sink = *sink;
  reader->user = user;
  reader->log_bytes = caps.log_bytes;
  reader->expected = g_array_new(FALSE, TRUE, sizeof(Expected));
  g_array_set_clear_func(reader->expected, clear_expected);
  for (gsize i = 0; i < result->facts.artefacts_n; i++) {
    const QvArtefact *artefact = &result->facts.artefacts[i];
    Expected expected = { .path = g_strconcat("artefacts/", artefact->path, NULL), .size = artefact->size,
                          .sha256 = artefact->sha256 };
    g_array_append_val(reader->expected, expected);
  }
  for (gsize i = 0; i < result->facts.steps_n; i++)
    expect_log(reader, (gssize)i);
  if (result->facts.has_setup)
    expect_log(reader, -1);
  g_array_sort(reader->expected, compare_expected);
  const QvTarCaps tar_caps = { .entries_max = reader->expected->len,
                               .total_bytes_max = (guint64)caps.payload_tar_bytes,
                               .file_bytes_max = (guint64)MAX(caps.log_bytes, caps.artefact_bytes),
                               .portable = true };
  qv_tar_reader_init(&reader->tar, &tar_caps);
  reader->gunzip = qv_gunzip_new((guint64)caps.payload_tar_bytes);
  g_assert(reader->gunzip != NULL);
  return reader;
}

void qv_payload_reader_free(QvPayloadReader *reader)
{
  if (reader == NULL)
    return;
  qv_gunzip_free(reader->gunzip);
  qv_tar_reader_clear(&reader->tar);
  g_array_unref(reader->expected);
  qv_digest_free(reader->digest);
  g_free(reader);
}

static gboolean refuse(GError **error, const char *path, const char *text)
{
  g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "the payload: %s: %s", path, text);
  return FALSE;
}

static const Expected *expected_now(const QvPayloadReader *reader)
{
  return reader->next < reader->expected->len ? &g_array_index(reader->expected, Expected, reader->next) : NULL;
}

static gboolean begin(QvPayloadReader *reader, GError **error)
{
  const QvTarEntry *entry = &reader->tar.entry;
  const Expected *expected = expected_now(reader);
  gint64 size = (gint64)entry->size;
  if (expected == NULL || strcmp(entry->path, expected->path) != 0)
    return refuse(error, expected != NULL ? expected->path : "end", "another member is in its place");
  if (expected->size < 0 ? size > reader->log_bytes : size != expected->size)
    return refuse(error, expected->path, "has not the size that the result says");
  reader->digest = expected->sha256 != NULL ? qv_digest_new_sha256() : NULL;
  return reader->sink.begin(reader->user, expected->path, size, entry->executable, error);
}

static gboolean data(QvPayloadReader *reader, GError **error)
{
  if (reader->digest != NULL)
    qv_digest_update(reader->digest, reader->tar.data, reader->tar.data_n);
  return reader->sink.bytes(reader->user, reader->tar.data, reader->tar.data_n, error);
}

static gboolean end(QvPayloadReader *reader, GError **error)
{
  const Expected *expected = expected_now(reader);
  if (reader->digest != NULL) {
    char hex[65];
    qv_digest_final_hex(reader->digest, hex);
    g_clear_pointer(&reader->digest, qv_digest_free);
    if (strcmp(hex, expected->sha256) != 0)
      return refuse(error, expected->path, "has not the SHA-256 that the result says");
  }
  reader->next++;
  return reader->sink.end(reader->user, error);
}

static gboolean take_tar(QvPayloadReader *reader, const guint8 *bytes, gsize n, GError **error)
{
  for (;;) {
    gboolean good = TRUE;
    switch (qv_tar_reader_step(&reader->tar, &bytes, &n)) {
    case QV_TAR_MORE:
      return TRUE;
    case QV_TAR_ENTRY:
      good = begin(reader, error);
      break;
    case QV_TAR_DATA:
      good = data(reader, error);
      break;
    case QV_TAR_ENTRY_END:
      good = end(reader, error);
      break;
    case QV_TAR_END:
      break;
    case QV_TAR_BAD:
      return qv_tar_set_error(error, reader->tar.reason, "the payload", NULL);
    }
    if (!good)
      return FALSE;
  }
}

gboolean qv_payload_reader_feed(QvPayloadReader *reader, const guint8 *bytes, gsize n, GError **error)
{
  guint8 out[16 * 1024];
  QvGunzipStatus status;
  if (reader->failed)
    return refuse(error, "stream", "was bad before");
  do {
    gsize out_n = 0;
    status = qv_gunzip_step(reader->gunzip, &bytes, &n, out, sizeof out, &out_n);
    if (status == QV_GUNZIP_BAD) {
      reader->failed = TRUE;
      return qv_gzip_set_error(error, qv_gunzip_reason(reader->gunzip), "the payload");
    }
    if (!take_tar(reader, out, out_n, error)) {
      reader->failed = TRUE;
      return FALSE;
    }
  } while (status == QV_GUNZIP_OUTPUT);
  return TRUE;
}

gboolean qv_payload_reader_finish(QvPayloadReader *reader, GError **error)
{
  QvGzipReason gzip = qv_gunzip_finish(reader->gunzip);
  QvTarReason tar = qv_tar_reader_finish(&reader->tar);
  if (reader->failed)
    return refuse(error, "stream", "was bad before");
  if (gzip != QV_GZIP_OK)
    return qv_gzip_set_error(error, gzip, "the payload");
  if (tar != QV_TAR_OK)
    return qv_tar_set_error(error, tar, "the payload", NULL);
  if (expected_now(reader) != NULL)
    return refuse(error, expected_now(reader)->path, "is missing");
  return TRUE;
}
