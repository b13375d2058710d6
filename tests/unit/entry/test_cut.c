/* SPDX-License-Identifier: Apache-2.0 */
/* The look for the end of the way out: what is still there, and what is not. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "entry/cut.h"

enum { SOON_MS = 300, LONG_MS = 120000 };

static int unix_at(const char *path, struct sockaddr_un *at)
{
  *at = (struct sockaddr_un){.sun_family = AF_UNIX};
  g_strlcpy(at->sun_path, path, sizeof at->sun_path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(bind(fd, (struct sockaddr *)at, sizeof *at), ==, 0);
  g_assert_cmpint(listen(fd, 0), ==, 0);
  return fd;
}

static gpointer close_later(gpointer fd)
{
  g_usleep(SOON_MS * 1000);
  close(GPOINTER_TO_INT(fd));
  return NULL;
}

static void test_unix(void)
{
  g_autofree char *folder = g_dir_make_tmp("quavon-cut-XXXXXX", NULL);
  g_autofree char *path = g_build_filename(folder, "s", NULL);
  struct sockaddr_un at;
  int fd = unix_at(path, &at);
  /* Its queue full or not: it is there. */
  g_assert_false(qv_entry_cut_await((struct sockaddr *)&at, sizeof at, SOON_MS));
  gint64 from_ms = qv_clock_mono_ms();
  GThread *thread = g_thread_new("close", close_later, GINT_TO_POINTER(fd));
  g_assert_true(qv_entry_cut_await((struct sockaddr *)&at, sizeof at, LONG_MS));
  g_assert_cmpint(qv_clock_mono_ms() - from_ms, >=, SOON_MS);
  g_thread_join(thread);
  g_assert_true(qv_entry_cut_await((struct sockaddr *)&at, sizeof at, LONG_MS)); /* nobody listens */
  g_unlink(path);
  g_assert_true(qv_entry_cut_await((struct sockaddr *)&at, sizeof at, LONG_MS)); /* it is not even there */
  g_rmdir(folder);
}

static struct sockaddr_in tcp_at(const char *address, int *fd, int backlog)
{
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(address)};
  socklen_t n = sizeof at;
  *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(bind(*fd, (struct sockaddr *)&at, sizeof at), ==, 0);
  g_assert_cmpint(listen(*fd, backlog), ==, 0);
  g_assert_cmpint(getsockname(*fd, (struct sockaddr *)&at, &n), ==, 0);
  return at;
}

/* A port that is open, or closed, is reached; one from which no word comes is not. */
static void test_tcp(void)
{
  int fd, queued[4];
  struct sockaddr_in at = tcp_at("127.0.0.1", &fd, 128);
  g_assert_false(qv_entry_cut_await((struct sockaddr *)&at, sizeof at, SOON_MS));
  close(fd);
  g_assert_false(qv_entry_cut_await((struct sockaddr *)&at, sizeof at, SOON_MS));

  struct sockaddr_in full = tcp_at("127.0.0.1", &fd, 0);
  for (gsize i = 0; i < G_N_ELEMENTS(queued); i++) {
    queued[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)!connect(queued[i], (struct sockaddr *)&full, sizeof full);
  }
  gint64 from_ms = qv_clock_mono_ms();
  g_assert_true(qv_entry_cut_await((struct sockaddr *)&full, sizeof full, LONG_MS));
  g_assert_cmpint(qv_clock_mono_ms() - from_ms, >=, QV_ENTRY_CUT_SILENT_MS);
  for (gsize i = 0; i < G_N_ELEMENTS(queued); i++)
    close(queued[i]);
  close(fd);
}

/* No descriptor is left for the look: that says nothing. */
static void test_no_descriptor(void)
{
  struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "/nonexistent/socket"};
  GArray *fds = g_array_new(FALSE, FALSE, sizeof(int));
  struct rlimit files;
  int fd;
  g_assert_cmpint(getrlimit(RLIMIT_NOFILE, &files), ==, 0);
  files.rlim_cur = 64;
  g_assert_cmpint(setrlimit(RLIMIT_NOFILE, &files), ==, 0);
  while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
    g_array_append_val(fds, fd);
  bool gone = qv_entry_cut_await((struct sockaddr *)&at, sizeof at, SOON_MS);
  for (guint i = 0; i < fds->len; i++)
    close(g_array_index(fds, int, i));
  g_array_unref(fds);
  g_assert_false(gone);
  g_assert_true(qv_entry_cut_await((struct sockaddr *)&at, sizeof at, LONG_MS));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/entry/cut/unix", test_unix);
  g_test_add_func("/entry/cut/tcp", test_tcp);
  g_test_add_func("/entry/cut/no-descriptor", test_no_descriptor);
  return g_test_run();
}
