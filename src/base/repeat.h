/* SPDX-License-Identifier: Apache-2.0 */
/* An event that comes again and again, such as each try at something that is away: whether it is to be said this time. Pure: the
 * time comes in. */
#pragma once

#include <glib.h>

enum {
  QV_REPEAT_MS = 60000,  /* the same is said once in this time */
  QV_REPEAT_CHANGES = 5, /* what reads otherwise is said at once, but no more than so many in that time */
};

/* All zeros at the beginning, and after a clear: nothing was said. */
typedef struct {
  char *said;
  gint64 said_at_ms, span_at_ms;
  guint changes, unsaid;
} QvRepeat;

/* WHAT happens at NOW_MS, by a clock that never goes back. TRUE: it is to be said, and *UNSAID events before it were not. */
gboolean qv_repeat_due(QvRepeat *repeat, const char *what, gint64 now_ms, guint *unsaid);
/* It is over: the next one is to be said. How many were not. */
guint qv_repeat_clear(QvRepeat *repeat);
