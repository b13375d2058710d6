/* SPDX-License-Identifier: Apache-2.0 */
/* What a runner says of a running job through BullMQ's progress
 * (qv_worker_progress): unsigned, best effort, to inform people only.
 *
 *   {"phase":"preparing","members":0}  admitted: the sandbox starts and takes its snapshot
 *   {"phase":"running","members":N}    the entry runs, N members of its output are complete: two for
 *                                      setup, two a step (section 5), which tells what runs now */
#pragma once

#include <glib.h>
#include <stdio.h>

/* Free with g_free. */
static inline char *qv_progress_format(gboolean running, guint members_n)
{
  return g_strdup_printf("{\"phase\":\"%s\",\"members\":%u}", running ? "running" : "preparing", members_n);
}

/* FALSE: not of this form; the outputs are untouched. */
static inline gboolean qv_progress_parse(const char *json, gsize len, gboolean *running, guint *members_n)
{
  guint n = 0;
  char phase[10] = "";
  char end = '\0';
  g_autofree char *text = g_strndup(json, MIN(len, 128));
  if (sscanf(text, "{\"phase\":\"%9[a-z]\",\"members\":%9u%c", phase, &n, &end) != 3 || end != '}')
    return FALSE;
  *running = g_str_equal(phase, "running");
  *members_n = n;
  return TRUE;
}
