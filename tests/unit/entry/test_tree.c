/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "entry/tree.h"

typedef struct {
  char *path;
  int fd;
} Fixture;

static void set_up(Fixture *fixture, gconstpointer unused)
{
  fixture->path = g_dir_make_tmp("quavon-tree-XXXXXX", NULL);
  g_assert_nonnull(fixture->path);
  fixture->fd = open(fixture->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  g_assert_cmpint(fixture->fd, >=, 0);
  g_assert_cmpint(mkdirat(fixture->fd, "real", 0755), ==, 0);
  g_assert_cmpint(mkdirat(fixture->fd, "real/inner", 0755), ==, 0);
  int file = openat(fixture->fd, "real/file", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  g_assert_cmpint(write(file, "text", 4), ==, 4);
  close(file);
  g_assert_cmpint(symlinkat("real", fixture->fd, "link"), ==, 0);
  g_assert_cmpint(symlinkat("real/file", fixture->fd, "file-link"), ==, 0);
  g_assert_cmpint(mkfifoat(fixture->fd, "fifo", 0644), ==, 0);
}

static void tear_down(Fixture *fixture, gconstpointer unused)
{
  close(fixture->fd);
  g_assert_true(qv_fd_remove_tree(fixture->path, NULL));
  g_free(fixture->path);
}

static void expect_errno(int fd, int err)
{
  int got = errno;
  g_assert_cmpint(fd, ==, -1);
  g_assert_cmpint(got, ==, err);
}

static void test_open(Fixture *fixture, gconstpointer unused)
{
  struct stat info;
  int fd = qv_entry_tree_open_folder(fixture->fd, "real");
  g_assert_cmpint(fd, >=, 0);
  int file = qv_entry_tree_open_file(fd, "file", &info);
  g_assert_cmpint(file, >=, 0);
  g_assert_cmpint(info.st_size, ==, 4);
  close(file);
  close(fd);
  expect_errno(qv_entry_tree_open_folder(fixture->fd, "link"), ELOOP);
  expect_errno(qv_entry_tree_open_folder(fixture->fd, "fifo"), ENOTDIR);
  expect_errno(qv_entry_tree_open_folder(fixture->fd, "absent"), ENOENT);
  expect_errno(qv_entry_tree_open_file(fixture->fd, "file-link", &info), ELOOP);
  expect_errno(qv_entry_tree_open_file(fixture->fd, "fifo", &info), EINVAL);
  expect_errno(qv_entry_tree_open_file(fixture->fd, "real", &info), EINVAL);
}

static void test_other_file_system(Fixture *fixture, gconstpointer unused)
{
  int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat here, proc;
  if (fstat(root, &here) == 0 && stat("/proc", &proc) == 0 && here.st_dev != proc.st_dev)
    expect_errno(qv_entry_tree_open_folder(root, "proc"), EXDEV);
  else
    g_test_skip("/proc is no file system of its own here");
  close(root);
}

typedef struct {
  int fd;
  int stop;
} Swapper;

/* A folder and a link to another one take each other's place, as fast as they can. */
static gpointer swap(gpointer data)
{
  Swapper *swapper = data;
  while (!g_atomic_int_get(&swapper->stop)) {
    renameat2(swapper->fd, "real", swapper->fd, "link", RENAME_EXCHANGE);
    g_usleep(1); /* the other thread's turn, also where threads take turns only */
  }
  return NULL;
}

/* Whatever wins the race: what is opened is never what the link points to. */
static void test_race(Fixture *fixture, gconstpointer unused)
{
  g_autofree char *outside = g_dir_make_tmp("quavon-outside-XXXXXX", NULL);
  struct stat forbidden, info;
  g_assert_cmpint(stat(outside, &forbidden), ==, 0);
  g_assert_cmpint(unlinkat(fixture->fd, "link", 0), ==, 0);
  g_assert_cmpint(symlinkat(outside, fixture->fd, "link"), ==, 0);
  Swapper swapper = {.fd = fixture->fd};
  GThread *thread = g_thread_new("swap", swap, &swapper);
  for (int i = 0; i < 3000; i++) {
    int fd = qv_entry_tree_open_folder(fixture->fd, "real");
    if (fd < 0)
      continue;
    g_assert_cmpint(fstat(fd, &info), ==, 0);
    g_assert_cmpuint(info.st_ino, !=, forbidden.st_ino);
    close(fd);
  }
  g_atomic_int_set(&swapper.stop, 1);
  g_thread_join(thread);
  g_assert_cmpint(g_rmdir(outside), ==, 0);
}

static gint64 mtime_of(const Fixture *fixture, const char *name)
{
  struct stat info;
  g_assert_cmpint(fstatat(fixture->fd, name, &info, AT_SYMLINK_NOFOLLOW), ==, 0);
  return info.st_mtim.tv_sec;
}

static gboolean exists(const Fixture *fixture, const char *name)
{
  return faccessat(fixture->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void test_delete(Fixture *fixture, gconstpointer unused)
{
  g_assert_true(qv_entry_tree_delete(fixture->fd, "real/inner", 7));
  g_assert_false(exists(fixture, "real/inner"));
  g_assert_cmpint(mtime_of(fixture, "real"), ==, 7);
  g_assert_true(qv_entry_tree_delete(fixture->fd, "real/absent", 8));
  g_assert_true(qv_entry_tree_delete(fixture->fd, "absent/too", 8));
  g_assert_true(qv_entry_tree_delete(fixture->fd, "real/file/below", 8));
  g_assert_true(exists(fixture, "real/file"));
  g_assert_false(qv_entry_tree_delete(fixture->fd, "link/file", 8));
  g_assert_cmpint(errno, ==, ELOOP);
  g_assert_true(exists(fixture, "real/file"));
  g_assert_true(qv_entry_tree_delete(fixture->fd, "real", 9));
  g_assert_false(exists(fixture, "real"));
  g_assert_cmpint(mtime_of(fixture, "."), ==, 9);
}

/* A link in a tree that goes is removed itself, not what it points to. */
static void test_remove_does_not_follow(Fixture *fixture, gconstpointer unused)
{
  g_assert_cmpint(mkdirat(fixture->fd, "goes", 0755), ==, 0);
  g_assert_cmpint(symlinkat("../real", fixture->fd, "goes/link"), ==, 0);
  g_assert_true(qv_entry_tree_remove(fixture->fd, "goes"));
  g_assert_false(exists(fixture, "goes"));
  g_assert_true(exists(fixture, "real/file"));
  g_assert_true(qv_entry_tree_remove(fixture->fd, "goes"));
}

#define ADD(name, func) g_test_add("/entry/tree/" name, Fixture, NULL, set_up, func, tear_down)

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  ADD("open", test_open);
  ADD("other-file-system", test_other_file_system);
  ADD("race", test_race);
  ADD("delete", test_delete);
  ADD("remove-does-not-follow", test_remove_does_not_follow);
  return g_test_run();
}
