/* SPDX-License-Identifier: Apache-2.0 */
/* The real recipe: the image that scripts/test-image.sh prepared holds, is
 * built again from the same packages with the same digest, and an altered byte is
 * seen. QUAVON_TEST_TWO_BUILDS=1: two builds that fetch everything, one digest. */
#include <errno.h>
#include <fcntl.h>
#include <gio/gio.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>

#include "base/error.h"
#include "base/fd.h"
#include "images/images.h"

static char *prepared(const char *name)
{
  return g_build_filename(g_getenv("QUAVON_TEST_IMAGES"), name, NULL);
}

static QvStoredImage *current_of(const char *lock_file)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(GPtrArray) images = qv_images_list(lock_file, &error);
  g_assert_no_error(error);
  for (guint i = 0; i < images->len; i++) {
    const QvStoredImage *image = images->pdata[i];
    if (image->current && strcmp(image->name, "base") == 0)
      return g_ptr_array_steal_index(images, i);
  }
  g_error("%s has no image base", lock_file);
}

static void test_prepared(void)
{
  g_autofree char *lock_file = prepared("images.lock.json");
  g_autofree char *link = prepared("base.erofs");
  guint n = 0;
  g_autoptr(GError) error = NULL;
  qv_images_verify(lock_file, "base", &n, &error);
  g_assert_no_error(error);
  g_autoptr(QvStoredImage) image = current_of(lock_file);
  g_autofree char *target = g_file_read_link(link, NULL);
  g_autofree char *name = g_path_get_basename(image->rootfs_path);
  g_assert_cmpstr(target, ==, name);
  g_autoptr(GSubprocess) check = g_subprocess_new(G_SUBPROCESS_FLAGS_STDOUT_SILENCE, &error, "fsck.erofs",
                                                  image->rootfs_path, NULL);
  g_assert_no_error(error);
  g_assert_true(g_subprocess_wait_check(check, NULL, &error));
}

static void print_line(const char *line, gpointer data)
{
  g_autofree char *escaped = g_strescape(line, NULL);
  g_test_message("%s", escaped);
}

static char *build_into(const char *lock_file)
{
  g_autofree char *recipe = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "deploy", "images", "sandbox", "base", NULL);
  g_autofree char *entry = prepared("entry");
  QvImagesBuild build = {.name = "base", .recipe_dir = recipe, .entry_file = entry, .lock_file = lock_file,
                         .progress = print_line};
  g_autoptr(GError) error = NULL;
  char *digest = qv_images_build(&build, &error);
  g_assert_no_error(error);
  return digest;
}

static void flip_byte(const char *path)
{
  char byte;
  g_assert_cmpint(g_chmod(path, 0644), ==, 0);
  QV_AUTOFD int fd = open(path, O_RDWR | O_CLOEXEC);
  g_assert_cmpint(pread(fd, &byte, 1, 1000000), ==, 1);
  byte ^= 1;
  g_assert_cmpint(pwrite(fd, &byte, 1, 1000000), ==, 1);
}

/* Builds in a folder of its own, beside the build (large, so not in /tmp). */
static char *make_store(char **lock_file)
{
  char *top = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "qv-images-XXXXXX", NULL);
  g_assert_nonnull(g_mkdtemp(top));
  *lock_file = g_build_filename(top, "images.lock.json", NULL);
  return top;
}

static void test_again(void)
{
  g_autofree char *lock_file = NULL;
  g_autofree char *top = make_store(&lock_file);
  g_autofree char *base = prepared("base.tar");
  g_autofree char *prepared_lock = prepared("images.lock.json");
  g_autoptr(QvStoredImage) first = current_of(prepared_lock);
  g_setenv("QUAVON_TEST_BASE_TAR", base, TRUE);
  g_autofree char *digest = build_into(lock_file);
  g_unsetenv("QUAVON_TEST_BASE_TAR");
  g_autoptr(QvStoredImage) second = current_of(lock_file);
  g_assert_cmpstr(digest, ==, first->digest);
  guint n = 0;
  g_assert_true(qv_images_verify(lock_file, NULL, &n, NULL));
  g_assert_cmpuint(n, ==, 1);
  flip_byte(second->rootfs_path);
  g_autoptr(GError) error = NULL;
  g_assert_false(qv_images_verify(lock_file, NULL, &n, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_AUTH);
  g_assert_true(qv_fd_remove_tree(top, NULL));
}

/* The packages fetched and unpacked twice: minutes, so one lane alone asks for it. */
static void test_two_builds(void)
{
  g_autofree char *lock_file = NULL;
  g_autofree char *top = make_store(&lock_file);
  g_autofree char *first = build_into(lock_file);
  g_autofree char *second = build_into(lock_file);
  g_assert_cmpstr(first, ==, second);
  g_assert_true(qv_fd_remove_tree(top, NULL));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/images/prepared", test_prepared);
  g_test_add_func("/images/again", test_again);
  if (g_getenv("QUAVON_TEST_TWO_BUILDS") != NULL)
    g_test_add_func("/images/two-builds", test_two_builds);
  return g_test_run();
}
