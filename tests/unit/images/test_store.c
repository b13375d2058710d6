/* SPDX-License-Identifier: Apache-2.0 */
/* The store with small files in the place of images: what is listed, what a
 * check sees, what a prune takes, and builds by recipes that fail. The real
 * recipe is the integration suite's. */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "images/images.h"

typedef struct {
  char *top;
  char *lock_file;
} Store;

static char *below(const Store *store, const char *name)
{
  return g_build_filename(store->top, name, NULL);
}

static void write_text(const Store *store, const char *name, const char *text)
{
  g_autofree char *path = below(store, name);
  g_assert_true(qv_fd_write_file(path, text, strlen(text), 0644, NULL));
}

static gboolean exists(const Store *store, const char *name)
{
  g_autofree char *path = below(store, name);
  return g_file_test(path, G_FILE_TEST_EXISTS);
}

static char *file_of(char digit)
{
  g_autofree char *hex = g_strnfill(64, digit);
  return g_strconcat(hex, ".erofs", NULL);
}

static void append_entry(GString *json, const char *name, char digit, const char *content)
{
  g_autofree char *digest = g_strnfill(64, digit);
  g_autofree char *hex = g_compute_checksum_for_string(G_CHECKSUM_SHA256, content, -1);
  g_string_append_printf(json,
                         "%s{\"name\":\"%s\",\"digest\":\"sha256:%s\",\"kind\":\"image-id\",\"platform\":\"linux/amd64\","
                         "\"rootfs\":{\"file\":\"%s.erofs\",\"sha256\":\"%s\"}}",
                         json->str[json->len - 1] == '[' ? "" : ",", name, digest, digest, hex);
}

/* Images one (current 1, previous 2) and two (3), all of whose files are there. */
static void set_up(Store *store, gconstpointer data)
{
  store->top = g_dir_make_tmp("qv-test-XXXXXX", NULL);
  store->lock_file = below(store, "images.lock.json");
  g_autoptr(GString) json = g_string_new("{\"v\":1,\"images\":[");
  append_entry(json, "one", '1', "first");
  append_entry(json, "one", '2', "older");
  append_entry(json, "two", '3', "other");
  g_string_append(json, "]}");
  write_text(store, "images.lock.json", json->str);
  static const char *const contents[] = {"first", "older", "other"};
  for (int i = 0; i < 3; i++) {
    g_autofree char *file = file_of((char)('1' + i));
    write_text(store, file, contents[i]);
  }
}

static void tear_down(Store *store, gconstpointer data)
{
  g_assert_true(qv_fd_remove_tree(store->top, NULL));
  g_free(store->top);
  g_free(store->lock_file);
}

static void test_list(Store *store, gconstpointer data)
{
  g_autofree char *gone = file_of('3');
  g_autofree char *gone_path = below(store, gone);
  g_assert_cmpint(g_unlink(gone_path), ==, 0);
  g_autoptr(GError) error = NULL;
  g_autoptr(GPtrArray) images = qv_images_list(store->lock_file, &error);
  g_assert_no_error(error);
  g_assert_cmpuint(images->len, ==, 3);
  const QvStoredImage *first = images->pdata[0];
  const QvStoredImage *older = images->pdata[1];
  const QvStoredImage *other = images->pdata[2];
  g_assert_cmpstr(first->name, ==, "one");
  g_assert_cmpint(first->size_bytes, ==, 5);
  g_assert_true(first->current);
  g_assert_false(older->current);
  g_assert_true(other->current);
  g_assert_cmpint(other->size_bytes, ==, -1);
  g_assert_cmpstr(other->rootfs_path, ==, gone_path);
}

static void test_list_refused(Store *store, gconstpointer data)
{
  g_autoptr(GError) error = NULL;
  write_text(store, "images.lock.json", "{\"v\":2,\"images\":[]}");
  g_assert_null(qv_images_list(store->lock_file, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
  g_clear_error(&error);
  g_assert_cmpint(g_unlink(store->lock_file), ==, 0);
  g_assert_null(qv_images_list(store->lock_file, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_NOT_FOUND);
}

static void test_verify(Store *store, gconstpointer data)
{
  guint n = 0;
  g_assert_true(qv_images_verify(store->lock_file, NULL, &n, NULL));
  g_assert_cmpuint(n, ==, 3);
  g_assert_true(qv_images_verify(store->lock_file, "one", &n, NULL));
  g_assert_cmpuint(n, ==, 2);
  g_autoptr(GError) error = NULL;
  g_assert_false(qv_images_verify(store->lock_file, "three", &n, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_NOT_FOUND);
  g_clear_error(&error);
  g_autofree char *file = file_of('3');
  write_text(store, file, "Other");
  g_assert_true(qv_images_verify(store->lock_file, "one", &n, NULL));
  g_assert_false(qv_images_verify(store->lock_file, NULL, &n, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_AUTH);
  g_clear_error(&error);
  g_autofree char *path = below(store, file);
  g_assert_cmpint(g_unlink(path), ==, 0);
  g_assert_false(qv_images_verify(store->lock_file, "two", &n, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_NOT_FOUND);
}

static void test_prune(Store *store, gconstpointer data)
{
  g_autofree char *stray = file_of('4');
  g_autofree char *older = file_of('2');
  g_autofree char *first = file_of('1');
  write_text(store, stray, "nobody's");
  write_text(store, "notes.txt", "somebody's");
  write_text(store, "short.erofs", "somebody's");
  g_autofree char *build = below(store, "build.abc/work.x");
  g_assert_cmpint(g_mkdir_with_parents(build, 0755), ==, 0);
  g_autoptr(GPtrArray) removed = NULL;
  g_assert_true(qv_images_prune(store->lock_file, FALSE, &removed, NULL));
  g_assert_cmpuint(removed->len, ==, 2);
  g_assert_false(exists(store, stray));
  g_assert_false(exists(store, "build.abc"));
  g_assert_true(exists(store, "notes.txt"));
  g_assert_true(exists(store, "short.erofs"));
  g_assert_true(exists(store, older));
  guint n = 0;
  g_assert_true(qv_images_verify(store->lock_file, NULL, &n, NULL));
  g_clear_pointer(&removed, g_ptr_array_unref);
  g_assert_true(qv_images_prune(store->lock_file, TRUE, &removed, NULL));
  g_assert_cmpuint(removed->len, ==, 1);
  g_assert_false(exists(store, older));
  g_assert_true(exists(store, first));
  g_assert_true(qv_images_verify(store->lock_file, NULL, &n, NULL));
  g_assert_cmpuint(n, ==, 2);
}

static void test_memory(Store *store, gconstpointer data)
{
  g_autoptr(QvImageMemory) memory = qv_image_memory_new();
  g_autofree char *file = file_of('1');
  g_autofree char *path = below(store, file);
  g_autofree char *hex = g_compute_checksum_for_string(G_CHECKSUM_SHA256, "first", -1);
  g_autofree char *other = g_compute_checksum_for_string(G_CHECKSUM_SHA256, "other", -1);
  g_autoptr(GError) error = NULL;
  for (int i = 0; i < 3; i++) {
    g_assert_true(qv_image_memory_check(memory, path, hex, NULL));
    g_assert_false(qv_image_memory_check(memory, path, other, &error));
    g_assert_error(error, QV_ERROR, QV_ERROR_AUTH);
    g_clear_error(&error);
  }
  /* Written in place: the same inode and size; replaced: another inode. The change time moves with the kernel's
   * tick, so wait until it did. */
  struct stat before, after;
  g_assert_cmpint(stat(path, &before), ==, 0);
  do {
    QV_AUTOFD int fd = open(path, O_WRONLY | O_CLOEXEC);
    g_assert_true(qv_io_write_full(fd, "other", 5));
    g_assert_cmpint(stat(path, &after), ==, 0);
  } while (memcmp(&before.st_ctim, &after.st_ctim, sizeof before.st_ctim) == 0);
  g_assert_false(qv_image_memory_check(memory, path, hex, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_AUTH);
  g_assert_true(qv_image_memory_check(memory, path, other, NULL));
  write_text(store, file, "first");
  g_assert_true(qv_image_memory_check(memory, path, hex, NULL));
  g_assert_cmpint(g_unlink(path), ==, 0);
  g_clear_error(&error);
  g_assert_false(qv_image_memory_check(memory, path, hex, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_NOT_FOUND);
}

static void write_recipe(const Store *store, const char *text)
{
  g_autofree char *path = below(store, "build");
  g_assert_true(qv_fd_write_file(path, text, strlen(text), 0755, NULL));
}

static void count_line(const char *line, gpointer data)
{
  (*(guint *)data)++;
}

/* Left: one folder of nobody, no build folder. */
static void assert_no_build_left(const Store *store)
{
  g_autoptr(GDir) files = g_dir_open(store->top, 0, NULL);
  const char *file;
  while ((file = g_dir_read_name(files)) != NULL)
    g_assert_false(g_str_has_prefix(file, "build."));
}

static void test_build_fails(Store *store, gconstpointer data)
{
  if (geteuid() != 0) {
    g_test_skip("a build needs root");
    return;
  }
  guint lines = 0;
  QvImagesBuild build = {.name = "one", .recipe_dir = store->top, .entry_file = store->lock_file,
                         .lock_file = store->lock_file, .progress = count_line, .progress_data = &lines};
  g_autoptr(GError) error = NULL;
  write_recipe(store, "#!/bin/sh\necho working\necho no mirror >&2\nmkdir $2/deep\nexit 3\n");
  g_assert_null(qv_images_build(&build, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
  g_assert_nonnull(strstr(error->message, "no mirror"));
  g_assert_cmpuint(lines, ==, 2);
  assert_no_build_left(store);
  g_clear_error(&error);
  write_recipe(store, "#!/bin/sh\nexit 0\n");
  g_assert_null(qv_images_build(&build, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_NOT_FOUND);
  g_clear_error(&error);
  build.entry_file = "/nonexistent/entry";
  g_assert_null(qv_images_build(&build, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_NOT_FOUND);
  assert_no_build_left(store);
  guint n;
  g_assert_true(qv_images_verify(store->lock_file, NULL, &n, NULL));
  g_assert_cmpuint(n, ==, 3);
}

static void test_build_stores(Store *store, gconstpointer data)
{
  if (geteuid() != 0) {
    g_test_skip("a build needs root");
    return;
  }
  write_recipe(store, "#!/bin/sh\necho tar >$2/rootfs.tar\necho erofs >$2/rootfs.erofs\n");
  g_autofree char *fresh = below(store, "fresh/images.lock.json");
  QvImagesBuild build = {.name = "one", .recipe_dir = store->top, .entry_file = store->lock_file, .lock_file = fresh};
  g_autoptr(GError) error = NULL;
  g_autofree char *digest = qv_images_build(&build, &error);
  g_assert_no_error(error);
  g_autofree char *again = qv_images_build(&build, &error);
  g_assert_no_error(error);
  g_assert_cmpstr(digest, ==, again);
  build.lock_file = store->lock_file;
  g_autofree char *third = qv_images_build(&build, &error);
  g_assert_no_error(error);
  g_assert_cmpstr(digest, ==, third);
  g_autoptr(GPtrArray) images = qv_images_list(store->lock_file, NULL);
  const QvStoredImage *current = images->pdata[0];
  const QvStoredImage *previous = images->pdata[1];
  g_assert_cmpuint(images->len, ==, 3);
  g_assert_cmpstr(current->digest, ==, digest);
  g_assert_true(g_str_has_suffix(previous->digest, "1111"));
  /* The digest is the config's, the config names the tar. */
  g_autofree char *config_path = g_strndup(current->rootfs_path, strlen(current->rootfs_path) - strlen(".erofs"));
  g_autofree char *config_file = g_strconcat(config_path, ".json", NULL);
  g_autofree char *config = NULL;
  g_assert_true(g_file_get_contents(config_file, &config, NULL, NULL));
  g_autofree char *hex = g_compute_checksum_for_string(G_CHECKSUM_SHA256, config, -1);
  g_assert_cmpstr(hex, ==, digest + strlen("sha256:"));
  g_autofree char *tar_hex = g_compute_checksum_for_string(G_CHECKSUM_SHA256, "tar\n", -1);
  g_assert_nonnull(strstr(config, tar_hex));
  g_assert_true(qv_images_verify(store->lock_file, NULL, NULL, NULL));
}

/* What a recipe is given, and what it may leave for the config. */
static void test_build_from(Store *store, gconstpointer data)
{
  if (geteuid() != 0) {
    g_test_skip("a build needs root");
    return;
  }
  write_recipe(store, "#!/bin/sh\necho \"$3\" >$2/rootfs.tar\ncp $2/rootfs.tar $2/rootfs.erofs\n"
                      "printf 'PATH=/opt/bin\\nA=b=c\\n' >$2/env\n");
  g_autofree char *fresh = below(store, "fresh/images.lock.json");
  QvImagesBuild build = {.name = "two", .recipe_dir = store->top, .from = "x@sha256:1", .entry_file = store->lock_file,
                         .lock_file = fresh};
  g_autoptr(GError) error = NULL;
  g_autofree char *digest = qv_images_build(&build, &error);
  g_assert_no_error(error);
  g_autoptr(GPtrArray) images = qv_images_list(fresh, NULL);
  const QvStoredImage *image = images->pdata[0];
  g_autofree char *content = NULL;
  g_assert_true(g_file_get_contents(image->rootfs_path, &content, NULL, NULL));
  g_assert_cmpstr(content, ==, "x@sha256:1\n");
  g_auto(GStrv) env = NULL;
  g_assert_true(qv_images_env(image->rootfs_path, digest, &env, &error));
  g_assert_no_error(error);
  g_assert_cmpuint(g_strv_length(env), ==, 2);
  g_assert_cmpstr(env[0], ==, "PATH=/opt/bin");
  g_assert_cmpstr(env[1], ==, "A=b=c");
  /* A config that is not the digest's, and none at all. */
  g_auto(GStrv) none = NULL;
  g_autofree char *config = g_strdup_printf("%s/fresh/%s.json", store->top, digest + strlen("sha256:"));
  g_assert_cmpint(g_chmod(config, 0644), ==, 0);
  g_assert_true(g_file_set_contents(config, "{}", -1, NULL));
  g_assert_false(qv_images_env(image->rootfs_path, digest, &none, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_AUTH);
  g_assert_cmpint(g_unlink(config), ==, 0);
  g_assert_true(qv_images_env(image->rootfs_path, digest, &none, NULL));
  g_assert_null(none);
  write_recipe(store, "#!/bin/sh\necho tar >$2/rootfs.tar\necho erofs >$2/rootfs.erofs\necho =x >$2/env\n");
  g_clear_error(&error);
  g_assert_null(qv_images_build(&build, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
}

static int export_to(const Store *store, const char *lock_file, const char *digest, GError **error)
{
  g_autofree char *path = below(store, "archive.tar");
  QV_AUTOFD int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  return qv_images_export(lock_file, "one", digest, fd, error) ? 0 : -1;
}

static void assert_tar_says(const Store *store, const char *script, const char *wanted)
{
  const char *const argv[] = {"sh", "-euc", script, NULL};
  g_autofree char *out = NULL;
  int status = -1;
  g_assert_true(g_spawn_sync(store->top, (char **)argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, &out, NULL, &status, NULL));
  g_assert_cmpint(status, ==, 0);
  g_assert_cmpstr(out, ==, wanted);
}

static void test_export(Store *store, gconstpointer data)
{
  if (geteuid() != 0) {
    g_test_skip("a build needs root");
    return;
  }
  write_recipe(store, "#!/bin/sh\nyes layer | head -c 3000000 >$2/rootfs.tar\necho erofs >$2/rootfs.erofs\n");
  g_autofree char *fresh = below(store, "fresh/images.lock.json");
  QvImagesBuild build = {.name = "one", .recipe_dir = store->top, .entry_file = store->lock_file, .lock_file = fresh};
  g_autoptr(GError) error = NULL;
  g_autofree char *digest = qv_images_build(&build, &error);
  g_assert_no_error(error);
  g_assert_cmpint(export_to(store, fresh, NULL, &error), ==, 0);
  g_assert_no_error(error);
  const char *hex = digest + strlen("sha256:");
  g_autofree char *names = g_strdup_printf("%s.json\n%s/layer.tar\nmanifest.json\n", hex, hex);
  g_autofree char *manifest = g_strdup_printf("[{\"Config\":\"%s.json\",\"Layers\":[\"%s/layer.tar\"],\"RepoTags\":null}]",
                                              hex, hex);
  g_autofree char *config_hash = g_strdup_printf("%s  -\n", hex);
  assert_tar_says(store, "tar --list --file archive.tar", names);
  assert_tar_says(store, "tar --extract --to-stdout --file archive.tar manifest.json", manifest);
  assert_tar_says(store, "tar --extract --to-stdout --file archive.tar --wildcards --exclude=manifest.json '*.json' | sha256sum",
                  config_hash);
  assert_tar_says(store, "tar --extract --to-stdout --file archive.tar --wildcards '*/layer.tar' | gunzip | uniq -c | "
                         "tr -s ' ' | cut -c 2-", "500000 layer\n");
  assert_tar_says(store, "tar --list --verbose --utc --file archive.tar | grep -vc 1970-01-01 || true", "0\n");
  assert_tar_says(store, "cp archive.tar first.tar", "");
  g_assert_cmpint(export_to(store, fresh, digest, &error), ==, 0);
  assert_tar_says(store, "cmp archive.tar first.tar", "");
  /* Another digest, another lock, a layer or config that is gone or altered. */
  g_assert_cmpint(export_to(store, fresh, "sha256:1111", &error), ==, -1);
  g_assert_error(error, QV_ERROR, QV_ERROR_NOT_FOUND);
  g_clear_error(&error);
  g_assert_cmpint(export_to(store, store->lock_file, NULL, &error), ==, -1);
  g_assert_error(error, QV_ERROR, QV_ERROR_NOT_FOUND);
  g_clear_error(&error);
  assert_tar_says(store, "rm fresh/*.tar.gz", "");
  g_assert_cmpint(export_to(store, fresh, NULL, &error), ==, -1);
  g_assert_error(error, QV_ERROR, QV_ERROR_NOT_FOUND);
  g_clear_error(&error);
  assert_tar_says(store, "for file in fresh/????????????????*.json; do echo >>$file; done", "");
  g_assert_cmpint(export_to(store, fresh, NULL, &error), ==, -1);
  g_assert_error(error, QV_ERROR, QV_ERROR_AUTH);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  static const struct {
    const char *path;
    void (*test)(Store *, gconstpointer);
  } tests[] = {{"/images/list", test_list},
               {"/images/list-refused", test_list_refused},
               {"/images/verify", test_verify},
               {"/images/prune", test_prune},
               {"/images/memory", test_memory},
               {"/images/build-fails", test_build_fails},
               {"/images/build-stores", test_build_stores},
               {"/images/build-from", test_build_from},
               {"/images/export", test_export}};
  for (gsize i = 0; i < G_N_ELEMENTS(tests); i++)
    g_test_add(tests[i].path, Store, NULL, set_up, tests[i].test, tear_down);
  return g_test_run();
}
