/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine is asked for by us, as a relay hears it, against the published descriptions of its API (the shared suite
 * `docker`): of the oldest engine that counts, and of a new one. */
#include <jansson.h>
#include <string.h>

#include "fixture.h"
#include "support/proxy.h"

enum { DEPTH_MAX = 16 };

static json_t *resolve(json_t *api, json_t *schema)
{
  const char *ref = json_string_value(json_object_get(schema, "$ref"));
  if (ref == NULL)
    return schema;
  g_assert_true(g_str_has_prefix(ref, "#/definitions/"));
  json_t *named = json_object_get(json_object_get(api, "definitions"), ref + strlen("#/definitions/"));
  g_assert_nonnull(named);
  return resolve(api, named);
}

/* The schema of member KEY of an object of SCHEMA; NULL: it has none. An object whose members have no names lets any be. */
static json_t *member_of(json_t *api, json_t *schema, const char *key)
{
  schema = resolve(api, schema);
  json_t *found = json_object_get(json_object_get(schema, "properties"), key), *part;
  size_t i;
  json_array_foreach(json_object_get(schema, "allOf"), i, part)
    found = found != NULL ? found : member_of(api, part, key);
  json_t *others = json_object_get(schema, "additionalProperties");
  return found != NULL || !json_is_object(others) ? found : others;
}

static void check_required(json_t *api, json_t *schema, const json_t *value, const char *where)
{
  schema = resolve(api, schema);
  json_t *part;
  size_t i;
  json_array_foreach(json_object_get(schema, "required"), i, part)
    if (json_object_get(value, json_string_value(part)) == NULL)
      g_error("%s: %s is missing", where, json_string_value(part));
  json_array_foreach(json_object_get(schema, "allOf"), i, part)
    check_required(api, part, value, where);
}

static void check_value(json_t *api, json_t *schema, json_t *value, const char *where, guint depth)
{
  const char *key;
  json_t *member, *item;
  size_t i;
  g_assert_cmpuint(depth, <, DEPTH_MAX);
  json_object_foreach(value, key, member)
  {
    g_autofree char *here = g_strconcat(where, ".", key, NULL);
    json_t *of = member_of(api, schema, key);
    if (of == NULL)
      g_error("%s is in no description", here);
    check_value(api, of, member, here, depth + 1);
  }
  if (json_is_object(value))
    check_required(api, schema, value, where);
  json_t *items = json_object_get(resolve(api, schema), "items");
  json_array_foreach(value, i, item)
    check_value(api, items, item, where, depth + 1);
}

/* "/containers/{id}/json" for "/containers/0123/json"; what is spelt out goes before what has a name. */
static const char *template_of(json_t *api, const char *path)
{
  const char *template, *best = NULL;
  json_t *unused;
  g_auto(GStrv) parts = g_strsplit(path, "/", -1);
  json_object_foreach(json_object_get(api, "paths"), template, unused)
  {
    g_auto(GStrv) named = g_strsplit(template, "/", -1);
    gsize i = 0;
    while (named[i] != NULL && parts[i] != NULL && (*named[i] == '{' || strcmp(named[i], parts[i]) == 0))
      i++;
    if (named[i] == NULL && parts[i] == NULL && (best == NULL || strchr(template, '{') == NULL))
      best = template;
  }
  return best;
}

static json_t *parameter_of(json_t *api, json_t *operation, const char *in, const char *name)
{
  json_t *parameter;
  size_t i;
  json_array_foreach(json_object_get(operation, "parameters"), i, parameter)
  {
    json_t *one = resolve(api, parameter);
    if (strcmp(json_string_value(json_object_get(one, "in")), in) == 0 &&
        (name == NULL || strcmp(json_string_value(json_object_get(one, "name")), name) == 0))
      return one;
  }
  return NULL;
}

/* "/v1.43/a?b=c" without the version. */
static void check_request(json_t *api, const char *method, const char *target, const char *body, gsize body_n)
{
  const char *from = g_str_has_prefix(target, "/v1.") ? strchr(target + 1, '/') : target;
  g_auto(GStrv) halves = g_strsplit(from, "?", 2);
  g_auto(GStrv) query = g_strsplit(halves[1] != NULL ? halves[1] : "", "&", -1);
  const char *template = template_of(api, halves[0]);
  if (template == NULL)
    g_error("%s is in no description", halves[0]);
  g_autofree char *verb = g_ascii_strdown(method, -1);
  json_t *operation = json_object_get(json_object_get(json_object_get(api, "paths"), template), verb);
  if (operation == NULL)
    g_error("%s %s is in no description", method, template);
  for (char **one = query; *one != NULL && **one != '\0'; one++) {
    g_autofree char *name = g_strndup(*one, strcspn(*one, "="));
    if (parameter_of(api, operation, "query", name) == NULL)
      g_error("%s %s: %s is in no description", method, template, name);
  }
  json_t *taken = parameter_of(api, operation, "body", NULL);
  if (body_n == 0) {
    g_assert_false(taken != NULL && json_is_true(json_object_get(taken, "required")));
    return;
  }
  json_t *value = json_loadb(body, body_n, JSON_REJECT_DUPLICATES, NULL);
  g_assert_nonnull(value);
  g_assert_nonnull(taken);
  check_value(api, json_object_get(taken, "schema"), value, template, 0);
  json_decref(value);
}

/* All requests of a connection, up to one that makes something else of it. KINDS: a set of what was asked. */
static guint check_connection(json_t *api, GBytes *heard, GHashTable *kinds)
{
  gsize n;
  const char *at = g_bytes_get_data(heard, &n), *end;
  guint requests = 0;
  while (n > 0 && (end = g_strstr_len(at, (gssize)n, "\r\n\r\n")) != NULL) {
    gsize head_n = (gsize)(end - at) + 4;
    g_autofree char *head = g_strndup(at, head_n);
    g_auto(GStrv) words = g_strsplit(head, " ", 3);
    const char *length = strstr(head, "\r\nContent-Length: ");
    gsize body_n = length != NULL ? g_ascii_strtoull(length + strlen("\r\nContent-Length: "), NULL, 10) : 0;
    g_assert_cmpuint(head_n + body_n, <=, n);
    check_request(api, words[0], words[1], at + head_n, body_n);
    requests++;
    const char *from = g_str_has_prefix(words[1], "/v1.") ? strchr(words[1] + 1, '/') : words[1];
    g_autofree char *path = g_strndup(from, strcspn(from, "?"));
    g_hash_table_add(kinds, g_strdup_printf("%s %s", words[0], template_of(api, path)));
    if (strstr(head, "\r\nUpgrade: ") != NULL)
      break;
    at += head_n + body_n;
    n -= head_n + body_n;
  }
  return requests;
}

/* A backend's life: it is opened and tried, a guest starts, is asked about and killed, a sweep looks. */
static GPtrArray *live(Fixture *f)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvTestProxy) proxy = qv_test_proxy_start(f->dir, qv_test_dockerd_socket(backend_dockerd()));
  qv_test_proxy_listen(proxy);
  QvBackendOptions options = fixture_options(f, "test-runner");
  options.docker_socket = qv_test_proxy_socket(proxy);
  QvBackend *backend = qv_backend_open(row->name, &options, &error);
  g_assert_no_error(error);
  g_assert_true(check_with(backend, f->digest, NULL, &error));
  g_assert_no_error(error);
  Guest *guest = guest_start(f, backend, &SMALL, NULL);
  guest_expect(guest, "echo hello", "echo hello");
  QvSandboxUsage usage;
  qv_sandbox_usage(guest->sandbox, &usage);
  guest_free(guest);
  sweep_ok(backend, NULL, 0, 0);
  assert_no_leftovers(backend);
  GPtrArray *heard = qv_test_proxy_heard(proxy);
  qv_backend_free(backend);
  return heard;
}

static void test_described(Fixture *f, gconstpointer data)
{
  static const char *const FILES[] = {"engine-api-v1.43.json", "engine-api-latest.json"};
  static const char *const ASKED[] = {"POST /containers/create", "POST /containers/{id}/attach", "POST /containers/{id}/start",
                                      "POST /containers/{id}/wait", "GET /containers/{id}/json", "DELETE /containers/{id}",
                                      "GET /containers/json", "GET /events", "GET /info",
                                      "GET /images/{name}/json"};
  /* What this life does not ask: where the engine's control groups cannot be read, and of a network. */
  static const char *const SELDOM[][3] = {{"GET", "/containers/0123/stats?stream=false&one-shot=true", ""},
                                          {"GET", "/networks/quavon-egress", ""},
                                          {"POST", "/networks/quavon-egress/disconnect", "{\"Container\":\"0123\",\"Force\":true}"}};
  g_autofree char *folder = g_build_filename(g_getenv("QUAVON_VECTORS"), "docker", NULL);
  if (!g_file_test(folder, G_FILE_TEST_IS_DIR)) {
    g_test_skip("the folder of published vectors is not beside the sources");
    return;
  }
  g_autoptr(GPtrArray) heard = live(f);
  for (gsize i = 0; i < G_N_ELEMENTS(FILES); i++) {
    g_autofree char *path = g_build_filename(folder, FILES[i], NULL);
    g_autoptr(GHashTable) kinds = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    json_t *api = json_load_file(path, 0, NULL);
    guint requests = 0;
    g_assert_nonnull(api);
    for (guint k = 0; k < heard->len; k++)
      requests += check_connection(api, heard->pdata[k], kinds);
    g_test_message("docker: %u requests of %u kinds, all in %s, which has %zu paths", requests, g_hash_table_size(kinds), FILES[i],
                   json_object_size(json_object_get(api, "paths")));
    for (gsize k = 0; k < G_N_ELEMENTS(SELDOM); k++)
      check_request(api, SELDOM[k][0], SELDOM[k][1], SELDOM[k][2], strlen(SELDOM[k][2]));
    for (gsize k = 0; k < G_N_ELEMENTS(ASKED); k++)
      if (!g_hash_table_contains(kinds, ASKED[k]))
        g_error("%s was not heard", ASKED[k]);
    json_decref(api);
  }
}

static const FixtureCase CASES[] = {
  {ON_DOCKER, "described", test_described},
};

int main(int argc, char **argv)
{
  return fixture_main(argc, argv, "api", CASES, G_N_ELEMENTS(CASES));
}
