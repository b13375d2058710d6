/* SPDX-License-Identifier: Apache-2.0 */
/* Owns finding the hierarchies, making a sandbox's folders, and the limits: set,
 * then read back. Processes, counters and removal are in cgroup_run.c. A controller
 * that shares its hierarchy with another one (cpu,cpuacct) shares its folder. */
#include "sandbox/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "sandbox/cgroup_private.h"
#include "sandbox/cgroup_text.h"

#define CGROUP_V1_MAGIC 0x27e0eb
#define CGROUP_V2_MAGIC 0x63677270
/* Another runner may remove an empty parent between our two mkdir. */
#define MAKE_TRIES 1000

static const char *const CONTROLLERS[QV_CGROUP_CONTROLLERS_N] = {"memory", "pids", "cpu", "cpuacct", "freezer"};
static const char *const V2_CONTROLLERS[] = {"memory", "pids", "cpu"};

/* --- the machine --- */

static gboolean is_fs(const char *path, long magic)
{
  struct statfs fs;
  return statfs(path, &fs) == 0 && (long)fs.f_type == magic;
}

static gboolean has_v2_controllers(const char *mount)
{
  g_autofree char *path = g_build_filename(mount, "cgroup.controllers", NULL);
  gsize n;
  g_autofree char *text = qv_fd_read_file(path, QV_CGROUP_TEXT_BYTES_MAX, &n, NULL);
  if (text == NULL)
    return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS(V2_CONTROLLERS); i++)
    if (!qv_cgroup_text_has_word(text, n, V2_CONTROLLERS[i]))
      return FALSE;
  return TRUE;
}

static gboolean find_v1(QvCgroupHost *host, const char *mount, GError **error)
{
  dev_t devices[QV_CGROUP_CONTROLLERS_N];
  for (guint c = 0; c < QV_CGROUP_CONTROLLERS_N; c++) {
    g_autofree char *path = g_build_filename(mount, CONTROLLERS[c], NULL);
    struct stat st;
    if (!is_fs(path, CGROUP_V1_MAGIC) || stat(path, &st) != 0) {
      g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM,
                  "cgroups: no %s controller at %s, so that limit cannot be set; mount cgroup v2 with memory, pids and "
                  "cpu at %s, or v1 with memory, pids, cpu, cpuacct and freezer below it",
                  CONTROLLERS[c], path, mount);
      return FALSE;
    }
    guint b = 0;
    while (b < host->bases_n && devices[b] != st.st_dev)
      b++;
    if (b == host->bases_n) {
      devices[b] = st.st_dev;
      host->bases[host->bases_n++] = g_steal_pointer(&path);
    }
    host->base_of[c] = b;
  }
  return TRUE;
}

QvCgroupHost *qv_cgroup_host_open(const char *mount, const char *owner, GError **error)
{
  g_autoptr(QvCgroupHost) host = g_new0(QvCgroupHost, 1);
  host->owner = g_strdup(owner);
  if (is_fs(mount, CGROUP_V2_MAGIC)) {
    if (!has_v2_controllers(mount)) {
      g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM,
                  "cgroups: %s/cgroup.controllers does not offer memory, pids and cpu, so limits cannot be set; "
                  "delegate these controllers to the runner", mount);
      return NULL;
    }
    host->v2 = TRUE;
    host->bases[host->bases_n++] = g_strdup(mount);
    return g_steal_pointer(&host);
  }
  return find_v1(host, mount, error) ? g_steal_pointer(&host) : NULL;
}

void qv_cgroup_host_free(QvCgroupHost *host)
{
  if (host == NULL)
    return;
  for (guint i = 0; i < host->bases_n; i++)
    g_free(host->bases[i]);
  g_free(host->owner);
  g_free(host);
}

gboolean qv_cgroup_host_is_v2(const QvCgroupHost *host)
{
  return host->v2;
}

GHashTable *qv_cgroup_host_ids(const QvCgroupHost *host, GError **error)
{
  g_autoptr(GHashTable) ids = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  for (guint i = 0; i < host->bases_n; i++) {
    g_autofree char *path = g_build_filename(host->bases[i], QV_CGROUP_TOP, host->owner, NULL);
    g_autoptr(GError) problem = NULL;
    g_autoptr(GDir) dir = g_dir_open(path, 0, &problem);
    if (dir == NULL && g_error_matches(problem, G_FILE_ERROR, G_FILE_ERROR_NOENT))
      continue;
    if (dir == NULL) {
      g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "cgroups: %s", problem->message);
      return NULL;
    }
    for (const char *name = g_dir_read_name(dir); name != NULL; name = g_dir_read_name(dir))
      if (qv_sandbox_id_is_valid(name))
        g_hash_table_add(ids, g_strdup(name));
  }
  return g_steal_pointer(&ids);
}

/* --- files --- */

char *qv_cgroup_file(const QvCgroup *cgroup, guint controller, const char *file)
{
  return g_build_filename(cgroup->dirs[cgroup->host->base_of[controller]], file, NULL);
}

gboolean qv_cgroup_write(const char *path, const char *text, GError **error)
{
  QV_AUTOFD int fd = open(path, O_WRONLY | O_CLOEXEC);
  gssize n = fd < 0 ? -1 : write(fd, text, strlen(text));
  if (n < 0)
    return qv_error_set_errno(error, errno, "cgroups: writing %s to %s", text, path);
  if ((gsize)n != strlen(text)) {
    g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "cgroups: %s took a part of %s", path, text);
    return FALSE;
  }
  return TRUE;
}

/* --- limits --- */

static void add_limit(QvCgroup *cgroup, guint controller, const char *file, char *take_value)
{
  QvCgroupLimit limit = {.controller = controller, .file = file, .value = take_value};
  g_array_append_val(cgroup->limits, limit);
}

static gboolean swap_is_off(void)
{
  gsize n;
  g_autofree char *text = qv_fd_read_file("/proc/swaps", QV_CGROUP_TEXT_BYTES_MAX, &n, NULL);
  if (text == NULL)
    return access("/proc/swaps", F_OK) != 0; /* a kernel without swap */
  char *second = strchr(text, '\n');
  return second == NULL || second[1] == '\0';
}

/* The swap limit's file is absent when the kernel does not account swap: no harm where there is none. */
static gboolean add_swap_limit(QvCgroup *cgroup, const char *file, char *take_value, GError **error)
{
  g_autofree char *path = qv_cgroup_file(cgroup, QV_CGROUP_MEMORY, file);
  if (access(path, F_OK) == 0) {
    add_limit(cgroup, QV_CGROUP_MEMORY, file, take_value);
    return TRUE;
  }
  g_free(take_value);
  if (swap_is_off())
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM,
              "cgroups: %s is missing, so swap cannot be limited; turn swap off (swapoff -a) or boot with swapaccount=1",
              path);
  return FALSE;
}

static gboolean plan_limits(QvCgroup *cgroup, const QvContainerSpec *spec, GError **error)
{
  g_autofree char *memory = g_strdup_printf("%" G_GUINT64_FORMAT, spec->memory_bytes);
  g_autofree char *quota = g_strdup_printf("%" G_GUINT64_FORMAT, spec->cpu_quota_us);
  g_autofree char *period = g_strdup_printf("%u", QV_CONTAINER_CPU_PERIOD_US);
  add_limit(cgroup, QV_CGROUP_PIDS, "pids.max", g_strdup_printf("%" G_GUINT64_FORMAT, spec->cgroup_pids));
  if (cgroup->host->v2) {
    add_limit(cgroup, QV_CGROUP_CPU, "cpu.max", g_strconcat(quota, " ", period, NULL));
    add_limit(cgroup, QV_CGROUP_MEMORY, "memory.max", g_strdup(memory));
    return add_swap_limit(cgroup, "memory.swap.max", g_strdup("0"), error);
  }
  add_limit(cgroup, QV_CGROUP_CPU, "cpu.cfs_period_us", g_strdup(period));
  add_limit(cgroup, QV_CGROUP_CPU, "cpu.cfs_quota_us", g_strdup(quota));
  /* In this order: memory and swap together may not be below memory. */
  add_limit(cgroup, QV_CGROUP_MEMORY, "memory.limit_in_bytes", g_strdup(memory));
  return add_swap_limit(cgroup, "memory.memsw.limit_in_bytes", g_strdup(memory), error);
}

gboolean qv_cgroup_verify(QvCgroup *cgroup, GError **error)
{
  for (guint i = 0; i < cgroup->limits->len; i++) {
    const QvCgroupLimit *limit = &g_array_index(cgroup->limits, QvCgroupLimit, i);
    g_autofree char *path = qv_cgroup_file(cgroup, limit->controller, limit->file);
    gsize n;
    g_autofree char *text = qv_fd_read_file(path, QV_CGROUP_TEXT_BYTES_MAX, &n, error);
    if (text == NULL)
      return FALSE;
    g_strchomp(text);
    if (strcmp(text, limit->value) != 0) {
      g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "cgroups: %s is %s where %s was set: the limit does not hold", path,
                  text, limit->value);
      return FALSE;
    }
  }
  return TRUE;
}

static gboolean apply_limits(QvCgroup *cgroup, GError **error)
{
  for (guint i = 0; i < cgroup->limits->len; i++) {
    const QvCgroupLimit *limit = &g_array_index(cgroup->limits, QvCgroupLimit, i);
    g_autofree char *path = qv_cgroup_file(cgroup, limit->controller, limit->file);
    if (!qv_cgroup_write(path, limit->value, error))
      return FALSE;
  }
  return qv_cgroup_verify(cgroup, error);
}

/* --- making --- */

/* v2: what a folder's children may use is said in the folder. */
static gboolean enable_controllers(const char *dir, GError **error)
{
  g_autofree char *path = g_build_filename(dir, "cgroup.subtree_control", NULL);
  gsize n;
  g_autofree char *text = qv_fd_read_file(path, QV_CGROUP_TEXT_BYTES_MAX, &n, error);
  if (text == NULL)
    return FALSE;
  for (guint i = 0; i < G_N_ELEMENTS(V2_CONTROLLERS); i++) {
    if (qv_cgroup_text_has_word(text, n, V2_CONTROLLERS[i]))
      continue;
    g_autofree char *word = g_strconcat("+", V2_CONTROLLERS[i], NULL);
    if (!qv_cgroup_write(path, word, error)) {
      g_prefix_error(error, "the %s limit cannot be set (is %s a cgroup namespace whose root holds processes? "
                     "delegate an empty one): ", V2_CONTROLLERS[i], dir);
      return FALSE;
    }
  }
  return TRUE;
}

/* Makes the two parents and the folder itself. *RACED: a parent was removed under us. */
static gboolean make_dirs_once(QvCgroup *cgroup, guint base, gboolean *raced, GError **error)
{
  const QvCgroupHost *host = cgroup->host;
  g_autofree char *top = g_build_filename(host->bases[base], QV_CGROUP_TOP, NULL);
  g_autofree char *owner = g_build_filename(top, host->owner, NULL);
  const char *parents[] = {top, owner};
  const char *above = host->bases[base];
  *raced = FALSE;
  for (guint i = 0; i < G_N_ELEMENTS(parents); i++) {
    g_autoptr(GError) problem = NULL;
    if (host->v2 && !enable_controllers(above, &problem)) {
      *raced = i > 0 && access(above, F_OK) != 0;
      g_propagate_error(error, g_steal_pointer(&problem));
      return FALSE;
    }
    if (mkdir(parents[i], 0755) != 0 && errno != EEXIST) {
      *raced = errno == ENOENT && i > 0;
      return qv_error_set_errno(error, errno, "cgroups: making %s", parents[i]);
    }
    above = parents[i];
  }
  if (host->v2 && !enable_controllers(owner, error)) {
    *raced = access(owner, F_OK) != 0;
    return FALSE;
  }
  if (mkdir(cgroup->dirs[base], 0755) != 0) {
    *raced = errno == ENOENT;
    return qv_error_set_errno(error, errno, "cgroups: making %s", cgroup->dirs[base]);
  }
  return TRUE;
}

static gboolean make_dirs(QvCgroup *cgroup, guint base, GError **error)
{
  for (guint i = 0;; i++) {
    gboolean raced;
    g_autoptr(GError) problem = NULL;
    if (make_dirs_once(cgroup, base, &raced, &problem))
      return TRUE;
    if (!raced || i == MAKE_TRIES) {
      g_propagate_error(error, g_steal_pointer(&problem));
      return FALSE;
    }
  }
}

static void limit_clear(gpointer data)
{
  g_free(((QvCgroupLimit *)data)->value);
}

QvCgroup *qv_cgroup_adopt(const QvCgroupHost *host, const char *sandbox_id)
{
  QvCgroup *cgroup = g_new0(QvCgroup, 1);
  cgroup->host = host;
  cgroup->id = g_strdup(sandbox_id);
  cgroup->memory_fd = cgroup->memory_control_fd = cgroup->pids_fd = -1;
  cgroup->limits = g_array_new(FALSE, FALSE, sizeof(QvCgroupLimit));
  g_array_set_clear_func(cgroup->limits, limit_clear);
  for (guint i = 0; i < host->bases_n; i++)
    cgroup->dirs[i] = g_build_filename(host->bases[i], QV_CGROUP_TOP, host->owner, sandbox_id, NULL);
  return cgroup;
}

QvCgroup *qv_cgroup_new(const QvCgroupHost *host, const QvContainerSpec *spec, GError **error)
{
  g_autoptr(QvCgroup) cgroup = qv_cgroup_adopt(host, spec->sandbox_id);
  guint made = 0;
  while (made < host->bases_n && make_dirs(cgroup, made, error))
    made++;
  if (made == host->bases_n && plan_limits(cgroup, spec, error) && apply_limits(cgroup, error))
    return g_steal_pointer(&cgroup);
  /* Only what was made here: a folder that was there before belongs to its sandbox. */
  for (guint i = 0; i < made; i++)
    rmdir(cgroup->dirs[i]);
  for (guint i = made; i < host->bases_n; i++)
    g_clear_pointer(&cgroup->dirs[i], g_free);
  qv_cgroup_remove(cgroup, NULL);
  return NULL;
}

void qv_cgroup_free(QvCgroup *cgroup)
{
  if (cgroup == NULL)
    return;
  qv_io_close_cleanup(&cgroup->memory_fd);
  qv_io_close_cleanup(&cgroup->memory_control_fd);
  qv_io_close_cleanup(&cgroup->pids_fd);
  for (guint i = 0; i < QV_CGROUP_CONTROLLERS_N; i++)
    g_free(cgroup->dirs[i]);
  g_array_unref(cgroup->limits);
  g_free(cgroup->id);
  g_free(cgroup);
}

/* v1: a child that has just been forked is one thread, and a thread moves itself without the lock that cgroup.procs takes:
 * that one waits for a grace period of RCU, some 10 ms. */
int qv_cgroup_open_join(QvCgroup *cgroup, int fds[QV_CGROUP_JOIN_MAX], GError **error)
{
  const char *file = cgroup->host->v2 ? "cgroup.procs" : "tasks";
  for (guint i = 0; i < cgroup->host->bases_n; i++) {
    g_autofree char *path = g_build_filename(cgroup->dirs[i], file, NULL);
    fds[i] = open(path, O_WRONLY | O_CLOEXEC);
    if (fds[i] >= 0)
      continue;
    qv_error_set_errno(error, errno, "cgroups: opening %s", path);
    while (i > 0)
      close(fds[--i]);
    return -1;
  }
  return (int)cgroup->host->bases_n;
}
