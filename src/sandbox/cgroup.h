/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroups of sandboxes, v1 or v2, made and removed by us:
 *
 *   v1   <mount>/<controller>/quavon/<owner>/<sandbox id>   for each controller of CONTROLLERS
 *   v2   <mount>/quavon/<owner>/<sandbox id>
 *
 * The owner is a name of one runner, so that two runners of a host never touch each
 * other's. The process that will become the runtime joins before it executes, so
 * that everything it starts is inside, and limits hold from the first
 * instruction. Folders of quavon and owner go when they are empty.
 *
 * Not in here: who may be killed, which is the caller's to decide. */
#pragma once

#include <glib.h>

#include "sandbox/container_spec.h"

typedef struct QvCgroupHost QvCgroupHost; /* the machine's hierarchy and our owner's place in it */
typedef struct QvCgroup QvCgroup;         /* of one sandbox */

/* The most hierarchies that a process has to join: memory, pids, cpu, cpuacct, freezer. */
#define QV_CGROUP_JOIN_MAX 5

/* Looks at MOUNT (usually /sys/fs/cgroup). QV_ERROR_SYSTEM with the remedy when there is neither a v2
 * hierarchy nor v1 with every controller that is needed. OWNER: [a-z0-9-]. */
QvCgroupHost *qv_cgroup_host_open(const char *mount, const char *owner, GError **error);
void qv_cgroup_host_free(QvCgroupHost *host);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvCgroupHost, qv_cgroup_host_free)
gboolean qv_cgroup_host_is_v2(const QvCgroupHost *host);

/* The sandbox ids that have a cgroup of this owner, in any hierarchy; a set (owned keys). */
GHashTable *qv_cgroup_host_ids(const QvCgroupHost *host, GError **error);

/* Removes the folders of owner and quavon that are empty, as the removal of a sandbox does; here for a caller
 * with the right to write to MOUNT, which a confined one lacks. */
void qv_cgroup_host_tidy(const QvCgroupHost *host);

/* Makes the cgroups, sets every limit of SPEC and reads it back. On an error
 * nothing stays. An existing cgroup of the id is an error: ids are never used twice. */
QvCgroup *qv_cgroup_new(const QvCgroupHost *host, const QvContainerSpec *spec, GError **error);

/* The cgroups that are there already, to be killed and removed; the host must outlive them. */
QvCgroup *qv_cgroup_adopt(const QvCgroupHost *host, const char *sandbox_id);
/* Frees the object and leaves the cgroups. */
void qv_cgroup_free(QvCgroup *cgroup);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvCgroup, qv_cgroup_free)

/* Reads the limits again. */
gboolean qv_cgroup_verify(QvCgroup *cgroup, GError **error);

/* Opens the files into which a child, while it has one thread, writes "0" to join: fills FDS, returns
 * their number, or -1. The caller closes them. */
int qv_cgroup_open_join(QvCgroup *cgroup, int fds[QV_CGROUP_JOIN_MAX], GError **error);

/* Every process of the cgroups, each once, as gint. */
GArray *qv_cgroup_pids(QvCgroup *cgroup, GError **error);

/* Is PID in every one of the cgroups? */
gboolean qv_cgroup_holds(QvCgroup *cgroup, gint pid);

/* Two descriptors that say when to look at the counters again: poll events in
 * *EVENTS; -1 where the kernel has none, then the caller's own clock has to do.
 * The memory one: v1 an eventfd (POLLIN, to be read), v2 memory.events (POLLPRI,
 * to be read again from its start). Owned by the cgroup. */
int qv_cgroup_memory_fd(QvCgroup *cgroup, GIOCondition *condition);
int qv_cgroup_pids_fd(QvCgroup *cgroup, GIOCondition *condition);
/* Takes the pending notice off both. */
void qv_cgroup_acknowledge(QvCgroup *cgroup);

typedef struct {
  guint64 oom_kills;
  guint64 pids_refused;
  guint64 user_ms;
  guint64 sys_ms;
  guint64 max_memory_bytes;
} QvCgroupCounts;

/* What cannot be read stays as it is in COUNTS; FALSE when there was any. */
gboolean qv_cgroup_read_counts(QvCgroup *cgroup, QvCgroupCounts *counts);

/* One pass: SIGKILL to every process of the cgroups, frozen meanwhile where that
 * can be. *REMAINING is the number that were found. */
gboolean qv_cgroup_signal(QvCgroup *cgroup, guint *remaining, GError **error);

/* The same with nobody frozen: freezing waits for a task that sleeps uninterruptibly. Who forks may get away, until it is signalled
 * the other way. */
gboolean qv_cgroup_signal_moving(QvCgroup *cgroup, guint *remaining, GError **error);

/* Removes the folders, and the parents that are empty. FALSE with EBUSY's
 * text while a process is inside: ask again. Absent is success. */
gboolean qv_cgroup_remove(QvCgroup *cgroup, GError **error);

/* The folders that exist now, appended as char *. */
void qv_cgroup_list(QvCgroup *cgroup, GPtrArray *folders);
