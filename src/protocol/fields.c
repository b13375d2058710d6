/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the grammar of the small texts of section 0, and typed reads. */
#include "protocol/fields.h"

#include <string.h>

#include "base/base64.h"
#include "base/error.h"
#include "base/hex.h"
#include "base/limits.h"
#include "format/tar.h"

gboolean qv_identifier_valid(const char *text)
{
  gsize n = strlen(text);
  if (n == 0 || n > QV_IDENTIFIER_BYTES_MAX || !g_ascii_isalnum(text[0]))
    return FALSE;
  for (gsize i = 1; i < n; i++)
    if (!g_ascii_isalnum(text[i]) && strchr("._-", text[i]) == NULL)
      return FALSE;
  return TRUE;
}

gboolean qv_job_id_valid(const char *text)
{
  if (strlen(text) != QV_JOB_ID_BYTES)
    return FALSE;
  for (gsize i = 0; i < QV_JOB_ID_BYTES; i++) {
    gboolean dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : !qv_hex_valid(text + i, 1))
      return FALSE;
  }
  return TRUE;
}

gboolean qv_sha256_hex_valid(const char *text)
{
  return strlen(text) == 64 && qv_hex_valid(text, 64);
}

gboolean qv_key_id_valid(const char *text)
{
  return strlen(text) == QV_KEY_ID_HEX_N && qv_hex_valid(text, QV_KEY_ID_HEX_N);
}

gboolean qv_relative_path_valid(const char *text)
{
  return qv_tar_path_check(text, strlen(text), false) == QV_TAR_OK;
}

/* A decimal of at most MAX without leading zeros, up to END. */
static gboolean decimal_valid(const char *text, const char *end, guint max)
{
  guint value = 0;
  if (text == end || end - text > 5 || (text[0] == '0' && end - text > 1))
    return FALSE;
  for (; text < end; text++) {
    if (!g_ascii_isdigit(*text))
      return FALSE;
    value = value * 10 + (guint)(*text - '0');
  }
  return value <= max;
}

/* One label of a host name (RFC 1123): letters, digits, inner hyphens. */
static gboolean label_valid(const char *text, gsize n)
{
  if (n == 0 || n > 63 || text[0] == '-' || text[n - 1] == '-')
    return FALSE;
  for (gsize i = 0; i < n; i++)
    if (!g_ascii_islower(text[i]) && !g_ascii_isdigit(text[i]) && text[i] != '-')
      return FALSE;
  return TRUE;
}

/* Resolvers read a name whose last label is a number, decimal or 0x, as an address. */
static gboolean is_number(const char *label, gsize n)
{
  if (n >= 2 && label[0] == '0' && label[1] == 'x')
    return strspn(label + 2, "0123456789abcdef") >= n - 2;
  return strspn(label, "0123456789") >= n;
}

gboolean qv_host_port_valid(const char *text)
{
  const char *colon = strchr(text, ':');
  if (colon == NULL || colon - text > 253 || strcmp(colon, ":0") == 0)
    return FALSE;
  if (!decimal_valid(colon + 1, text + strlen(text), 65535))
    return FALSE;
  const char *label = text;
  for (const char *at = text; at <= colon; at++) {
    if (*at != '.' && at != colon)
      continue;
    if (!label_valid(label, (gsize)(at - label)))
      return FALSE;
    if (at == colon && is_number(label, (gsize)(at - label)))
      return FALSE;
    label = at + 1;
  }
  return TRUE;
}

gboolean qv_ipv4_valid(const char *text)
{
  for (int part = 0; part < 4; part++) {
    const char *end = text + strcspn(text, ".");
    if (!decimal_valid(text, end, 255) || (*end == '.') != (part < 3))
      return FALSE;
    text = end + 1;
  }
  return TRUE;
}

gboolean qv_fields_fail(GError **error, const char *path, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  g_autofree char *text = g_strdup_vprintf(format, args);
  va_end(args);
  g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "%s%s%s", path, path[0] != '\0' ? ": " : "", text);
  return FALSE;
}

/* "path.name: text". */
static gboolean member_fail(GError **error, const char *path, const char *name, const char *text)
{
  g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "%s%s%s: %s", path, path[0] != '\0' ? "." : "", name, text);
  return FALSE;
}

gboolean qv_fields_shape(const json_t *object, const char *path, const QvJsonMember *table, gsize table_n,
                         GError **error)
{
  const char *name = "";
  if (qv_json_shape(object, table, table_n, &name))
    return TRUE;
  if (name[0] == '\0')
    return qv_fields_fail(error, path, "%s", json_is_object(object) ? "has a member that is not known" : "is no object");
  return member_fail(error, path, name, "is missing or of the wrong type");
}

gboolean qv_field_integer(const json_t *object, const char *path, const char *name, gint64 min, gint64 max, gint64 *out,
                          GError **error)
{
  gint64 value = json_integer_value(json_object_get(object, name));
  if (value < min || value > max) {
    g_autofree char *text = g_strdup_printf("is not within %" G_GINT64_FORMAT " to %" G_GINT64_FORMAT, min, max);
    return member_fail(error, path, name, text);
  }
  *out = value;
  return TRUE;
}

static const char *text_of(const json_t *text, QvTextRule rule)
{
  const char *value = json_string_value(text);
  if (value == NULL || strlen(value) != json_string_length(text) || (rule != NULL && !rule(value)))
    return NULL;
  return value;
}

char *qv_field_text(const json_t *object, const char *path, const char *name, QvTextRule rule, GError **error)
{
  const char *value = text_of(json_object_get(object, name), rule);
  if (value == NULL) {
    member_fail(error, path, name, "is not of its form");
    return NULL;
  }
  return g_strdup(value);
}

gboolean qv_field_text_into(const json_t *object, const char *path, const char *name, QvTextRule rule, char *out,
                            gsize cap, GError **error)
{
  const char *value = text_of(json_object_get(object, name), rule);
  if (value == NULL || strlen(value) >= cap)
    return member_fail(error, path, name, "is not of its form");
  memcpy(out, value, strlen(value) + 1);
  return TRUE;
}

gboolean qv_field_is(const json_t *object, const char *path, const char *name, const char *text, GError **error)
{
  const char *value = text_of(json_object_get(object, name), NULL);
  if (value != NULL && strcmp(value, text) == 0)
    return TRUE;
  g_autofree char *fault = g_strdup_printf("is not \"%s\"", text);
  return member_fail(error, path, name, fault);
}

gboolean qv_field_bool(const json_t *object, const char *name)
{
  return json_is_true(json_object_get(object, name));
}

gboolean qv_field_is_null(const json_t *object, const char *name)
{
  return json_is_null(json_object_get(object, name));
}

gboolean qv_field_bytes(const json_t *object, const char *path, const char *name, guint8 *out, gsize n, GError **error)
{
  const char *value = text_of(json_object_get(object, name), NULL);
  gsize got = 0;
  g_autofree guint8 *bytes = g_malloc(n);
  if (value == NULL || !qv_base64_decode(value, strlen(value), bytes, n, &got) || got != n)
    return member_fail(error, path, name, "is not canonical base64 of its length");
  memcpy(out, bytes, n);
  return TRUE;
}

char **qv_field_texts(const json_t *object, const char *path, const char *name, gsize min, gsize max, QvTextRule rule,
                      GError **error)
{
  const json_t *array = json_object_get(object, name);
  gsize n = json_array_size(array);
  if (n < min || n > max) {
    g_autofree char *text = g_strdup_printf("has %zu entries, not %zu to %zu", n, min, max);
    member_fail(error, path, name, text);
    return NULL;
  }
  g_auto(GStrv) texts = g_new0(char *, n + 1);
  for (gsize i = 0; i < n; i++) {
    const char *value = text_of(json_array_get(array, i), rule);
    if (value == NULL) {
      g_autofree char *text = g_strdup_printf("entry %zu is not of its form", i);
      member_fail(error, path, name, text);
      return NULL;
    }
    texts[i] = g_strdup(value);
  }
  return g_steal_pointer(&texts);
}

json_t *qv_text_or_null(const char *text)
{
  json_t *json = text != NULL ? json_string(text) : NULL;
  return json != NULL ? json : json_null();
}

json_t *qv_texts_build(char *const *texts)
{
  json_t *array = json_array();
  for (gsize i = 0; texts != NULL && texts[i] != NULL; i++)
    json_array_append_new(array, qv_text_or_null(texts[i]));
  return array;
}

