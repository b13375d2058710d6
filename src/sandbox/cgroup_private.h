/* SPDX-License-Identifier: Apache-2.0 */
/* What cgroup.c and cgroup_run.c share. */
#pragma once

#include "sandbox/cgroup.h"

/* The folder above the owners'. */
#define QV_CGROUP_TOP "quavon"
/* A file is a few lines; the list of processes is bounded by the kernel's pid_max. */
#define QV_CGROUP_TEXT_BYTES_MAX (64 * 1024)
#define QV_CGROUP_PROCS_BYTES_MAX (64 * 1024 * 1024)

enum {
  QV_CGROUP_MEMORY,
  QV_CGROUP_PIDS,
  QV_CGROUP_CPU,
  QV_CGROUP_CPUACCT,
  QV_CGROUP_FREEZER,
  QV_CGROUP_CONTROLLERS_N,
};
G_STATIC_ASSERT(QV_CGROUP_CONTROLLERS_N == QV_CGROUP_JOIN_MAX);

struct QvCgroupHost {
  gboolean v2;
  char *owner;
  guint bases_n;
  char *bases[QV_CGROUP_CONTROLLERS_N]; /* the mount of a hierarchy each */
  guint base_of[QV_CGROUP_CONTROLLERS_N];
};

typedef struct {
  guint controller;
  const char *file;
  char *value;
} QvCgroupLimit;

struct QvCgroup {
  const QvCgroupHost *host;
  char *id;
  char *dirs[QV_CGROUP_CONTROLLERS_N]; /* as bases; NULL: not ours */
  GArray *limits;                      /* of QvCgroupLimit; empty when adopted */
  int memory_fd;
  int memory_control_fd; /* v1: must stay open as long as the eventfd is of use */
  int pids_fd;
  guint64 seen_memory_bytes; /* v2 without memory.peak: the most that was sampled */
};

char *qv_cgroup_file(const QvCgroup *cgroup, guint controller, const char *file);
gboolean qv_cgroup_write(const char *path, const char *text, GError **error);
