/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <string.h>

#include "base/error.h"
#include "base/hex.h"

static char *read_below(const char *variable, const char *folder, const char *name, gsize *n)
{
  const char *root = g_getenv(variable);
  g_assert_nonnull(root);
  g_autofree char *path = g_build_filename(root, folder, name, NULL);
  char *text = NULL;
  GError *error = NULL;
  g_file_get_contents(path, &text, n, &error);
  g_assert_no_error(error);
  return text;
}

char *t_vector_text(const char *name, gsize *n)
{
  return read_below("QUAVON_SOURCE_ROOT", "vectors", name, n);
}

json_t *t_shared_json(const char *name)
{
  const char *folder = g_getenv("QUAVON_VECTORS");
  if (folder == NULL || !g_file_test(folder, G_FILE_TEST_IS_DIR)) {
    g_test_skip("the shared vectors are not beside this clone (QUAVON_VECTORS)");
    return NULL;
  }
  gsize n = 0;
  g_autofree char *text = read_below("QUAVON_VECTORS", "", name, &n);
  json_t *json = json_loadb(text, n, 0, NULL);
  g_assert_nonnull(json);
  return json;
}

GPtrArray *t_vector_rows(const char *name)
{
  g_autofree char *text = t_vector_text(name, NULL);
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  GPtrArray *rows = g_ptr_array_new_with_free_func((GDestroyNotify)g_strfreev);
  for (guint i = 0; lines[i] != NULL; i++)
    if (lines[i][0] != '\0' && lines[i][0] != '#')
      g_ptr_array_add(rows, g_strsplit(lines[i], "\t", -1));
  g_assert_cmpuint(rows->len, >, 0);
  return rows;
}

GByteArray *t_hex(const char *hex)
{
  GByteArray *bytes = g_byte_array_new();
  if (strcmp(hex, "-") == 0)
    return bytes;
  gsize n = strlen(hex) / 2;
  g_byte_array_set_size(bytes, (guint)n);
  g_assert_true(qv_hex_decode(hex, strlen(hex), bytes->data, n));
  return bytes;
}

char *t_to_hex(const void *bytes, gsize n)
{
  char *text = g_malloc(2 * n + 1);
  qv_hex_encode(bytes, n, text);
  return text;
}

QvKey *t_key(guint8 fill)
{
  guint8 bytes[32];
  memset(bytes, fill, sizeof bytes);
  return qv_key_new(bytes, sizeof bytes);
}

void t_assert_error(GError **error, int code, const char *part)
{
  g_assert_error(*error, QV_ERROR, code);
  if (strstr((*error)->message, part) == NULL)
    g_error("\"%s\" does not say \"%s\"", (*error)->message, part);
  g_clear_error(error);
}
