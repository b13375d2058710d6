/* SPDX-License-Identifier: Apache-2.0 */
/* Owns what is said once in a while. */
#include "base/repeat.h"

#include <string.h>

gboolean qv_repeat_due(QvRepeat *repeat, const char *what, gint64 now_ms, guint *unsaid)
{
  gboolean first = repeat->said == NULL;
  if (first || now_ms - repeat->span_at_ms >= QV_REPEAT_MS) {
    repeat->span_at_ms = now_ms;
    repeat->changes = 0;
  }
  gboolean due = first || now_ms - repeat->said_at_ms >= QV_REPEAT_MS ||
                 (strcmp(repeat->said, what) != 0 && repeat->changes < QV_REPEAT_CHANGES);
  if (!due) {
    repeat->unsaid++;
    return FALSE;
  }
  g_free(repeat->said);
  repeat->said = g_strdup(what);
  repeat->said_at_ms = now_ms;
  repeat->changes++;
  *unsaid = repeat->unsaid;
  repeat->unsaid = 0;
  return TRUE;
}

guint qv_repeat_clear(QvRepeat *repeat)
{
  guint unsaid = repeat->unsaid;
  g_free(repeat->said);
  *repeat = (QvRepeat){0};
  return unsaid;
}
