/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the re-execution of the program. The environment of a child is chosen by name: that
 * of the supervisor holds the Valkey password. */
#include "runner/spawn.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"

static const char *const role_words[] = {
  NULL,
#define X(name, word) word,
  QV_ROLES(X)
#undef X
};

static const char *const kept[] = {"PATH",         "LANG",          "QUAVON_LOG_LEVEL", "QUAVON_LOG_FORMAT",
                                   "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"};

QvRole qv_role_of(int argc, char **argv)
{
  if (argc < 3 || strcmp(argv[1], "--role") != 0)
    return QV_ROLE_NONE;
  for (gsize i = 1; i < G_N_ELEMENTS(role_words); i++) {
    if (strcmp(argv[2], role_words[i]) == 0)
      return i;
  }
  return QV_ROLE_NONE;
}

static char **bare_environment(void)
{
  char **env = g_new0(char *, 1);
  for (gsize i = 0; i < G_N_ELEMENTS(kept); i++) {
    const char *value = g_getenv(kept[i]);
    if (value != NULL)
      env = g_environ_setenv(env, kept[i], value, TRUE);
  }
  return env;
}

/* Own session: a Ctrl-C at the terminal is for the supervisor alone. */
static void before_exec(gpointer data)
{
  setsid();
}

gboolean qv_spawn_role(QvRole role, const char *argument, const int *fds, gsize fds_n, GPid *pid, GError **error)
{
  g_assert(fds_n <= QV_SPAWN_FDS_MAX);
  const char *argv[] = {"/proc/self/exe", "quavon-sandbox-runner", "--role", role_words[role], argument, NULL};
  int source[QV_SPAWN_FDS_MAX], target[QV_SPAWN_FDS_MAX];
  gsize n = 0;
  for (gsize i = 0; i < fds_n; i++) {
    if (fds[i] < 0)
      continue;
    source[n] = fds[i];
    target[n++] = QV_SPAWN_FD_FIRST + i;
  }
  g_auto(GStrv) env = bare_environment();
  g_autoptr(GError) cause = NULL;
  if (!g_spawn_async_with_pipes_and_fds(NULL, argv, (const char *const *)env,
                                        G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_FILE_AND_ARGV_ZERO |
                                          G_SPAWN_STDOUT_TO_DEV_NULL,
                                        before_exec, NULL, -1, -1, -1, source, target, n, pid, NULL, NULL, NULL,
                                        &cause)) {
    g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "cannot start the %s process: %s", role_words[role],
                cause->message);
    return FALSE;
  }
  return TRUE;
}

void qv_role_enter(gboolean die_with_parent)
{
  prctl(PR_SET_DUMPABLE, 0);
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  signal(SIGPIPE, SIG_IGN);
  if (die_with_parent) {
    pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
      _exit(1);
  }
}
