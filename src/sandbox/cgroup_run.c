/* SPDX-License-Identifier: Apache-2.0 */
/* Owns what happens to the cgroups of a sandbox between their making and
 * their end: notices, counters, the kill, the removal.
 *
 * The kill: a cgroup that forks as fast as it is killed would never be empty, so its processes
 * are frozen while they are signalled (v1), or the kernel kills all at once (v2,
 * cgroup.kill). The caller repeats until nothing is found. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "sandbox/cgroup.h"
#include "sandbox/cgroup_private.h"
#include "sandbox/cgroup_text.h"

#define FREEZE_TRIES 100
#define FREEZE_PAUSE_US 1000

/* --- processes --- */

static gboolean add_pids_of(const QvCgroup *cgroup, guint base, GArray *pids, GError **error)
{
  g_autofree char *path = g_build_filename(cgroup->dirs[base], "cgroup.procs", NULL);
  g_autoptr(GError) problem = NULL;
  gsize n;
  g_autofree char *text = qv_fd_read_file(path, QV_CGROUP_PROCS_BYTES_MAX, &n, &problem);
  if (text == NULL) {
    /* Removed, or on the way: the kernel answers ENODEV to a reader that holds it open. */
    if (access(cgroup->dirs[base], F_OK) != 0)
      return TRUE;
    g_propagate_error(error, g_steal_pointer(&problem));
    return FALSE;
  }
  if (qv_cgroup_text_pids(text, n, pids))
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM,
              "cgroups: %s names a process that cannot be seen from here; run the runner in the host's pid namespace "
              "or start its sandboxes from the same one", path);
  return FALSE;
}

static gint compare_pids(gconstpointer a, gconstpointer b)
{
  gint left = *(const gint *)a, right = *(const gint *)b;
  return left < right ? -1 : left > right;
}

GArray *qv_cgroup_pids(QvCgroup *cgroup, GError **error)
{
  g_autoptr(GArray) all = g_array_new(FALSE, FALSE, sizeof(gint));
  for (guint i = 0; i < cgroup->host->bases_n; i++)
    if (cgroup->dirs[i] != NULL && !add_pids_of(cgroup, i, all, error))
      return NULL;
  g_array_sort(all, compare_pids);
  GArray *pids = g_array_new(FALSE, FALSE, sizeof(gint));
  for (guint i = 0; i < all->len; i++) {
    gint pid = g_array_index(all, gint, i);
    if (i == 0 || g_array_index(all, gint, i - 1) != pid)
      g_array_append_val(pids, pid);
  }
  return pids;
}

gboolean qv_cgroup_holds(QvCgroup *cgroup, gint pid)
{
  for (guint i = 0; i < cgroup->host->bases_n; i++) {
    g_autoptr(GArray) pids = g_array_new(FALSE, FALSE, sizeof(gint));
    gboolean found = FALSE;
    if (cgroup->dirs[i] == NULL || !add_pids_of(cgroup, i, pids, NULL))
      return FALSE;
    for (guint k = 0; k < pids->len && !found; k++)
      found = g_array_index(pids, gint, k) == pid;
    if (!found)
      return FALSE;
  }
  return TRUE;
}

/* --- notices --- */

static int open_reading(const QvCgroup *cgroup, guint controller, const char *file)
{
  g_autofree char *path = qv_cgroup_file(cgroup, controller, file);
  return open(path, O_RDONLY | O_CLOEXEC);
}

/* The next notice comes only after the file was read. */
static void rearm(int fd)
{
  char text[512];
  if (fd >= 0 && pread(fd, text, sizeof text, 0) < 0)
    return; /* the cgroup is gone: no more notices */
}

static int open_oom_eventfd(QvCgroup *cgroup)
{
  QV_AUTOFD int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  QV_AUTOFD int control = open_reading(cgroup, QV_CGROUP_MEMORY, "memory.oom_control");
  if (event < 0 || control < 0)
    return -1;
  g_autofree char *path = qv_cgroup_file(cgroup, QV_CGROUP_MEMORY, "cgroup.event_control");
  g_autofree char *text = g_strdup_printf("%d %d", event, control);
  if (!qv_cgroup_write(path, text, NULL))
    return -1;
  cgroup->memory_control_fd = qv_io_steal(&control);
  return qv_io_steal(&event);
}

int qv_cgroup_memory_fd(QvCgroup *cgroup, GIOCondition *condition)
{
  *condition = cgroup->host->v2 ? G_IO_PRI : G_IO_IN;
  if (cgroup->memory_fd < 0) {
    cgroup->memory_fd = cgroup->host->v2 ? open_reading(cgroup, QV_CGROUP_MEMORY, "memory.events")
                                         : open_oom_eventfd(cgroup);
    if (cgroup->host->v2)
      rearm(cgroup->memory_fd);
  }
  return cgroup->memory_fd;
}

int qv_cgroup_pids_fd(QvCgroup *cgroup, GIOCondition *condition)
{
  *condition = G_IO_PRI;
  if (cgroup->pids_fd < 0) {
    cgroup->pids_fd = open_reading(cgroup, QV_CGROUP_PIDS, "pids.events");
    rearm(cgroup->pids_fd);
  }
  return cgroup->pids_fd;
}

void qv_cgroup_acknowledge(QvCgroup *cgroup)
{
  guint64 count;
  if (cgroup->host->v2)
    rearm(cgroup->memory_fd);
  else if (cgroup->memory_fd >= 0 && read(cgroup->memory_fd, &count, sizeof count) < 0)
    count = 0; /* EAGAIN: nothing was pending */
  rearm(cgroup->pids_fd);
}

/* --- counters --- */

static gboolean read_keyed(const QvCgroup *cgroup, guint controller, const char *file, const char *key, guint64 *value)
{
  g_autofree char *path = qv_cgroup_file(cgroup, controller, file);
  gsize n;
  g_autofree char *text = qv_fd_read_file(path, QV_CGROUP_TEXT_BYTES_MAX, &n, NULL);
  return text != NULL && qv_cgroup_text_keyed(text, n, key, value);
}

static gboolean read_number(const QvCgroup *cgroup, guint controller, const char *file, guint64 *value)
{
  g_autofree char *path = qv_cgroup_file(cgroup, controller, file);
  gsize n;
  g_autofree char *text = qv_fd_read_file(path, QV_CGROUP_TEXT_BYTES_MAX, &n, NULL);
  return text != NULL && qv_cgroup_text_number(text, n, value);
}

static gboolean read_v2_memory(QvCgroup *cgroup, guint64 *bytes)
{
  if (read_number(cgroup, QV_CGROUP_MEMORY, "memory.peak", bytes))
    return TRUE;
  guint64 now;
  if (!read_number(cgroup, QV_CGROUP_MEMORY, "memory.current", &now))
    return FALSE;
  cgroup->seen_memory_bytes = MAX(cgroup->seen_memory_bytes, now);
  *bytes = cgroup->seen_memory_bytes;
  return TRUE;
}

gboolean qv_cgroup_read_counts(QvCgroup *cgroup, QvCgroupCounts *counts)
{
  guint64 user, sys;
  gboolean all = read_keyed(cgroup, QV_CGROUP_PIDS, "pids.events", "max", &counts->pids_refused);
  if (cgroup->host->v2) {
    all &= read_keyed(cgroup, QV_CGROUP_MEMORY, "memory.events", "oom_kill", &counts->oom_kills);
    all &= read_v2_memory(cgroup, &counts->max_memory_bytes);
    if (!read_keyed(cgroup, QV_CGROUP_CPU, "cpu.stat", "user_usec", &user) ||
        !read_keyed(cgroup, QV_CGROUP_CPU, "cpu.stat", "system_usec", &sys))
      return FALSE;
    counts->user_ms = user / 1000;
    counts->sys_ms = sys / 1000;
    return all;
  }
  all &= read_keyed(cgroup, QV_CGROUP_MEMORY, "memory.oom_control", "oom_kill", &counts->oom_kills);
  all &= read_number(cgroup, QV_CGROUP_MEMORY, "memory.max_usage_in_bytes", &counts->max_memory_bytes);
  if (!read_keyed(cgroup, QV_CGROUP_CPUACCT, "cpuacct.stat", "user", &user) ||
      !read_keyed(cgroup, QV_CGROUP_CPUACCT, "cpuacct.stat", "system", &sys))
    return FALSE;
  guint64 ticks = (guint64)sysconf(_SC_CLK_TCK);
  counts->user_ms = user * 1000 / ticks;
  counts->sys_ms = sys * 1000 / ticks;
  return all;
}

/* --- kill --- */

/* v1. What cannot be frozen is signalled all the same. */
static void freeze(QvCgroup *cgroup, gboolean on)
{
  g_autofree char *path = qv_cgroup_file(cgroup, QV_CGROUP_FREEZER, "freezer.state");
  if (!qv_cgroup_write(path, on ? "FROZEN" : "THAWED", NULL))
    return;
  for (guint i = 0; on && i < FREEZE_TRIES; i++) {
    gsize n;
    g_autofree char *state = qv_fd_read_file(path, QV_CGROUP_TEXT_BYTES_MAX, &n, NULL);
    if (state == NULL || g_str_has_prefix(state, "FROZEN"))
      return;
    g_usleep(FREEZE_PAUSE_US);
  }
}

static gboolean signal_each(QvCgroup *cgroup, guint *remaining, GError **error)
{
  g_autoptr(GArray) pids = qv_cgroup_pids(cgroup, error);
  if (pids == NULL)
    return FALSE;
  *remaining = pids->len;
  for (guint i = 0; i < pids->len; i++) {
    gint pid = g_array_index(pids, gint, i);
    if (kill(pid, SIGKILL) != 0 && errno != ESRCH)
      return qv_error_set_errno(error, errno, "cgroups: killing process %d of %s", pid, cgroup->id);
  }
  return TRUE;
}

gboolean qv_cgroup_signal(QvCgroup *cgroup, guint *remaining, GError **error)
{
  g_autoptr(GArray) pids = qv_cgroup_pids(cgroup, error);
  if (pids == NULL)
    return FALSE;
  *remaining = pids->len;
  if (pids->len == 0)
    return TRUE;
  if (cgroup->host->v2) {
    g_autofree char *path = g_build_filename(cgroup->dirs[0], "cgroup.kill", NULL);
    return qv_cgroup_write(path, "1", NULL) || signal_each(cgroup, remaining, error);
  }
  freeze(cgroup, TRUE);
  gboolean ok = signal_each(cgroup, remaining, error);
  freeze(cgroup, FALSE);
  return ok;
}

gboolean qv_cgroup_signal_moving(QvCgroup *cgroup, guint *remaining, GError **error)
{
  return cgroup->host->v2 ? qv_cgroup_signal(cgroup, remaining, error) : signal_each(cgroup, remaining, error);
}

/* --- removal --- */

void qv_cgroup_host_tidy(const QvCgroupHost *host)
{
  for (guint i = 0; i < host->bases_n; i++) {
    g_autofree char *top = g_build_filename(host->bases[i], QV_CGROUP_TOP, NULL);
    g_autofree char *owner = g_build_filename(top, host->owner, NULL);
    if (rmdir(owner) == 0 || errno == ENOENT)
      rmdir(top);
  }
}

gboolean qv_cgroup_remove(QvCgroup *cgroup, GError **error)
{
  int failed = 0;
  const char *folder = NULL;
  for (guint i = 0; i < cgroup->host->bases_n; i++) {
    if (cgroup->dirs[i] == NULL || rmdir(cgroup->dirs[i]) == 0 || errno == ENOENT)
      continue;
    failed = errno;
    folder = cgroup->dirs[i];
  }
  if (failed != 0)
    return qv_error_set_errno(error, failed, "cgroups: removing %s", folder);
  qv_cgroup_host_tidy(cgroup->host);
  return TRUE;
}

void qv_cgroup_list(QvCgroup *cgroup, GPtrArray *folders)
{
  for (guint i = 0; i < cgroup->host->bases_n; i++)
    if (cgroup->dirs[i] != NULL && access(cgroup->dirs[i], F_OK) == 0)
      g_ptr_array_add(folders, g_strdup(cgroup->dirs[i]));
}
