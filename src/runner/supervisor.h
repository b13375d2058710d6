/* SPDX-License-Identifier: Apache-2.0 */
/* The one process that talks to Valkey and holds the pool's keys. This header
 * is what its two halves share: supervisor.c owns the runner's life (start,
 * signals, reload, drain), job_run.c owns the jobs in progress. */
#pragma once

#include <glib.h>

#include "base/config.h"
#include "images/images.h"
#include "protocol/admission.h"
#include "queue/worker.h"
#include "runner/metrics.h"
#include "runner/setup.h"
#include "runner/starter.h"
#include "runner/tenants.h"

typedef struct QvJobRun QvJobRun;
typedef struct QvWarmPool QvWarmPool; /* warm.h */

typedef struct {
  const QvConfig *config;
  QvPlace place;
  char *prefix;
  int lock_fd;
  /* What a reload replaces, as a whole or not at all. */
  QvKeyring *ring;
  QvImagesLock *images;
  QvRegistries *registries;
  char *ca_pem;           /* for setup steps with egress; NULL: none */
  QvImageMemory *image_memory;
  QvLimitsPolicy limits;
  gint64 memory_budget_mib;
  QvWorker *worker;
  QvWarmPool *warm;
  QvStarter *starter;     /* of job processes */
  GPtrArray *runs;        /* of QvJobRun, owned: one reference each */
  QvMetrics *metrics;     /* NULL: nobody wants any */
  GHashTable *admitted;   /* job id to gint64 *: when it may be forgotten, Unix ms */
  QvTenants *tenants;     /* whose turn it is */
  gboolean draining;
  /* The last run is gone: the supervisor looks whether it may leave. */
  void (*released)(gpointer supervisor);
  /* `runs` has one more or one less. */
  void (*busy)(gpointer supervisor);
  /* TEXT: what is left of a sandbox. */
  void (*problem)(gpointer supervisor, const char *text);
} QvSupervisor;

void qv_supervisor_policy(const QvSupervisor *supervisor, QvAdmissionPolicy *policy);

/* The image's file, its digest checked as far as the memory does not vouch for it; *PATH is NULL where the backend
 * takes none. Free with g_free. */
gboolean qv_supervisor_image(QvSupervisor *supervisor, const QvImage *image, char **path, GError **error);

/* main() of the supervisor: exit status. */
int qv_supervisor_main(const QvConfig *config);
