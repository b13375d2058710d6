/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the look at the host behind the engine's back: processes and control groups that
 * carry a container's id. The id has 256 random bits, so whatever has it is the container's. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "sandbox/docker_private.h"

#define TEXT_BYTES_MAX (256 * 1024)
#define NAME_BYTES 32
#define PAUSE_US 5000
#define CGROUP_MOUNT "/sys/fs/cgroup"
#define GROUP_DEPTH 4 /* hierarchy, up to two parents, the container's own */
#define GROUP_TRIES 20

static char *read_proc(const char *pid, const char *name, gsize *n)
{
  g_autofree char *path = g_build_filename("/proc", pid, name, NULL);
  return qv_fd_read_file(path, TEXT_BYTES_MAX, n, NULL);
}

/* Dead, and only not yet reaped by whoever inherited it. */
static gboolean is_zombie(const char *pid)
{
  gsize n;
  g_autofree char *text = read_proc(pid, "stat", &n);
  const char *behind = text != NULL ? strrchr(text, ')') : NULL;
  return behind == NULL || g_str_has_prefix(behind, ") Z") || g_str_has_prefix(behind, ") X");
}

/* Of every process of the host, so one call of each kind. "" where it is gone. */
static void read_name(int proc, const char *pid, char name[static NAME_BYTES])
{
  char path[32];
  g_snprintf(path, sizeof path, "%s/comm", pid);
  QV_AUTOFD int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? read(fd, name, NAME_BYTES - 1) : 0;
  name[MAX(n, 0)] = '\0';
}

static gboolean in_group(const char *pid, const char *container)
{
  gsize n;
  g_autofree char *groups = read_proc(pid, "cgroup", &n);
  return groups != NULL && strstr(groups, container) != NULL && !is_zombie(pid);
}

/* An argument of its own, or the end of one: "-id" "<id>", "--bundle=…/<id>". A process that only mentions it somewhere
 * else (a person's `docker logs`) is not the container's. */
static gboolean is_named(int proc, const char *pid, const char *container)
{
  char name[NAME_BYTES];
  gsize n = 0;
  read_name(proc, pid, name);
  if (!g_str_has_prefix(name, "containerd-shim") && !g_str_has_prefix(name, "exe") && !g_str_has_prefix(name, "runsc") &&
      !g_str_has_prefix(name, "runc"))
    return FALSE;
  g_autofree char *arguments = read_proc(pid, "cmdline", &n);
  gboolean named = FALSE;
  for (const char *arg = arguments; arg != NULL && arg < arguments + n; arg += strlen(arg) + 1)
    named |= g_str_has_suffix(arg, container);
  return named;
}

/* Not there, in a hierarchy that is: of one that was taken off nothing can be seen. */
static gboolean is_gone(const char *folder)
{
  g_autofree char *parent = g_path_get_dirname(folder);
  g_autofree char *beside = g_build_filename(parent, "cgroup.procs", NULL);
  return access(folder, F_OK) != 0 && errno == ENOENT && access(beside, F_OK) == 0;
}

/* The kernel removes no group that a process is in, and a guest makes none and moves nobody: where every group that the container had is
 * gone nobody is in one. FALSE wherever that is not certain. */
static gboolean are_groups_gone(const QvDockerGroup *group)
{
  gboolean gone = group != NULL && group->all != NULL && !group->unseen;
  for (guint i = 0; gone && i < group->all->len; i++)
    gone = is_gone(g_ptr_array_index(group->all, i));
  return gone;
}

GArray *qv_docker_processes(const char *container, const QvDockerGroup *group)
{
  GArray *pids = g_array_new(FALSE, FALSE, sizeof(gint));
  gboolean grouped = !are_groups_gone(group);
  DIR *proc = opendir("/proc");
  for (const struct dirent *entry = proc != NULL ? readdir(proc) : NULL; entry != NULL; entry = readdir(proc)) {
    guint64 number;
    const char *name = entry->d_name;
    if (!g_ascii_isdigit(name[0]) || !g_ascii_string_to_unsigned(name, 10, 2, G_MAXINT, &number, NULL))
      continue;
    if (!is_named(dirfd(proc), name, container) && !(grouped && in_group(name, container)))
      continue;
    gint pid = (gint)number;
    g_array_append_val(pids, pid);
  }
  if (proc != NULL)
    closedir(proc);
  return pids;
}

/* ---- control groups */

/* The folder of one line of /proc/PID/cgroup, "N:controllers:/path", or NULL where it cannot be seen. */
static char *folder_of(const char *line, char **controllers)
{
  g_auto(GStrv) parts = g_strsplit(line, ":", 3);
  if (g_strv_length(parts) != 3 || parts[2][0] != '/')
    return NULL;
  const char *name = g_str_has_prefix(parts[1], "name=") ? parts[1] + strlen("name=") : parts[1];
  g_auto(GStrv) single = g_strsplit(name, ",", -1);
  const char *mounts[] = {name, name[0] != '\0' ? single[0] : "unified", single[0] != NULL ? single[1] : NULL};
  for (gsize i = 0; i < G_N_ELEMENTS(mounts) && mounts[i] != NULL; i++) {
    g_autofree char *folder = g_build_filename(CGROUP_MOUNT, mounts[i], parts[2], NULL);
    if (g_file_test(folder, G_FILE_TEST_IS_DIR)) {
      *controllers = g_strdup(name);
      return g_steal_pointer(&folder);
    }
  }
  return NULL;
}

static void note_folders(gint pid, const char *container, GHashTable *folders)
{
  gsize n;
  g_autofree char *number = g_strdup_printf("%d", pid);
  g_autofree char *text = read_proc(number, "cgroup", &n);
  g_auto(GStrv) lines = text != NULL ? g_strsplit(text, "\n", -1) : NULL;
  for (gsize i = 0; lines != NULL && lines[i] != NULL; i++) {
    g_autofree char *controllers = NULL;
    char *folder = strstr(lines[i], container) != NULL ? folder_of(lines[i], &controllers) : NULL;
    if (folder != NULL)
      g_hash_table_add(folders, folder);
  }
}

/* Up to the folder that has the id in its name; busy or gone: all the same, a cgroup without processes harms nobody
 * and the engine removes those that it knows. */
static void remove_folders(GHashTable *folders, const char *container)
{
  GHashTableIter iter;
  gpointer key;
  g_hash_table_iter_init(&iter, folders);
  while (g_hash_table_iter_next(&iter, &key, NULL)) {
    g_autofree char *folder = g_strdup(key);
    while (strstr(folder, container) != NULL && (rmdir(folder) == 0 || errno == ENOENT)) {
      char *parent = g_path_get_dirname(folder);
      g_free(folder);
      folder = parent;
    }
  }
}

/* FOLDER and what is below it. A folder may still be busy with what has just died. */
static void remove_tree(const char *folder)
{
  g_autoptr(GDir) dir = g_dir_open(folder, 0, NULL);
  for (const char *name = dir != NULL ? g_dir_read_name(dir) : NULL; name != NULL; name = g_dir_read_name(dir)) {
    g_autofree char *path = g_build_filename(folder, name, NULL);
    if (g_file_test(path, G_FILE_TEST_IS_DIR))
      remove_tree(path);
  }
  for (guint i = 0; i < GROUP_TRIES && rmdir(folder) != 0 && errno == EBUSY; i++)
    g_usleep(PAUSE_US);
}

static void remove_groups_below(const char *folder, guint depth, const char *container)
{
  DIR *dir = opendir(folder);
  for (const struct dirent *entry = dir != NULL ? readdir(dir) : NULL; entry != NULL; entry = readdir(dir)) {
    if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
      continue;
    g_autofree char *path = g_build_filename(folder, entry->d_name, NULL);
    if (strstr(entry->d_name, container) != NULL)
      remove_tree(path);
    else if (depth > 1)
      remove_groups_below(path, depth - 1, container);
  }
  if (dir != NULL)
    closedir(dir);
}

void qv_docker_remove_groups(const char *container)
{
  remove_groups_below(CGROUP_MOUNT, GROUP_DEPTH, container);
}

gboolean qv_docker_end_processes(const char *container, const QvDockerGroup *group, gint64 until_ms, GError **error)
{
  g_autoptr(GHashTable) folders = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  for (;;) {
    g_autoptr(GArray) pids = qv_docker_processes(container, group);
    if (pids->len == 0)
      break;
    for (guint i = 0; i < pids->len; i++) {
      gint pid = g_array_index(pids, gint, i);
      note_folders(pid, container, folders);
      /* One that the engine ends may need a moment; a runner that is not root can only wait for it. */
      if (kill(pid, SIGKILL) != 0 && errno == EPERM && qv_clock_mono_ms() >= until_ms) {
        g_set_error(error, QV_ERROR, QV_ERROR_AUTH,
                    "docker: process %d of container %.12s is left, and only root may end it: kill -9 %d", pid, container, pid);
        return FALSE;
      }
    }
    if (qv_clock_mono_ms() >= until_ms) {
      g_set_error(error, QV_ERROR, QV_ERROR_TIMEOUT, "docker: %u processes of container %.12s do not end, one is %d",
                  pids->len, container, g_array_index(pids, gint, 0));
      return FALSE;
    }
    g_usleep(PAUSE_US);
  }
  remove_folders(folders, container);
  return TRUE;
}

/* ---- counters */

static gboolean has_controller(const char *controllers, const char *name)
{
  g_auto(GStrv) list = g_strsplit(controllers, ",", -1);
  return g_strv_contains((const char *const *)list, name);
}

/* The group that has the id in its name, also of a process that is in one below it. */
static void note_group(QvDockerGroup *group, const char *folder, const char *container)
{
  const char *id = strstr(folder, container);
  gsize n = id != NULL ? strcspn(id + strlen(container), "/") : 0;
  group->unseen |= id == NULL;
  if (id == NULL)
    return;
  if (group->all == NULL)
    group->all = g_ptr_array_new_with_free_func(g_free);
  g_ptr_array_add(group->all, g_strndup(folder, (gsize)(id - folder) + strlen(container) + n));
}

void qv_docker_group_find(QvDockerGroup *group, gint pid, const char *container)
{
  gsize n;
  g_autofree char *number = g_strdup_printf("%d", pid);
  g_autofree char *text = pid > 1 ? read_proc(number, "cgroup", &n) : NULL;
  g_auto(GStrv) lines = text != NULL ? g_strsplit(text, "\n", -1) : NULL;
  for (gsize i = 0; lines != NULL && lines[i] != NULL; i++) {
    g_autofree char *controllers = NULL;
    /* Another process has that number in our pid namespace unless the id is there. */
    if (strstr(lines[i], container) == NULL)
      continue;
    g_autofree char *folder = folder_of(lines[i], &controllers);
    if (folder == NULL) {
      group->unseen = TRUE;
      continue;
    }
    note_group(group, folder, container);
    gboolean all = g_str_has_prefix(lines[i], "0::");
    g_autofree char *v2_file = g_build_filename(folder, "memory.events", NULL);
    /* Beside v1 hierarchies the second one has a folder too, and no controllers. */
    if (all && access(v2_file, F_OK) != 0)
      continue;
    group->v2 |= all;
    if (group->memory == NULL && (all || has_controller(controllers, "memory")))
      group->memory = g_strdup(folder);
    if (group->pids == NULL && (all || has_controller(controllers, "pids")))
      group->pids = g_strdup(folder);
    if (group->cpu == NULL && (all || has_controller(controllers, "cpuacct")))
      group->cpu = g_strdup(folder);
  }
}

void qv_docker_group_clear(QvDockerGroup *group)
{
  g_free(group->memory);
  g_free(group->pids);
  g_free(group->cpu);
  g_clear_pointer(&group->all, g_ptr_array_unref);
  *group = (QvDockerGroup){0};
}

/* The number in FILE of FOLDER; KEY NULL: the file is one number, else it has lines "KEY number". */
static gboolean read_number(const char *folder, const char *file, const char *key, guint64 *value)
{
  gsize n;
  g_autofree char *path = folder != NULL ? g_build_filename(folder, file, NULL) : NULL;
  g_autofree char *text = path != NULL ? qv_fd_read_file(path, TEXT_BYTES_MAX, &n, NULL) : NULL;
  g_auto(GStrv) lines = text != NULL ? g_strsplit(text, "\n", -1) : NULL;
  gsize key_n = key != NULL ? strlen(key) : 0;
  for (gsize i = 0; lines != NULL && lines[i] != NULL; i++) {
    if (key != NULL && (strncmp(lines[i], key, key_n) != 0 || lines[i][key_n] != ' '))
      continue;
    return g_ascii_string_to_unsigned(lines[i] + (key != NULL ? key_n + 1 : 0), 10, 0, G_MAXUINT64, value, NULL);
  }
  return FALSE;
}

gboolean qv_docker_group_read(const QvDockerGroup *group, QvSandboxUsage *usage)
{
  guint64 value, user, sys;
  gboolean any = FALSE;
  if (read_number(group->memory, group->v2 ? "memory.events" : "memory.oom_control", "oom_kill", &value)) {
    any = TRUE;
    usage->oom |= value > 0;
  }
  if (read_number(group->memory, group->v2 ? "memory.peak" : "memory.max_usage_in_bytes", NULL, &value)) {
    any = TRUE;
    usage->max_memory_bytes = MAX(usage->max_memory_bytes, value);
  }
  if (read_number(group->pids, "pids.events", "max", &value)) {
    any = TRUE;
    usage->pids |= value > 0;
  }
  if (group->v2 ? read_number(group->cpu, "cpu.stat", "user_usec", &user) &&
                    read_number(group->cpu, "cpu.stat", "system_usec", &sys)
                : read_number(group->cpu, "cpuacct.usage_user", NULL, &user) &&
                    read_number(group->cpu, "cpuacct.usage_sys", NULL, &sys)) {
    any = TRUE;
    usage->user_ms = user / (group->v2 ? 1000 : 1000000);
    usage->sys_ms = sys / (group->v2 ? 1000 : 1000000);
  }
  return any;
}
