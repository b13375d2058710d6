/* SPDX-License-Identifier: Apache-2.0 */
/* Whole reads and writes through a pipe that is slower than they are, and the
 * path walk against links in every place. */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fd.h"
#include "base/io.h"
#include "support/valgrind.h"

enum { PIPE_TEST_BYTES = 3 * 1024 * 1024 + 17 };

static gpointer write_slowly(gpointer data)
{
  QV_AUTOFD int fd = GPOINTER_TO_INT(data);
  guint8 *bytes = g_malloc(PIPE_TEST_BYTES);
  for (gsize i = 0; i < PIPE_TEST_BYTES; i++)
    bytes[i] = (guint8)(i % 251);
  g_assert_true(qv_io_set_nonblock(fd, true));
  g_assert_true(qv_io_write_full(fd, bytes, PIPE_TEST_BYTES));
  g_free(bytes);
  return NULL;
}

static void test_full(void)
{
  int pair[2];
  g_assert_true(qv_fd_pipe(pair, NULL));
  GThread *writer = g_thread_new("writer", write_slowly, GINT_TO_POINTER(pair[1]));
  g_autofree guint8 *bytes = g_malloc(PIPE_TEST_BYTES + 1);
  g_assert_cmpint(qv_io_read_full(pair[0], bytes, 1000), ==, 1000);
  g_assert_cmpint(qv_io_read_full(pair[0], bytes + 1000, PIPE_TEST_BYTES - 999), ==, PIPE_TEST_BYTES - 1000);
  for (gsize i = 0; i < PIPE_TEST_BYTES; i++) {
    if (bytes[i] != (guint8)(i % 251))
      g_error("byte %" G_GSIZE_FORMAT " differs", i);
  }
  g_thread_join(writer);
  g_assert_cmpint(qv_io_read_full(pair[0], bytes, 1), ==, 0);
  g_assert_false(qv_io_write_full(pair[0], bytes, 1));
  g_assert_cmpint(errno, ==, EBADF);
  close(pair[0]);
}

static void test_autofd(void)
{
  int kept;
  {
    QV_AUTOFD int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    kept = fd;
    g_assert_true(qv_io_set_cloexec(fd, false));
    g_assert_cmpint(fcntl(fd, F_GETFD) & FD_CLOEXEC, ==, 0);
    g_assert_true(qv_io_set_cloexec(fd, true));
    g_assert_cmpint(fcntl(fd, F_GETFD) & FD_CLOEXEC, ==, FD_CLOEXEC);
  }
  g_assert_cmpint(fcntl(kept, F_GETFD), ==, -1);
  {
    QV_AUTOFD int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    kept = qv_io_steal(&fd);
    g_assert_cmpint(fd, ==, -1);
  }
  g_assert_cmpint(fcntl(kept, F_GETFD), !=, -1);
  close(kept);
}

static void expect_refused(int dir, const char *path, int err)
{
  g_test_message("%s", path);
  errno = 0;
  g_assert_cmpint(qv_io_open_beneath(dir, path, O_RDONLY, 0), ==, -1);
  g_assert_cmpint(errno, ==, err);
}

static void test_beneath(void)
{
  g_autofree char *top = g_dir_make_tmp("qv-test-XXXXXX", NULL);
  QV_AUTOFD int dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const char *name;
  QV_AUTOFD int parent = qv_io_make_parents(dir, "a/b/file", 0755, &name);
  g_assert_cmpint(parent, >=, 0);
  g_assert_cmpstr(name, ==, "file");
  QV_AUTOFD int made = qv_io_open_beneath(dir, "a/b/file", O_WRONLY | O_CREAT | O_EXCL, 0600);
  g_assert_cmpint(made, >=, 0);
  g_assert_true(qv_io_write_full(made, "hello", 5));
  g_assert_cmpint(fcntl(made, F_GETFD) & FD_CLOEXEC, ==, FD_CLOEXEC);
  g_assert_cmpint(symlinkat("a", dir, "link"), ==, 0);
  g_assert_cmpint(symlinkat("b/file", dir, "a/leaf"), ==, 0);
  g_assert_cmpint(symlinkat("/etc", dir, "etc"), ==, 0);
  expect_refused(dir, "link/b/file", ELOOP);
  expect_refused(dir, "a/leaf", ELOOP);
  expect_refused(dir, "etc/passwd", ELOOP);
  expect_refused(dir, "/etc/passwd", EINVAL);
  expect_refused(dir, "", EINVAL);
  expect_refused(dir, ".", EINVAL);
  expect_refused(dir, "a/../a/b/file", EINVAL);
  expect_refused(dir, "a//b/file", EINVAL);
  expect_refused(dir, "a/b/", EINVAL);
  expect_refused(dir, "a/b/file/more", ENOTDIR);
  expect_refused(dir, "a/none", ENOENT);
  errno = 0;
  g_assert_cmpint(qv_io_open_beneath(dir, "link", O_RDONLY | O_DIRECTORY, 0), ==, -1);
  g_assert_cmpint(errno, ==, ELOOP);
  QV_AUTOFD int folder = qv_io_open_beneath(dir, "a/b", O_RDONLY | O_DIRECTORY, 0);
  g_assert_cmpint(folder, >=, 0);
  errno = 0;
  g_assert_cmpint(qv_io_make_parents(dir, "link/new/x", 0755, &name), ==, -1);
  g_assert_cmpint(errno, ==, ELOOP);
  g_assert_true(qv_fd_remove_tree(top, NULL));
}

/* For good, but nothing else in this program asks for it; of several filters the newest one's answer is the one. */
static void answer_openat2(unsigned err)
{
  struct sock_filter code[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | err),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {.len = G_N_ELEMENTS(code), .filter = code};
  g_assert_cmpint(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), ==, 0);
  g_assert_cmpint(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), ==, 0);
}

/* The walk answers as the one call does: inside gVisor, behind a filter, and where the call met a folder that moved. */
static void test_beneath_walked(void)
{
  static const unsigned answers[] = {ENOSYS, EPERM, EAGAIN, EXDEV};
  if (qv_test_under_valgrind()) {
    g_test_skip("cannot run under valgrind");
    return;
  }
  for (gsize i = 0; i < G_N_ELEMENTS(answers); i++) {
    g_test_message("openat2: %s", g_strerror((int)answers[i]));
    answer_openat2(answers[i]);
    struct open_how how = {.flags = O_PATH};
    g_assert_cmpint(syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof how), ==, -1);
    g_assert_cmpint(errno, ==, (int)answers[i]);
    test_beneath();
  }
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/io/full", test_full);
  g_test_add_func("/io/autofd", test_autofd);
  g_test_add_func("/io/beneath", test_beneath);
  g_test_add_func("/io/beneath-walked", test_beneath_walked);
  return g_test_run();
}
