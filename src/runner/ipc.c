/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the frames between the runner's processes. The header is checked before a byte of
 * the payload is kept, so that nobody makes the reader allocate more than a type's cap. */
#include "runner/ipc.h"

#include <string.h>

#include "base/error.h"
#include "runner/footprint.h"

static const struct {
  const char *name;
  unsigned senders;
  gsize cap;
} messages[] = {
  {"NONE", 0, 0},
#define X(name, senders, cap) {#name, senders, cap},
  QV_IPC_MESSAGES(X)
#undef X
};

struct QvIpcReader {
  unsigned sender;
  GByteArray *buffer;
  gsize taken; /* bytes at the front that belong to the frame handed out last */
};

const char *qv_ipc_name(QvIpcType type)
{
  return (guint)type < G_N_ELEMENTS(messages) ? messages[type].name : "?";
}

void qv_ipc_header(QvIpcType type, gsize n, guint8 header[QV_IPC_HEADER_BYTES])
{
  g_assert(type != QV_IPC_NONE && (guint)type < G_N_ELEMENTS(messages) && n <= messages[type].cap);
  guint32 words[2] = {(guint32)n, (guint32)type};
  memcpy(header, words, sizeof words);
}

guint32 qv_ipc_u32(const guint8 *bytes)
{
  guint32 value;
  memcpy(&value, bytes, sizeof value);
  return value;
}

QvIpcReader *qv_ipc_reader_new(unsigned sender)
{
  QvIpcReader *reader = g_new0(QvIpcReader, 1);
  reader->sender = sender;
  reader->buffer = g_byte_array_new();
  return reader;
}

void qv_ipc_reader_free(QvIpcReader *reader)
{
  if (reader == NULL)
    return;
  /* KEYS passes through here. */
  if (reader->buffer->len > 0)
    explicit_bzero(reader->buffer->data, reader->buffer->len);
  g_byte_array_unref(reader->buffer);
  g_free(reader);
}

static void drop_taken(QvIpcReader *reader)
{
  if (reader->taken == 0)
    return;
  gsize rest = reader->buffer->len - reader->taken;
  memmove(reader->buffer->data, reader->buffer->data + reader->taken, rest);
  explicit_bzero(reader->buffer->data + rest, reader->taken);
  if (reader->taken >= QV_FOOTPRINT_LARGE_BYTES && rest == 0) { /* a chunk: the next one may be long in coming */
    g_byte_array_unref(reader->buffer);
    reader->buffer = g_byte_array_new();
  }
  g_byte_array_set_size(reader->buffer, rest);
  reader->taken = 0;
}

static gboolean check_header(const QvIpcReader *reader, const guint8 *header, GError **error)
{
  guint32 n = qv_ipc_u32(header), type = qv_ipc_u32(header + 4);
  if (type == QV_IPC_NONE || type >= G_N_ELEMENTS(messages) || (messages[type].senders & reader->sender) == 0) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "frame of type %u is not expected from this process", type);
    return FALSE;
  }
  if (n > messages[type].cap) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "frame %s of %u bytes is over its cap", messages[type].name, n);
    return FALSE;
  }
  return TRUE;
}

gboolean qv_ipc_reader_feed(QvIpcReader *reader, const guint8 *bytes, gsize n, GError **error)
{
  drop_taken(reader);
  g_byte_array_append(reader->buffer, bytes, n);
  for (gsize at = 0; reader->buffer->len - at >= QV_IPC_HEADER_BYTES;) {
    if (!check_header(reader, reader->buffer->data + at, error))
      return FALSE;
    gsize whole = QV_IPC_HEADER_BYTES + (gsize)qv_ipc_u32(reader->buffer->data + at);
    if (whole > reader->buffer->len - at)
      break;
    at += whole;
  }
  return TRUE;
}

gboolean qv_ipc_reader_next(QvIpcReader *reader, QvIpcType *type, const guint8 **payload, gsize *n)
{
  drop_taken(reader);
  if (reader->buffer->len < QV_IPC_HEADER_BYTES)
    return FALSE;
  gsize payload_n = qv_ipc_u32(reader->buffer->data);
  if (reader->buffer->len - QV_IPC_HEADER_BYTES < payload_n)
    return FALSE;
  *type = qv_ipc_u32(reader->buffer->data + 4);
  *payload = reader->buffer->data + QV_IPC_HEADER_BYTES;
  *n = payload_n;
  reader->taken = QV_IPC_HEADER_BYTES + payload_n;
  return TRUE;
}

gboolean qv_ipc_reader_partial(const QvIpcReader *reader)
{
  return reader->buffer->len > reader->taken;
}
