/* SPDX-License-Identifier: Apache-2.0 */
/* Path patterns (artefacts, ignored paths), libc alone: `*` `?` `[…]` within a part, `**` as a whole part crosses
 * folders, `{a,b}` and `@(a|b)` one of several, backslash quotes. docs/GLOBS.md has the choices. Time is at most
 * pattern x path, whatever they hold. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct QvGlob QvGlob;

/* NULL where the pattern is none (unclosed `[` or `{`, a backslash at the end, empty, not UTF-8, more than QV_GLOB_BYTES_MAX
 * bytes), or out of memory. */
QvGlob *qv_glob_new(const char *pattern, size_t n);
void qv_glob_free(QvGlob *glob); /* NULL is fine */

/* The whole of PATH. Bytes that are not UTF-8 match `?`, `*` and `[^…]` one at a time. Not for two threads at once. */
bool qv_glob_match(QvGlob *glob, const char *path, size_t n);

/* True where a path below the folder DIR (without a slash at its end; "" is the root) could match:
 * lets a walk leave folders out. */
bool qv_glob_may_match_below(QvGlob *glob, const char *dir, size_t n);

/* qv_glob_new would take it. */
bool qv_glob_valid(const char *pattern, size_t n);
