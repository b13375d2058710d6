/* SPDX-License-Identifier: Apache-2.0 */
/* The bundle's text against the schema of the OCI runtime specification. The
 * checker knows the words of draft 4 that this schema uses and stops at any other
 * word; it is itself tested by the good and bad examples that come with the schema. */
#include <jansson.h>
#include <locale.h>
#include <string.h>

#include "sandbox/container_spec.h"

static char *schema_dir;

static json_t *load(const char *file)
{
  static GHashTable *loaded;
  if (loaded == NULL)
    loaded = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  json_t *root = g_hash_table_lookup(loaded, file);
  if (root != NULL)
    return root;
  g_autofree char *path = g_build_filename(schema_dir, file, NULL);
  json_error_t why;
  root = json_load_file(path, JSON_DECODE_INT_AS_REAL, &why); /* it has 2^64 - 1 */
  if (root == NULL)
    g_error("%s: %s", path, why.text);
  g_hash_table_insert(loaded, g_strdup(file), root);
  return root;
}

static gboolean check(json_t *value, json_t *schema, const char *file);

static gboolean check_ref(json_t *value, const char *ref, const char *file)
{
  g_auto(GStrv) halves = g_strsplit(ref, "#", 2);
  const char *in = halves[0][0] != '\0' ? halves[0] : file;
  g_auto(GStrv) parts = g_strsplit(halves[1], "/", -1);
  json_t *at = load(in);
  for (guint i = 0; parts[i] != NULL; i++)
    if (parts[i][0] != '\0')
      at = json_object_get(at, parts[i]);
  if (at == NULL)
    g_error("no %s", ref);
  return check(value, at, in);
}

static gboolean is_type(json_t *value, const char *type)
{
  static const char *const NAMES[] = {"object", "array", "string", "integer", "number", "boolean", "null"};
  gboolean is[] = {json_is_object(value), json_is_array(value), json_is_string(value), json_is_integer(value),
                   json_is_number(value), json_is_boolean(value), json_is_null(value)};
  for (gsize i = 0; i < G_N_ELEMENTS(NAMES); i++)
    if (strcmp(NAMES[i], type) == 0)
      return is[i];
  g_error("type %s", type);
}

static gboolean check_type(json_t *value, json_t *type)
{
  if (json_is_string(type))
    return is_type(value, json_string_value(type));
  for (gsize i = 0; i < json_array_size(type); i++)
    if (is_type(value, json_string_value(json_array_get(type, i))))
      return TRUE;
  return FALSE;
}

static gboolean check_enum(json_t *value, json_t *list)
{
  for (gsize i = 0; i < json_array_size(list); i++)
    if (json_equal(value, json_array_get(list, i)))
      return TRUE;
  return FALSE;
}

static gboolean check_members(json_t *value, json_t *schema, const char *file)
{
  json_t *known = json_object_get(schema, "properties"), *patterns = json_object_get(schema, "patternProperties");
  json_t *others = json_object_get(schema, "additionalProperties"), *member, *pattern_schema;
  const char *name, *pattern;
  json_object_foreach(value, name, member)
  {
    gboolean named = json_object_get(known, name) != NULL;
    if (named && !check(member, json_object_get(known, name), file))
      return FALSE;
    json_object_foreach(patterns, pattern, pattern_schema)
      if (g_regex_match_simple(pattern, name, 0, 0)) {
        named = TRUE;
        if (!check(member, pattern_schema, file))
          return FALSE;
      }
    if (!named && (json_is_false(others) || (json_is_object(others) && !check(member, others, file))))
      return FALSE;
  }
  return TRUE;
}

static gboolean check_required(json_t *value, json_t *list)
{
  for (gsize i = 0; i < json_array_size(list); i++)
    if (json_object_get(value, json_string_value(json_array_get(list, i))) == NULL)
      return FALSE;
  return TRUE;
}

static gboolean check_items(json_t *value, json_t *schema, const char *file)
{
  for (gsize i = 0; i < json_array_size(value); i++)
    if (!check(json_array_get(value, i), schema, file))
      return FALSE;
  return TRUE;
}

static guint matching(json_t *value, json_t *list, const char *file)
{
  guint n = 0;
  for (gsize i = 0; i < json_array_size(list); i++)
    n += check(value, json_array_get(list, i), file) ? 1 : 0;
  return n;
}

static gboolean check_word(json_t *value, json_t *schema, const char *word, json_t *rule, const char *file)
{
  static const char *const SILENT[] = {"description", "$schema", "id", "definitions", "format", "patternProperties",
                                       "additionalProperties"};
  for (gsize i = 0; i < G_N_ELEMENTS(SILENT); i++)
    if (strcmp(word, SILENT[i]) == 0)
      return strcmp(word, "additionalProperties") != 0 || !json_is_object(value) || check_members(value, schema, file);
  if (strcmp(word, "$ref") == 0)
    return check_ref(value, json_string_value(rule), file);
  if (strcmp(word, "type") == 0)
    return check_type(value, rule);
  if (strcmp(word, "enum") == 0)
    return check_enum(value, rule);
  if (strcmp(word, "properties") == 0)
    return !json_is_object(value) || check_members(value, schema, file);
  if (strcmp(word, "required") == 0)
    return !json_is_object(value) || check_required(value, rule);
  if (strcmp(word, "items") == 0)
    return !json_is_array(value) || check_items(value, rule, file);
  if (strcmp(word, "minItems") == 0)
    return !json_is_array(value) || json_array_size(value) >= (gsize)json_number_value(rule);
  if (strcmp(word, "maxItems") == 0)
    return !json_is_array(value) || json_array_size(value) <= (gsize)json_number_value(rule);
  if (strcmp(word, "pattern") == 0)
    return !json_is_string(value) || g_regex_match_simple(json_string_value(rule), json_string_value(value), 0, 0);
  if (strcmp(word, "minimum") == 0)
    return !json_is_number(value) || json_number_value(value) >= json_number_value(rule);
  if (strcmp(word, "maximum") == 0)
    return !json_is_number(value) || json_number_value(value) <= json_number_value(rule);
  if (strcmp(word, "allOf") == 0)
    return matching(value, rule, file) == json_array_size(rule);
  if (strcmp(word, "anyOf") == 0)
    return matching(value, rule, file) > 0;
  if (strcmp(word, "oneOf") == 0)
    return matching(value, rule, file) == 1;
  g_error("the schema has the word %s, which this checker does not know", word);
}

static gboolean check(json_t *value, json_t *schema, const char *file)
{
  const char *word;
  json_t *rule;
  json_object_foreach(schema, word, rule)
    if (!check_word(value, schema, word, rule, file))
      return FALSE;
  return TRUE;
}

static gboolean is_config(const char *text)
{
  json_t *value = json_loads(text, 0, NULL);
  gboolean ok = value != NULL && check(value, load("config-schema.json"), "config-schema.json");
  json_decref(value);
  return ok;
}

static gboolean absent(void)
{
  if (g_file_test(schema_dir, G_FILE_TEST_IS_DIR))
    return FALSE;
  g_test_skip("the folder of published vectors is not beside the sources");
  return TRUE;
}

static guint check_examples(const char *kind, gboolean good)
{
  g_autofree char *path = g_build_filename(schema_dir, "test/config", kind, NULL);
  g_autoptr(GDir) dir = g_dir_open(path, 0, NULL);
  guint n = 0;
  g_assert_nonnull(dir);
  for (const char *name = g_dir_read_name(dir); name != NULL; name = g_dir_read_name(dir)) {
    g_autofree char *file = g_build_filename(path, name, NULL);
    g_autofree char *text = NULL;
    g_assert_true(g_file_get_contents(file, &text, NULL, NULL));
    g_assert_cmpint(is_config(text), ==, good);
    n++;
  }
  return n;
}

static void test_examples(void)
{
  if (absent())
    return;
  g_assert_cmpuint(check_examples("good", TRUE), ==, 3);
  g_assert_cmpuint(check_examples("bad", FALSE), ==, 2);
  g_test_message("oci: 3 good and 2 bad configurations; those of states (2) and features (2) are not asked: we write neither");
}

static char *ours(gboolean egress)
{
  QvSandboxRequest request = {.sandbox_id = "0f0e0d0c-0b0a-4908-8706-050403020100", .rootfs_file = "/x.erofs",
                              .egress_socket = egress ? "/x.sock" : NULL, .limits = {2048, 1024, 2000, 512}};
  g_autoptr(QvContainerSpec) spec = qv_container_spec_plan(&request, NULL);
  return qv_container_spec_format(spec);
}

static void test_ours(void)
{
  if (absent())
    return;
  for (guint egress = 0; egress < 2; egress++) {
    g_autofree char *text = ours(egress == 1);
    g_assert_true(is_config(text));
  }
}

/* Ours with one fault each: the checker sees into every part that we write. */
static void test_ours_spoilt(void)
{
  static const char *const FAULTS[][2] = {
    {"\"noNewPrivileges\": true", "\"noNewPrivileges\": 1"}, {"\"uid\": 65532", "\"uid\": -1"},
    {"\"RLIMIT_NPROC\"", "\"NPROC\""}, {"\"cwd\": \"/\"", "\"cwd\": 7"}, {"\"ociVersion\"", "\"version\""},
    {"\"path\": \"rootfs\"", "\"path\": false"}, {"\"type\": \"pid\"", "\"type\": \"pids\""},
    {"\"destination\": \"/proc\"", "\"dest\": \"/proc\""}, {"\"ambient\": []", "\"ambient\": \"\""},
    {"\"/proc/acpi\"", "1"},
  };
  if (absent())
    return;
  g_autofree char *text = ours(TRUE);
  for (gsize i = 0; i < G_N_ELEMENTS(FAULTS); i++) {
    g_auto(GStrv) halves = g_strsplit(text, FAULTS[i][0], 2);
    g_assert_nonnull(halves[1]);
    g_autofree char *spoilt = g_strconcat(halves[0], FAULTS[i][1], halves[1], NULL);
    if (is_config(spoilt))
      g_error("accepted with %s", FAULTS[i][1]);
  }
}

int main(int argc, char **argv)
{
  setlocale(LC_ALL, "");
  g_test_init(&argc, &argv, NULL);
  schema_dir = g_build_filename(g_getenv("QUAVON_VECTORS"), "oci", NULL);
  g_test_add_func("/sandbox/schema/examples", test_examples);
  g_test_add_func("/sandbox/schema/ours", test_ours);
  g_test_add_func("/sandbox/schema/ours-spoilt", test_ours_spoilt);
  return g_test_run();
}
