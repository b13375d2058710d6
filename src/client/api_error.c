/* SPDX-License-Identifier: Apache-2.0 */
/* Owns QuavonError. */
#include "client/api_error.h"

#include "base/error.h"

struct QuavonError {
  QuavonErrorCode code;
  char *message;
};

static QuavonErrorCode code_of(const GError *cause)
{
  if (cause->domain != QV_ERROR)
    return QUAVON_ERROR_SYSTEM;
  switch ((QvError)cause->code) {
  case QV_ERROR_SYSTEM:
    return QUAVON_ERROR_SYSTEM;
  case QV_ERROR_FORMAT:
    return QUAVON_ERROR_FORMAT;
  case QV_ERROR_LIMIT:
    return QUAVON_ERROR_LIMIT;
  case QV_ERROR_AUTH:
    return QUAVON_ERROR_AUTH;
  case QV_ERROR_PEER:
  case QV_ERROR_GONE:
  case QV_ERROR_TIMEOUT:
    return QUAVON_ERROR_UNAVAILABLE;
  case QV_ERROR_CANCELLED:
    return QUAVON_ERROR_CANCELLED;
  case QV_ERROR_POLICY:
    return QUAVON_ERROR_CONFIG;
  case QV_ERROR_NOT_FOUND:
    return QUAVON_ERROR_NOT_FOUND;
  case QV_ERROR_BUG:
    break;
  }
  return QUAVON_ERROR_BUG;
}

void qv_api_error_take_as(QuavonError **error, QuavonErrorCode code, GError *cause)
{
  if (error != NULL) {
    *error = g_new0(QuavonError, 1);
    (*error)->code = code;
    (*error)->message = g_strdup(cause->message);
  }
  g_error_free(cause);
}

void qv_api_error_take(QuavonError **error, GError *cause)
{
  qv_api_error_take_as(error, code_of(cause), cause);
}

void qv_api_error_set(QuavonError **error, QuavonErrorCode code, const char *format, ...)
{
  if (error == NULL)
    return;
  va_list args;
  va_start(args, format);
  *error = g_new0(QuavonError, 1);
  (*error)->code = code;
  (*error)->message = g_strdup_vprintf(format, args);
  va_end(args);
}

QuavonErrorCode quavon_error_code(const QuavonError *error)
{
  return error->code;
}

const char *quavon_error_message(const QuavonError *error)
{
  return error->message;
}

void quavon_error_free(QuavonError *error)
{
  if (error == NULL)
    return;
  g_free(error->message);
  g_free(error);
}
