/* SPDX-License-Identifier: Apache-2.0 */
/* Owns every setting of a container. Layout of the text: ociVersion, process,
 * root, hostname, mounts, annotations, linux.
 *
 * The limits of memory, tasks and cpu are not in the text: the cgroup is made,
 * set and read back before the runtime starts (sandbox/cgroup.h), and the
 * runtime is told to leave cgroups alone. No seccomp profile either: inside
 * gVisor it would filter what the guest asks of gVisor's own kernel, and counts
 * as no layer; the runtime puts its own filter around itself. */
#include "sandbox/container_spec.h"

#include <jansson.h>
#include <string.h>

#include "base/error.h"
#include "base/hex.h"
#include "base/limits.h"
#include "base/sha256.h"

G_STATIC_ASSERT(QV_CONTAINER_UID == QV_SANDBOX_UID && QV_CONTAINER_UID == QV_SANDBOX_GID);

#define MIB ((guint64)1024 * 1024)
/* Of /run, which holds nothing but the mount point of the egress socket. */
#define RUN_MIB 1u
/* The kernel refuses a quota below 1 ms. */
#define CPU_QUOTA_MIN_US 1000u

const char *const QV_CONTAINER_MASKED_PATHS[] = {
  "/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
  "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/proc/sentry-meminfo", "/sys/firmware",
  "/sys/devices/virtual/powercap", NULL,
};

const char *const QV_CONTAINER_READONLY_PATHS[] = {
  "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", NULL,
};

static const char *const DEFAULT_ENV[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL};
static const char *const DEFAULT_ARGV[] = {QV_CONTAINER_ENTRY, NULL};

gboolean qv_sandbox_id_is_valid(const char *id)
{
  static const char SHAPE[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  if (id == NULL || strlen(id) != sizeof SHAPE - 1)
    return FALSE;
  for (gsize i = 0; SHAPE[i] != '\0'; i++) {
    gboolean hex = (id[i] >= '0' && id[i] <= '9') || (id[i] >= 'a' && id[i] <= 'f');
    if (SHAPE[i] == '-' ? id[i] != '-' : !hex)
      return FALSE;
  }
  return TRUE;
}

static gboolean path_is_fit(const char *path)
{
  return path != NULL && path[0] == '/' && g_utf8_validate(path, -1, NULL);
}

static gboolean digest_is_fit(const char *digest)
{
  static const char PREFIX[] = "sha256:";
  return g_str_has_prefix(digest, PREFIX) && strlen(digest) == strlen(PREFIX) + 2 * QV_SHA256_BYTES &&
         qv_hex_valid(digest + strlen(PREFIX), 2 * QV_SHA256_BYTES);
}

static gboolean strings_are_fit(const char *const *strings)
{
  for (gsize i = 0; strings[i] != NULL; i++)
    if (!g_utf8_validate(strings[i], -1, NULL))
      return FALSE;
  return strings[0] != NULL;
}

static gboolean refuse(GError **error, const char *what)
{
  g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "container: %s", what);
  return FALSE;
}

static gboolean request_check(const QvSandboxRequest *request, GError **error)
{
  if (!qv_sandbox_id_is_valid(request->sandbox_id))
    return refuse(error, "sandbox id must be a lower-case UUID");
  if (request->image_digest != NULL && !digest_is_fit(request->image_digest))
    return refuse(error, "image must be sha256: and 64 lower-case hex digits");
  if ((request->rootfs_file != NULL || request->image_digest == NULL) && !path_is_fit(request->rootfs_file))
    return refuse(error, "root file system must be an absolute path in UTF-8");
  if (request->egress_socket != NULL && !path_is_fit(request->egress_socket))
    return refuse(error, "egress socket must be an absolute path in UTF-8");
  if (request->argv != NULL && !strings_are_fit(request->argv))
    return refuse(error, "argv must be at least one string, all in UTF-8");
  if (request->image_env != NULL && request->image_env[0] != NULL) {
    if (!strings_are_fit(request->image_env))
      return refuse(error, "environment of the image must be UTF-8");
    for (gsize i = 0; request->image_env[i] != NULL; i++)
      if (strchr(request->image_env[i], '=') == NULL || request->image_env[i][0] == '=')
        return refuse(error, "environment of the image must be NAME=value");
  }
  const QvSandboxLimits *limits = &request->limits;
  if (limits->memory_mib == 0 || limits->work_mib == 0 || limits->milli_cpus == 0 || limits->pids == 0)
    return refuse(error, "every limit must be at least 1");
  return TRUE;
}

QvContainerSpec *qv_container_spec_plan(const QvSandboxRequest *request, GError **error)
{
  if (!request_check(request, error))
    return NULL;
  const QvSandboxLimits *limits = &request->limits;
  QvContainerSpec *spec = g_new0(QvContainerSpec, 1);
  spec->sandbox_id = g_strdup(request->sandbox_id);
  spec->rootfs_file = g_strdup(request->rootfs_file);
  spec->image_digest = g_strdup(request->image_digest);
  spec->egress_network = g_strdup(request->egress_network);
  spec->egress_socket = g_strdup(request->egress_socket);
  spec->argv = g_strdupv((char **)(request->argv != NULL ? request->argv : DEFAULT_ARGV));
  /* The count of processors that the quota amounts to: build tools read it from the environment
   * because gVisor shows every processor of the host. */
  g_autofree char *cpus = g_strdup_printf("%u", (limits->milli_cpus - 1) / 1000 + 1);
  /* An engine takes the environment from the image itself: ours would replace a PATH of the image's. */
  static const char *const NONE[] = {NULL};
  const char *const *without = request->rootfs_file != NULL ? DEFAULT_ENV : NONE;
  spec->env = g_strdupv((char **)(request->image_env != NULL ? request->image_env : without));
  spec->env = g_environ_setenv(spec->env, "QUAVON_CPUS", cpus, TRUE);
  spec->work_bytes = limits->work_mib * MIB;
  spec->tmp_bytes = QV_CONTAINER_TMP_MIB * MIB;
  spec->memory_bytes = ((guint64)limits->memory_mib + limits->work_mib + QV_CONTAINER_TMP_MIB +
                        QV_CONTAINER_HEADROOM_MIB) * MIB;
  spec->cgroup_pids = (guint64)limits->pids * QV_CONTAINER_PIDS_FACTOR + QV_CONTAINER_PIDS_EXTRA;
  spec->nproc = limits->pids;
  spec->cpu_quota_us = MAX((guint64)limits->milli_cpus * QV_CONTAINER_CPU_PERIOD_US / 1000, CPU_QUOTA_MIN_US);
  return spec;
}

void qv_container_spec_free(QvContainerSpec *spec)
{
  if (spec == NULL)
    return;
  g_free(spec->sandbox_id);
  g_free(spec->rootfs_file);
  g_free(spec->image_digest);
  g_free(spec->egress_network);
  g_free(spec->egress_socket);
  g_strfreev(spec->argv);
  g_strfreev(spec->env);
  g_free(spec);
}

static json_t *strings_json(const char *const *strings)
{
  json_t *array = json_array();
  for (gsize i = 0; strings[i] != NULL; i++)
    json_array_append_new(array, json_string(strings[i]));
  return array;
}

static void append_rlimit(json_t *rlimits, const char *type, guint64 value)
{
  json_array_append_new(rlimits, json_pack("{s:s, s:I, s:I}", "type", type, "hard", (json_int_t)value, "soft",
                                           (json_int_t)value));
}

static json_t *process_json(const QvContainerSpec *spec)
{
  json_t *rlimits = json_array();
  append_rlimit(rlimits, "RLIMIT_NPROC", spec->nproc);
  append_rlimit(rlimits, "RLIMIT_NOFILE", QV_CONTAINER_NOFILE);
  append_rlimit(rlimits, "RLIMIT_CORE", 0);
  return json_pack("{s:b, s:{s:i, s:i, s:i, s:[]}, s:o, s:o, s:s, s:{s:[], s:[], s:[], s:[], s:[]}, s:o, s:b, s:i}",
                   "terminal", 0,
                   "user", "uid", QV_CONTAINER_UID, "gid", QV_CONTAINER_UID, "umask", 022, "additionalGids",
                   "args", strings_json((const char *const *)spec->argv),
                   "env", strings_json((const char *const *)spec->env),
                   "cwd", "/",
                   "capabilities", "bounding", "effective", "inheritable", "permitted", "ambient",
                   "rlimits", rlimits,
                   "noNewPrivileges", 1,
                   "oomScoreAdj", QV_CONTAINER_OOM_SCORE_ADJ);
}

/* OPTIONS is a comma separated list, as in operations.md. */
static void append_mount(json_t *mounts, const char *destination, const char *type, const char *source,
                         const char *options)
{
  g_auto(GStrv) list = g_strsplit(options, ",", -1);
  json_array_append_new(mounts, json_pack("{s:s, s:s, s:s, s:o}", "destination", destination, "type", type, "source",
                                          source, "options", strings_json((const char *const *)list)));
}

char *qv_container_work_options(guint64 bytes)
{
  return g_strdup_printf("rw,exec,nosuid,nodev,uid=%d,gid=%d,mode=0700,size=%" G_GUINT64_FORMAT, QV_CONTAINER_UID,
                         QV_CONTAINER_UID, bytes);
}

static void append_work_tmpfs(json_t *mounts, const char *destination, guint64 bytes)
{
  g_autofree char *options = qv_container_work_options(bytes);
  append_mount(mounts, destination, "tmpfs", "tmpfs", options);
}

static json_t *mounts_json(const QvContainerSpec *spec)
{
  json_t *mounts = json_array();
  g_autofree char *shm = g_strdup_printf("rw,noexec,nosuid,nodev,uid=0,gid=0,mode=1777,size=%" G_GUINT64_FORMAT, QV_CONTAINER_SHM_MIB * MIB);
  append_mount(mounts, "/proc", "proc", "proc", "nosuid,noexec,nodev");
  append_mount(mounts, "/sys", "sysfs", "sysfs", "nosuid,noexec,nodev,ro");
  append_mount(mounts, "/dev/shm", "tmpfs", "tmpfs", shm);
  append_work_tmpfs(mounts, "/workspace", spec->work_bytes);
  append_work_tmpfs(mounts, "/tmp", spec->tmp_bytes);
  if (spec->egress_socket != NULL) {
    /* The root is read-only, so the mount point of the socket needs a place where the runtime can make it. Two
     * of them, since the runtime makes a mount point's parents writable by everybody, and the guest is to put
     * nothing beside the socket. */
    g_autofree char *run = g_strdup_printf("rw,noexec,nosuid,nodev,uid=0,gid=0,mode=0755,size=%" G_GUINT64_FORMAT, RUN_MIB * MIB);
    append_mount(mounts, "/run", "tmpfs", "tmpfs", run);
    append_mount(mounts, "/run/quavon", "tmpfs", "tmpfs", run);
    append_mount(mounts, QV_CONTAINER_EGRESS_SOCKET, "bind", spec->egress_socket, "bind,rw,nosuid,nodev,noexec");
  }
  return mounts;
}

static json_t *linux_json(void)
{
  json_t *namespaces = json_array();
  static const char *const KINDS[] = {"pid", "network", "ipc", "uts", "mount"};
  for (gsize i = 0; i < G_N_ELEMENTS(KINDS); i++)
    json_array_append_new(namespaces, json_pack("{s:s}", "type", KINDS[i]));
  return json_pack("{s:o, s:o, s:o}", "namespaces", namespaces, "maskedPaths", strings_json(QV_CONTAINER_MASKED_PATHS),
                   "readonlyPaths", strings_json(QV_CONTAINER_READONLY_PATHS));
}

char *qv_container_spec_format(const QvContainerSpec *spec)
{
  json_t *root = json_pack("{s:s, s:o, s:{s:s, s:b}, s:s, s:o, s:{s:s, s:s}, s:o}",
                           "ociVersion", "1.0.2",
                           "process", process_json(spec),
                           "root", "path", "rootfs", "readonly", 1,
                           "hostname", "sandbox",
                           "mounts", mounts_json(spec),
                           "annotations", "dev.gvisor.spec.rootfs.source", spec->rootfs_file,
                           "dev.gvisor.spec.rootfs.type", "erofs",
                           "linux", linux_json());
  g_assert(root != NULL);
  char *dump = json_dumps(root, JSON_INDENT(2));
  g_assert(dump != NULL);
  char *text = g_strconcat(dump, "\n", NULL);
  free(dump);
  json_decref(root);
  return text;
}
