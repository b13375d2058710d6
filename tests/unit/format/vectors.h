/* SPDX-License-Identifier: Apache-2.0 */
/* Files of the shared vectors and of this folder's tables, for the tests of this room. */
#pragma once

#include <glib.h>

/* The path of a shared vector, or NULL where the vectors are not on this machine; free it. */
char *vector_path(const char *name);

/* Skips the running test and returns FALSE where they are not. */
gboolean vectors_here(void);

/* The bytes of a file; a file that is not there fails the test. */
char *file_read(const char *path, gsize *n);
char *vector_read(const char *name, gsize *n);

/* Names of the files in a folder of the vectors, sorted; free with g_ptr_array_unref. */
GPtrArray *vector_list(const char *folder);

/* tests/unit/format/NAME: rows of a table, blanks between columns are one TAB; the first row and rows with # are left
 * out. Each row is a GStrv. */
GPtrArray *table_read(const char *name);
/* The same for a TSV of the vectors. */
GPtrArray *vector_table(const char *name);

/* The row whose column 0 is KEY, or NULL. */
char **table_find(GPtrArray *table, const char *key);
