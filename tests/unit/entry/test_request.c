/* SPDX-License-Identifier: Apache-2.0 */
/* Each row changes one member of a good request, and says whether it is still good. */
#include <glib.h>
#include <jansson.h>
#include <string.h>

#include "entry/request.h"

static json_t *good_request(void)
{
  static const char text[] =
    "{\"v\":1,\"streamKey\":\"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\",\"base\":{\"size\":10},"
    "\"overlay\":{\"size\":20},\"deletes\":[\"a/b\",\"c\"],"
    "\"setup\":{\"name\":\"prepare\",\"argv\":[\"npm\",\"ci\"]},"
    "\"proxy\":{\"token\":\"abc-_9\",\"address\":\"10.0.0.1:3128\",\"socket\":null,\"caPem\":\"pem\"},"
    "\"run\":[{\"name\":\"one\",\"argv\":[\"make\",\"\"],\"cwd\":\"sub\",\"timeoutMs\":5000,"
    "\"env\":{\"A\":\"1\",\"_b\":\"\"},\"continueOnFailure\":true},{\"name\":\"two\",\"argv\":[\"x\"]}],"
    "\"artefacts\":[\"**/*.o\"],\"limits\":{\"wallMs\":60000,\"memoryMiB\":512,\"milliCpus\":1500,\"pids\":64,"
    "\"workMiB\":64,\"logBytes\":1000,\"artefactBytes\":2000,\"artefactCount\":3}}";
  json_t *json = json_loads(text, 0, NULL);
  g_assert_nonnull(json);
  return json;
}

static QvEntryRequest *parse(const json_t *json, const char **why)
{
  char *line = json_dumps(json, JSON_COMPACT);
  QvEntryRequest *request = qv_entry_request_parse(line, strlen(line), why);
  free(line);
  return request;
}

static void test_good(void)
{
  const char *why;
  json_t *json = good_request();
  QvEntryRequest *request = parse(json, &why);
  json_decref(json);
  g_assert_nonnull(request);
  for (guint i = 0; i < 32; i++)
    g_assert_cmpuint(request->stream_key[i], ==, i);
  g_assert_cmpuint(request->base_bytes, ==, 10);
  g_assert_true(request->has_overlay);
  g_assert_cmpuint(request->overlay_bytes, ==, 20);
  g_assert_cmpuint(request->deletes_n, ==, 2);
  g_assert_cmpstr(request->deletes[0], ==, "a/b");
  g_assert_cmpstr(request->setup->name, ==, "prepare");
  g_assert_cmpint(request->setup->timeout_ms, ==, 60000);
  g_assert_null(request->setup->cwd);
  g_assert_null(request->setup->env[0]);
  g_assert_cmpstr(request->proxy->token, ==, "abc-_9");
  g_assert_cmpstr(request->proxy->address, ==, "10.0.0.1:3128");
  g_assert_null(request->proxy->socket);
  g_assert_cmpuint(request->run_n, ==, 2);
  g_assert_cmpstr(request->run[0].argv[0], ==, "make");
  g_assert_cmpstr(request->run[0].argv[1], ==, "");
  g_assert_null(request->run[0].argv[2]);
  g_assert_cmpstr(request->run[0].cwd, ==, "sub");
  g_assert_cmpint(request->run[0].timeout_ms, ==, 5000);
  g_assert_cmpstr(request->run[0].env[0], ==, "A=1");
  g_assert_cmpstr(request->run[0].env[1], ==, "_b=");
  g_assert_true(request->run[0].continue_on_failure);
  g_assert_false(request->run[1].continue_on_failure);
  g_assert_cmpstr(request->artefacts[0], ==, "**/*.o");
  g_assert_cmpint(request->milli_cpus, ==, 1500);
  g_assert_cmpint(request->log_bytes, ==, 1000);
  g_assert_cmpint(request->artefact_bytes, ==, 2000);
  g_assert_cmpint(request->artefact_count, ==, 3);
  g_assert_false(request->live);
  qv_entry_request_wipe_proxy(request);
  g_assert_null(request->proxy);
  qv_entry_request_free(request);
  qv_entry_request_free(NULL);
}

/* The member at PATH ("run.0.name"); a last part that is absent is added. NULL value: removed. */
static void set_at(json_t *json, const char *path, json_t *value)
{
  g_auto(GStrv) parts = g_strsplit(path, ".", -1);
  guint n = g_strv_length(parts);
  for (guint i = 0; i + 1 < n; i++)
    json = json_is_array(json) ? json_array_get(json, (size_t)atoi(parts[i])) : json_object_get(json, parts[i]);
  g_assert_nonnull(json);
  const char *last = parts[n - 1];
  if (json_is_array(json))
    g_assert_cmpint(json_array_set_new(json, (size_t)atoi(last), value), ==, 0);
  else if (value)
    g_assert_cmpint(json_object_set_new(json, last, value), ==, 0);
  else
    g_assert_cmpint(json_object_del(json, last), ==, 0);
}

typedef struct {
  const char *path, *value; /* JSON; NULL: removed */
  gboolean good;
} Row;

static const Row rows[] = {
  {"v", "2"}, {"v", "\"1\""}, {"v", NULL}, {"more", "1"}, {"live", "true", TRUE}, {"live", "1"}, {"live", "null"},
  {"streamKey", NULL}, {"streamKey", "\"\""}, {"streamKey", "\"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg==\""},
  {"streamKey", "\"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9=\""}, {"base", "null"}, {"base.size", "-1"},
  {"base.size", "1.0"}, {"base.size", "9007199254740992"}, {"base.sha256", "\"x\""}, {"base.size", "0", TRUE},
  {"overlay", "null", TRUE}, {"overlay", NULL}, {"overlay.size", NULL}, {"overlay", "{}"},
  {"deletes", "[]", TRUE}, {"deletes", "null"}, {"deletes.0", "\"../x\""}, {"deletes.0", "\"/x\""},
  {"deletes.0", "\"\""}, {"deletes.0", "\"a//b\""}, {"deletes.0", "\"a/\""}, {"deletes.0", "1"},
  {"deletes.0", "\"a\\\\b\"", TRUE}, {"deletes.0", "\".git\""}, {"setup", NULL}, {"setup", "{}"},
  {"setup.name", "\"one\""}, {"setup.continueOnFailure", "false", TRUE}, {"proxy", "null", TRUE}, {"proxy", NULL},
  {"proxy.token", "\"\""}, {"proxy.token", "\"a b\""}, {"proxy.token", "\"a\\r\\nb\""}, {"proxy.token", "null"},
  {"proxy.address", "null"}, {"proxy.socket", "\"/run/s\""}, {"proxy.socket", NULL}, {"proxy.caPem", "null", TRUE},
  {"proxy.caPem", "\"\""}, {"proxy.caPem", "1"}, {"proxy.url", "\"x\""}, {"run", "[]"}, {"run", "{}"},
  {"run.0.name", "\"two\""}, {"run.0.name", "\"\""}, {"run.0.name", "\".x\""}, {"run.0.name", "\"a b\""},
  {"run.0.name", "\"a\\\"b\""}, {"run.0.name", NULL}, {"run.0.argv", "[]"}, {"run.0.argv", "\"make\""},
  {"run.0.argv.0", "null"}, {"run.0.argv.0", "\"a\\u0000b\""}, {"run.0.cwd", "\"\""}, {"run.0.cwd", "\"..\""},
  {"run.0.cwd", "\"/tmp\""}, {"run.0.cwd", "\".\"", TRUE}, {"run.0.cwd", "\"a/../b\""}, {"run.0.cwd", "null"},
  {"run.0.timeoutMs", "0"}, {"run.0.timeoutMs", "60001"}, {"run.0.timeoutMs", "60000", TRUE},
  {"run.0.timeoutMs", "null"}, {"run.0.env", "{}", TRUE}, {"run.0.env", "[]"}, {"run.0.env.1A", "\"x\""},
  {"run.0.env.A-B", "\"x\""}, {"run.0.env.A", "1"}, {"run.0.env.A", "\"a\\u0000b\""}, {"run.0.shell", "true"},
  {"run.0.continueOnFailure", "0"}, {"artefacts", "[]", TRUE}, {"artefacts.0", "\"[\""}, {"artefacts.0", "\"\""},
  {"artefacts.0", "1"}, {"artefacts", "null"}, {"limits", "null"}, {"limits.pids", NULL}, {"limits.more", "1"},
  {"limits.wallMs", "0"}, {"limits.logBytes", "0"}, {"limits.logBytes", "2147483648"}, {"limits.milliCpus", "\"1\""},
  {"limits.artefactCount", "0", TRUE},
};

static void test_rows(void)
{
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    const char *why = NULL;
    json_t *json = good_request();
    json_t *value = rows[i].value ? json_loads(rows[i].value, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    g_test_message("%s = %s", rows[i].path, rows[i].value ? rows[i].value : "(removed)");
    g_assert_true(value || !rows[i].value);
    set_at(json, rows[i].path, value);
    QvEntryRequest *request = parse(json, &why);
    g_assert_cmpint(request != NULL, ==, rows[i].good);
    g_assert_true(request || (why && *why));
    qv_entry_request_free(request);
    json_decref(json);
  }
}

static void test_proxy_without_setup(void)
{
  const char *why;
  json_t *json = good_request();
  json_object_set_new(json, "setup", json_null());
  g_assert_null(parse(json, &why));
  json_object_set_new(json, "proxy", json_null());
  QvEntryRequest *request = parse(json, &why);
  g_assert_nonnull(request);
  qv_entry_request_free(request);
  json_decref(json);
}

/* A list that is one longer than its bound, and one that is just as long. */
static void check_count(const char *path, guint max, json_t *(*make)(guint))
{
  for (guint n = max; n <= max + 1; n++) {
    const char *why;
    json_t *json = good_request(), *list = json_array();
    for (guint i = 0; i < n; i++)
      json_array_append_new(list, make(i));
    set_at(json, path, list);
    QvEntryRequest *request = parse(json, &why);
    g_assert_cmpint(request != NULL, ==, n == max);
    qv_entry_request_free(request);
    json_decref(json);
  }
}

static json_t *make_text(guint i)
{
  g_autofree char *text = g_strdup_printf("x%u", i);
  return json_string(text);
}

static json_t *make_step(guint i)
{
  g_autofree char *name = g_strdup_printf("step%u", i);
  return json_pack("{ss s[s]}", "name", name, "argv", "true");
}

static void test_counts(void)
{
  check_count("deletes", 10000, make_text);
  check_count("artefacts", 64, make_text);
  check_count("run.0.argv", 256, make_text);
  check_count("run", 16, make_step);
}

static void test_lengths(void)
{
  static const struct {
    const char *path;
    gsize max;
  } texts[] = {{"run.0.argv.0", 128 * 1024}, {"run.0.env.A", 32 * 1024}, {"run.0.name", 128}, {"artefacts.0", 1024}};
  for (gsize i = 0; i < G_N_ELEMENTS(texts); i++) {
    for (gsize n = texts[i].max; n <= texts[i].max + 1; n++) {
      const char *why;
      json_t *json = good_request();
      g_autofree char *text = g_strnfill(n, 'a');
      set_at(json, texts[i].path, json_string(text));
      QvEntryRequest *request = parse(json, &why);
      g_assert_cmpint(request != NULL, ==, n == texts[i].max);
      qv_entry_request_free(request);
      json_decref(json);
    }
  }
}

static void test_not_json(void)
{
  static const char *const lines[] = {"", "{", "[]", "null", "{\"v\":1,\"v\":1}", "\xef\xbb\xbf{}", "{} {}"};
  for (gsize i = 0; i < G_N_ELEMENTS(lines); i++) {
    const char *why = NULL;
    g_assert_null(qv_entry_request_parse(lines[i], strlen(lines[i]), &why));
    g_assert_nonnull(why);
  }
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/entry/request/good", test_good);
  g_test_add_func("/entry/request/rows", test_rows);
  g_test_add_func("/entry/request/proxy-without-setup", test_proxy_without_setup);
  g_test_add_func("/entry/request/counts", test_counts);
  g_test_add_func("/entry/request/lengths", test_lengths);
  g_test_add_func("/entry/request/not-json", test_not_json);
  return g_test_run();
}
