/* SPDX-License-Identifier: Apache-2.0 */
#include "schema.h"

#include <glib.h>
#include <string.h>

static gboolean is_type(const json_t *value, const char *type)
{
  return (strcmp(type, "object") == 0 && json_is_object(value)) || (strcmp(type, "array") == 0 && json_is_array(value)) ||
         (strcmp(type, "string") == 0 && json_is_string(value)) || (strcmp(type, "integer") == 0 && json_is_integer(value)) ||
         (strcmp(type, "null") == 0 && json_is_null(value));
}

static gboolean holds_any(const json_t *value, const json_t *list, gboolean types)
{
  for (size_t i = 0; i < json_array_size(list); i++) {
    json_t *item = json_array_get(list, i);
    if (types ? is_type(value, json_string_value(item)) : json_equal(value, item))
      return TRUE;
  }
  return FALSE;
}

gboolean schema_holds(json_t *value, json_t *schema)
{
  const char *word, *name;
  json_t *rule, *member;
  json_t *properties = json_object_get(schema, "properties");
  json_object_foreach(schema, word, rule) {
    if (strcmp(word, "type") == 0) {
      if (json_is_string(rule) ? !is_type(value, json_string_value(rule)) : !holds_any(value, rule, TRUE))
        return FALSE;
    } else if (strcmp(word, "enum") == 0) {
      if (!holds_any(value, rule, FALSE))
        return FALSE;
    } else if (strcmp(word, "required") == 0) {
      for (size_t i = 0; i < json_array_size(rule); i++)
        if (json_object_get(value, json_string_value(json_array_get(rule, i))) == NULL)
          return FALSE;
    } else if (strcmp(word, "additionalProperties") == 0) {
      g_assert_true(json_is_false(rule));
      json_object_foreach(value, name, member) {
        if (json_object_get(properties, name) == NULL)
          return FALSE;
      }
    } else if (strcmp(word, "properties") == 0) {
      json_object_foreach(value, name, member) {
        if (json_object_get(rule, name) != NULL && !schema_holds(member, json_object_get(rule, name)))
          return FALSE;
      }
    } else if (strcmp(word, "items") == 0) {
      for (size_t i = 0; i < json_array_size(value); i++)
        if (!schema_holds(json_array_get(value, i), rule))
          return FALSE;
    } else if (strcmp(word, "$schema") != 0 && strcmp(word, "title") != 0 && strcmp(word, "description") != 0) {
      g_error("the test does not know the schema's word %s", word);
    }
  }
  return TRUE;
}
