/* SPDX-License-Identifier: Apache-2.0 */
/* The backends `docker-runsc` and `docker-runc-insecure`: a container of the Docker Engine a
 * sandbox, through its API alone. The engine holds the processes; we hold a run folder, the
 * attached stream and a wait.
 *
 *   create > inspect (is it what was asked for?) > attach (101) > wait and events registered > start > STARTED
 *   wait answers > EXITED                     event `oom` or a counter > OOM
 *   kill: remove by force, then look whether anything of it still runs
 *
 * No exec, no auto-remove, no half-close of the stream.
 *
 *   docker.c           opening: which engine, which API
 *   docker_watch.c     what an open backend tells others of its engine, and how long that holds
 *   docker_check.c     runtimes, images, what errors mean
 *   docker_sandbox.c   start, watch, events
 *   docker_kill.c      kill and removal
 *   docker_mark.c      starts whose answer has not come
 *   docker_sweep.c     what an earlier process left
 *   docker_host.c      processes and control groups behind the engine's back
 *   docker_http.c, docker_attach.c, docker_frames.c   the wire */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "sandbox/docker_private.h"
#include "sandbox/run_folder.h"

#define START_DEADLINE_MS 60000u
#define ENGINE_MIN 24u
#define BOOT_ID_FILE "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_BYTES_MAX 64

/* The API that this is written for; older engines speak theirs, newer ones may have dropped it. */
static const char API[] = "1.43";

static void backend_free(QvBackend *backend)
{
  QvDockerBackend *docker = (QvDockerBackend *)backend;
  qv_engine_free(docker->engine);
  g_free(docker->runs_dir);
  g_free(docker->runner_id);
  g_free(docker->owner);
  g_free(docker->pool);
  g_free(docker->boot_id);
  g_strfreev(docker->allow);
  g_free(docker->runtime);
  g_free(docker->runtime_offline);
  g_free(docker->runtime_program);
  g_free(docker->egress_network);
  g_free(docker->version);
  g_free(docker);
}

/* "1.43" as 1043; 0: no version. */
static guint api_number(const char *text)
{
  guint major, minor;
  char more;
  if (text == NULL || sscanf(text, "%2u.%3u%c", &major, &minor, &more) != 2)
    return 0;
  return major * 1000 + minor;
}

static gboolean choose_api(QvDockerBackend *docker, const json_t *json, guint engine_min, GError **error)
{
  const char *version = json_string_value(json_object_get(json, "Version"));
  const char *newest = json_string_value(json_object_get(json, "ApiVersion"));
  const char *oldest = json_string_value(json_object_get(json, "MinAPIVersion"));
  guint major = 0;
  if (sscanf(version, "%3u.", &major) != 1 || api_number(newest) == 0) {
    g_set_error(error, QV_ERROR, QV_ERROR_PEER, "docker: the engine at %s has no version that is a number: %.40s, API %.40s",
                qv_engine_socket(docker->engine), version, newest);
    return FALSE;
  }
  if (major < engine_min) {
    g_set_error(error, QV_ERROR, QV_ERROR_POLICY,
                "docker: the engine is %.40s, and %u is the oldest that is tested; install a newer one, or accept it with "
                "QUAVON_SANDBOX_ENGINE_MIN=%u", version, engine_min, major);
    return FALSE;
  }
  docker->version = g_strdup(version);
  const char *api = API;
  if (api_number(newest) < api_number(API))
    api = newest;
  else if (api_number(oldest) > api_number(API))
    api = oldest;
  qv_engine_set_api(docker->engine, api);
  return TRUE;
}

static gboolean ask_engine(QvDockerBackend *docker, const QvBackendOptions *options, GError **error)
{
  g_auto(QvEngineAnswer) info = {0};
  QvEngineRequest ask_info = {.method = "GET", .path = "/info", .deadline_ms = QV_DOCKER_CALL_MS};
  guint least = options->engine_min != 0 ? options->engine_min : ENGINE_MIN;
  json_t *version = qv_engine_greet(docker->engine, QV_DOCKER_CALL_MS, error);
  gboolean chosen = version != NULL && choose_api(docker, version, least, error);
  json_decref(version);
  if (!chosen || !qv_engine_do(docker->engine, &ask_info, &info, error))
    return FALSE;
  const char *system = json_string_value(json_object_get(info.json, "OSType"));
  if (g_strcmp0(system, "linux") != 0) {
    g_set_error(error, QV_ERROR, QV_ERROR_POLICY, "docker: the engine runs containers of %.40s, not of linux",
                system != NULL ? system : "nothing");
    return FALSE;
  }
  docker->cgroup_v2 = g_strcmp0(json_string_value(json_object_get(info.json, "CgroupVersion")), "2") == 0;
  return qv_docker_choose_runtimes(docker, info.json, options, error);
}

static char *read_boot_id(GError **error)
{
  gsize n;
  char *text = qv_fd_read_file(BOOT_ID_FILE, BOOT_ID_BYTES_MAX, &n, error);
  return text != NULL ? g_strstrip(text) : NULL;
}

static QvBackend *backend_open(const QvBackendOps *ops, gboolean gvisor, const QvBackendOptions *options, GError **error)
{
  g_autoptr(QvBackend) backend = (QvBackend *)g_new0(QvDockerBackend, 1);
  QvDockerBackend *docker = (QvDockerBackend *)backend;
  backend->ops = ops;
  docker->gvisor = gvisor;
  docker->allow = g_strsplit(options->docker_allow != NULL ? options->docker_allow : "", ",", -1);
  if (docker->allow[0] != NULL && docker->allow[0][0] == '\0')
    g_clear_pointer(&docker->allow[0], g_free);
  if (!qv_container_docker_allow_check((const char *const *)docker->allow, error))
    return NULL;
  g_autofree char *state_dir = qv_run_state_dir(options->state_dir, error);
  docker->runs_dir = state_dir != NULL ? qv_run_state_part(state_dir, "runs", error) : NULL;
  if (docker->runs_dir == NULL)
    return NULL;
  docker->runner_id = g_strdup(options->runner_id);
  docker->owner = qv_run_owner_name(options->runner_id, state_dir);
  docker->pool = g_strdup(options->pool != NULL ? options->pool : "default");
  docker->egress_network = g_strdup(options->egress_network);
  docker->start_deadline_ms = options->start_deadline_ms != 0 ? options->start_deadline_ms : START_DEADLINE_MS;
  docker->boot_id = read_boot_id(error);
  if (docker->boot_id == NULL)
    return NULL;
  docker->engine = qv_engine_new(options->docker_socket != NULL ? options->docker_socket : qv_engine_usual_socket());
  if (options->engine != NULL ? !qv_docker_engine_parse(docker, options->engine, error) : !ask_engine(docker, options, error))
    return NULL;
  return g_steal_pointer(&backend);
}

static QvBackend *open_runsc(const QvBackendOptions *options, GError **error)
{
  return backend_open(&qv_docker_runsc_ops, TRUE, options, error);
}

static QvBackend *open_runc(const QvBackendOptions *options, GError **error)
{
  return backend_open(&qv_docker_runc_ops, FALSE, options, error);
}

static const char *backend_cgroup(const QvBackend *backend)
{
  return ((const QvDockerBackend *)backend)->cgroup_v2 ? "v2" : "v1";
}

static const char *backend_network(const QvBackend *backend)
{
  return ((const QvDockerBackend *)backend)->egress_network;
}

#define COMMON \
  .free = backend_free, .cgroup = backend_cgroup, .network = backend_network, .look_network = qv_docker_look_network, \
  .version = qv_docker_version, .check_images = qv_docker_check_images, .start = qv_docker_start, .sweep = qv_docker_sweep, \
  .engine = qv_docker_engine_format, .await_change = qv_docker_await_change, .leftovers = qv_docker_leftovers, \
  .verify = qv_docker_verify, .usage = qv_docker_usage, .cut_network = qv_docker_cut_network, .end = qv_docker_end, .kill = qv_docker_kill, \
  .free_sandbox = qv_docker_free_sandbox

const QvBackendOps qv_docker_runsc_ops = {.name = "docker-runsc", .platform = "systrap", .open = open_runsc, COMMON};
const QvBackendOps qv_docker_runc_ops = {.name = "docker-runc-insecure", .platform = "host", .open = open_runc, COMMON};
