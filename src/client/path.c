/* SPDX-License-Identifier: Apache-2.0 */
/* Names of files: format/tar's rules as errors that name the path. */
#include "client/path.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "format/error.h"
#include "format/tar.h"
#include "format/text.h"

gboolean qv_path_check(const char *path, gboolean portable, GError **error)
{
  QvTarReason reason = qv_tar_path_check(path, strlen(path), portable);
  if (reason == QV_TAR_OK)
    return TRUE;
  g_autofree char *shown = qv_path_show(path);
  g_set_error(error, QV_ERROR, reason == QV_TAR_PATH_LONG ? QV_ERROR_LIMIT : QV_ERROR_FORMAT, "%s: %s", shown,
              qv_tar_reason_text(reason));
  return FALSE;
}

char *qv_path_show(const char *path)
{
  char *text = qv_text_printable_line(path, strlen(path));
  char *shown = g_strdup(text != NULL ? text : "?");
  free(text);
  return shown;
}
