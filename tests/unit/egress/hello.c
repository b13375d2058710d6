/* SPDX-License-Identifier: Apache-2.0 */
#include "hello.h"

#include <string.h>

static void put(GByteArray *to, gsize width, gsize value)
{
  for (gsize i = width; i-- > 0;)
    g_byte_array_append(to, (const guint8[1]){(guint8)(value >> (8 * i))}, 1);
}

void t_extension(GByteArray *extensions, guint type, const void *bytes, gsize n)
{
  put(extensions, 2, type);
  put(extensions, 2, n);
  g_byte_array_append(extensions, bytes, (guint)n);
}

void t_server_name(GByteArray *extensions, const char *name, gsize n)
{
  g_autoptr(GByteArray) list = g_byte_array_new();
  put(list, 2, n + 3);
  put(list, 1, 0);
  put(list, 2, n);
  g_byte_array_append(list, (const guint8 *)name, (guint)n);
  t_extension(extensions, 0, list->data, list->len);
}

GByteArray *t_hello_with(const GByteArray *extensions)
{
  GByteArray *body = g_byte_array_new();
  put(body, 2, 0x0303);
  for (guint i = 0; i < 32; i++)
    put(body, 1, i);
  put(body, 1, 0);
  put(body, 2, 4);
  put(body, 4, 0x13011302);
  put(body, 2, 0x0100);
  if (extensions != NULL) {
    put(body, 2, extensions->len);
    g_byte_array_append(body, extensions->data, extensions->len);
  }
  GByteArray *record = g_byte_array_new();
  put(record, 3, 0x160301);
  put(record, 2, body->len + 4);
  put(record, 1, 1);
  put(record, 3, body->len);
  g_byte_array_append(record, body->data, body->len);
  g_byte_array_unref(body);
  return record;
}

GByteArray *t_hello(const char *name)
{
  g_autoptr(GByteArray) extensions = g_byte_array_new();
  t_extension(extensions, 43, "\x02\x03\x04", 3);
  if (name != NULL)
    t_server_name(extensions, name, strlen(name));
  t_extension(extensions, 23, "", 0);
  return t_hello_with(extensions);
}

GByteArray *t_hello_cut(const GByteArray *hello, gsize n)
{
  GByteArray *cut = g_byte_array_new();
  for (gsize i = 5; i < hello->len; i += n) {
    gsize part = MIN(n, hello->len - i);
    put(cut, 3, 0x160301);
    put(cut, 2, part);
    g_byte_array_append(cut, hello->data + i, (guint)part);
  }
  return cut;
}
