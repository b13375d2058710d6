/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the keeper's process; keeper.h has the picture. */
#include "cli/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <glib-unix.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "cli/keeper_files.h"
#include "cli/programs.h"
#include "cli/verb.h"

enum { VALKEY_START_MS = 60000, VALKEY_STOP_MS = 10000 };
enum { EGRESS_START_MS = 60000, EGRESS_STOP_MS = 5000 };
enum { RUNNER_STOP_MS = 15000, RUNNER_ALONE_MS = 2000 };
enum { POLL_MS = 20, LOG_TAIL_BYTES = 2000 };

typedef struct {
  const char *folder;
  GMainLoop *loop;
  gboolean with_egress;
  GPid valkey, runner, egress; /* 0: does not run */
  gboolean ready, runner_unclean;
} Keeper;

/* In the child: it ends with the keeper, whatever ends that. */
static void die_with_keeper(gpointer keeper_pid)
{
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != GPOINTER_TO_INT(keeper_pid))
    _exit(QV_CLI_SANDBOX);
}

static gboolean spawn(const Keeper *keeper, const char *const *argv, char **environment, const char *log, GPid *pid,
                      GError **error)
{
  g_autofree char *path = g_build_filename(keeper->folder, log, NULL);
  QV_AUTOFD int log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  QV_AUTOFD int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (log_fd < 0 || null_fd < 0)
    return qv_error_set_errno(error, errno, "%s", path);
  if (g_spawn_async_with_fds(keeper->folder, (char **)argv, environment,
                             G_SPAWN_SEARCH_PATH | G_SPAWN_DO_NOT_REAP_CHILD, die_with_keeper,
                             GINT_TO_POINTER(getpid()), pid, null_fd, log_fd, log_fd, error))
    return TRUE;
  return FALSE;
}

static void say(const char *format, ...) G_GNUC_PRINTF(1, 2);
static void say(const char *format, ...)
{
  va_list args;
  va_start(args, format);
  g_autofree char *text = g_strdup_vprintf(format, args);
  va_end(args);
  qv_io_write_full(QV_KEEPER_CONTROL_FD, text, strlen(text)); /* nobody there: then its end will be read */
}

/* The last lines of a child's log, for people. */
static char *log_tail(const Keeper *keeper, const char *name)
{
  g_autofree char *path = g_build_filename(keeper->folder, name, NULL);
  g_autofree char *text = NULL;
  gsize n = 0;
  if (!g_file_get_contents(path, &text, &n, NULL) || n == 0)
    return g_strdup("");
  const char *tail = n > LOG_TAIL_BYTES ? text + n - LOG_TAIL_BYTES : text;
  return g_strconcat(":\n", tail, NULL);
}

static void on_child_end(GPid pid, gint wait_status, gpointer data)
{
  Keeper *keeper = data;
  gboolean is_runner = pid == keeper->runner, is_egress = pid == keeper->egress;
  g_autoptr(GError) how = NULL;
  if (g_spawn_check_wait_status(wait_status, &how))
    g_set_error_literal(&how, QV_ERROR, QV_ERROR_SYSTEM, "it ended by itself");
  g_autofree char *tail = log_tail(keeper, is_runner   ? QV_KEEPER_RUNNER_LOG
                                           : is_egress ? QV_KEEPER_EGRESS_LOG
                                                       : "valkey.log");
  if (is_runner) {
    keeper->runner = 0;
    keeper->runner_unclean = TRUE;
  } else if (is_egress) {
    keeper->egress = 0;
  } else {
    keeper->valkey = 0;
  }
  if (g_main_loop_is_running(keeper->loop))
    say(QV_KEEPER_FAILED "%s: %s%s\n", is_runner   ? "the runner"
                                      : is_egress ? "the private egress proxy"
                                                  : "the private valkey-server", how->message, tail);
  g_main_loop_quit(keeper->loop);
}

static gboolean on_control(gint fd, GIOCondition condition, gpointer data)
{
  const Keeper *keeper = data;
  char byte;
  ssize_t n = read(fd, &byte, 1);
  if (n < 0 && (errno == EINTR || errno == EAGAIN))
    return G_SOURCE_CONTINUE;
  g_main_loop_quit(keeper->loop); /* quavon says nothing but its end */
  return G_SOURCE_REMOVE;
}

static gboolean on_signal(gpointer data)
{
  const Keeper *keeper = data;
  g_main_loop_quit(keeper->loop);
  return G_SOURCE_CONTINUE;
}

static gboolean start_valkey(Keeper *keeper, GError **error)
{
  g_autofree char *socket = g_build_filename(keeper->folder, "valkey.sock", NULL);
  const char *argv[] = { "valkey-server", "--port", "0", "--unixsocket", socket, "--unixsocketperm", "700", "--aclfile",
                         "users.acl", "--dir", keeper->folder, "--save", "", "--appendonly", "no", "--daemonize", "no",
                         "--maxmemory-policy", "noeviction", "--loglevel", "warning", NULL };
  if (!spawn(keeper, argv, NULL, "valkey.log", &keeper->valkey, error)) {
    g_prefix_error(error, "the program valkey-server is needed (package valkey-server): ");
    return FALSE;
  }
  for (gint64 until_ms = qv_clock_mono_ms() + VALKEY_START_MS; qv_clock_mono_ms() < until_ms; g_usleep(POLL_MS * 1000)) {
    int status = 0;
    if (qv_keeper_answers(socket))
      return TRUE;
    if (waitpid(keeper->valkey, &status, WNOHANG) == keeper->valkey) {
      keeper->valkey = 0;
      break;
    }
  }
  g_autofree char *tail = log_tail(keeper, "valkey.log");
  g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "the private valkey-server did not start%s", tail);
  return FALSE;
}

/* Before the runner: its first job may come at once. */
static gboolean start_egress(Keeper *keeper, GError **error)
{
  if (!keeper->with_egress)
    return TRUE;
  g_autofree char *program = qv_program_find("egress", "quavon-sandbox-egress", error);
  if (program == NULL)
    return FALSE;
  g_autofree char *socket = g_build_filename(keeper->folder, QV_KEEPER_EGRESS_SOCKET, NULL);
  g_auto(GStrv) environment = qv_keeper_egress_environment(keeper->folder);
  const char *argv[] = { program, NULL };
  if (!spawn(keeper, argv, environment, QV_KEEPER_EGRESS_LOG, &keeper->egress, error))
    return FALSE;
  for (gint64 until_ms = qv_clock_mono_ms() + EGRESS_START_MS; qv_clock_mono_ms() < until_ms; g_usleep(POLL_MS * 1000)) {
    int status = 0;
    if (qv_keeper_listens(socket))
      return TRUE;
    if (waitpid(keeper->egress, &status, WNOHANG) == keeper->egress) {
      keeper->egress = 0;
      break;
    }
  }
  g_autofree char *tail = log_tail(keeper, QV_KEEPER_EGRESS_LOG);
  g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "the private egress proxy did not start%s", tail);
  return FALSE;
}

static gboolean start_runner(Keeper *keeper, GError **error)
{
  g_autofree char *program = qv_program_find("runner", "quavon-sandbox-runner", error);
  if (program == NULL)
    return FALSE;
  g_auto(GStrv) environment = qv_keeper_environment(keeper->folder, keeper->with_egress);
  const char *argv[] = { program, NULL };
  return spawn(keeper, argv, environment, QV_KEEPER_RUNNER_LOG, &keeper->runner, error);
}

/* Ends a child: SIGTERM, and SIGKILL when the time is over. TRUE when it ended in peace. */
static gboolean end_child(GPid *pid, gint64 patience_ms)
{
  if (*pid == 0)
    return TRUE;
  kill(*pid, SIGTERM);
  int status = 0;
  for (gint64 until_ms = qv_clock_mono_ms() + patience_ms; qv_clock_mono_ms() < until_ms; g_usleep(POLL_MS * 1000)) {
    if (waitpid(*pid, &status, WNOHANG) != 0) {
      *pid = 0;
      return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
  }
  kill(*pid, SIGKILL);
  waitpid(*pid, &status, 0);
  *pid = 0;
  return FALSE;
}

static void serve(Keeper *keeper)
{
  keeper->loop = g_main_loop_new(NULL, FALSE);
  g_unix_fd_add(QV_KEEPER_CONTROL_FD, G_IO_IN | G_IO_HUP | G_IO_ERR, on_control, keeper);
  static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
  for (guint i = 0; i < G_N_ELEMENTS(signals); i++)
    g_unix_signal_add(signals[i], on_signal, keeper);
  guint watches[] = { g_child_watch_add(keeper->valkey, on_child_end, keeper),
                      g_child_watch_add(keeper->runner, on_child_end, keeper),
                      keeper->egress != 0 ? g_child_watch_add(keeper->egress, on_child_end, keeper) : 0 };
  say(QV_KEEPER_READY);
  g_main_loop_run(keeper->loop);
  /* From here on the children are waited for by hand. */
  if (keeper->valkey != 0)
    g_source_remove(watches[0]);
  if (keeper->runner != 0)
    g_source_remove(watches[1]);
  if (keeper->egress != 0)
    g_source_remove(watches[2]);
  g_main_loop_unref(keeper->loop);
}

int qv_verb_keeper(int argc, char **argv)
{
  gboolean with_egress = argc == 3 && strcmp(argv[2], QV_KEEPER_WITH_EGRESS) == 0;
  if ((argc != 2 && !with_egress) || fcntl(QV_KEEPER_CONTROL_FD, F_GETFD) < 0 || fcntl(QV_KEEPER_LOCK_FD, F_GETFD) < 0)
    return QV_CLI_USAGE;
  qv_io_set_cloexec(QV_KEEPER_CONTROL_FD, TRUE);
  qv_io_set_cloexec(QV_KEEPER_LOCK_FD, TRUE);
  umask(077);
  setsid();
  Keeper keeper = { .folder = argv[1], .with_egress = with_egress };
  g_autoptr(GError) error = NULL;
  if (qv_keeper_files_make(keeper.folder, &error) && start_valkey(&keeper, &error) && start_egress(&keeper, &error) &&
      start_runner(&keeper, &error))
    serve(&keeper);
  else
    say(QV_KEEPER_FAILED "%s\n", error->message);
  /* The runner before the server: it hands back what it holds. */
  gint64 patience_ms = keeper.valkey != 0 ? RUNNER_STOP_MS : RUNNER_ALONE_MS;
  gboolean clean = end_child(&keeper.runner, patience_ms) && !keeper.runner_unclean && !qv_keeper_has_sandboxes(keeper.folder);
  end_child(&keeper.egress, EGRESS_STOP_MS);
  end_child(&keeper.valkey, VALKEY_STOP_MS);
  g_clear_error(&error);
  if (clean ? !qv_fd_remove_tree(keeper.folder, &error) : !qv_keeper_clean(keeper.folder, &error)) {
    say(QV_KEEPER_FAILED "%s\n", error->message);
    return QV_CLI_SANDBOX;
  }
  return QV_CLI_OK;
}
