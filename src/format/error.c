/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the translation of this room's reasons into the error domain. */
#include "format/error.h"

#include <stdlib.h>
#include <string.h>

#include "format/text.h"

gboolean qv_json_set_error(GError **error, const QvJsonError *why, const char *what)
{
  gboolean limit = why->reason == QV_JSON_TOO_LONG || why->reason == QV_JSON_TOO_DEEP || why->reason == QV_JSON_MEMORY;
  g_set_error(error, QV_ERROR, limit ? QV_ERROR_LIMIT : QV_ERROR_FORMAT, "%s: %s (at byte %" G_GSIZE_FORMAT ")", what,
              qv_json_reason_text(why->reason), why->offset);
  return FALSE;
}

gboolean qv_tar_set_error(GError **error, QvTarReason why, const char *what, const char *path)
{
  gboolean limit = why == QV_TAR_FILE_CAP || why == QV_TAR_TOTAL_CAP || why == QV_TAR_ENTRIES_CAP || why == QV_TAR_MEMORY;
  int code = limit ? QV_ERROR_LIMIT : QV_ERROR_FORMAT;
  char *shown = path ? qv_text_printable_line(path, strlen(path)) : NULL;
  if (shown)
    g_set_error(error, QV_ERROR, code, "%s: %s: %s", what, shown, qv_tar_reason_text(why));
  else
    g_set_error(error, QV_ERROR, code, "%s: %s", what, qv_tar_reason_text(why));
  free(shown);
  return FALSE;
}

gboolean qv_gzip_set_error(GError **error, QvGzipReason why, const char *what)
{
  gboolean limit = why == QV_GZIP_CAP || why == QV_GZIP_MEMORY;
  g_set_error(error, QV_ERROR, limit ? QV_ERROR_LIMIT : QV_ERROR_FORMAT, "%s: %s", what, qv_gzip_reason_text(why));
  return FALSE;
}

json_t *qv_json_load(const void *text, gsize n, gsize max_bytes, QvJsonKind kind, const char *what, GError **error)
{
  QvJsonError why;
  json_t *value = qv_json_parse(text, n, max_bytes, kind, &why);
  if (!value)
    qv_json_set_error(error, &why, what);
  return value;
}
