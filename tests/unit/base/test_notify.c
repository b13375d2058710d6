/* SPDX-License-Identifier: Apache-2.0 */
/* A real datagram socket on the other side, by path and by abstract name. */
#include <errno.h>
#include <glib/gstdio.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/notify.h"

static int listen_at(const char *name)
{
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  gsize n = strlen(name);
  memcpy(address.sun_path, name, n);
  if (name[0] == '@')
    address.sun_path[0] = '\0';
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(bind(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)), ==, 0);
  return fd;
}

static void expect(int fd, const char *wanted)
{
  char text[256] = "";
  ssize_t n = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
  g_assert_cmpint(n, ==, strlen(wanted));
  g_assert_cmpstr(text, ==, wanted);
}

static void talk(const char *name)
{
  QV_AUTOFD int fd = listen_at(name);
  g_setenv("NOTIFY_SOCKET", name, TRUE);
  g_assert_true(qv_notify("READY=1\nSTATUS=fine"));
  expect(fd, "READY=1\nSTATUS=fine");
  gint64 before = g_get_monotonic_time();
  g_assert_true(qv_notify_reloading());
  char text[256] = "";
  g_assert_cmpint(recv(fd, text, sizeof text - 1, MSG_DONTWAIT), >, 0);
  g_assert_true(g_str_has_prefix(text, "RELOADING=1\nMONOTONIC_USEC="));
  gint64 at = g_ascii_strtoll(text + strlen("RELOADING=1\nMONOTONIC_USEC="), NULL, 10);
  g_assert_cmpint(at, >=, before);
  g_assert_cmpint(at, <=, g_get_monotonic_time());
}

static void test_path(void)
{
  g_autofree char *dir = g_dir_make_tmp("qv-test-XXXXXX", NULL);
  g_autofree char *name = g_build_filename(dir, "notify", NULL);
  talk(name);
  /* The manager has gone. */
  g_assert_false(qv_notify("READY=1"));
  g_assert_true(qv_fd_remove_tree(dir, NULL));
  g_assert_false(qv_notify("READY=1"));
}

static void test_abstract(void)
{
  g_autofree char *name = g_strdup_printf("@quavon-test-%d", getpid());
  talk(name);
}

static void test_none(void)
{
  g_unsetenv("NOTIFY_SOCKET");
  g_assert_false(qv_notify("READY=1"));
  g_autofree char *long_name = g_strnfill(200, '/');
  const char *const bad[] = {"", "/", "@", "relative", "vsock:1:2", long_name};
  for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
    g_setenv("NOTIFY_SOCKET", bad[i], TRUE);
    g_assert_false(qv_notify("READY=1"));
  }
}

/* A manager that does not read must not hold us. */
static void test_full(void)
{
  g_autofree char *name = g_strdup_printf("@quavon-test-full-%d", getpid());
  QV_AUTOFD int fd = listen_at(name);
  g_setenv("NOTIFY_SOCKET", name, TRUE);
  guint taken = 0;
  while (qv_notify("WATCHDOG=1"))
    g_assert_cmpuint(++taken, <, 1000000);
  g_assert_cmpuint(taken, >, 0);
}

static void test_watchdog(void)
{
  g_autofree char *own = g_strdup_printf("%d", getpid());
  static const struct {
    const char *period, *pid;
    guint ms;
  } cases[] = {{NULL, NULL, 0},        {"3000000", NULL, 3000}, {"3000000", "own", 3000}, {"3000000", "1", 0},
               {"3000000", "x", 0},    {"0", NULL, 0},          {"-1", NULL, 0},          {"10s", NULL, 0},
               {"999", NULL, 0},       {"1000", NULL, 1}};
  for (gsize i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_unsetenv("WATCHDOG_USEC");
    g_unsetenv("WATCHDOG_PID");
    if (cases[i].period != NULL)
      g_setenv("WATCHDOG_USEC", cases[i].period, TRUE);
    if (cases[i].pid != NULL)
      g_setenv("WATCHDOG_PID", g_str_equal(cases[i].pid, "own") ? own : cases[i].pid, TRUE);
    g_assert_cmpuint(qv_notify_watchdog_ms(), ==, cases[i].ms);
  }
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/notify/path", test_path);
  g_test_add_func("/notify/abstract", test_abstract);
  g_test_add_func("/notify/none", test_none);
  g_test_add_func("/notify/full", test_full);
  g_test_add_func("/notify/watchdog", test_watchdog);
  return g_test_run();
}
