/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a child process of which nothing more is wanted. A kill ends nothing that the kernel does not let go (a file system
 * that does not answer, memory that is being given back): whoever waits for that without a bound stands still with it. */
#pragma once

#include <glib.h>

/* Within this the end of a killed process is waited for. */
enum { QV_REAP_MS = 500 };

/* Kills PID, a child for which there is no watch (any more), and reaps it. TRUE: *STATUS, which may be NULL, is that of wait(2). FALSE: it is
 * reaped already, or it does not end within PATIENCE_MS; then that is logged, WHAT naming it (NULL: without a word), and the main loop
 * reaps it once it does end. */
gboolean qv_reap_child(GPid pid, const char *what, guint patience_ms, int *status);
/* The same without a word, and THEN is called once it is reaped: within this call, or by the main loop. */
void qv_reap_child_then(GPid pid, guint patience_ms, void (*then)(gpointer data), gpointer data);
