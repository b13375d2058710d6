/* SPDX-License-Identifier: Apache-2.0 */
#include "vectors.h"

#include <string.h>

char *vector_path(const char *name)
{
  const char *root = g_getenv("QUAVON_VECTORS");
  return root && g_file_test(root, G_FILE_TEST_IS_DIR) ? g_build_filename(root, name, NULL) : NULL;
}

gboolean vectors_here(void)
{
  g_autofree char *path = vector_path(".");
  if (!path)
    g_test_skip("the shared vectors are not here");
  return path != NULL;
}

char *file_read(const char *path, gsize *n)
{
  char *bytes = NULL;
  g_autoptr(GError) error = NULL;
  g_file_get_contents(path, &bytes, n, &error);
  g_assert_no_error(error);
  return bytes;
}

char *vector_read(const char *name, gsize *n)
{
  g_autofree char *path = vector_path(name);
  return file_read(path, n);
}

static int compare_names(gconstpointer a, gconstpointer b)
{
  return strcmp(*(char *const *)a, *(char *const *)b);
}

GPtrArray *vector_list(const char *folder)
{
  g_autofree char *path = vector_path(folder);
  GPtrArray *names = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(GError) error = NULL;
  g_autoptr(GDir) dir = g_dir_open(path, 0, &error);
  g_assert_no_error(error);
  for (const char *name; (name = g_dir_read_name(dir));)
    g_ptr_array_add(names, g_strdup(name));
  g_ptr_array_sort(names, compare_names);
  return names;
}

static GPtrArray *parse_table(const char *path)
{
  gsize n;
  g_autofree char *text = file_read(path, &n);
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  GPtrArray *rows = g_ptr_array_new_with_free_func((GDestroyNotify)g_strfreev);
  for (guint i = 0, header = 1; lines[i]; i++) {
    if (lines[i][0] == '#' || lines[i][0] == '\0')
      continue;
    if (!header)
      g_ptr_array_add(rows, g_strsplit(lines[i], "\t", -1));
    header = 0;
  }
  g_assert_cmpuint(rows->len, >, 0);
  return rows;
}

GPtrArray *table_read(const char *name)
{
  g_autofree char *path = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "tests/unit/format", name, NULL);
  return parse_table(path);
}

GPtrArray *vector_table(const char *name)
{
  g_autofree char *path = vector_path(name);
  return parse_table(path);
}

char **table_find(GPtrArray *table, const char *key)
{
  for (guint i = 0; i < table->len; i++) {
    char **row = table->pdata[i];
    if (strcmp(row[0], key) == 0)
      return row;
  }
  return NULL;
}
