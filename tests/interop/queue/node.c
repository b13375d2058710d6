/* SPDX-License-Identifier: Apache-2.0 */
#include "node.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/loop.h"

#define NODE_DEADLINE_S 1000

struct NodeProgram {
  GPid pid;
  int fd; /* its stdout and stderr */
  GString *out;
  char *what;
  int status;
  gboolean ended;
};

const char *node_folder(void)
{
  static char *folder;
  if (folder)
    return folder;
  g_autofree char *wanted = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "interop", NULL);
  g_autofree char *source = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "tests", "interop", "queue", NULL);
  g_autofree char *script = g_build_filename(source, "npm.sh", NULL);
  g_autofree char *out = NULL;
  g_autoptr(GError) error = NULL;
  int status;
  const char *argv[] = { "sh", script, source, wanted, NULL };
  g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, &out, NULL, &status, &error);
  g_assert_no_error(error);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    g_test_skip(g_strchomp(out));
    return NULL;
  }
  if (status != 0)
    g_error("npm.sh: %s", out);
  folder = g_steal_pointer(&wanted);
  return folder;
}

static void die_with_parent(gpointer parent)
{
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != GPOINTER_TO_INT(parent))
    _exit(1);
  dup2(1, 2);
}

NodeProgram *node_start(QvTestValkey *valkey, const char *user, const char *program, const char *major,
                        const char *const *more, const char *const *env)
{
  NodeProgram *node = g_new0(NodeProgram, 1);
  node->out = g_string_new(NULL);
  node->what = g_strdup_printf("%s %s", program, major);
  g_autoptr(GPtrArray) argv = g_ptr_array_new();
  g_ptr_array_add(argv, (gpointer)"node");
  g_ptr_array_add(argv, (gpointer)program);
  g_ptr_array_add(argv, (gpointer)major);
  for (; more && *more; more++)
    g_ptr_array_add(argv, (gpointer)*more);
  g_ptr_array_add(argv, NULL);
  g_auto(GStrv) environ_ = g_get_environ();
  environ_ = g_environ_setenv(environ_, "QV_SOCKET", qv_test_valkey_socket(valkey), TRUE);
  environ_ = g_environ_setenv(environ_, "QV_USER", user, TRUE);
  environ_ = g_environ_setenv(environ_, "QV_PASSWORD", qv_test_valkey_password(valkey), TRUE);
  for (; env && *env; env++) {
    g_auto(GStrv) pair = g_strsplit(*env, "=", 2);
    environ_ = g_environ_setenv(environ_, pair[0], pair[1], TRUE);
  }
  g_autoptr(GError) error = NULL;
  g_spawn_async_with_pipes(node_folder(), (char **)argv->pdata, environ_, G_SPAWN_SEARCH_PATH | G_SPAWN_DO_NOT_REAP_CHILD,
                           die_with_parent, GINT_TO_POINTER(getpid()), &node->pid, NULL, &node->fd, NULL, &error);
  g_assert_no_error(error);
  fcntl(node->fd, F_SETFL, O_NONBLOCK);
  return node;
}

static void read_some(NodeProgram *node)
{
  char buffer[4096];
  gssize n;
  while ((n = read(node->fd, buffer, sizeof buffer)) > 0)
    g_string_append_len(node->out, buffer, n);
  if (!node->ended && waitpid(node->pid, &node->status, WNOHANG) == node->pid) {
    node->ended = TRUE;
    while ((n = read(node->fd, buffer, sizeof buffer)) > 0)
      g_string_append_len(node->out, buffer, n);
  }
}

static void turn(NodeProgram *node, gint64 end_us, const char *waiting_for)
{
  if (g_get_monotonic_time() > end_us)
    g_error("%s: waited %d s for %s; it printed:\n%s", node->what, NODE_DEADLINE_S, waiting_for, node->out->str);
  qv_test_turn_ms(20);
  read_some(node);
}

void node_await_line(NodeProgram *node, const char *start)
{
  g_autofree char *line = g_strconcat("\n", start, NULL);
  gint64 end_us = g_get_monotonic_time() + NODE_DEADLINE_S * G_USEC_PER_SEC;
  for (;;) {
    if (g_str_has_prefix(node->out->str, start) || strstr(node->out->str, line))
      return;
    if (node->ended)
      g_error("%s ended before '%s'; it printed:\n%s", node->what, start, node->out->str);
    turn(node, end_us, start);
  }
}

const char *node_output(const NodeProgram *node)
{
  return node->out->str;
}

gboolean node_turn(NodeProgram *node)
{
  turn(node, G_MAXINT64, "");
  return !node->ended;
}

static void node_free(NodeProgram *node)
{
  close(node->fd);
  g_spawn_close_pid(node->pid);
  g_string_free(node->out, TRUE);
  g_free(node->what);
  g_free(node);
}

void node_reap(NodeProgram *node)
{
  gint64 end_us = g_get_monotonic_time() + NODE_DEADLINE_S * G_USEC_PER_SEC;
  while (!node->ended)
    turn(node, end_us, "its end");
  node_free(node);
}

void node_finish(NodeProgram *node)
{
  gint64 end_us = g_get_monotonic_time() + NODE_DEADLINE_S * G_USEC_PER_SEC;
  while (!node->ended)
    turn(node, end_us, "its end");
  if (!WIFEXITED(node->status) || WEXITSTATUS(node->status) != 0)
    g_error("%s failed (status %d); it printed:\n%s", node->what, node->status, node->out->str);
  g_test_message("%s", node->out->str);
  node_free(node);
}

void node_kill(NodeProgram *node, int signal_number)
{
  kill(node->pid, signal_number);
}
