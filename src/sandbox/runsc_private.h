/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the runsc backend share. On disk, below the state folder:
 *
 *   runs/<sandbox id>/lock                  held (flock) by the process that owns the sandbox
 *   runs/<sandbox id>/bundle/config.json
 *   runs/<sandbox id>/bundle/rootfs/        empty: the root file system is an image file
 *   runsc/<id>_sandbox:<id>.state, .lock    runsc's own (--root)
 *   runsc/runsc-<id>.sock                   runsc's own: the control socket
 *
 * The run folder is the first thing made and the last one removed: what exists
 * without a lock that somebody holds was left behind. */
#pragma once

#include <sys/types.h>

#include "sandbox/backend_private.h"
#include "sandbox/cgroup.h"

typedef struct {
  QvBackend head;
  char *program;    /* absolute path of runsc */
  char *runs_dir;
  char *runsc_root; /* runsc's --root */
  QvCgroupHost *cgroups;
  guint start_deadline_ms;
} QvRunscBackend;

typedef struct {
  QvSandbox head;
  int lock_fd;       /* of the run folder; -1: none made */
  QvCgroup *cgroup;
  pid_t pid;         /* of `runsc run`; 0: not started or reaped */
  pid_t session;     /* the same number, which stays */
  int pid_fd;
  int stderr_fd;
  gint64 deadline_ms;  /* for STARTED */
  GPtrArray *sources;  /* of GSource */
  GArray *seen_pids;   /* gint: processes that were in the cgroups, to be reaped should they become ours */
  gboolean ended;      /* the exit was taken and told */
  gboolean reported_oom;
  gboolean reported_pids;
  gboolean killed;     /* no more events */
  gboolean clean;      /* nothing of it exists any more */
  guint oom_rechecks;
  QvCgroupCounts counts;
} QvRunscSandbox;

/* --- runsc_state.c: what is on disk --- */

/* Makes and locks the run folder and writes the bundle: the descriptor of the lock, or -1. */
int qv_runsc_make_run(QvRunscBackend *runsc, const char *id, const char *config, GError **error);
char *qv_runsc_bundle(QvRunscBackend *runsc, const char *id);
gboolean qv_runsc_remove_state(QvRunscBackend *runsc, const char *id, GError **error);
/* Does runsc say that the container runs? *PID is then the sandbox's process. */
gboolean qv_runsc_is_running(QvRunscBackend *runsc, const char *id, gint *pid);
/* The same from the text of the state file. Pure. */
gboolean qv_runsc_state_parse(const char *text, gsize n, gint *pid);

/* --- runsc_sweep.c --- */
gboolean qv_runsc_sweep(QvBackend *backend, const char *sandbox_id, QvSweepReport *report, GError **error);
char **qv_runsc_leftovers(QvBackend *backend, const char *sandbox_id);

/* --- runsc_sandbox.c --- */
QvSandbox *qv_runsc_start(QvBackend *backend, const QvSandboxRequest *request, QvSandboxFunc func, gpointer data,
                          GError **error);
gboolean qv_runsc_verify(QvSandbox *sandbox, GError **error);
void qv_runsc_usage(QvSandbox *sandbox, QvSandboxUsage *usage);
void qv_runsc_free_sandbox(QvSandbox *sandbox);
/* Is PID the `runsc run` of a sandbox of this process, to be reaped by that sandbox alone? */
gboolean qv_runsc_is_run(pid_t pid);

/* --- runsc_kill.c --- */
void qv_runsc_end(QvSandbox *sandbox);
gboolean qv_runsc_kill(QvSandbox *sandbox, GError **error);
/* Signals the cgroups until they are empty and removes them. SEEN (may be NULL) collects the processes. */
gboolean qv_runsc_empty_cgroup(QvCgroup *cgroup, GArray *seen, gint64 until_ms, GError **error);
/* Reaps what a sandbox of a dead owner left among our children: where the runner is PID 1. */
void qv_runsc_reap_strangers(QvRunscBackend *runsc);
gboolean qv_runsc_remove_cgroup(QvCgroup *cgroup, gint64 until_ms, GError **error);
