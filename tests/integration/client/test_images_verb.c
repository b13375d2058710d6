/* SPDX-License-Identifier: Apache-2.0 */
/* `quavon images verify` and `prune` as a program, on a copy of the prepared store. */
#include <fcntl.h>
#include <glib/gstdio.h>
#include <string.h>
#include <unistd.h>

#include "../../unit/client/tree.h"
#include "embedded_run.h"

enum { ALTERED_AT = 1000000 };

typedef struct {
  Run *run;
  char *store;
  char *image; /* of base */
} Fixture;

/* The images (files named by digest) and the lock; what else lies there is the preparation's, or of tests that run now. */
static void copy_store(const char *from, const char *to)
{
  g_autoptr(GDir) dir = g_dir_open(from, 0, NULL);
  g_assert_nonnull(dir);
  for (const char *name; (name = g_dir_read_name(dir)) != NULL;) {
    g_autofree char *path = g_build_filename(from, name, NULL);
    if (strcmp(name, "images.lock.json") == 0 ||
        (strspn(name, "0123456789abcdef") == 64 && strcmp(name + 64, ".erofs") == 0))
      tree_run("/", "cp", path, to, NULL);
  }
}

static void set_up(Fixture *f, gconstpointer data)
{
  const char *prepared = g_getenv("QUAVON_TEST_IMAGES");
  g_assert_nonnull(prepared);
  /* Large, so not in /tmp. */
  f->store = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "qv-store-XXXXXX", NULL);
  g_assert_nonnull(g_mkdtemp(f->store));
  copy_store(prepared, f->store);
  g_autofree char *link = g_build_filename(prepared, "base.erofs", NULL);
  g_autofree char *name = g_file_read_link(link, NULL);
  g_assert_nonnull(name);
  f->image = tree_path(f->store, name);
  f->run = run_new();
  g_autofree char *lock = tree_path(f->store, "images.lock.json");
  run_setenv(f->run, "QUAVON_SANDBOX_IMAGES_FILE", lock);
}

static void tear_down(Fixture *f, gconstpointer data)
{
  run_free(f->run);
  g_free(f->image);
  tree_free(f->store);
}

static void flip_byte(const char *path)
{
  guint8 byte = 0;
  g_assert_cmpint(g_chmod(path, 0644), ==, 0);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  g_assert_cmpint(pread(fd, &byte, 1, ALTERED_AT), ==, 1);
  byte ^= 1;
  g_assert_cmpint(pwrite(fd, &byte, 1, ALTERED_AT), ==, 1);
  close(fd);
}

static void test_verify(Fixture *f, gconstpointer data)
{
  g_assert_cmpint(run_all_verb(f->run, WORDS("images", "verify")), ==, 0);
  g_autofree char *good = run_stdout(f->run);
  g_assert_nonnull(strstr(good, "images are what the lock says"));
  flip_byte(f->image);
  g_assert_cmpint(run_all_verb(f->run, WORDS("images", "verify")), ==, 1);
  g_autofree char *out = run_stdout(f->run);
  g_assert_cmpstr(out, ==, "");
  g_autofree char *err = run_stderr(f->run);
  g_assert_nonnull(strstr(err, "image base: "));
  g_assert_nonnull(strstr(err, f->image));
  g_assert_cmpint(run_all_verb(f->run, WORDS("images", "verify", "no-such-image")), ==, 66);
}

static void test_prune(Fixture *f, gconstpointer data)
{
  g_autofree char *hex = g_strnfill(64, 'f');
  g_autofree char *name = g_strconcat(hex, ".erofs", NULL);
  g_autofree char *unlisted = tree_path(f->store, name);
  g_autofree char *notes = tree_path(f->store, "notes.txt");
  g_autofree char *line = g_strconcat(unlisted, "\n", NULL);
  tree_write(f->store, name, "old", 0444);
  tree_write(f->store, "notes.txt", "not the store's", 0644);
  g_assert_cmpint(run_all_verb(f->run, WORDS("images", "prune")), ==, 0);
  g_autofree char *removed = run_stdout(f->run);
  g_assert_cmpstr(removed, ==, line);
  g_assert_false(g_file_test(unlisted, G_FILE_TEST_EXISTS));
  g_assert_true(g_file_test(notes, G_FILE_TEST_EXISTS));
  g_assert_cmpint(run_all_verb(f->run, WORDS("images", "verify", "base")), ==, 0);
  g_assert_cmpint(run_all_verb(f->run, WORDS("images", "prune")), ==, 0);
  g_autofree char *again = run_stdout(f->run);
  g_assert_cmpstr(again, ==, "");
}

/* An image that somebody else made: by digest only, then an image of ours in which a job runs with the environment
 * of the one below. */
static void test_from(void)
{
  if (!run_possible())
    return;
  Run *run = run_new();
  g_autofree char *lock = tree_path(run->dir, "images/images.lock.json");
  run_setenv(run, "QUAVON_SANDBOX_IMAGES_FILE", lock);
  g_autofree char *reference = run_foreign_image(run);
  g_autofree char *tagged = g_strdup_printf("%s/tiny.tar:latest", run->dir);
  g_autofree char *altered = g_strdup_printf("%s/tiny.tar@sha256:%064d", run->dir, 0);
  g_assert_cmpint(run_all_verb(run, WORDS("images", "build", "--from", tagged, "tiny")), ==, 1);
  run_says(run_stderr(run), "tags are refused");
  g_assert_cmpint(run_all_verb(run, WORDS("images", "build", "--from", altered, "tiny")), ==, 1);
  run_says(run_stderr(run), "does not hold the image");
  g_assert_false(g_file_test(lock, G_FILE_TEST_EXISTS));
  g_assert_cmpint(run_all_verb(run, WORDS("images", "build", "--from", reference, "tiny")), ==, 0);
  g_autofree char *first = run_stdout(run);
  g_assert_cmpint(run_all_verb(run, WORDS("images", "build", "--from", reference, "tiny")), ==, 0);
  g_autofree char *second = run_stdout(run);
  g_assert_cmpstr(first, ==, second);
  g_assert_cmpint(run_all(run, WORDS("--image", "tiny", "--", "sh", "-c", "echo $GREETING; id; env")), ==, 0);
  g_autofree char *out = run_stdout(run);
  g_assert_true(g_str_has_prefix(out, "hello there\nuid=65532(sandbox) gid=65532(sandbox)"));
  run_says(g_strdup(out), "\nPATH=/bin\n");
  run_says(g_strdup(out), "\nHOME=/workspace/home\n");
  run_free(run);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add("/images-verb/verify", Fixture, NULL, set_up, test_verify, tear_down);
  g_test_add("/images-verb/prune", Fixture, NULL, set_up, test_prune, tear_down);
  g_test_add_func("/images-verb/from", test_from);
  return g_test_run();
}
