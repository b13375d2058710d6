/* SPDX-License-Identifier: Apache-2.0 */
/* The look for the end of the way out: what is still there, and what is not. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/canary.h"
#include "base/clock.h"
#include "base/io.h"
#include "entry/cut.h"

enum { SOON_MS = 300, LONG_MS = 120000 };

static const char *no_network; /* why there is none of our own, or NULL */

/* Nobody else has its ports and its counters. Before there is a thread: a process of several gets no user namespace. */
static void enter_network(void)
{
  if (unshare(geteuid() == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    no_network = "neither root nor user namespaces";
    return;
  }
  QV_AUTOFD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
  if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) != 0)
    no_network = "a network that cannot be brought up";
}

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

/* PORT 0: any. */
static struct sockaddr_in tcp_at(guint16 port, int *fd, int backlog)
{
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
  socklen_t n = sizeof at;
  const int yes = 1;
  *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), ==, 0);
  g_assert_cmpint(bind(*fd, (struct sockaddr *)&at, sizeof at), ==, 0);
  g_assert_cmpint(listen(*fd, backlog), ==, 0);
  g_assert_cmpint(getsockname(*fd, (struct sockaddr *)&at, &n), ==, 0);
  return at;
}

/* A connection that waits to be taken. */
static int queue_one(const struct sockaddr_in *at, int listener)
{
  struct pollfd queued = {.fd = listener, .events = POLLIN};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(connect(fd, (const struct sockaddr *)at, sizeof *at), ==, 0);
  g_assert_cmpint(poll(&queued, 1, LONG_MS), ==, 1);
  return fd;
}

/* Of this network: what came to a full queue. */
static guint64 dropped(void)
{
  g_autofree char *text = NULL;
  guint64 n = 0;
  g_assert_true(g_file_get_contents("/proc/thread-self/net/netstat", &text, NULL, NULL));
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  g_auto(GStrv) names = g_strsplit(lines[0], " ", -1), values = g_strsplit(lines[1], " ", -1);
  gboolean found = FALSE;
  for (gsize i = 0; names[i] != NULL && values[i] != NULL && !found; i++)
    if ((found = strcmp(names[i], "ListenDrops") == 0))
      n = g_ascii_strtoull(values[i], NULL, 10);
  g_assert_true(found);
  return n;
}

/* A port that is open, or closed, is reached; one whose queue is full is silent, but its neighbour is not. */
static void test_tcp(void)
{
  int fd;
  struct sockaddr_in at = tcp_at(0, &fd, 128);
  g_assert_false(qv_entry_cut_await((struct sockaddr *)&at, sizeof at, SOON_MS));
  close(fd);
  g_assert_false(qv_entry_cut_await((struct sockaddr *)&at, sizeof at, SOON_MS));

  struct sockaddr_in full = tcp_at(0, &fd, 0);
  int queued = queue_one(&full, fd);
  g_assert_false(qv_entry_cut_await((struct sockaddr *)&full, sizeof full, SOON_MS));
  close(queued);
  close(fd);
}

/* From neither comes a word: each is asked twice before that says anything. */
static void test_silent(void)
{
  if (no_network != NULL) {
    g_test_skip(no_network);
    return;
  }
  int fds[2], queued[2];
  struct sockaddr_in full = tcp_at(0, &fds[0], 0), canary = tcp_at(QV_EGRESS_CANARY_PORT, &fds[1], 0);
  queued[0] = queue_one(&full, fds[0]);
  queued[1] = queue_one(&canary, fds[1]);
  guint64 before = dropped();
  gint64 from_ms = qv_clock_mono_ms();
  g_assert_true(qv_entry_cut_await((struct sockaddr *)&full, sizeof full, LONG_MS));
  g_assert_cmpint(qv_clock_mono_ms() - from_ms, >=, 2 * QV_ENTRY_CUT_SILENT_MS);
  g_assert_cmpuint(dropped() - before, >=, 4);
  for (gsize i = 0; i < G_N_ELEMENTS(fds); i++) {
    close(queued[i]);
    close(fds[i]);
  }
}

/* This end has no port left: that says nothing of the other. */
static void test_no_port(void)
{
  QV_AUTOFD int range = no_network == NULL ? open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY | O_CLOEXEC) : -1;
  if (range < 0) {
    g_test_skip(no_network != NULL ? no_network : "the range of ports cannot be set");
    return;
  }
  int fds[2], taken[2];
  struct sockaddr_in at = tcp_at(0, &fds[0], 128), canary = tcp_at(QV_EGRESS_CANARY_PORT, &fds[1], 128);
  static const char one[] = "30000 30000", all[] = "32768 60999";
  g_assert_true(qv_io_write_full(range, one, strlen(one)));
  taken[0] = queue_one(&at, fds[0]);
  taken[1] = queue_one(&canary, fds[1]);
  QV_AUTOFD int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(connect(fd, (struct sockaddr *)&at, sizeof at), ==, -1);
  g_assert_cmpint(errno, ==, EADDRNOTAVAIL);
  g_assert_false(qv_entry_cut_await((struct sockaddr *)&at, sizeof at, SOON_MS));
  g_assert_cmpint(lseek(range, 0, SEEK_SET), ==, 0);
  g_assert_true(qv_io_write_full(range, all, strlen(all)));
  for (gsize i = 0; i < G_N_ELEMENTS(fds); i++) {
    close(taken[i]);
    close(fds[i]);
  }
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
  enter_network();
  g_test_add_func("/entry/cut/unix", test_unix);
  g_test_add_func("/entry/cut/tcp", test_tcp);
  g_test_add_func("/entry/cut/silent", test_silent);
  g_test_add_func("/entry/cut/no-port", test_no_port);
  g_test_add_func("/entry/cut/no-descriptor", test_no_descriptor);
  return g_test_run();
}
