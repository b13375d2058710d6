/* SPDX-License-Identifier: Apache-2.0 */
/* Names of files that come from a tree: what may be packed, and how any name is shown. */
#pragma once

#include <glib.h>

/* Protocol section 4: relative, no empty, `.` or `..` part, valid UTF-8 without
 * control characters, at most 1 024 bytes. LIMIT when too long, else FORMAT; both name the path. */
gboolean qv_path_check(const char *path, GError **error);

/* The name fit for a message: what is not printable is escaped. Never NULL. */
char *qv_path_show(const char *path);
