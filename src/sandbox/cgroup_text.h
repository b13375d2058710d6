/* SPDX-License-Identifier: Apache-2.0 */
/* The texts that the kernel writes into cgroup files. Pure: bytes in, numbers
 * out. A text that is not what the kernel documents is FALSE, never a 0 that
 * would pass for "no event". (Documentation/admin-guide/cgroup-v1, cgroup-v2.rst) */
#pragma once

#include <glib.h>

/* One decimal number and at most one LF. "max" is G_MAXUINT64. */
gboolean qv_cgroup_text_number(const char *text, gsize n, guint64 *value);

/* The number of the line "<key> <number>"; FALSE too where the key is absent or there twice. */
gboolean qv_cgroup_text_keyed(const char *text, gsize n, const char *key, guint64 *value);

/* cgroup.procs: one process id a line, appended to PIDS (of gint). A process of
 * an outer namespace shows as 0: that is FALSE, since nobody here could kill it. */
gboolean qv_cgroup_text_pids(const char *text, gsize n, GArray *pids);

/* Is WORD among the words of a line such as cgroup.controllers? */
gboolean qv_cgroup_text_has_word(const char *text, gsize n, const char *word);
