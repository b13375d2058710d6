/* SPDX-License-Identifier: Apache-2.0 */
/* Owns a sandbox from its start to its end: what is made, in which order, and
 * what is watched.
 *
 *   source            says                      leads to
 *   10 ms clock       runsc's state "running"   STARTED; past the deadline: failure, EXITED
 *   pid descriptor    `runsc run` ended         EXITED
 *   memory, pids fd   a counter moved           OOM, PIDS
 *   1 s clock         -                         the counters again, for kernels without notices
 *   stderr pipe       text                      the last of it is kept
 *
 * Counters are read before EXITED is told, so that the reason comes before the end. */
#include <errno.h>
#include <glib-unix.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "sandbox/process.h"
#include "sandbox/runsc_private.h"

#define START_TICK_MS 10
#define SLOW_TICK_MS 1000
/* The kernel's notice of an OOM comes before the victim is counted. */
#define OOM_RECHECK_MS 10
#define OOM_RECHECKS 200
#define DIAGNOSTICS_BYTES 8192
#define STAT_BYTES_MAX 4096
#define PF_EXITING 0x4u /* of the kernel's linux/sched.h */
/* Exit statuses of runsc itself when it could not start: util.Fatalf and a usage error. */
#define RUNSC_FATAL 128
#define RUNSC_USAGE 2

typedef gboolean (*FdFunc)(gint fd, GIOCondition condition, gpointer data);

static void emit(QvRunscSandbox *s, QvSandboxEvent event)
{
  if (!s->killed)
    s->head.func(&s->head, event, s->head.data);
}

static QvRunscBackend *backend_of(QvRunscSandbox *s)
{
  return (QvRunscBackend *)s->head.backend;
}

static void watch(QvRunscSandbox *s, GSource *source, GSourceFunc func)
{
  g_autoptr(GMainContext) context = g_main_context_ref_thread_default();
  g_source_set_callback(source, func, s, NULL);
  g_source_attach(source, context);
  g_ptr_array_add(s->sources, source);
}

static void watch_fd(QvRunscSandbox *s, int fd, GIOCondition condition, FdFunc func)
{
  if (fd >= 0)
    watch(s, g_unix_fd_source_new(fd, condition), (GSourceFunc)(void (*)(void))func);
}

/* --- stderr --- */

/* FALSE at the end of the stream. */
static gboolean drain_stderr(QvRunscSandbox *s)
{
  char bytes[4096];
  /* Bounded, so that a flood does not keep the loop from everything else. */
  for (guint i = 0; i < 16; i++) {
    ssize_t n = read(s->stderr_fd, bytes, sizeof bytes);
    if (n < 0)
      return errno == EAGAIN || errno == EINTR;
    if (n == 0)
      return FALSE;
    for (ssize_t k = 0; k < n; k++)
      if (bytes[k] == '\0')
        bytes[k] = ' ';
    g_string_append_len(s->head.diagnostics, bytes, n);
    if (s->head.diagnostics->len > DIAGNOSTICS_BYTES)
      g_string_erase(s->head.diagnostics, 0, (gssize)(s->head.diagnostics->len - DIAGNOSTICS_BYTES));
  }
  return TRUE;
}

static gboolean on_stderr(gint fd, GIOCondition condition, gpointer data)
{
  return drain_stderr(data) ? G_SOURCE_CONTINUE : G_SOURCE_REMOVE;
}

/* --- counters --- */

static void check_counts(QvRunscSandbox *s)
{
  qv_cgroup_read_counts(s->cgroup, &s->counts);
  if (s->counts.oom_kills > 0 && !s->reported_oom) {
    s->reported_oom = TRUE;
    emit(s, QV_SANDBOX_OOM);
  }
  if (s->counts.pids_refused > 0 && !s->reported_pids) {
    s->reported_pids = TRUE;
    emit(s, QV_SANDBOX_PIDS);
  }
}

static gboolean on_slow_tick(gpointer data)
{
  QvRunscSandbox *s = data;
  check_counts(s);
  return G_SOURCE_CONTINUE;
}

static gboolean on_oom_recheck(gpointer data)
{
  QvRunscSandbox *s = data;
  check_counts(s);
  if (!s->killed && !s->reported_oom && --s->oom_rechecks > 0)
    return G_SOURCE_CONTINUE;
  s->oom_rechecks = 0;
  return G_SOURCE_REMOVE;
}

static gboolean on_notice(gint fd, GIOCondition condition, gpointer data)
{
  QvRunscSandbox *s = data;
  qv_cgroup_acknowledge(s->cgroup);
  check_counts(s);
  if (!s->killed && !s->reported_oom && s->oom_rechecks == 0) {
    s->oom_rechecks = OOM_RECHECKS;
    watch(s, g_timeout_source_new(OOM_RECHECK_MS), on_oom_recheck);
  }
  return G_SOURCE_CONTINUE;
}

/* --- start and end --- */

/* Ends the sandbox from our side: FAILURE (taken) is why it never started. */
static void fail(QvRunscSandbox *s, char *take_failure)
{
  guint found;
  s->head.failure = take_failure;
  s->ended = TRUE;
  qv_cgroup_signal(s->cgroup, &found, NULL);
  emit(s, QV_SANDBOX_EXITED);
}

static char *shown_stderr(QvRunscSandbox *s)
{
  drain_stderr(s);
  char *text = g_strdup(s->head.diagnostics->str);
  g_strstrip(text);
  if (text[0] != '\0')
    return text;
  g_free(text);
  return g_strdup("it said nothing");
}

/* A release that lacks an option of ours prints its whole help behind the line that says so. */
static char *explain(char *take_text)
{
  char *said = strstr(take_text, "flag provided but not defined");
  if (said == NULL)
    return take_text;
  said[strcspn(said, "\n")] = '\0';
  char *text = g_strdup_printf("this release of gVisor is too old, install 20240729 or newer (docs/GVISOR.md): %s", said);
  g_free(take_text);
  return text;
}

/* A process that is ending, or a zombie, has left its cgroups and is no danger. */
static gboolean is_ending(gint pid)
{
  unsigned flags;
  gsize n;
  g_autofree char *path = g_strdup_printf("/proc/%d/stat", pid);
  g_autofree char *text = qv_fd_read_file(path, STAT_BYTES_MAX, &n, NULL);
  const char *behind = text != NULL ? strrchr(text, ')') : NULL;
  /* proc(5): state, ppid, pgrp, session, tty, tpgid, flags. */
  return behind == NULL || sscanf(behind, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1 || (flags & PF_EXITING) != 0;
}

static void tell_started(QvRunscSandbox *s, gint pid)
{
  g_autoptr(GArray) pids = qv_cgroup_pids(s->cgroup, NULL);
  if (pids != NULL)
    g_array_append_vals(s->seen_pids, pids->data, pids->len);
  /* What lives outside of the cgroups has no limits. */
  if (!qv_cgroup_holds(s->cgroup, pid) && !is_ending(pid)) {
    fail(s, g_strdup_printf("runsc: the sandbox's process %d is not in its cgroups, so no limit holds", pid));
    return;
  }
  s->head.started = TRUE;
  emit(s, QV_SANDBOX_STARTED);
}

static gboolean on_start_tick(gpointer data)
{
  QvRunscSandbox *s = data;
  QvRunscBackend *runsc = backend_of(s);
  gint pid;
  if (s->ended || s->head.started)
    return G_SOURCE_REMOVE;
  if (qv_runsc_is_running(runsc, s->head.id, &pid)) {
    tell_started(s, pid);
    return G_SOURCE_REMOVE;
  }
  if (qv_clock_mono_ms() < s->deadline_ms)
    return G_SOURCE_CONTINUE;
  g_autofree char *text = shown_stderr(s);
  fail(s, g_strdup_printf("runsc: the sandbox did not start within %u ms: %s", runsc->start_deadline_ms, text));
  return G_SOURCE_REMOVE;
}

/* An entry that ended before the clock looked at the state has run all the same. */
static gboolean ran(int wait_status)
{
  return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) != RUNSC_FATAL && WEXITSTATUS(wait_status) != RUNSC_USAGE;
}

static gboolean on_end(gint fd, GIOCondition condition, gpointer data)
{
  QvRunscSandbox *s = data;
  int status = -1;
  pid_t got = waitpid(s->pid, &status, WNOHANG);
  if (got == 0)
    return G_SOURCE_CONTINUE;
  s->pid = 0;
  s->head.wait_status = got < 0 ? 0 : status;
  if (s->ended)
    return G_SOURCE_REMOVE;
  check_counts(s);
  if (!s->killed && !s->head.started && ran(status)) {
    s->head.started = TRUE;
    emit(s, QV_SANDBOX_STARTED);
  }
  if (s->killed)
    return G_SOURCE_REMOVE;
  s->ended = TRUE;
  if (!s->head.started) {
    g_autofree char *text = explain(shown_stderr(s));
    s->head.failure = WIFSIGNALED(status)
                        ? g_strdup_printf("runsc: ended by signal %d before the sandbox started: %s", WTERMSIG(status), text)
                        : g_strdup_printf("runsc: ended with status %d before the sandbox started: %s",
                                          WEXITSTATUS(status), text);
  }
  emit(s, QV_SANDBOX_EXITED);
  return G_SOURCE_REMOVE;
}

static void watch_all(QvRunscSandbox *s)
{
  GIOCondition condition;
  watch_fd(s, s->pid_fd, G_IO_IN, on_end);
  watch_fd(s, s->stderr_fd, G_IO_IN, on_stderr);
  int memory_fd = qv_cgroup_memory_fd(s->cgroup, &condition);
  watch_fd(s, memory_fd, condition, on_notice);
  int pids_fd = qv_cgroup_pids_fd(s->cgroup, &condition);
  watch_fd(s, pids_fd, condition, on_notice);
  watch(s, g_timeout_source_new(START_TICK_MS), on_start_tick);
  watch(s, g_timeout_source_new(SLOW_TICK_MS), on_slow_tick);
}

/* --- making --- */

static void source_free(gpointer data)
{
  g_source_destroy(data);
  g_source_unref(data);
}

/* The sandbox is a child of `runsc run`; when that is killed, the sandbox's zombie is to come to us, who reap
 * it, and not to an init that may not. Only while there are sandboxes: other orphans are not ours. */
static GPtrArray *living; /* of QvRunscSandbox; NULL: none */
static int subreaper_before;

static void living_add(QvRunscSandbox *s)
{
  if (living == NULL) {
    living = g_ptr_array_new();
    if (prctl(PR_GET_CHILD_SUBREAPER, &subreaper_before) != 0)
      subreaper_before = 0;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  g_ptr_array_add(living, s);
}

static void living_remove(QvRunscSandbox *s)
{
  g_ptr_array_remove_fast(living, s);
  if (living->len > 0)
    return;
  g_clear_pointer(&living, g_ptr_array_unref);
  prctl(PR_SET_CHILD_SUBREAPER, subreaper_before);
}

gboolean qv_runsc_is_run(pid_t pid)
{
  for (guint i = 0; living != NULL && i < living->len; i++)
    if (((QvRunscSandbox *)living->pdata[i])->pid == pid)
      return TRUE;
  return FALSE;
}

static QvRunscSandbox *sandbox_new(QvBackend *backend, const char *id, QvSandboxFunc func, gpointer data)
{
  QvRunscSandbox *s = g_new0(QvRunscSandbox, 1);
  living_add(s);
  s->head.backend = backend;
  s->head.id = g_strdup(id);
  s->head.stdin_fd = s->head.stdout_fd = -1;
  s->head.func = func;
  s->head.data = data;
  s->head.wait_status = -1;
  s->head.diagnostics = g_string_new(NULL);
  s->lock_fd = s->pid_fd = s->stderr_fd = -1;
  s->sources = g_ptr_array_new_with_free_func(source_free);
  s->seen_pids = g_array_new(FALSE, FALSE, sizeof(gint));
  return s;
}

static gboolean spawn(QvRunscSandbox *s, const QvContainerSpec *spec, int guest[3], GError **error)
{
  QvRunscBackend *runsc = backend_of(s);
  g_autofree char *root = g_strconcat("--root=", runsc->runsc_root, NULL);
  g_autofree char *folder = qv_runsc_bundle(runsc, s->head.id);
  g_autofree char *bundle = g_strconcat("--bundle=", folder, NULL);
  const char *uds = spec->egress_socket != NULL ? "--host-uds=open" : "--host-uds=none";
  const char *argv[] = {"runsc", root, "--network=none", "--platform=systrap", "--directfs=false", "--ignore-cgroups",
                        "--overlay2=none", uds, "run", bundle, s->head.id, NULL};
  int joins[QV_CGROUP_JOIN_MAX];
  int joins_n = qv_cgroup_open_join(s->cgroup, joins, error);
  if (joins_n < 0)
    return FALSE;
  QvProcessPlan plan = {.program = runsc->program, .argv = argv, .stdin_fd = guest[0], .stdout_fd = guest[1],
                        .stderr_fd = guest[2], .join_fds = joins, .join_n = joins_n};
  s->deadline_ms = qv_clock_mono_ms() + runsc->start_deadline_ms;
  pid_t pid = qv_process_spawn(&plan, error);
  for (int i = 0; i < joins_n; i++)
    close(joins[i]);
  if (pid < 0)
    return FALSE;
  s->pid = s->session = pid;
  s->pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
  return s->pid_fd >= 0 || qv_error_set_errno(error, errno, "runsc: pidfd_open (Linux 5.3 or newer is needed)");
}

/* Socketpairs, not pipes: a step that opens /proc/1/fd/1 of a pipe could write into the stream; of a
 * socket it cannot (protocol.md section 5). GUEST is the other side's stdin, stdout and stderr. */
static gboolean make_stdio(QvRunscSandbox *s, int guest[3], GError **error)
{
  int in[2], out[2], err[2];
  if (!qv_fd_socketpair(in, error))
    return FALSE;
  s->head.stdin_fd = in[0];
  guest[0] = in[1];
  if (!qv_fd_socketpair(out, error))
    return FALSE;
  s->head.stdout_fd = out[0];
  guest[1] = out[1];
  if (!qv_fd_pipe(err, error))
    return FALSE;
  s->stderr_fd = err[0];
  guest[2] = err[1];
  if (qv_io_set_nonblock(s->head.stdin_fd, true) && qv_io_set_nonblock(s->head.stdout_fd, true) &&
      qv_io_set_nonblock(s->stderr_fd, true))
    return TRUE;
  return qv_error_set_errno(error, errno, "runsc: stdin, stdout and stderr of the sandbox");
}

static gboolean check_rootfs(const char *path, GError **error)
{
  struct stat st;
  if (path == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND, "image: no root file system; runsc needs one");
    return FALSE;
  }
  if (stat(path, &st) != 0)
    return qv_error_set_errno(error, errno, "image: root file system %s", path);
  if (S_ISREG(st.st_mode))
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "image: root file system %s is not a regular file", path);
  return FALSE;
}

static gboolean build(QvRunscSandbox *s, const QvContainerSpec *spec, int guest[3], GError **error)
{
  QvRunscBackend *runsc = backend_of(s);
  g_autofree char *config = qv_container_spec_format(spec);
  s->lock_fd = qv_runsc_make_run(runsc, s->head.id, config, error);
  if (s->lock_fd < 0)
    return FALSE;
  s->cgroup = qv_cgroup_new(runsc->cgroups, spec, error);
  return s->cgroup != NULL && make_stdio(s, guest, error) && spawn(s, spec, guest, error);
}

QvSandbox *qv_runsc_start(QvBackend *backend, const QvSandboxRequest *request, QvSandboxFunc func, gpointer data,
                          GError **error)
{
  g_autoptr(QvContainerSpec) spec = qv_container_spec_plan(request, error);
  if (spec == NULL || !check_rootfs(spec->rootfs_file, error))
    return NULL;
  QvRunscSandbox *s = sandbox_new(backend, spec->sandbox_id, func, data);
  int guest[3] = {-1, -1, -1};
  gboolean ok = build(s, spec, guest, error);
  for (guint i = 0; i < G_N_ELEMENTS(guest); i++)
    qv_io_close_cleanup(&guest[i]);
  if (!ok) {
    qv_runsc_free_sandbox(&s->head);
    return NULL;
  }
  watch_all(s);
  return &s->head;
}

gboolean qv_runsc_verify(QvSandbox *sandbox, GError **error)
{
  return qv_cgroup_verify(((QvRunscSandbox *)sandbox)->cgroup, error);
}

void qv_runsc_usage(QvSandbox *sandbox, QvSandboxUsage *usage)
{
  QvRunscSandbox *s = (QvRunscSandbox *)sandbox;
  if (!s->clean && s->cgroup != NULL)
    qv_cgroup_read_counts(s->cgroup, &s->counts);
  *usage = (QvSandboxUsage){.user_ms = s->counts.user_ms, .sys_ms = s->counts.sys_ms,
                            .max_memory_bytes = s->counts.max_memory_bytes, .oom = s->counts.oom_kills > 0,
                            .pids = s->counts.pids_refused > 0};
}

void qv_runsc_free_sandbox(QvSandbox *sandbox)
{
  QvRunscSandbox *s = (QvRunscSandbox *)sandbox;
  /* What remains keeps its run folder: the next sweep finds it. */
  qv_runsc_kill(sandbox, NULL);
  qv_io_close_cleanup(&s->head.stdin_fd);
  qv_io_close_cleanup(&s->head.stdout_fd);
  qv_io_close_cleanup(&s->stderr_fd);
  qv_io_close_cleanup(&s->pid_fd);
  qv_io_close_cleanup(&s->lock_fd);
  qv_cgroup_free(s->cgroup);
  g_ptr_array_unref(s->sources);
  g_array_unref(s->seen_pids);
  g_string_free(s->head.diagnostics, TRUE);
  g_free(s->head.failure);
  g_free(s->head.id);
  living_remove(s);
  g_free(s);
}
