/* SPDX-License-Identifier: Apache-2.0 */
/* The program itself: verbs that need neither Valkey nor root. */
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../client/tree.h"
#include "cli/verb.h"

typedef struct {
  int status;
  char *out, *err;
} Ended;

static void ended_clear(Ended *ended)
{
  g_free(ended->out);
  g_free(ended->err);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Ended, ended_clear)

static Ended quavon(const char *setting, const char *const *words)
{
  Ended ended = { 0 };
  g_autofree char *program = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "cli", "quavon", NULL);
  g_autoptr(GPtrArray) argv = g_ptr_array_new();
  g_ptr_array_add(argv, program);
  for (; *words != NULL; words++)
    g_ptr_array_add(argv, (gpointer)*words);
  g_ptr_array_add(argv, NULL);
  g_auto(GStrv) environment = g_environ_setenv(NULL, "PATH", g_getenv("PATH"), TRUE);
  environment = g_environ_setenv(environment, "HOME", "/nonexistent", TRUE);
  if (g_getenv("TMPDIR") != NULL)
    environment = g_environ_setenv(environment, "TMPDIR", g_getenv("TMPDIR"), TRUE);
  if (setting != NULL) {
    g_auto(GStrv) pair = g_strsplit(setting, "=", 2);
    environment = g_environ_setenv(environment, pair[0], pair[1], TRUE);
  }
  g_autoptr(GError) error = NULL;
  int wait_status = 0;
  g_spawn_sync("/", (char **)argv->pdata, environment, 0, NULL, NULL, &ended.out, &ended.err, &wait_status, &error);
  g_assert_no_error(error);
  ended.status = g_spawn_check_wait_status(wait_status, &error) ? 0 : error->domain == G_SPAWN_EXIT_ERROR ? error->code : -1;
  return ended;
}

#define QUAVON(...) quavon(NULL, (const char *const[]){ __VA_ARGS__, NULL })

static void test_help(void)
{
  g_auto(Ended) all = QUAVON("help");
  g_assert_cmpint(all.status, ==, 0);
  g_autofree char *man_path = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "man", "quavon.1.scd", NULL);
  g_autofree char *man = NULL;
  g_assert_true(g_file_get_contents(man_path, &man, NULL, NULL));
  for (const QvVerb *verb = qv_verbs; verb->name != NULL; verb++) {
    g_assert_nonnull(strstr(all.out, verb->name));
    g_auto(Ended) one = QUAVON("help", verb->name);
    g_assert_cmpint(one.status, ==, 0);
    g_autofree char *usage = g_strconcat("quavon ", verb->name, NULL);
    g_assert_nonnull(strstr(one.out, usage));
    g_autofree char *synopsis = g_strconcat("*quavon ", verb->name, "*", NULL);
    if (strstr(man, synopsis) == NULL)
      g_error("quavon(1) has no %s", usage);
  }
  g_auto(Ended) version = QUAVON("--version");
  g_assert_cmpstr(version.out, ==, "quavon " QV_VERSION "\n");
  g_auto(Ended) nothing = quavon(NULL, (const char *const[]){ NULL });
  g_assert_cmpint(nothing.status, ==, 64);
  g_auto(Ended) unknown = QUAVON("rum");
  g_assert_cmpint(unknown.status, ==, 64);
  g_auto(Ended) no_job = QUAVON("wait");
  g_assert_cmpint(no_job.status, ==, 64);
  g_auto(Ended) no_keeper = QUAVON("_keeper", "/tmp");
  g_assert_cmpint(no_keeper.status, ==, 64);
}

static void test_keygen(void)
{
  char *root = tree_new();
  g_autofree char *path = tree_path(root, "key");
  g_auto(Ended) made = QUAVON("keygen", path);
  g_assert_cmpint(made.status, ==, 0);
  g_assert_cmpuint(strlen(made.out), ==, 17); /* the key's id */
  struct stat st;
  g_assert_cmpint(stat(path, &st), ==, 0);
  g_assert_cmpint(st.st_mode & 07777, ==, 0600);
  g_autofree char *before = NULL;
  g_assert_true(g_file_get_contents(path, &before, NULL, NULL));
  g_assert_null(strstr(made.out, before));
  g_auto(Ended) again = QUAVON("keygen", path);
  g_assert_cmpint(again.status, ==, 1);
  g_autofree char *after = NULL;
  g_assert_true(g_file_get_contents(path, &after, NULL, NULL));
  g_assert_cmpstr(after, ==, before);
  tree_free(root);
}

static void test_snapshot(void)
{
  char *root = tree_new();
  tree_write(root, "a", "1", 0644);
  g_autofree guint8 *zeros = g_malloc0(4 << 20);
  tree_write_bytes(root, "zeros", zeros, 4 << 20);
  g_autofree char *link = tree_path(root, "link");
  g_assert_cmpint(symlink("a", link), ==, 0);
  g_auto(Ended) one = QUAVON("snapshot", "--threads", "1", root);
  g_auto(Ended) two = QUAVON("snapshot", "--threads=2", root);
  g_assert_cmpint(one.status, ==, 0);
  g_assert_cmpstr(one.out, ==, two.out);
  g_assert_nonnull(strstr(one.out, "1 symbolic link"));
  g_autofree char *file = tree_path(root, "out.gz");
  g_auto(Ended) written = QUAVON("snapshot", "--json", "--output", file, root);
  g_assert_cmpint(written.status, ==, 0);
  g_autofree char *bytes = NULL;
  gsize n = 0;
  g_assert_true(g_file_get_contents(file, &bytes, &n, NULL));
  g_autofree char *sha256 = g_compute_checksum_for_data(G_CHECKSUM_SHA256, (const guint8 *)bytes, n);
  g_assert_nonnull(strstr(written.out, sha256));
  g_assert_nonnull(strstr(one.out, sha256));
  tree_run(root, "sh", "-c", "gzip -dc out.gz | tar -tf - >list && printf 'a\\nzeros\\n' | cmp - list", NULL);
  g_auto(Ended) no_folder = QUAVON("snapshot", "/no/such/folder");
  g_assert_cmpint(no_folder.status, ==, 66);
  tree_write(root, "bad\nname", "x", 0644);
  g_auto(Ended) bad_name = QUAVON("snapshot", root);
  g_assert_cmpint(bad_name.status, ==, 65);
  g_assert_nonnull(strstr(bad_name.err, "bad\\nname"));
  tree_free(root);
}

static void test_configuration(void)
{
  g_auto(Ended) unknown = quavon("QUAVON_SANDBOX_POOOL=x", (const char *const[]){ "run", "true", NULL });
  g_assert_cmpint(unknown.status, ==, 78);
  g_assert_nonnull(strstr(unknown.err, "QUAVON_SANDBOX_POOL"));
  g_auto(Ended) no_key = quavon("VALKEY_URL=unix:///nowhere", (const char *const[]){ "run", "true", NULL });
  g_assert_cmpint(no_key.status, ==, 78);
  g_assert_nonnull(strstr(no_key.err, "QUAVON_SANDBOX_SIGNING_KEY_FILE"));
  g_auto(Ended) no_url = QUAVON("wait", "00000000-0000-4000-8000-000000000000");
  g_assert_cmpint(no_url.status, ==, 78);
  g_assert_nonnull(strstr(no_url.err, "VALKEY_URL"));
  g_auto(Ended) relative = quavon("QUAVON_SANDBOX_STATE_DIR=here", (const char *const[]){ "run", "true", NULL });
  g_assert_cmpint(relative.status, ==, 78);
  g_assert_nonnull(strstr(relative.err, "QUAVON_SANDBOX_STATE_DIR"));
  char *root = tree_new();
  g_autofree char *setting = g_strconcat("QUAVON_SANDBOX_IMAGES_FILE=", root, "/lock.json", NULL);
  g_auto(Ended) no_images = quavon(setting, (const char *const[]){ "images", "list", NULL });
  g_assert_cmpint(no_images.status, ==, 66);
  g_auto(Ended) no_action = quavon(setting, (const char *const[]){ "images", "polish", NULL });
  g_assert_cmpint(no_action.status, ==, 64);
  g_auto(Ended) not_its = quavon(setting, (const char *const[]){ "images", "list", "--previous", NULL });
  g_assert_cmpint(not_its.status, ==, 64);
  g_assert_nonnull(strstr(not_its.err, "list takes no --previous"));
  tree_free(root);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/program/help", test_help);
  g_test_add_func("/program/keygen", test_keygen);
  g_test_add_func("/program/snapshot", test_snapshot);
  g_test_add_func("/program/configuration", test_configuration);
  return g_test_run();
}
