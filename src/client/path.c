/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the rules for names of packed files, and how a hostile name is printed. */
#include "client/path.h"

#include <string.h>

#include "base/error.h"
#include "base/limits.h"

static const char *fault_of(const char *path)
{
  if (!g_utf8_validate(path, -1, NULL))
    return "the name is not UTF-8";
  for (const char *at = path; *at != '\0'; at = g_utf8_next_char(at)) {
    if (g_unichar_iscntrl(g_utf8_get_char(at)))
      return "the name has a control character";
  }
  for (const char *part = path;; part++) {
    gsize len = strcspn(part, "/");
    if (len == 0 || (len == 1 && part[0] == '.') || (len == 2 && part[0] == '.' && part[1] == '.'))
      return "the name has an empty, `.` or `..` part";
    part += len;
    if (*part == '\0')
      return NULL;
  }
}

gboolean qv_path_check(const char *path, GError **error)
{
  if (strlen(path) > QV_PATH_BYTES_MAX) {
    g_autofree char *shown = qv_path_show(path);
    g_set_error(error, QV_ERROR, QV_ERROR_LIMIT, "%s: the path is longer than %d bytes", shown, QV_PATH_BYTES_MAX);
    return FALSE;
  }
  const char *fault = fault_of(path);
  if (fault != NULL) {
    g_autofree char *shown = qv_path_show(path);
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "%s: %s", shown, fault);
    return FALSE;
  }
  return TRUE;
}

char *qv_path_show(const char *path)
{
  GString *shown = g_string_new(NULL);
  for (const char *at = path; *at != '\0';) {
    gunichar c = g_utf8_get_char_validated(at, -1);
    if (c == (gunichar)-1 || c == (gunichar)-2 || !g_unichar_isprint(c)) {
      g_string_append_printf(shown, "\\x%02x", (guint8)*at++);
      continue;
    }
    g_string_append_unichar(shown, c);
    at = g_utf8_next_char(at);
  }
  return g_string_free(shown, FALSE);
}
