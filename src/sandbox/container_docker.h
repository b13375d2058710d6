/* SPDX-License-Identifier: Apache-2.0 */
/* The same container as a request to the Docker Engine, and what the engine made
 * of it. Pure, as container_spec.h: golden tests compare whole texts.
 *
 * The engine may drop a setting with no more than a warning (a kernel without swap accounting,
 * say): so every setting is read back after the creation, and a difference is an
 * error unless the operator allowed that limit to be missing, by name.
 *
 * Source: operations.md, "Containers"; Docker Engine API 1.43, ContainerCreate, ContainerInspect. */
#pragma once

#include <glib.h>
#include <jansson.h>

#include "sandbox/container_spec.h"

/* Labels of every container of ours: the sweep goes by them. */
#define QV_LABEL_POOL "quavon.pool"
#define QV_LABEL_RUNNER "quavon.runner"
#define QV_LABEL_OWNER "quavon.owner" /* of runner id and state folder: two with one id never touch each other's */
#define QV_LABEL_JOB "quavon.job"
#define QV_LABEL_BOOT "quavon.boot"

/* What the container is beside its spec; everything borrowed. */
typedef struct {
  const char *runtime;
  gboolean gvisor;  /* FALSE: runc, whose control group counts guest processes alone */
  const char *pool;
  const char *runner_id;
  const char *owner;
  const char *boot_id;
} QvDockerPlan;

/* The body of ContainerCreate: indented, one final LF; the same bytes for the same plan. Free with g_free. */
char *qv_container_docker_format(const QvContainerSpec *spec, const QvDockerPlan *plan);

/* Is INSPECT (ContainerInspect's answer) the container that was asked for? QV_ERROR_POLICY names the first setting that
 * is not; QV_ERROR_AUTH is another image. ALLOW: names of qv_container_docker_allow_check, NULL-terminated, NULL: none. */
gboolean qv_container_docker_verify(const QvContainerSpec *spec, const QvDockerPlan *plan, const json_t *inspect,
                                    const char *const *allow, GError **error);

/* Are all of them limits that may be missing? QV_ERROR_POLICY lists those that there are. */
gboolean qv_container_docker_allow_check(const char *const *allow, GError **error);
