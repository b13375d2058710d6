/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the end: every process dead and reaped, then cgroups, runsc's state, the run
 * folder. No call of `runsc delete`: it could hang (gvisor#9383, #10000), and
 * whatever it would remove lies in places that are known by name. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "sandbox/run_folder.h"
#include "sandbox/runsc_private.h"

#define KILL_DEADLINE_MS 30000
#define PAUSE_MIN_US 500
#define PAUSE_MAX_US 20000
/* A process that has left its cgroup becomes a zombie within moments. */
#define REAP_DEADLINE_MS 5000
#define STAT_BYTES_MAX 4096
#define END_PASSES 4

static void pause_longer(gulong *pause_us)
{
  g_usleep(*pause_us);
  *pause_us = MIN(*pause_us * 2, PAUSE_MAX_US);
}

static gboolean too_late(const char *what, GError **error)
{
  g_set_error(error, QV_ERROR, QV_ERROR_TIMEOUT, "runsc: %s within %d ms", what, KILL_DEADLINE_MS);
  return FALSE;
}

/* Who was there is noted in SEEN (may be NULL) before: afterwards they are in no cgroup. */
static gboolean signal_all(QvCgroup *cgroup, GArray *seen, guint *found, GError **error)
{
  g_autoptr(GArray) pids = seen != NULL ? qv_cgroup_pids(cgroup, NULL) : NULL;
  if (pids != NULL)
    g_array_append_vals(seen, pids->data, pids->len);
  return qv_cgroup_signal(cgroup, found, error);
}

gboolean qv_runsc_empty_cgroup(QvCgroup *cgroup, GArray *seen, gint64 until_ms, GError **error)
{
  gulong pause_us = PAUSE_MIN_US;
  for (;;) {
    guint found;
    if (!signal_all(cgroup, seen, &found, error))
      return FALSE;
    if (found == 0)
      return TRUE;
    if (qv_clock_mono_ms() >= until_ms)
      return too_late("processes of the sandbox did not end", error);
    pause_longer(&pause_us);
  }
}

/* A cgroup stays busy for moments after its last process. */
gboolean qv_runsc_remove_cgroup(QvCgroup *cgroup, gint64 until_ms, GError **error)
{
  gulong pause_us = PAUSE_MIN_US;
  for (;;) {
    g_autoptr(GError) problem = NULL;
    if (qv_cgroup_remove(cgroup, &problem))
      return TRUE;
    if (qv_clock_mono_ms() >= until_ms) {
      g_propagate_error(error, g_steal_pointer(&problem));
      return FALSE;
    }
    pause_longer(&pause_us);
  }
}

static gboolean reap_run(QvRunscSandbox *s, gint64 until_ms, GError **error)
{
  gulong pause_us = PAUSE_MIN_US;
  while (s->pid > 0) {
    int status = -1;
    /* It is ours and not reaped, so the number is still its own. */
    kill(s->pid, SIGKILL);
    pid_t got = waitpid(s->pid, &status, WNOHANG);
    if (got == s->pid)
      s->head.wait_status = status;
    if (got == s->pid || (got < 0 && errno == ECHILD)) {
      s->pid = 0;
      return TRUE;
    }
    if (qv_clock_mono_ms() >= until_ms)
      return too_late("`runsc run` did not end", error);
    pause_longer(&pause_us);
  }
  return TRUE;
}

typedef struct {
  char name[16];
  pid_t session;
} Child;

/* FALSE unless PID is a child of ours. */
static gboolean read_child(gint pid, Child *child)
{
  char path[64];
  int ppid, pgrp, sid;
  gsize n;
  g_snprintf(path, sizeof path, "/proc/%d/stat", pid);
  g_autofree char *text = qv_fd_read_file(path, STAT_BYTES_MAX, &n, NULL);
  const char *name = text != NULL ? strchr(text, '(') : NULL;
  char *behind = text != NULL ? strrchr(text, ')') : NULL;
  if (name == NULL || behind == NULL ||
      sscanf(behind, ") %*c %d %d %d", &ppid, &pgrp, &sid) != 3 || ppid != getpid())
    return FALSE;
  *behind = '\0';
  g_strlcpy(child->name, name + 1, sizeof child->name);
  child->session = sid;
  return TRUE;
}

static gboolean have_children(void)
{
  siginfo_t info;
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void reap_soon(gint pid, gint64 until_ms)
{
  /* Gone, another's child, or reaped: all the same. Still ending: a moment. */
  while (waitpid(pid, NULL, WNOHANG) == 0 && qv_clock_mono_ms() < until_ms)
    g_usleep(PAUSE_MIN_US);
}

/* Orphans that had left their cgroups before anybody looked: of the session of a `runsc run` (0: of none), or
 * with the name that runsc gives its sandbox and gofer (its own, until they execute), which have sessions of
 * their own and end with it. */
static gboolean is_orphan(const Child *child, const char *program, pid_t session)
{
  g_autofree char *own = g_path_get_basename(program);
  if (strlen(own) >= sizeof child->name)
    own[sizeof child->name - 1] = '\0'; /* as the kernel cuts it */
  return (session > 0 && child->session == session) || strcmp(child->name, "exe") == 0 || strcmp(child->name, own) == 0;
}

static void reap_named(const char *program, pid_t session, gint64 until_ms)
{
  g_autoptr(GDir) proc = g_dir_open("/proc", 0, NULL);
  for (const char *name = proc != NULL ? g_dir_read_name(proc) : NULL; name != NULL; name = g_dir_read_name(proc)) {
    gint pid = atoi(name);
    Child child;
    /* Looked at again: a program of ours that has just been executed gets its own name within moments. */
    while (pid > 1 && !qv_runsc_is_run(pid) && read_child(pid, &child) && is_orphan(&child, program, session) &&
           waitpid(pid, NULL, WNOHANG) == 0 && qv_clock_mono_ms() < until_ms)
      g_usleep(PAUSE_MIN_US);
  }
}

static void reap_orphans(QvRunscSandbox *s)
{
  gint64 until_ms = qv_clock_mono_ms() + REAP_DEADLINE_MS;
  for (guint i = 0; i < s->seen_pids->len && have_children(); i++)
    reap_soon(g_array_index(s->seen_pids, gint, i), until_ms);
  g_array_set_size(s->seen_pids, 0);
  if (have_children())
    reap_named(((QvRunscBackend *)s->head.backend)->program, s->session, until_ms);
}

void qv_runsc_reap_strangers(QvRunscBackend *runsc)
{
  if (have_children())
    reap_named(runsc->program, 0, 0);
}

/* Is anybody there who was not seen before? They are noted. */
static gboolean see_new(QvCgroup *cgroup, GArray *seen)
{
  g_autoptr(GArray) pids = qv_cgroup_pids(cgroup, NULL);
  guint before = seen->len;
  for (guint i = 0; pids != NULL && i < pids->len; i++) {
    gint pid = g_array_index(pids, gint, i);
    gboolean known = FALSE;
    for (guint k = 0; k < before && !known; k++)
      known = g_array_index(seen, gint, k) == pid;
    if (!known)
      g_array_append_val(seen, pid);
  }
  return seen->len > before;
}

/* In no time, so nobody is frozen. Who forks as fast as it is killed is left to the kill that follows. */
void qv_runsc_end(QvSandbox *sandbox)
{
  QvRunscSandbox *s = (QvRunscSandbox *)sandbox;
  guint found;
  if (s->killed || s->cgroup == NULL)
    return;
  see_new(s->cgroup, s->seen_pids); /* some were seen before */
  for (guint i = 0; i < END_PASSES; i++)
    if (!qv_cgroup_signal_moving(s->cgroup, &found, NULL) || !see_new(s->cgroup, s->seen_pids))
      return; /* an error is the kill's to tell */
}

gboolean qv_runsc_kill(QvSandbox *sandbox, GError **error)
{
  QvRunscSandbox *s = (QvRunscSandbox *)sandbox;
  QvRunscBackend *runsc = (QvRunscBackend *)sandbox->backend;
  gint64 until_ms = qv_clock_mono_ms() + KILL_DEADLINE_MS;
  s->killed = TRUE;
  g_ptr_array_set_size(s->sources, 0);
  if (s->clean)
    return TRUE;
  if (s->cgroup != NULL && !qv_runsc_empty_cgroup(s->cgroup, s->seen_pids, until_ms, error))
    return FALSE;
  if (!reap_run(s, until_ms, error))
    return FALSE;
  /* What it started in its last moments. */
  if (s->cgroup != NULL && !qv_runsc_empty_cgroup(s->cgroup, s->seen_pids, until_ms, error))
    return FALSE;
  reap_orphans(s);
  if (s->cgroup != NULL) {
    qv_cgroup_read_counts(s->cgroup, &s->counts);
    if (!qv_runsc_remove_cgroup(s->cgroup, until_ms, error))
      return FALSE;
  }
  if (s->lock_fd >= 0 &&
      (!qv_runsc_remove_state(runsc, s->head.id, error) || !qv_run_folder_remove(runsc->runs_dir, s->head.id, error)))
    return FALSE;
  s->clean = TRUE;
  qv_io_close_cleanup(&s->lock_fd);
  return TRUE;
}
