/* SPDX-License-Identifier: Apache-2.0 */
/* The one interface to every backend: a started entry with stdin and stdout,
 * limits, events, a kill that leaves nothing, a sweep of what an earlier runner
 * left. What a backend cannot give, it refuses in qv_backend_open or
 * qv_backend_check: never a quieter fallback. (operations.md, "Backends")
 *
 *   start ──> STARTING ──STARTED──> RUNNING ──EXITED──> gone by itself
 *                │                     │ OOM, PIDS (at most once each)
 *                └─EXITED: never started, qv_sandbox_failure says why
 *   qv_sandbox_kill in any state removes processes, cgroups, state, bundle.
 *
 * Not thread-safe: a backend and its sandboxes belong to one thread, which must
 * live as long as they do (the end of that thread ends the sandboxes). Events
 * come from the GMainContext that was the thread's default at the start. */
#pragma once

#include <glib.h>

#include "sandbox/container_spec.h"

typedef struct QvBackend QvBackend;
typedef struct QvSandbox QvSandbox;

typedef struct {
  const char *state_dir;     /* absolute, exists; <state_dir>/runs and <state_dir>/runsc are the backend's.
                                Short: sockets lie below it (the error says how short) */
  const char *runner_id;     /* stable, random; with state_dir it names the cgroups of this runner */
  const char *runsc;         /* name or path of the program, NULL: "runsc" */
  const char *cgroup_mount;  /* NULL: /sys/fs/cgroup */
  guint start_deadline_ms;   /* from start to STARTED, 0: 60 000 */
  /* For docker-*; the others look at none of them. */
  const char *pool;            /* a label of every container */
  const char *docker_socket;   /* absolute path, NULL: /run/docker.sock or /var/run/docker.sock */
  guint engine_min;            /* least major version of the engine, 0: 24 */
  const char *runtime;         /* name in the engine, NULL: "runsc" */
  const char *runtime_offline; /* the same for sandboxes without a network, NULL: "runsc-offline" where the engine has it */
  const char *egress_network;  /* name of the engine's network for jobs with egress, NULL: none has any */
  const char *docker_allow;    /* settings that the engine may drop, by name, comma separated; NULL: none */
  const char *engine;          /* what qv_backend_engine said where it is watched since; NULL: the engine is asked */
} QvBackendOptions;

/* What a check tries a backend with: a file for those that read one, else the
 * digests of every image that jobs may name. */
typedef struct {
  const char *rootfs_file;    /* NULL: none */
  const char *const *digests; /* NULL-terminated; NULL: none. The first one is started */
} QvBackendImages;

typedef struct {
  guint64 user_ms;
  guint64 sys_ms;
  guint64 max_memory_bytes; /* 0 where the kernel does not say */
  gboolean oom;             /* the cgroup counted an OOM kill */
  gboolean pids;            /* the cgroup refused a task */
} QvSandboxUsage;

typedef enum {
  QV_SANDBOX_STARTED, /* the entry runs */
  QV_SANDBOX_OOM,     /* the cgroup reported an OOM kill: the job is to be killed as `memory` */
  QV_SANDBOX_PIDS,    /* the cgroup refused a task: the job is to be killed as `processes` */
  QV_SANDBOX_EXITED,  /* the sandbox's process ended, or never started; kill is still needed to clean up */
} QvSandboxEvent;

/* The callback may call everything below except qv_sandbox_free. */
typedef void (*QvSandboxFunc)(QvSandbox *sandbox, QvSandboxEvent event, gpointer data);

/* What a sweep did, counted in sandboxes. */
typedef struct {
  guint removed;
  guint busy;   /* still owned by a living process: left alone */
  guint later;  /* nothing of it is there, and more may come: half a minute on a sweep can tell */
  guint failed; /* something remains; the error names the first */
} QvSweepReport;

/* TRUE where the backend NAME starts sandboxes from an image file (rootfs_file), FALSE where it asks an
 * engine for an image by digest. */
gboolean qv_backend_takes_rootfs(const char *name);

/* Opens the backend NAME (one that is not in this build is QV_ERROR_POLICY). Finds the program and the cgroup hierarchy, makes its
 * folders, starts nothing. QV_ERROR_SYSTEM with the remedy when runsc, a cgroup
 * controller or a permission is missing, QV_ERROR_LIMIT when state_dir is too long. */
QvBackend *qv_backend_open(const char *name, const QvBackendOptions *options, GError **error);
void qv_backend_free(QvBackend *backend);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvBackend, qv_backend_free)

const char *qv_backend_name(const QvBackend *backend);
const char *qv_backend_platform(const QvBackend *backend); /* "systrap" */
const char *qv_backend_cgroup(const QvBackend *backend);   /* "v1" or "v2" */

/* The real test: asks the runtime for its version, starts the entry of an image
 * under small limits, reads the limits back, waits for STARTED, kills, and
 * looks for leftovers. Blocks for at most the start deadline and 60 s.
 * Runs its own main context. VERSION (may be NULL) takes runsc's version text. */
gboolean qv_backend_check(QvBackend *backend, const QvBackendImages *images, char **version, GError **error);

/* The network of sandboxes with egress as the engine has it. */
typedef struct {
  char gateway[16]; /* the host's IPv4 address on it */
  char **peers;     /* IPv4 addresses of the containers that are on it now */
} QvSandboxNetwork;

/* FALSE without an error: sandboxes of this backend have no network. QV_ERROR_POLICY: it is not there, or not what it must
 * be; with the remedy. */
gboolean qv_backend_look_network(QvBackend *backend, QvSandboxNetwork *network, GError **error);
const char *qv_backend_network(const QvBackend *backend); /* its name; NULL: none */
void qv_sandbox_network_clear(QvSandboxNetwork *network);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(QvSandboxNetwork, qv_sandbox_network_clear)

/* Starts a sandbox; returns at once, STARTED or EXITED follow. Limits are set
 * and read back before anything of the sandbox runs. On an error nothing is
 * left behind. */
QvSandbox *qv_backend_start(QvBackend *backend, const QvSandboxRequest *request, QvSandboxFunc func, gpointer data,
                            GError **error);

/* Removes what an earlier process of this runner left: of the sandbox SANDBOX_ID,
 * or of all with NULL. Touches nothing that is not this runner's (state_dir and
 * runner_id), nor a sandbox whose owner lives. FALSE when something remains;
 * REPORT (may be NULL) is filled either way. */
gboolean qv_backend_sweep(QvBackend *backend, const char *sandbox_id, QvSweepReport *report, GError **error);

/* Removes the empty folders that this runner's sandboxes share, for its end: a job process that has given up its
 * capabilities cannot remove the outermost. A sweep does it too. Harms no sandbox that lives; says nothing. */
void qv_backend_tidy(const char *name, const QvBackendOptions *options);

/* What the engine is, for the options of others that open it with the same ones: they then ask it nothing. NULL: the backend
 * has no engine. Free with g_free. */
char *qv_backend_engine(const QvBackend *backend);

/* Blocks while the engine is there and has the settings that it has: returns when the connection to it ends, whatever the reason,
 * or it has read its settings anew. WATCHED is called as soon as neither can be missed any more; FALSE ends the watch. A
 * backend without an engine returns at once. */
void qv_backend_await_change(QvBackend *backend, gboolean (*watched)(gpointer data), gpointer data);

/* The leak check: a line for each process, cgroup, state file and run folder of this
 * runner that exists now, living sandboxes included. NULL-terminated, empty
 * when there is none. */
char **qv_backend_leftovers(QvBackend *backend);

/* Our ends of the two socketpairs: non-blocking, close-on-exec. The caller owns
 * what it took; -1 when it was taken before. */
int qv_sandbox_take_stdin(QvSandbox *sandbox);
int qv_sandbox_take_stdout(QvSandbox *sandbox);

const char *qv_sandbox_id(const QvSandbox *sandbox);
gboolean qv_sandbox_has_started(const QvSandbox *sandbox);

/* The wait status of the sandbox's process, -1 while it runs. Under gVisor the
 * exit status of the entry, or 128 + signal. */
int qv_sandbox_wait_status(const QvSandbox *sandbox);

/* Why it never started, with the tail of the runtime's own words; NULL when it
 * started, or has not failed yet. Borrowed. Hostile text may be in it: escape before printing. */
const char *qv_sandbox_failure(const QvSandbox *sandbox);

/* Diagnostics of runtime and entry, the last 8 KiB of stderr. Borrowed. Hostile text. */
const char *qv_sandbox_stderr(const QvSandbox *sandbox);

/* From the cgroup: now while it lives, else as of the kill. */
void qv_sandbox_usage(QvSandbox *sandbox, QvSandboxUsage *usage);

/* Takes a sandbox that was started with an egress_network off it, for good: connections
 * that are open die too. Blocks for at most 11 s. A sandbox without a network: nothing to do. FALSE: it may be on it still, and
 * what runs in it was ended, where this host shows it; qv_sandbox_kill is to follow. */
gboolean qv_sandbox_cut_network(QvSandbox *sandbox, GError **error);

/* For a sandbox that has done its work; qv_sandbox_kill is to follow, EXITED may come before. Takes no time: every process is killed,
 * and none of them waited for. A container engine is not asked; qv_sandbox_kill gives its container 1 s to end by itself. */
void qv_sandbox_end(QvSandbox *sandbox);

/* Kills every process at once, then removes cgroups, state and bundle and looks
 * again. Blocks until done, at most 30 s. FALSE when something remains: the
 * error names it, the runner is to take no more jobs, and a later call or a sweep
 * tries again. No event comes after the call, EXITED neither. */
gboolean qv_sandbox_kill(QvSandbox *sandbox, GError **error);

/* NULL is fine. Kills first where that has not been done. */
void qv_sandbox_free(QvSandbox *sandbox);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvSandbox, qv_sandbox_free)
