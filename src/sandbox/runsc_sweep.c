/* SPDX-License-Identifier: Apache-2.0 */
/* Owns what an earlier process left, and the leak check. Both look in the same
 * places and at nothing else: this runner's cgroups, its two state folders, and processes
 * whose arguments name its runsc root. */
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/limits.h"
#include "sandbox/run_folder.h"
#include "sandbox/runsc_private.h"

#define SWEEP_DEADLINE_MS 30000 /* a sandbox */
#define CMDLINE_BYTES_MAX (256 * 1024)
#define COMM_BYTES_MAX 64

/* --- what there is --- */

/* The id in a name of runsc's: "<id>_sandbox:…" or "runsc-<id>.sock". */
static char *id_of_state(const char *name)
{
  const char *start = g_str_has_prefix(name, "runsc-") ? name + strlen("runsc-") : name;
  if (strlen(start) < QV_JOB_ID_BYTES)
    return NULL;
  g_autofree char *id = g_strndup(start, QV_JOB_ID_BYTES);
  return qv_sandbox_id_is_valid(id) ? g_steal_pointer(&id) : NULL;
}

static gboolean add_state_ids(const char *folder, GHashTable *ids, GError **error)
{
  g_autoptr(GError) problem = NULL;
  g_autoptr(GDir) dir = g_dir_open(folder, 0, &problem);
  if (dir == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "sweep: %s", problem->message);
    return FALSE;
  }
  for (const char *name = g_dir_read_name(dir); name != NULL; name = g_dir_read_name(dir)) {
    char *id = id_of_state(name);
    if (id != NULL)
      g_hash_table_add(ids, id);
  }
  return TRUE;
}

typedef struct {
  gint pid;
  char *id; /* the last argument */
} Found;

static void found_clear(gpointer data)
{
  g_free(((Found *)data)->id);
}

/* The processes that were started with our --root: `runsc run`, sandbox and gofer. */
static GArray *find_processes(QvRunscBackend *runsc)
{
  GArray *all = g_array_new(FALSE, FALSE, sizeof(Found));
  g_array_set_clear_func(all, found_clear);
  g_autofree char *root = g_strconcat("--root=", runsc->runsc_root, NULL);
  g_autoptr(GDir) proc = g_dir_open("/proc", 0, NULL);
  for (const char *name = proc != NULL ? g_dir_read_name(proc) : NULL; name != NULL; name = g_dir_read_name(proc)) {
    guint64 pid;
    if (!g_ascii_string_to_unsigned(name, 10, 2, G_MAXINT, &pid, NULL))
      continue;
    g_autofree char *path = g_build_filename("/proc", name, "cmdline", NULL);
    gsize n;
    g_autofree char *text = qv_fd_read_file(path, CMDLINE_BYTES_MAX, &n, NULL);
    gboolean ours = FALSE;
    const char *last = NULL;
    for (const char *arg = text; arg != NULL && arg < text + n; arg += strlen(arg) + 1) {
      ours |= strcmp(arg, root) == 0;
      last = arg;
    }
    if (!ours || !qv_sandbox_id_is_valid(last))
      continue;
    Found found = {.pid = (gint)pid, .id = g_strdup(last)};
    g_array_append_val(all, found);
  }
  return all;
}

static GHashTable *find_ids(QvRunscBackend *runsc, GError **error)
{
  g_autoptr(GHashTable) ids = qv_cgroup_host_ids(runsc->cgroups, error);
  if (ids == NULL || !qv_run_folder_ids(runsc->runs_dir, ids, error) ||
      !add_state_ids(runsc->runsc_root, ids, error))
    return NULL;
  g_autoptr(GArray) processes = find_processes(runsc);
  for (guint i = 0; i < processes->len; i++)
    g_hash_table_add(ids, g_strdup(g_array_index(processes, Found, i).id));
  return g_steal_pointer(&ids);
}

/* --- sweep --- */

/* Of the sandbox, and in no cgroup of it: the child of a start that was cut short. */
static void kill_strays(QvRunscBackend *runsc, const char *id)
{
  g_autoptr(GArray) processes = find_processes(runsc);
  for (guint i = 0; i < processes->len; i++)
    if (strcmp(g_array_index(processes, Found, i).id, id) == 0)
      kill(g_array_index(processes, Found, i).pid, SIGKILL);
}

static gboolean has_strays(QvRunscBackend *runsc, const char *id)
{
  g_autoptr(GArray) processes = find_processes(runsc);
  for (guint i = 0; i < processes->len; i++)
    if (strcmp(g_array_index(processes, Found, i).id, id) == 0)
      return TRUE;
  return FALSE;
}

static gboolean end_strays(QvRunscBackend *runsc, const char *id, gint64 until_ms, GError **error)
{
  while (has_strays(runsc, id)) {
    kill_strays(runsc, id);
    if (qv_clock_mono_ms() >= until_ms) {
      g_set_error(error, QV_ERROR, QV_ERROR_TIMEOUT, "sweep: processes of %s did not end", id);
      return FALSE;
    }
    g_usleep(5000);
  }
  return TRUE;
}

static gboolean remove_all(QvRunscBackend *runsc, const char *id, GError **error)
{
  gint64 until_ms = qv_clock_mono_ms() + SWEEP_DEADLINE_MS;
  g_autoptr(QvCgroup) cgroup = qv_cgroup_adopt(runsc->cgroups, id);
  return qv_runsc_empty_cgroup(cgroup, NULL, until_ms, error) && end_strays(runsc, id, until_ms, error) &&
         qv_runsc_empty_cgroup(cgroup, NULL, until_ms, error) && qv_runsc_remove_cgroup(cgroup, until_ms, error) &&
         qv_runsc_remove_state(runsc, id, error) && qv_run_folder_remove(runsc->runs_dir, id, error);
}

static void sweep_one(QvRunscBackend *runsc, const char *id, QvSweepReport *report, GError **error)
{
  gboolean busy;
  g_autoptr(GError) problem = NULL;
  G_GNUC_UNUSED QV_AUTOFD int lock = qv_run_folder_lock(runsc->runs_dir, id, &busy, &problem);
  if (busy) {
    report->busy++;
    return;
  }
  if (problem == NULL && remove_all(runsc, id, &problem)) {
    report->removed++;
    return;
  }
  report->failed++;
  if (error != NULL && *error == NULL)
    g_propagate_prefixed_error(error, g_steal_pointer(&problem), "sweep of %s: ", id);
}

gboolean qv_runsc_sweep(QvBackend *backend, const char *sandbox_id, QvSweepReport *report, GError **error)
{
  QvRunscBackend *runsc = (QvRunscBackend *)backend;
  g_autoptr(GError) first = NULL;
  g_autoptr(GHashTable) ids = find_ids(runsc, error);
  if (ids == NULL) {
    report->failed++;
    return FALSE;
  }
  GHashTableIter iter;
  gpointer id;
  g_hash_table_iter_init(&iter, ids);
  while (g_hash_table_iter_next(&iter, &id, NULL))
    if (sandbox_id == NULL || strcmp(sandbox_id, id) == 0)
      sweep_one(runsc, id, report, &first);
  qv_cgroup_host_tidy(runsc->cgroups);
  if (report->removed > 0)
    qv_runsc_reap_strangers(runsc);
  if (report->failed == 0)
    return TRUE;
  g_propagate_error(error, g_steal_pointer(&first));
  return FALSE;
}

/* --- leak check --- */

static char *comm_of(gint pid)
{
  g_autofree char *path = g_strdup_printf("/proc/%d/comm", pid);
  gsize n;
  char *comm = qv_fd_read_file(path, COMM_BYTES_MAX, &n, NULL);
  return comm != NULL ? g_strchomp(comm) : g_strdup("?");
}

static void list_cgroup(QvRunscBackend *runsc, const char *id, GPtrArray *lines, GHashTable *listed)
{
  g_autoptr(QvCgroup) cgroup = qv_cgroup_adopt(runsc->cgroups, id);
  g_autoptr(GPtrArray) folders = g_ptr_array_new_with_free_func(g_free);
  g_autoptr(GError) problem = NULL;
  g_autoptr(GArray) pids = qv_cgroup_pids(cgroup, &problem);
  for (guint i = 0; pids != NULL && i < pids->len; i++) {
    gint pid = g_array_index(pids, gint, i);
    g_autofree char *comm = comm_of(pid);
    g_ptr_array_add(lines, g_strdup_printf("process %d (%s) in the cgroups of %s", pid, comm, id));
    g_hash_table_add(listed, GINT_TO_POINTER(pid));
  }
  if (pids == NULL)
    g_ptr_array_add(lines, g_strdup_printf("processes of %s: %s", id, problem->message));
  qv_cgroup_list(cgroup, folders);
  for (guint i = 0; i < folders->len; i++)
    g_ptr_array_add(lines, g_strdup_printf("cgroup %s", (char *)folders->pdata[i]));
}

static void list_files(const char *folder, const char *what, const char *id, GPtrArray *lines)
{
  g_autoptr(GDir) dir = g_dir_open(folder, 0, NULL);
  for (const char *name = dir != NULL ? g_dir_read_name(dir) : NULL; name != NULL; name = g_dir_read_name(dir))
    if (id == NULL || strstr(name, id) != NULL)
      g_ptr_array_add(lines, g_strdup_printf("%s %s/%s", what, folder, name));
}

char **qv_runsc_leftovers(QvBackend *backend, const char *sandbox_id)
{
  QvRunscBackend *runsc = (QvRunscBackend *)backend;
  GPtrArray *lines = g_ptr_array_new();
  g_autoptr(GHashTable) listed = g_hash_table_new(NULL, NULL);
  g_autoptr(GError) problem = NULL;
  g_autoptr(GHashTable) ids = qv_cgroup_host_ids(runsc->cgroups, &problem);
  GHashTableIter iter;
  gpointer id;
  if (ids == NULL) {
    g_ptr_array_add(lines, g_strdup(problem->message));
  } else {
    g_hash_table_iter_init(&iter, ids);
    while (g_hash_table_iter_next(&iter, &id, NULL))
      if (sandbox_id == NULL || strcmp(sandbox_id, id) == 0)
        list_cgroup(runsc, id, lines, listed);
  }
  g_autoptr(GArray) processes = find_processes(runsc);
  for (guint i = 0; i < processes->len; i++) {
    const Found *found = &g_array_index(processes, Found, i);
    if ((sandbox_id == NULL || strcmp(sandbox_id, found->id) == 0) &&
        !g_hash_table_contains(listed, GINT_TO_POINTER(found->pid))) {
      g_autofree char *comm = comm_of(found->pid);
      g_ptr_array_add(lines, g_strdup_printf("process %d (%s) of %s in no cgroup of it", found->pid, comm, found->id));
    }
  }
  list_files(runsc->runs_dir, "run folder", sandbox_id, lines);
  list_files(runsc->runsc_root, "state", sandbox_id, lines);
  g_ptr_array_add(lines, NULL);
  return (char **)g_ptr_array_free(lines, FALSE);
}
