/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the docker backends share. On disk, below the state folder:
 *
 *   runs/<sandbox id>/lock        as for every backend (sandbox/run_folder.h)
 *   runs/<sandbox id>/container   the engine's id, as soon as it is known
 *   runs/<sandbox id>/starting    its start was sent, and is not answered (docker_mark.c)
 *   runs/<sandbox id>/cut         it never was: looked at once more, later
 *
 * Everything else is the engine's, and is found again by the labels of container_docker.h; what the
 * engine forgot (a refused start leaves processes that no call of it removes) is found by its 64 hex digits in the arguments and
 * control groups of the host's processes. */
#pragma once

#include "sandbox/backend_private.h"
#include "sandbox/container_docker.h"
#include "sandbox/docker_attach.h"
#include "sandbox/docker_http.h"

#define QV_DOCKER_CALL_MS 30000u
#define QV_DOCKER_KILL_MS 30000
#define QV_DOCKER_ID_HEX 64

typedef struct {
  QvBackend head;
  QvEngine *engine;
  char *runs_dir;
  char *runner_id;
  char *owner;
  char *pool;
  char *boot_id;
  char **allow;
  char *runtime;          /* for sandboxes with a network */
  char *runtime_offline;  /* for those without */
  char *runtime_program;  /* the path that the engine has for the offline one; NULL: it does not say */
  char *egress_network;   /* NULL: none */
  char *version;          /* of the engine */
  gboolean gvisor;
  gboolean cgroup_v2;
  guint start_deadline_ms;
} QvDockerBackend;

/* A container's control groups, where they are visible from here. */
typedef struct {
  char *memory, *pids, *cpu; /* the folders that count, NULL: not visible */
  GPtrArray *all;            /* char *: every folder that has the container's id in its path; NULL: none is known */
  gboolean unseen;           /* it is in one more, which has no folder here */
  gboolean v2;
} QvDockerGroup;

typedef struct {
  QvSandbox head;
  int lock_fd;                /* of the run folder; -1: none made */
  QvContainerSpec *spec;
  char *container;            /* the engine's id; NULL: not known (yet) */
  int guest_in, guest_out;    /* the far ends of stdin and stdout, until the attach has them */
  QvAttach *attach;
  QvEngine *maker;            /* for the creation alone: a kill waits for its answer, which says what is to be removed */
  QvEngineCall *making;       /* the creation, while it is under way */
  QvEngineCall *step;         /* inspect or start: one at a time */
  QvEngineCall *waiting, *events, *stats;
  GSource *deadline, *tick, *notice;
  int notice_fd;              /* pids.events; -1: not visible */
  QvDockerGroup group;
  gboolean create_sent;
  gboolean wait_ready, events_ready, start_sent;
  gboolean start_open;        /* the start was sent, and its answer has not come: the mark is there */
  gboolean has_exit;          /* the engine told the exit, in exit_code */
  int exit_code;
  gboolean ended;             /* EXITED was told, or is about to be */
  gboolean done;              /* it has done its work, and is about to end by itself */
  gboolean killed;            /* no more events */
  gboolean clean;             /* nothing of it exists any more */
  gboolean reported_oom, reported_pids;
  QvSandboxUsage usage;
} QvDockerSandbox;

/* --- docker_check.c --- */
gboolean qv_docker_version(QvBackend *backend, char **version, GError **error);
gboolean qv_docker_check_images(QvBackend *backend, const QvBackendImages *images, GError **error);
gboolean qv_docker_verify(QvSandbox *sandbox, GError **error);
/* What the engine said, and the command that mends it where we know one. Free with g_free. */
char *qv_docker_explain(const QvDockerBackend *docker, const char *runtime, const char *said);
/* The engine's runtimes and whether they are what they must be: fills runtime, runtime_offline, runtime_program. */
gboolean qv_docker_choose_runtimes(QvDockerBackend *docker, const json_t *info, const QvBackendOptions *options,
                                   GError **error);

/* --- docker_watch.c --- */
char *qv_docker_engine_format(const QvBackend *backend);
/* In place of asking it. QV_ERROR_FORMAT; QV_ERROR_POLICY without libcurl. */
gboolean qv_docker_engine_parse(QvDockerBackend *docker, const char *text, GError **error);
void qv_docker_await_change(QvBackend *backend, gboolean (*watched)(gpointer data), gpointer data);

/* --- docker_sandbox.c --- */
QvSandbox *qv_docker_start(QvBackend *backend, const QvSandboxRequest *request, QvSandboxFunc func, gpointer data,
                           GError **error);
void qv_docker_usage(QvSandbox *sandbox, QvSandboxUsage *usage);
void qv_docker_free_sandbox(QvSandbox *sandbox);
/* The plan of a sandbox's container beside its spec; borrows. */
void qv_docker_plan(const QvDockerBackend *docker, const QvContainerSpec *spec, QvDockerPlan *plan);
/* Sources, calls and streams end; no event comes any more. */
void qv_docker_quiet(QvDockerSandbox *s);

/* --- docker_kill.c --- */
/* Nothing yet but that the kill is to wait a moment for the sandbox's own end. */
void qv_docker_end(QvSandbox *sandbox);
gboolean qv_docker_kill(QvSandbox *sandbox, GError **error);
gboolean qv_docker_cut_network(QvSandbox *sandbox, GError **error);
/* Removes one container with all its processes; absent is success. GROUP: see qv_docker_processes. */
gboolean qv_docker_remove_container(QvDockerBackend *docker, const char *container, const QvDockerGroup *group, gint64 until_ms,
                                    GError **error);

/* --- docker_network.c --- */
gboolean qv_docker_look_network(QvBackend *backend, QvSandboxNetwork *network, GError **error);

/* --- docker_sweep.c --- */
gboolean qv_docker_sweep(QvBackend *backend, const char *sandbox_id, QvSweepReport *report, GError **error);
char **qv_docker_leftovers(QvBackend *backend, const char *sandbox_id);
/* The containers of this runner: array of {"Id", "State", "Labels"}; of one job, or all with NULL. json_decref. */
json_t *qv_docker_list(QvDockerBackend *docker, const char *sandbox_id, GError **error);
char *qv_docker_note_path(const QvDockerBackend *docker, const char *sandbox_id);
/* The engine's id in the run folder; NULL: none. */
char *qv_docker_read_note(const QvDockerBackend *docker, const char *sandbox_id);
gboolean qv_docker_container_id_valid(const char *id);

/* --- docker_mark.c --- */
typedef enum {
  QV_DOCKER_MARK_NONE,     /* what is removed now is gone for good */
  QV_DOCKER_MARK_STARTING, /* more may come, unless the engine made it that removes it; else it is to be marked as cut off */
  QV_DOCKER_MARK_CUT,      /* more may come still */
} QvDockerMark;
gboolean qv_docker_mark_starting(const QvDockerBackend *docker, const char *sandbox_id, GError **error);
void qv_docker_mark_answered(const QvDockerBackend *docker, const char *sandbox_id);
/* From now on its time counts. */
gboolean qv_docker_mark_cut(const QvDockerBackend *docker, const char *sandbox_id, GError **error);
/* Is the engine that answers now the one that made CONTAINER, which it has removed? FALSE where that is not known. */
gboolean qv_docker_made_it(QvDockerBackend *docker, const char *container);
/* A mark from the future counts from now on. */
QvDockerMark qv_docker_mark_read(const QvDockerBackend *docker, const char *sandbox_id);

/* --- docker_host.c: this host's processes and control groups; of no use in another pid namespace --- */
/* The processes that have CONTAINER's id in their arguments or control groups, as gint. GROUP: its control groups, or NULL. Where all that it
 * had are known and gone, no process is asked for its own: one file a process in place of two. */
GArray *qv_docker_processes(const char *container, const QvDockerGroup *group);
/* Kills them until there are none, and removes their control groups. QV_ERROR_TIMEOUT; QV_ERROR_AUTH where we may not. */
gboolean qv_docker_end_processes(const char *container, const QvDockerGroup *group, gint64 until_ms, GError **error);
/* The control groups that have CONTAINER's id in their name, where they are empty and we may: a start that is cut off leaves them, and
 * the engine removes the container without them. Walks through all groups of the host. */
void qv_docker_remove_groups(const char *container);
/* The control groups of process PID, where it is CONTAINER's. */
void qv_docker_group_find(QvDockerGroup *group, gint pid, const char *container);
void qv_docker_group_clear(QvDockerGroup *group);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(QvDockerGroup, qv_docker_group_clear)
/* What can be read goes to USAGE; FALSE: nothing could. */
gboolean qv_docker_group_read(const QvDockerGroup *group, QvSandboxUsage *usage);
