/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the members of ContainerCreate and their comparison with ContainerInspect. */
#include "sandbox/container_docker.h"

#include <string.h>

#include "base/error.h"

#define MIB ((json_int_t)1024 * 1024)

/* Limits that an operator may do without, by name. Nothing that isolates is among them. */
static const char *const ALLOWABLE[] = {"CgroupnsMode", "CpuPeriod", "CpuQuota", "Memory", "MemorySwap",
                                        "OomScoreAdj", "PidsLimit", "ShmSize", "Ulimits", NULL};

/* Of a container that nobody asked for these: anything but emptiness is somebody's default. */
static const char *const EMPTY[] = {"Binds", "VolumesFrom", "CapAdd", "GroupAdd", "Links", "Devices", "DeviceRequests",
                                    "DeviceCgroupRules", "PortBindings", "Sysctls", "PidMode", "UTSMode", "UsernsMode",
                                    "Privileged", "PublishAllPorts", "AutoRemove", "Init", "OomKillDisable",
                                    "CpusetMems", "CgroupParent", "ContainerIDFile", "Mounts", "VolumeDriver",
                                    "ExtraHosts", "StorageOpt", "Isolation"};

static json_t *strings_json(const char *const *strings)
{
  json_t *array = json_array();
  for (gsize i = 0; strings[i] != NULL; i++)
    json_array_append_new(array, json_string(strings[i]));
  return array;
}

static json_t *tmpfs_json(const QvContainerSpec *spec)
{
  g_autofree char *work = qv_container_work_options(spec->work_bytes);
  g_autofree char *tmp = qv_container_work_options(spec->tmp_bytes);
  return json_pack("{s:s, s:s}", "/workspace", work, "/tmp", tmp);
}

static void append_ulimit(json_t *ulimits, const char *name, guint64 value)
{
  json_array_append_new(ulimits, json_pack("{s:s, s:I, s:I}", "Name", name, "Hard", (json_int_t)value, "Soft",
                                           (json_int_t)value));
}

static json_t *ulimits_json(const QvContainerSpec *spec, const QvDockerPlan *plan)
{
  json_t *ulimits = json_array();
  append_ulimit(ulimits, "core", 0);
  if (!plan->gvisor)
    return ulimits;
  /* gVisor keeps both inside. Under runc they would be the host's: nproc counts the processes of the uid in every container,
   * and nofile cannot be raised over the engine's own. */
  append_ulimit(ulimits, "nofile", QV_CONTAINER_NOFILE);
  append_ulimit(ulimits, "nproc", spec->nproc);
  return ulimits;
}

static json_t *host_config_json(const QvContainerSpec *spec, const QvDockerPlan *plan)
{
  json_int_t pids = (json_int_t)(plan->gvisor ? spec->cgroup_pids : spec->nproc);
  json_t *host = json_pack(
    "{s:s, s:s, s:b, s:b, s:b, s:[s], s:[s], s:s, s:s, s:o, s:{s:s, s:{}}, s:{s:s, s:i}}",
    "Runtime", plan->runtime,
    "NetworkMode", spec->egress_network != NULL ? spec->egress_network : "none",
    "Privileged", 0,
    "ReadonlyRootfs", 1,
    "AutoRemove", 0,
    "CapDrop", "ALL",
    "SecurityOpt", "no-new-privileges",
    "IpcMode", "private",
    "CgroupnsMode", "private",
    "Tmpfs", tmpfs_json(spec),
    "LogConfig", "Type", "none", "Config",
    "RestartPolicy", "Name", "no", "MaximumRetryCount", 0);
  json_t *limits = json_pack(
    "{s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:o}",
    "Memory", (json_int_t)spec->memory_bytes,
    "MemorySwap", (json_int_t)spec->memory_bytes, /* of both: no swap */
    "PidsLimit", pids,
    "CpuPeriod", (json_int_t)QV_CONTAINER_CPU_PERIOD_US,
    "CpuQuota", (json_int_t)spec->cpu_quota_us,
    "ShmSize", QV_CONTAINER_SHM_MIB * MIB,
    "OomScoreAdj", QV_CONTAINER_OOM_SCORE_ADJ,
    "Ulimits", ulimits_json(spec, plan));
  json_object_update_new(host, limits);
  /* Upstream servers of the engine's own resolver: none answers here. Without them it would be the host's. */
  if (spec->egress_network != NULL) {
    json_object_set_new(host, "Dns", json_pack("[s]", "127.0.0.1"));
    json_object_set_new(host, "DnsSearch", json_pack("[s]", "."));
  }
  json_object_set_new(host, "MaskedPaths", strings_json(QV_CONTAINER_MASKED_PATHS));
  json_object_set_new(host, "ReadonlyPaths", strings_json(QV_CONTAINER_READONLY_PATHS));
  return host;
}

static json_t *labels_json(const QvContainerSpec *spec, const QvDockerPlan *plan)
{
  return json_pack("{s:s, s:s, s:s, s:s, s:s}", QV_LABEL_POOL, plan->pool, QV_LABEL_RUNNER, plan->runner_id,
                   QV_LABEL_OWNER, plan->owner, QV_LABEL_JOB, spec->sandbox_id, QV_LABEL_BOOT, plan->boot_id);
}

static json_t *create_json(const QvContainerSpec *spec, const QvDockerPlan *plan)
{
  json_t *root = json_pack(
    "{s:s, s:s, s:s, s:b, s:b, s:b, s:b, s:b, s:b, s:o, s:[s], s:o, s:s, s:{s:[s]}, s:o, s:o}",
    "Image", spec->image_digest,
    "Hostname", "sandbox",
    "User", "65532:65532",
    "AttachStdin", 1,
    "AttachStdout", 1,
    "AttachStderr", 1,
    "OpenStdin", 1,
    "StdinOnce", 1,
    "Tty", 0,
    "Env", strings_json((const char *const *)spec->env),
    "Entrypoint", spec->argv[0],
    "Cmd", strings_json((const char *const *)spec->argv + 1),
    "WorkingDir", "/",
    "Healthcheck", "Test", "NONE",
    "Labels", labels_json(spec, plan),
    "HostConfig", host_config_json(spec, plan));
  g_assert(root != NULL);
  return root;
}

char *qv_container_docker_format(const QvContainerSpec *spec, const QvDockerPlan *plan)
{
  json_t *root = create_json(spec, plan);
  char *dump = json_dumps(root, JSON_INDENT(2));
  g_assert(dump != NULL);
  char *text = g_strconcat(dump, "\n", NULL);
  free(dump);
  json_decref(root);
  return text;
}

/* ---- reading back */

static gboolean is_empty(const json_t *value)
{
  switch (value != NULL ? json_typeof(value) : JSON_NULL) {
  case JSON_NULL:
  case JSON_FALSE:
    return TRUE;
  case JSON_STRING:
    return json_string_length(value) == 0;
  case JSON_ARRAY:
    return json_array_size(value) == 0;
  case JSON_OBJECT:
    return json_object_size(value) == 0;
  case JSON_INTEGER:
    return json_integer_value(value) == 0;
  default:
    return FALSE;
  }
}

static gboolean is_same(const json_t *asked, const json_t *made)
{
  return json_equal(asked, made) || (is_empty(asked) && is_empty(made));
}

static gboolean refuse(const char *where, const char *name, const json_t *asked, const json_t *made, GError **error)
{
  char *wanted = asked != NULL ? json_dumps(asked, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
  char *found = made != NULL ? json_dumps(made, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
  gboolean allowable = g_strv_contains(ALLOWABLE, name);
  g_set_error(error, QV_ERROR, QV_ERROR_POLICY,
              "docker: the engine did not take the setting %s%s: asked for %.300s, made %.300s%s%s", where, name,
              wanted != NULL ? wanted : "none", found != NULL ? found : "none",
              allowable ? "; to do without this limit, name it in QUAVON_SANDBOX_DOCKER_ALLOW: " : "",
              allowable ? name : "");
  free(wanted);
  free(found);
  return FALSE;
}

static gboolean verify_host(const json_t *asked, const json_t *made, const char *const *allow, GError **error)
{
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)asked, name, value) {
    gboolean allowed = allow != NULL && g_strv_contains(allow, name);
    if (!allowed && !is_same(value, json_object_get(made, name)))
      return refuse("HostConfig.", name, value, json_object_get(made, name), error);
  }
  for (gsize i = 0; i < G_N_ELEMENTS(EMPTY); i++)
    if (!is_empty(json_object_get(made, EMPTY[i])))
      return refuse("HostConfig.", EMPTY[i], NULL, json_object_get(made, EMPTY[i]), error);
  return TRUE;
}

/* Environment and labels of an image may stand beside ours. */
static gboolean holds(const json_t *made, const json_t *asked)
{
  const char *name;
  json_t *value;
  gsize i;
  if (json_is_object(asked)) {
    json_object_foreach((json_t *)asked, name, value)
      if (!json_equal(value, json_object_get(made, name)))
        return FALSE;
    return TRUE;
  }
  json_array_foreach(asked, i, value) {
    gboolean found = FALSE;
    for (gsize k = 0; k < json_array_size(made) && !found; k++)
      found = json_equal(value, json_array_get(made, k));
    if (!found)
      return FALSE;
  }
  return TRUE;
}

static gboolean verify_config(const json_t *asked, const json_t *made, GError **error)
{
  static const char *const SAME[] = {"Hostname", "User", "AttachStdin", "AttachStdout", "AttachStderr", "OpenStdin",
                                     "StdinOnce", "Tty", "Entrypoint", "Cmd", "WorkingDir", "Healthcheck"};
  static const char *const HELD[] = {"Env", "Labels"};
  for (gsize i = 0; i < G_N_ELEMENTS(SAME); i++)
    if (!is_same(json_object_get(asked, SAME[i]), json_object_get(made, SAME[i])))
      return refuse("Config.", SAME[i], json_object_get(asked, SAME[i]), json_object_get(made, SAME[i]), error);
  for (gsize i = 0; i < G_N_ELEMENTS(HELD); i++)
    if (!holds(json_object_get(made, HELD[i]), json_object_get(asked, HELD[i])))
      return refuse("Config.", HELD[i], json_object_get(asked, HELD[i]), json_object_get(made, HELD[i]), error);
  /* A volume of the image would be a folder of the host, without a size, that outlives the container. */
  if (!is_empty(json_object_get(made, "Volumes"))) {
    g_set_error(error, QV_ERROR, QV_ERROR_POLICY, "docker: the image declares volumes; build it without VOLUME");
    return FALSE;
  }
  return TRUE;
}

gboolean qv_container_docker_verify(const QvContainerSpec *spec, const QvDockerPlan *plan, const json_t *inspect,
                                    const char *const *allow, GError **error)
{
  const char *image = json_string_value(json_object_get(inspect, "Image"));
  if (g_strcmp0(image, spec->image_digest) != 0) {
    g_set_error(error, QV_ERROR, QV_ERROR_AUTH, "docker: the engine started from image %.80s in place of %s",
                image != NULL ? image : "(none)", spec->image_digest);
    return FALSE;
  }
  if (!is_empty(json_object_get(inspect, "Mounts")))
    return refuse("", "Mounts", NULL, json_object_get(inspect, "Mounts"), error);
  json_t *asked = create_json(spec, plan);
  gboolean ok = verify_host(json_object_get(asked, "HostConfig"), json_object_get(inspect, "HostConfig"), allow, error) &&
                verify_config(asked, json_object_get(inspect, "Config"), error);
  json_decref(asked);
  return ok;
}

gboolean qv_container_docker_allow_check(const char *const *allow, GError **error)
{
  for (gsize i = 0; allow != NULL && allow[i] != NULL; i++) {
    if (g_strv_contains(ALLOWABLE, allow[i]))
      continue;
    g_autofree char *names = g_strjoinv(", ", (char **)ALLOWABLE);
    g_set_error(error, QV_ERROR, QV_ERROR_POLICY, "QUAVON_SANDBOX_DOCKER_ALLOW: %s cannot be done without; accepted: %s",
                allow[i], names);
    return FALSE;
  }
  return TRUE;
}
