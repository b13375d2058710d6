/* SPDX-License-Identifier: Apache-2.0 */
/* Most of collecting is tested with the real program (tests/integration/entry).
 * Here: what changes under its feet, order against memcmp, and many files. */
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "entry/collect.h"
#include "format/tar.h"

typedef struct {
  char *path;
  int fd;
} Fixture;

static void set_up(Fixture *fixture, gconstpointer unused)
{
  fixture->path = g_dir_make_tmp("quavon-collect-XXXXXX", NULL);
  g_assert_nonnull(fixture->path);
  fixture->fd = open(fixture->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  g_assert_cmpint(fixture->fd, >=, 0);
}

static void tear_down(Fixture *fixture, gconstpointer unused)
{
  close(fixture->fd);
  g_assert_true(qv_fd_remove_tree(fixture->path, NULL));
  g_free(fixture->path);
}

static void put(int fd, const char *path, const char *text)
{
  const char *name;
  QV_AUTOFD int parent = qv_io_make_parents(fd, path, 0755, &name);
  g_assert_cmpint(parent, >=, 0);
  QV_AUTOFD int file = openat(parent, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  g_assert_true(qv_io_write_full(file, text, strlen(text)));
}

/* The members' paths without their prefix, in order; fails where a body holds "outside". */
static GPtrArray *collect(const Fixture *fixture, const char *glob, uint64_t count_max, uint64_t *dropped)
{
  static const uint8_t key[QV_STREAM_KEY_BYTES];
  static const QvTarCaps caps = {
    .entries_max = 100000, .total_bytes_max = 1 << 30, .file_bytes_max = 1 << 20, .portable = true};
  char *globs[] = {(char *)glob};
  const QvEntryCollectSpec spec = {.globs = globs, .globs_n = 1, .bytes_max = 1 << 20, .count_max = count_max};
  QV_AUTOFD int fd = memfd_create("stream", MFD_CLOEXEC);
  QvEntryOutput output;
  qv_entry_output_init(&output, fd, key);
  *dropped = qv_entry_collect(fixture->fd, &spec, &output);
  g_assert_cmpint(lseek(fd, 0, SEEK_SET), ==, 0);
  gsize size;
  g_autofree char *stream = qv_fd_read_all(fd, "stream", 1 << 28, &size, NULL);
  g_assert_nonnull(stream);
  const uint8_t *bytes = (const uint8_t *)stream;
  size_t n = size;
  QvTarReader reader;
  QvTarEvent event;
  GPtrArray *paths = g_ptr_array_new_with_free_func(g_free);
  qv_tar_reader_init(&reader, &caps);
  while ((event = qv_tar_reader_step(&reader, &bytes, &n)) != QV_TAR_MORE) {
    g_assert_cmpint(event, !=, QV_TAR_BAD);
    if (event == QV_TAR_ENTRY)
      g_ptr_array_add(paths, g_strdup(reader.entry.path + strlen("artefacts/")));
    if (event == QV_TAR_DATA)
      g_assert_null(memmem(reader.data, reader.data_n, "outside", 7));
  }
  qv_tar_reader_clear(&reader);
  return paths;
}

static void test_order(Fixture *fixture, gconstpointer unused)
{
  static const char *const parts[] = {"a", "a-", "a.b", "a0", "b", "A", "\xc3\xa9", "~", "a b"};
  for (int i = 0; i < 400; i++) {
    g_autoptr(GString) path = g_string_new(NULL);
    for (int depth = g_test_rand_int_range(1, 4); depth > 0; depth--)
      g_string_append_printf(path, "%s/", parts[g_test_rand_int_range(0, G_N_ELEMENTS(parts))]);
    g_string_append_printf(path, "f%d", g_test_rand_int_range(0, 1000));
    put(fixture->fd, path->str, "x");
  }
  uint64_t dropped;
  g_autoptr(GPtrArray) paths = collect(fixture, "**", 10000, &dropped);
  g_assert_cmpuint(dropped, ==, 0);
  g_assert_cmpuint(paths->len, >, 100);
  for (guint i = 1; i < paths->len; i++)
    g_assert_cmpint(strcmp(paths->pdata[i - 1], paths->pdata[i]), <, 0);
}

static void test_count(Fixture *fixture, gconstpointer unused)
{
  for (int i = 0; i < 400; i++) {
    g_autofree char *path = g_strdup_printf("many/%04d", i);
    put(fixture->fd, path, "x");
  }
  uint64_t dropped;
  g_autoptr(GPtrArray) paths = collect(fixture, "many/*", 256, &dropped);
  g_assert_cmpuint(paths->len, ==, 256);
  g_assert_cmpuint(dropped, ==, 144);
  g_assert_cmpstr(paths->pdata[255], ==, "many/0255");
}

static void test_removed_root(Fixture *fixture, gconstpointer unused)
{
  uint64_t dropped;
  g_assert_cmpint(g_rmdir(fixture->path), ==, 0);
  g_autoptr(GPtrArray) paths = collect(fixture, "**", 256, &dropped);
  g_assert_cmpuint(paths->len, ==, 0);
  g_assert_cmpuint(dropped, ==, 0);
}

typedef struct {
  int fd;
  int stop;
} Swapper;

static gpointer swap(gpointer data)
{
  Swapper *swapper = data;
  while (!g_atomic_int_get(&swapper->stop)) {
    renameat2(swapper->fd, "dir", swapper->fd, "dir-link", RENAME_EXCHANGE);
    renameat2(swapper->fd, "sub/file", swapper->fd, "sub/file-link", RENAME_EXCHANGE);
    g_usleep(1); /* the other thread's turn, also where threads take turns only */
  }
  return NULL;
}

/* Folders and files that turn into links while they are collected lead nowhere. */
static void test_race(Fixture *fixture, gconstpointer unused)
{
  g_autofree char *outside = g_dir_make_tmp("quavon-outside-XXXXXX", NULL);
  g_autofree char *secret = g_build_filename(outside, "file", NULL);
  g_assert_true(g_file_set_contents(secret, "outside", -1, NULL));
  put(fixture->fd, "dir/file", "inside");
  put(fixture->fd, "sub/file", "inside");
  g_assert_cmpint(symlinkat(outside, fixture->fd, "dir-link"), ==, 0);
  g_assert_cmpint(symlinkat(secret, fixture->fd, "sub/file-link"), ==, 0);
  Swapper swapper = {.fd = fixture->fd};
  GThread *thread = g_thread_new("swap", swap, &swapper);
  guint found = 0;
  for (int i = 0; i < 200; i++) {
    uint64_t dropped;
    g_autoptr(GPtrArray) paths = collect(fixture, "**", 256, &dropped);
    found += paths->len;
  }
  g_atomic_int_set(&swapper.stop, 1);
  g_thread_join(thread);
  g_assert_cmpuint(found, >, 0);
  g_unlink(secret);
  g_rmdir(outside);
}

#define ADD(name, func) g_test_add("/entry/collect/" name, Fixture, NULL, set_up, func, tear_down)

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  ADD("order", test_order);
  ADD("count", test_count);
  ADD("removed-root", test_removed_root);
  ADD("race", test_race);
  return g_test_run();
}
