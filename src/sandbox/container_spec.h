/* SPDX-License-Identifier: Apache-2.0 */
/* What one container is, as a value: planned from a request, then formatted as
 * the OCI config.json. Pure: no descriptor, no clock, no kernel; so the golden
 * tests compare whole texts. Does not know how a container is started.
 *
 * What an image must be: one EROFS file without compression and without inline
 * data (mkfs.erofs -E noinline_data: gVisor cannot map a file whose tail is inline,
 * and the entry then fails to load with "bad address"), that holds the folders
 * /proc /sys /dev /tmp /workspace /run, since the root is read-only and the
 * runtime makes no mount point in it. (docs/GVISOR.md)
 *
 * Source: operations.md, "Containers"; the OCI runtime specification 1.0.2;
 * gVisor's annotations for a root file system image. */
#pragma once

#include <glib.h>

/* The fixed parts of operations.md, "Containers". */
#define QV_CONTAINER_UID 65532
#define QV_CONTAINER_TMP_MIB 256u           /* size of /tmp */
#define QV_CONTAINER_HEADROOM_MIB 128u      /* what gVisor itself needs */
#define QV_CONTAINER_PIDS_FACTOR 4u         /* host tasks for one guest process, at most */
#define QV_CONTAINER_PIDS_EXTRA 1024u       /* host tasks of gVisor itself, at most */
#define QV_CONTAINER_CPU_PERIOD_US 100000u
#define QV_CONTAINER_SHM_MIB 64u            /* /dev/shm, which POSIX semaphores and shared memory need: Docker's default */
#define QV_CONTAINER_NOFILE 65536
#define QV_CONTAINER_OOM_SCORE_ADJ 500      /* the host's OOM killer is to prefer a sandbox to the runner */
#define QV_CONTAINER_ENTRY "/opt/quavon/entry"
#define QV_CONTAINER_EGRESS_SOCKET "/run/quavon/egress.sock"

/* The limits of a job that a sandbox enforces (protocol.md section 2). All of
 * them at least 1. */
typedef struct {
  guint memory_mib;
  guint work_mib;
  guint milli_cpus;
  guint pids;
} QvSandboxLimits;

extern const char *const QV_CONTAINER_MASKED_PATHS[]; /* NULL-terminated, as the next */
extern const char *const QV_CONTAINER_READONLY_PATHS[];

/* What a caller asks for; everything borrowed. */
typedef struct {
  const char *sandbox_id;       /* lower-case UUID: the job id */
  const char *rootfs_file;      /* absolute host path of the image's EROFS file; NULL where the backend takes a digest */
  const char *image_digest;     /* sha256:<64 hex> of the image; NULL where the backend takes a file */
  const char *egress_socket;    /* absolute host path of the job's egress socket, NULL: none (runsc) */
  const char *egress_network;   /* name of the engine's network, NULL: no network (docker-*) */
  const char *const *image_env; /* "NAME=value" of the image, NULL: a PATH only */
  const char *const *argv;      /* NULL: QV_CONTAINER_ENTRY alone */
  QvSandboxLimits limits;
} QvSandboxRequest;

/* The plan. Owned by the caller, freed with qv_container_spec_free. */
typedef struct {
  char *sandbox_id;
  char *rootfs_file;    /* NULL: none */
  char *image_digest;   /* NULL: none */
  char *egress_network; /* NULL: no network */
  char *egress_socket; /* NULL: no bind mount at all */
  char **argv;
  char **env;
  guint64 work_bytes;
  guint64 tmp_bytes;
  guint64 memory_bytes; /* of the cgroup, no swap on top */
  guint64 cgroup_pids;  /* of the cgroup: host tasks */
  guint64 nproc;        /* RLIMIT_NPROC inside */
  guint64 cpu_quota_us; /* per QV_CONTAINER_CPU_PERIOD_US */
} QvContainerSpec;

/* Checks the request and plans. QV_ERROR_FORMAT names the member that is not
 * what it must be (an id that is no lower-case UUID, a path that is not
 * absolute, a limit of 0 or one that overflows). */
QvContainerSpec *qv_container_spec_plan(const QvSandboxRequest *request, GError **error);
void qv_container_spec_free(QvContainerSpec *spec);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvContainerSpec, qv_container_spec_free)

/* The text of config.json: UTF-8, indented, one final LF; the same bytes for
 * the same plan. */
char *qv_container_spec_format(const QvContainerSpec *spec);

/* Mount options of /workspace and /tmp. Free with g_free. */
char *qv_container_work_options(guint64 bytes);

/* TRUE for a lower-case UUID, the only form of a sandbox id: it becomes a folder and a cgroup name. */
gboolean qv_sandbox_id_is_valid(const char *id);
