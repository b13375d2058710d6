/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the error domain and the translation of errno. */
#include "base/error.h"

#include <errno.h>

G_DEFINE_QUARK(qv-error-quark, qv_error)

static QvError code_of(int err)
{
  switch (err) {
  case ECONNRESET:
  case EPIPE:
  case ENOTCONN:
    return QV_ERROR_GONE;
  case ETIMEDOUT:
    return QV_ERROR_TIMEOUT;
  default:
    return QV_ERROR_SYSTEM;
  }
}

gboolean qv_error_set_errno(GError **error, int err, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  g_autofree char *text = g_strdup_vprintf(format, args);
  va_end(args);
  g_set_error(error, QV_ERROR, code_of(err), "%s: %s", text, g_strerror(err));
  return FALSE;
}
