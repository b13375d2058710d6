/* SPDX-License-Identifier: Apache-2.0 */
/* Capped reads at, below and above the cap; odd kinds of files; replaced
 * files; descriptors handed over; the removal of trees with links that lead out of them. */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"

static char *top;

static char *below(const char *name)
{
  return g_build_filename(top, name, NULL);
}

static void test_read_cap(void)
{
  g_autofree char *path = below("capped");
  for (gsize n = 4090; n <= 20000; n += n < 4100 ? 1 : 1589) {
    g_autofree char *bytes = g_malloc(n);
    memset(bytes, 'x', n);
    g_assert_true(qv_fd_write_file(path, bytes, n, 0644, NULL));
    gsize got = 0;
    g_autofree char *read = qv_fd_read_file(path, n, &got, NULL);
    g_assert_cmpmem(read, got, bytes, n);
    g_assert_cmpint(read[got], ==, '\0');
    g_autoptr(GError) error = NULL;
    g_assert_null(qv_fd_read_file(path, n - 1, &got, &error));
    g_assert_error(error, QV_ERROR, QV_ERROR_LIMIT);
  }
}

static void test_read_kinds(void)
{
  g_autofree char *fifo = below("fifo");
  g_autofree char *none = below("none");
  g_assert_cmpint(mkfifo(fifo, 0600), ==, 0);
  gsize n = 7;
  g_autoptr(GError) error = NULL;
  g_assert_null(qv_fd_read_file(fifo, 10, &n, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
  g_clear_error(&error);
  g_assert_null(qv_fd_read_file(top, 10, &n, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
  g_clear_error(&error);
  g_assert_null(qv_fd_read_file(none, 10, &n, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_NOT_FOUND);
  g_assert_cmpuint(n, ==, 7);
}

static void test_write_file(void)
{
  g_autofree char *path = below("written");
  g_assert_true(qv_fd_write_file(path, "one", 3, 0600, NULL));
  g_assert_true(qv_fd_write_file(path, "two", 3, 0640, NULL));
  gsize n;
  g_autofree char *bytes = qv_fd_read_file(path, 10, &n, NULL);
  g_assert_cmpmem(bytes, n, "two", 3);
  GStatBuf info;
  g_assert_cmpint(g_stat(path, &info), ==, 0);
  g_assert_cmpint(info.st_mode & 0777, ==, 0640);
  g_autoptr(GError) error = NULL;
  g_assert_false(qv_fd_write_file("/proc/none/file", "x", 1, 0600, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
}

static void test_pairs(void)
{
  int pipes[2];
  int sockets[2];
  char byte;
  g_assert_true(qv_fd_pipe(pipes, NULL));
  g_assert_true(qv_fd_socketpair(sockets, NULL));
  g_assert_true(qv_fd_write_all(pipes[1], "pipe", "a", 1, NULL));
  g_assert_cmpint(qv_io_read_full(pipes[0], &byte, 1), ==, 1);
  g_assert_cmpint(byte, ==, 'a');
  g_assert_true(qv_fd_write_all(sockets[0], "socket", "b", 1, NULL));
  g_assert_cmpint(qv_io_read_full(sockets[1], &byte, 1), ==, 1);
  g_assert_cmpint(byte, ==, 'b');
  for (int i = 0; i < 2; i++) {
    g_assert_true(fcntl(pipes[i], F_GETFD) & FD_CLOEXEC);
    g_assert_true(fcntl(sockets[i], F_GETFD) & FD_CLOEXEC);
    close(pipes[i]);
    close(sockets[i]);
  }
}

static void test_remove_tree(void)
{
  g_autofree char *outside = below("outside");
  g_autofree char *precious = below("outside/precious");
  g_autofree char *deep = below("tree/a/b/c");
  g_autofree char *tree = below("tree");
  g_autofree char *link = below("tree/a/link");
  g_assert_cmpint(g_mkdir_with_parents(outside, 0755), ==, 0);
  g_assert_cmpint(g_mkdir_with_parents(deep, 0755), ==, 0);
  g_assert_true(qv_fd_write_file(precious, "x", 1, 0600, NULL));
  g_assert_cmpint(symlink(outside, link), ==, 0);
  g_assert_true(qv_fd_remove_tree(tree, NULL));
  g_assert_false(g_file_test(tree, G_FILE_TEST_EXISTS));
  g_assert_true(g_file_test(precious, G_FILE_TEST_EXISTS));
  g_assert_true(qv_fd_remove_tree(tree, NULL));
  g_assert_cmpint(symlink(outside, tree), ==, 0);
  g_assert_true(qv_fd_remove_tree(tree, NULL));
  g_assert_true(g_file_test(precious, G_FILE_TEST_EXISTS));
}

static guint open_n(void)
{
  guint n = 0;
  g_autoptr(GDir) folder = g_dir_open("/proc/self/fd", 0, NULL);
  g_assert_nonnull(folder);
  while (g_dir_read_name(folder) != NULL)
    n++;
  return n;
}

static void receive_nothing(int socket, int err)
{
  errno = 0;
  g_assert_cmpint(qv_fd_receive(socket), ==, -1);
  g_assert_cmpint(errno, ==, err);
}

static void send_several(int socket, gsize n)
{
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(3 * sizeof(int))];
  } passed = {0};
  const int fds[] = {socket, socket, socket};
  struct iovec byte = {(char[]){'\0'}, 1};
  struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = &passed, .msg_controllen = CMSG_LEN(n * sizeof *fds)};
  passed.header.cmsg_level = SOL_SOCKET;
  passed.header.cmsg_type = SCM_RIGHTS;
  passed.header.cmsg_len = CMSG_LEN(n * sizeof *fds);
  memcpy(CMSG_DATA(&passed.header), fds, n * sizeof *fds);
  g_assert_cmpint(sendmsg(socket, &message, 0), ==, 1);
}

/* Refused, and none is left open; what comes behind is taken. */
static void test_pass_several(void)
{
  int pair[2];
  g_assert_true(qv_fd_socketpair(pair, NULL));
  guint before = open_n();
  for (gsize n = 2; n <= 3; n++) {
    send_several(pair[0], n);
    receive_nothing(pair[1], EPROTO);
    g_assert_cmpuint(open_n(), ==, before);
  }
  g_assert_true(qv_fd_send(pair[0], pair[0], NULL));
  int got = qv_fd_receive(pair[1]);
  g_assert_cmpint(got, >=, 0);
  close(got);
  close(pair[0]);
  close(pair[1]);
}

/* The other side gets a descriptor of its own; without one, and at the end of the stream, there is none. */
static void test_pass(void)
{
  int pair[2], ends[2];
  g_assert_true(qv_fd_socketpair(pair, NULL) && qv_fd_pipe(ends, NULL));
  g_assert_true(qv_fd_send(pair[0], ends[0], NULL));
  close(ends[0]);
  int got = qv_fd_receive(pair[1]);
  g_assert_cmpint(got, >=, 0);
  g_assert_cmpint(fcntl(got, F_GETFD) & FD_CLOEXEC, ==, FD_CLOEXEC);
  char byte = 0;
  g_assert_cmpint(write(ends[1], "x", 1), ==, 1);
  g_assert_cmpint(read(got, &byte, 1), ==, 1);
  g_assert_cmpint(byte, ==, 'x');
  close(got);
  close(ends[1]);
  g_assert_cmpint(write(pair[0], "y", 1), ==, 1);
  receive_nothing(pair[1], ENODATA);
  close(pair[0]);
  receive_nothing(pair[1], ENODATA);
  g_autoptr(GError) error = NULL;
  g_assert_false(qv_fd_send(pair[1], pair[1], &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_GONE);
  close(pair[1]);
}

/* In a child, which has none of ours and tells with its exit status. */
static void test_open_standard(void)
{
  pid_t pid = fork();
  if (pid == 0) {
    close(STDIN_FILENO);
    close(STDERR_FILENO);
    int before = dup(STDOUT_FILENO); /* takes the place of stdin */
    qv_fd_open_standard();
    int next = open("/dev/null", O_RDONLY);
    _exit(before == STDIN_FILENO && next > STDERR_FILENO && write(STDERR_FILENO, "x", 1) == 1 &&
              fcntl(STDERR_FILENO, F_GETFD) == 0
            ? 0 : 1);
  }
  int status;
  g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
  g_assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  top = g_dir_make_tmp("qv-test-XXXXXX", NULL);
  g_test_add_func("/fd/read-cap", test_read_cap);
  g_test_add_func("/fd/read-kinds", test_read_kinds);
  g_test_add_func("/fd/write-file", test_write_file);
  g_test_add_func("/fd/open-standard", test_open_standard);
  g_test_add_func("/fd/pairs", test_pairs);
  g_test_add_func("/fd/pass", test_pass);
  g_test_add_func("/fd/pass-several", test_pass_several);
  g_test_add_func("/fd/remove-tree", test_remove_tree);
  int status = g_test_run();
  g_assert_true(qv_fd_remove_tree(top, NULL));
  g_free(top);
  return status;
}
