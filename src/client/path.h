/* SPDX-License-Identifier: Apache-2.0 */
/* Names of files that come from a tree: what may be packed or written, and how any name is shown. */
#pragma once

#include <glib.h>

/* qv_tar_path_check: FORMAT, or LIMIT where it is too long; the text names the path. PORTABLE: for names that leave the
 * sandbox. */
gboolean qv_path_check(const char *path, gboolean portable, GError **error);

/* Fit for a line of a message: what is not printable is escaped. Never NULL. */
char *qv_path_show(const char *path);
