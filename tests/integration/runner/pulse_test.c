/* SPDX-License-Identifier: Apache-2.0 */
/* What a service manager and a health check see of the runner's life. */
#include <fcntl.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "world.h"

enum { MESSAGE_MAX = 2048 };

static int listen_at(const char *path)
{
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  g_assert_cmpint(strlen(path), <, sizeof address.sun_path);
  strcpy(address.sun_path, path);
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct timeval deadline = {.tv_sec = WORLD_DEADLINE_MS / 1000};
  g_assert_cmpint(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline), ==, 0);
  g_assert_cmpint(bind(fd, (struct sockaddr *)&address, sizeof address), ==, 0);
  return fd;
}

/* Reads on until a message begins with TEXT, which is then in MESSAGE; what comes in between are beats and states. */
static void await_in(int fd, const char *text, char message[MESSAGE_MAX])
{
  for (;;) {
    memset(message, 0, MESSAGE_MAX);
    ssize_t n = recv(fd, message, MESSAGE_MAX - 1, 0);
    g_assert_cmpint(n, >, 0);
    if (g_str_has_prefix(message, text))
      return;
    if (!g_str_has_prefix(message, "WATCHDOG=1") && !g_str_has_prefix(message, "STATUS="))
      g_error("\"%s\" where \"%s\" was to come", message, text);
  }
}

static void await(int fd, const char *text)
{
  char message[MESSAGE_MAX];
  await_in(fd, text, message);
}

static int healthcheck(World *world)
{
  g_auto(GStrv) env = world_environment(world, NULL);
  g_autofree char *program = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "runner", "quavon-sandbox-runner", NULL);
  char *argv[] = {program, (char *)"--healthcheck", NULL};
  int status = -1;
  g_assert_true(g_spawn_sync(NULL, argv, env, G_SPAWN_DEFAULT, NULL, NULL, NULL, NULL, &status, NULL));
  g_assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

/* SETTING: what tells a runner of it. */
static int notify_socket(World *world, char **setting)
{
  g_autofree char *path = g_build_filename(world->dir, "notify", NULL);
  *setting = g_strconcat("NOTIFY_SOCKET=", path, NULL);
  return listen_at(path);
}

static void test_life(void)
{
  g_autoptr(World) world = world_new(QV_TEST_VALKEY_PLAIN);
  if (world == NULL)
    return;
  g_autofree char *setting = NULL;
  g_autofree char *alive = g_build_filename(world->state_dir, "alive", NULL);
  QV_AUTOFD int fd = notify_socket(world, &setting);
  g_assert_cmpint(healthcheck(world), ==, 1);
  world_start(world, (const char *const[]){setting, "WATCHDOG_USEC=600000", NULL});
  char message[MESSAGE_MAX];
  await_in(fd, "READY=1\nSTATUS=", message);
  g_assert_cmpstr(message, ==, "READY=1\nSTATUS=takes jobs");
  g_assert_cmpint(healthcheck(world), ==, 0);
  /* The loop feeds the watchdog by itself. */
  for (int i = 0; i < 3; i++) {
    await_in(fd, "WATCHDOG=1", message);
    g_assert_cmpstr(message, ==, "WATCHDOG=1");
  }
  kill(world->runner, SIGHUP);
  await(fd, "RELOADING=1\nMONOTONIC_USEC=");
  await(fd, "READY=1");
  /* A stopped process feeds nothing, and its sign of life goes stale: here by hand, not by waiting. */
  kill(world->runner, SIGSTOP);
  int status = -1;
  g_assert_cmpint(waitpid(world->runner, &status, WUNTRACED), ==, world->runner);
  g_assert_true(WIFSTOPPED(status));
  struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
  g_assert_cmpint(utimensat(AT_FDCWD, alive, old, 0), ==, 0);
  g_assert_cmpint(healthcheck(world), ==, 1);
  kill(world->runner, SIGCONT);
  /* Two more beats: the file is touched behind the datagram. */
  char drained[512];
  while (recv(fd, drained, sizeof drained, MSG_DONTWAIT) > 0)
    ;
  await(fd, "WATCHDOG=1");
  await(fd, "WATCHDOG=1");
  g_assert_cmpint(healthcheck(world), ==, 0);
  kill(world->runner, SIGTERM);
  await(fd, "STOPPING=1\nSTATUS=lets jobs end");
  g_assert_cmpint(world_stop(world, 0), ==, 0);
  g_assert_false(g_file_test(alive, G_FILE_TEST_EXISTS));
  g_assert_cmpint(healthcheck(world), ==, 1);
}

/* Nothing is remembered: while the first smoke test runs the start is extended, and it is complete when that has passed. */
static void test_waits_for_smoke(void)
{
  g_autoptr(World) world = world_new(QV_TEST_VALKEY_PLAIN);
  if (world == NULL)
    return;
  g_autofree char *setting = NULL;
  QV_AUTOFD int fd = notify_socket(world, &setting);
  char message[MESSAGE_MAX];
  world_start(world, (const char *const[]){setting, "WATCHDOG_USEC=600000", "QUAVON_SANDBOX_SMOKE_MEMORY=", NULL});
  await(fd, "STATUS=waits for its smoke test\nEXTEND_TIMEOUT_USEC=");
  await(fd, "WATCHDOG=1\nEXTEND_TIMEOUT_USEC="); /* before READY=1: while it waits */
  g_assert_cmpint(healthcheck(world), ==, 0);
  await_in(fd, "READY=1", message);
  g_assert_cmpstr(message, ==, "READY=1\nSTATUS=takes jobs");
  g_assert_true(world_log_has(world, "smoke test passed"));
  await_in(fd, "WATCHDOG=1", message);
  g_assert_cmpstr(message, ==, "WATCHDOG=1");
  /* A drain may last as long as the operator allows; it is extended as well. */
  kill(world->runner, SIGTERM);
  await(fd, "STOPPING=1");
  g_assert_cmpint(world_stop(world, 0), ==, 0);
}

/* One that did not pass: the start is complete, and the state says that it takes no jobs. */
static void test_failed_smoke(void)
{
  g_autoptr(World) world = world_new(QV_TEST_VALKEY_PLAIN);
  if (world == NULL)
    return;
  g_autofree char *setting = NULL;
  QV_AUTOFD int fd = notify_socket(world, &setting);
  char message[MESSAGE_MAX];
  g_autofree char *runsc = world_weak_runsc(world, "host-folder");
  world_start(world, (const char *const[]){setting, runsc, "QUAVON_SANDBOX_SMOKE_MEMORY=", NULL});
  await_in(fd, "READY=1", message);
  g_assert_true(g_str_has_prefix(message, "READY=1\nSTATUS=takes no jobs: the smoke test did not pass: "));
  g_assert_nonnull(strstr(message, "mounts"));
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/runner/pulse/life", test_life);
  g_test_add_func("/runner/pulse/waits-for-smoke", test_waits_for_smoke);
  g_test_add_func("/runner/pulse/failed-smoke", test_failed_smoke);
  return g_test_run();
}
