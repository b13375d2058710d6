/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting in a test: turns the default main context until a condition holds. */
#pragma once

#include <glib.h>

#define QV_TEST_DEADLINE_S 120

static inline gboolean qv_test_wake(gpointer unused)
{
  return G_SOURCE_CONTINUE;
}

#define QV_TEST_WAIT(condition)                                                                        \
  do {                                                                                                 \
    guint wake_ = g_timeout_add(20, qv_test_wake, NULL);                                               \
    gint64 end_ = g_get_monotonic_time() + QV_TEST_DEADLINE_S * G_USEC_PER_SEC;                        \
    while (!(condition)) {                                                                             \
      if (g_get_monotonic_time() > end_)                                                               \
        g_error("%s:%d: waited %d s for: %s", __FILE__, __LINE__, QV_TEST_DEADLINE_S, #condition);     \
      g_main_context_iteration(NULL, TRUE);                                                            \
    }                                                                                                  \
    g_source_remove(wake_);                                                                            \
  } while (0)

/* Turns it for a while: for what must not happen. */
static inline void qv_test_turn_ms(gint64 ms)
{
  guint wake = g_timeout_add(20, qv_test_wake, NULL);
  for (gint64 end = g_get_monotonic_time() + ms * 1000; g_get_monotonic_time() < end;)
    g_main_context_iteration(NULL, TRUE);
  g_source_remove(wake);
}
