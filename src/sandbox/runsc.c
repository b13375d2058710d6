/* SPDX-License-Identifier: Apache-2.0 */
/* The backend `runsc`: gVisor started directly, without a container engine.
 *
 * One sandbox: a run folder with a bundle, cgroups of ours, a child `runsc run` inside them,
 * whose stdin and stdout are one end each of two socketpairs. runsc itself starts the
 * sandbox process (named `exe`, uid 65534, own pid namespace). Everything that
 * runs is in our cgroups, and everything on disk has a name that holds the
 * sandbox id: so the kill and the sweep need no help of runsc's.
 *
 *   runsc.c          opening, the program's version, the table
 *   runsc_sandbox.c  start, watch, events
 *   runsc_kill.c     kill and removal
 *   runsc_state.c    files
 *   runsc_sweep.c    what an earlier process left */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/limits.h"
#include "sandbox/process.h"
#include "sandbox/run_folder.h"
#include "sandbox/runsc_private.h"

#define CGROUP_MOUNT "/sys/fs/cgroup"
#define START_DEADLINE_MS 60000u
#define VERSION_BYTES_MAX 4096

#define REMEDY "install gVisor (the package runsc, or https://gvisor.dev/docs/user_guide/install) or name the program in " \
               "QUAVON_SANDBOX_RUNSC"

static char *find_program(const char *name, GError **error)
{
  g_autofree char *path = g_find_program_in_path(name);
  if (path == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "runsc: %s is missing or not executable; %s", name, REMEDY);
    return NULL;
  }
  char *absolute = realpath(path, NULL);
  if (absolute == NULL) {
    qv_error_set_errno(error, errno, "runsc: %s", path);
    return NULL;
  }
  char *copy = g_strdup(absolute);
  free(absolute);
  return copy;
}

/* runsc puts its control socket elsewhere, without a word, when the path does not fit. */
static gboolean check_length(const char *state_dir, GError **error)
{
  const gsize tail = strlen("/runsc/runsc-.sock") + QV_JOB_ID_BYTES + 1;
  const gsize room = sizeof ((struct sockaddr_un *)NULL)->sun_path;
  if (strlen(state_dir) + tail <= room)
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_LIMIT,
              "state folder %s: sockets lie below it, so its path may have at most %zu bytes; set QUAVON_SANDBOX_STATE_DIR "
              "to a shorter one", state_dir, room - tail);
  return FALSE;
}

static void backend_free(QvBackend *backend)
{
  QvRunscBackend *runsc = (QvRunscBackend *)backend;
  g_free(runsc->program);
  g_free(runsc->runs_dir);
  g_free(runsc->runsc_root);
  qv_cgroup_host_free(runsc->cgroups);
  g_free(runsc);
}

static QvCgroupHost *open_cgroups(const QvBackendOptions *options, const char *owner, GError **error)
{
  return qv_cgroup_host_open(options->cgroup_mount != NULL ? options->cgroup_mount : CGROUP_MOUNT, owner, error);
}

static QvBackend *backend_open(const QvBackendOptions *options, GError **error)
{
  if (geteuid() != 0) {
    g_set_error(error, QV_ERROR, QV_ERROR_AUTH, "runsc: sandboxes need root (namespaces, cgroups); run it with sudo");
    return NULL;
  }
  g_autoptr(QvBackend) backend = (QvBackend *)g_new0(QvRunscBackend, 1);
  QvRunscBackend *runsc = (QvRunscBackend *)backend;
  backend->ops = &qv_runsc_ops;
  g_autofree char *state_dir = qv_run_state_dir(options->state_dir, error);
  if (state_dir == NULL || !check_length(state_dir, error))
    return NULL;
  runsc->program = find_program(options->runsc != NULL ? options->runsc : "runsc", error);
  if (runsc->program == NULL)
    return NULL;
  g_autofree char *owner = qv_run_owner_name(options->runner_id, state_dir);
  runsc->cgroups = open_cgroups(options, owner, error);
  if (runsc->cgroups == NULL)
    return NULL;
  runsc->start_deadline_ms = options->start_deadline_ms != 0 ? options->start_deadline_ms : START_DEADLINE_MS;
  runsc->runs_dir = qv_run_state_part(state_dir, "runs", error);
  runsc->runsc_root = runsc->runs_dir != NULL ? qv_run_state_part(state_dir, "runsc", error) : NULL;
  if (runsc->runsc_root == NULL)
    return NULL;
  return g_steal_pointer(&backend);
}

static void backend_tidy(const QvBackendOptions *options)
{
  g_autofree char *state_dir = qv_run_state_dir(options->state_dir, NULL);
  g_autofree char *owner = state_dir != NULL ? qv_run_owner_name(options->runner_id, state_dir) : NULL;
  g_autoptr(QvCgroupHost) cgroups = owner != NULL ? open_cgroups(options, owner, NULL) : NULL;
  if (cgroups != NULL)
    qv_cgroup_host_tidy(cgroups);
}

static const char *backend_cgroup(const QvBackend *backend)
{
  return qv_cgroup_host_is_v2(((const QvRunscBackend *)backend)->cgroups) ? "v2" : "v1";
}

/* "runsc version release-20240729.0" and lines behind it: the text of the first one. */
static gboolean backend_version(QvBackend *backend, char **version, GError **error)
{
  static const char PREFIX[] = "runsc version ";
  QvRunscBackend *runsc = (QvRunscBackend *)backend;
  const char *argv[] = {"runsc", "--version", NULL};
  int status = -1;
  g_autofree char *text =
    qv_process_output(runsc->program, argv, runsc->start_deadline_ms, VERSION_BYTES_MAX, &status, error);
  if (text == NULL) {
    g_prefix_error(error, "runsc: asking for its version (%s): ", REMEDY);
    return FALSE;
  }
  g_auto(GStrv) lines = g_strsplit(text, "\n", 2);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || lines[0] == NULL || !g_str_has_prefix(lines[0], PREFIX)) {
    g_autofree char *shown = g_strescape(text, NULL);
    g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "runsc: %s --version says \"%.200s\" (wait status %d), so it is not gVisor; %s",
                runsc->program, shown, status, REMEDY);
    return FALSE;
  }
  *version = g_strdup(lines[0] + strlen(PREFIX));
  return TRUE;
}

const QvBackendOps qv_runsc_ops = {
  .name = "runsc",
  .platform = "systrap",
  .takes_rootfs = TRUE,
  .open = backend_open,
  .free = backend_free,
  .cgroup = backend_cgroup,
  .version = backend_version,
  .start = qv_runsc_start,
  .sweep = qv_runsc_sweep,
  .tidy = backend_tidy,
  .leftovers = qv_runsc_leftovers,
  .verify = qv_runsc_verify,
  .usage = qv_runsc_usage,
  .end = qv_runsc_end,
  .kill = qv_runsc_kill,
  .free_sandbox = qv_runsc_free_sandbox,
};
