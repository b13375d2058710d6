/* SPDX-License-Identifier: Apache-2.0 */
/* Defaults, each kind's good and bad values, unknown names, secrets from
 * files, and the table against itself and against docs/CONFIGURATION.md. */
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config.h"
#include "base/error.h"
#include "base/fd.h"

static void test_defaults(void)
{
  const char *environment[] = {"PATH=/bin", "QUAVON_TEST_ANYTHING=1", "QUAVON_SANDBOX_POOL=", NULL};
  g_autoptr(GError) error = NULL;
  g_autoptr(QvConfig) config = qv_config_load(environment, &error);
  g_assert_no_error(error);
  g_assert_null(config->valkey_url);
  g_assert_null(config->signing_key_file);
  g_assert_cmpstr(config->backend, ==, "docker-runsc");
  g_assert_cmpstr(config->pool, ==, "default");
  g_assert_cmpstr(config->state_dir, ==, "/var/lib/quavon");
  gint64 cores = sysconf(_SC_NPROCESSORS_ONLN);
  g_assert_cmpint(config->concurrency, ==, MAX(1, cores / 2));
  g_assert_cmpint(config->max_milli_cpus, ==, 1000 * cores);
  g_assert_cmpint(config->default_wall_ms, ==, 600000);
  g_assert_cmpint(config->max_artefact_count, ==, 256);
  g_assert_cmpint(config->memory_budget_mib, >=, 1);
  g_autofree char *images = qv_config_images_file(config);
  g_assert_cmpstr(images, ==, "/var/lib/quavon/images/images.lock.json");
}

static void test_values(void)
{
  const char *environment[] = {"VALKEY_URL=unix:///run/v.sock", "QUAVON_SANDBOX_BACKEND=runsc",
                               "QUAVON_SANDBOX_POOL=a.b-c", "QUAVON_SANDBOX_CONCURRENCY=7",
                               "QUAVON_SANDBOX_SIGNING_KEY_PREVIOUS_FILES=/a:/b",
                               "QUAVON_SANDBOX_IMAGES_FILE=/x/lock.json", NULL};
  g_autoptr(QvConfig) config = qv_config_load(environment, NULL);
  g_assert_nonnull(config);
  g_assert_cmpstr((const char *)qv_secret_bytes(config->valkey_url), ==, "unix:///run/v.sock");
  g_assert_cmpstr(config->backend, ==, "runsc");
  g_assert_cmpint(config->concurrency, ==, 7);
  g_assert_cmpuint(g_strv_length(config->signing_key_previous_files), ==, 2);
  g_autofree char *images = qv_config_images_file(config);
  g_assert_cmpstr(images, ==, "/x/lock.json");
  g_autofree char *named = qv_config_prefix(config->pool);
  g_assert_cmpstr(named, ==, "quavon-sandbox-a.b-c");
  g_autofree char *standard = qv_config_prefix("default");
  g_assert_cmpstr(standard, ==, "quavon-sandbox");
}

static void test_refused(void)
{
  static const char *const rows[][2] = {
    {"QUAVON_SANDBOX_CONCURENCY=2", "QUAVON_SANDBOX_CONCURRENCY"},
    {"QUAVON_SANDBOX_POOLS=x", "QUAVON_SANDBOX_POOL"},
    {"QUAVON_=x", "closest"},
    {"QUAVON_SANDBOX_POOL_FILE=/x", "QUAVON_SANDBOX_POOL"},
    {"QUAVON_SANDBOX_CONCURRENCY=0", "1..256"},
    {"QUAVON_SANDBOX_CONCURRENCY=257", "1..256"},
    {"QUAVON_SANDBOX_CONCURRENCY=-1", "not a number"},
    {"QUAVON_SANDBOX_CONCURRENCY=+1", "not a number"},
    {"QUAVON_SANDBOX_CONCURRENCY=01", "not a number"},
    {"QUAVON_SANDBOX_CONCURRENCY=1 ", "not a number"},
    {"QUAVON_SANDBOX_CONCURRENCY=99999999999999999999999", "out of range"},
    {"QUAVON_SANDBOX_BACKEND=docker", "docker-runsc, runsc"},
    {"QUAVON_SANDBOX_POOL=-x", "identifier"},
    {"QUAVON_SANDBOX_POOL=a/b", "identifier"},
    {"QUAVON_SANDBOX_STATE_DIR=\xff", "UTF-8"},
    {"QUAVON_SANDBOX_DEFAULT_PIDS=5000", "QUAVON_SANDBOX_MAX_PIDS"},
    {"QUAVON_SANDBOX_DEFAULT_MILLI_CPUS=1024000", "QUAVON_SANDBOX_MAX_MILLI_CPUS"},
    {"QUAVON_LOG_LEVEL=loud", "debug, info, warning, error"},
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    const char *environment[] = {rows[i][0], NULL};
    g_autoptr(GError) error = NULL;
    g_test_message("row %" G_GSIZE_FORMAT, i);
    g_assert_null(qv_config_load(environment, &error));
    g_assert_error(error, QV_ERROR, QV_ERROR_POLICY);
    g_autofree char *name = g_strndup(rows[i][0], strcspn(rows[i][0], "="));
    g_assert_nonnull(strstr(error->message, name));
    g_assert_nonnull(strstr(error->message, rows[i][1]));
  }
}

static void expect_secret(const char *path, const char *expected)
{
  g_autofree char *variable = g_strconcat("VALKEY_URL_FILE=", path, NULL);
  const char *environment[] = {variable, NULL};
  g_autoptr(GError) error = NULL;
  g_autoptr(QvConfig) config = qv_config_load(environment, &error);
  if (expected == NULL) {
    g_assert_null(config);
    g_assert_nonnull(error);
    g_assert_nonnull(strstr(error->message, "VALKEY_URL_FILE"));
  } else {
    g_assert_no_error(error);
    g_assert_cmpstr((const char *)qv_secret_bytes(config->valkey_url), ==, expected);
    g_assert_cmpuint(qv_secret_len(config->valkey_url), ==, strlen(expected) + 1);
  }
}

static void test_secret_file(void)
{
  g_autofree char *top = g_dir_make_tmp("qv-test-XXXXXX", NULL);
  g_autofree char *path = g_build_filename(top, "url", NULL);
  static const struct {
    const char *bytes;
    gsize n;
    mode_t mode;
    const char *expected;
  } rows[] = {{"redis://a", 9, 0600, "redis://a"}, {"redis://a\n", 10, 0400, "redis://a"},
              {"redis://a\n\n", 11, 0600, NULL}, {"", 0, 0600, NULL}, {"\n", 1, 0600, NULL},
              {"a\0b", 3, 0600, NULL}, {"redis://a", 9, 0640, NULL}, {"redis://a", 9, 0604, NULL}};
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_assert_true(qv_fd_write_file(path, rows[i].bytes, rows[i].n, rows[i].mode, NULL));
    expect_secret(path, rows[i].expected);
  }
  g_assert_true(qv_fd_remove_tree(path, NULL));
  expect_secret(path, NULL);
  const char *both[] = {"VALKEY_URL=unix:///a", "VALKEY_URL_FILE=/b", NULL};
  g_autoptr(GError) error = NULL;
  g_assert_null(qv_config_load(both, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_POLICY);
  g_assert_true(qv_fd_remove_tree(top, NULL));
}

static void expect_registries(const char *const *environment, const char *expected)
{
  g_autoptr(QvConfig) config = qv_config_load(environment, NULL);
  g_autoptr(GError) error = NULL;
  g_assert_nonnull(config);
  g_autofree char *text = qv_config_registries(config, &error);
  g_assert_cmpstr(text, ==, expected);
  g_assert_true((expected == NULL) == (error != NULL));
  if (error != NULL)
    g_assert_nonnull(strstr(error->message, "QUAVON_SANDBOX_REGISTRIES"));
}

static void test_registries(void)
{
  g_autofree char *top = g_dir_make_tmp("qv-test-XXXXXX", NULL);
  g_autofree char *path = g_build_filename(top, "registries", NULL);
  g_autofree char *variable = g_strconcat("QUAVON_SANDBOX_REGISTRIES_FILE=", path, NULL);
  const char *none[] = {NULL};
  const char *value[] = {"QUAVON_SANDBOX_REGISTRIES=a.example,b.example:1", NULL};
  const char *file[] = {variable, NULL};
  const char *both[] = {value[0], variable, NULL};
  expect_registries(none, "");
  expect_registries(value, "a.example,b.example:1");
  expect_registries(file, NULL); /* it is not there */
  static const char *const rows[][2] = {{"", ""}, {"# none\n\n", ""}, {"a.example", "a.example"},
    {"a.example, # one\n  b.example:1@10.0.0.0/8\n#c.example\nd.example,e.example\n",
     "a.example,b.example:1@10.0.0.0/8,d.example,e.example"}, {"\xff", NULL}};
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_assert_true(qv_fd_write_file(path, rows[i][0], strlen(rows[i][0]), 0644, NULL));
    expect_registries(file, rows[i][1]);
  }
  expect_registries(both, NULL);
  g_assert_true(qv_fd_write_file(path, "a\0b", 3, 0644, NULL));
  expect_registries(file, NULL);
  g_assert_true(qv_fd_remove_tree(top, NULL));
}

/* Every row has a doc, a unique name, and a default that its own form accepts. */
static void test_table(void)
{
  QvConfigRow row;
  g_autoptr(GHashTable) seen = g_hash_table_new(g_str_hash, g_str_equal);
  for (guint i = 0; qv_config_row(i, &row); i++) {
    g_assert_true(g_hash_table_add(seen, (gpointer)row.name));
    g_assert_cmpuint(strlen(row.doc), >, 10);
    g_assert_true(g_str_has_prefix(row.name, "QUAVON_") || g_str_has_prefix(row.name, "VALKEY_"));
    if (row.standard == NULL || strcmp(row.standard, "auto") == 0)
      continue;
    g_autofree char *variable = g_strconcat(row.name, "=", row.standard, NULL);
    const char *environment[] = {variable, NULL};
    g_autoptr(GError) error = NULL;
    g_autoptr(QvConfig) config = qv_config_load(environment, &error);
    g_assert_no_error(error);
    g_assert_nonnull(config);
  }
}

/* QUAVON_TEST_WRITE_DOCS=1 writes the page instead. */
static void expect_page(const char *folder, const char *name, const char *head, const char *table)
{
  g_autofree char *path = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), folder, name, NULL);
  g_autofree char *page = g_strconcat(head, table, NULL);
  if (g_getenv("QUAVON_TEST_WRITE_DOCS") != NULL)
    g_assert_true(qv_fd_write_file(path, page, strlen(page), 0644, NULL));
  g_autofree char *found = NULL;
  g_assert_true(g_file_get_contents(path, &found, NULL, NULL));
  g_assert_cmpstr(found, ==, page);
}

static void test_docs(void)
{
  g_autofree char *markdown = qv_config_markdown();
  g_autofree char *scdoc = qv_config_scdoc();
  expect_page("docs", "CONFIGURATION.md",
              "<!-- SPDX-License-Identifier: Apache-2.0 -->\n"
              "<!-- Written from src/base/config.def: QUAVON_TEST_WRITE_DOCS=1 meson test base/config -->\n"
              "# Configuration\n\n"
              "Environment variables, read once at start. An empty value counts as not set. An unknown `QUAVON_*` name\n"
              "and a value that is not of the accepted form end the program with exit status 78 and a text that names\n"
              "the variable, the problem and the accepted form. `A..B` is a whole number in that range.\n\n",
              markdown);
  expect_page("man", "quavon-environment.7.scd",
              "quavon-environment(7)\n\n"
              "; SPDX-License-Identifier: Apache-2.0\n"
              "; Written from src/base/config.def: QUAVON_TEST_WRITE_DOCS=1 meson test base/config\n\n"
              "# NAME\n\n"
              "quavon-environment - the variables that configure quavon(1), quavon-sandbox-runner(8) and quavon-sandbox-egress(8)\n\n"
              "# DESCRIPTION\n\n"
              "Read once at start. An empty value counts as not set. An unknown name that begins with QUAVON\\_ and a\n"
              "value that is not of the accepted form end the program with exit status 78 and a text that names the\n"
              "variable, the problem and the accepted form. A..B is a whole number in that range.\n\n"
              "# VARIABLES\n\n",
              scdoc);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/config/defaults", test_defaults);
  g_test_add_func("/config/values", test_values);
  g_test_add_func("/config/refused", test_refused);
  g_test_add_func("/config/secret-file", test_secret_file);
  g_test_add_func("/config/registries", test_registries);
  g_test_add_func("/config/table", test_table);
  g_test_add_func("/config/docs", test_docs);
  return g_test_run();
}
