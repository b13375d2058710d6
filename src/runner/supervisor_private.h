/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's own state, shared by supervisor.c (its life) and supervisor_health.c (what it tells of itself). */
#pragma once

#include "queue/subscriber.h"
#include "runner/gate.h"
#include "runner/health.h"
#include "runner/metrics_file.h"
#include "runner/pulse.h"
#include "runner/smoke_watch.h"
#include "runner/supervisor.h"

typedef struct {
  QvSupervisor shared; /* first: the callbacks of job_run.c get this */
  GMainLoop *loop;
  QvAddress *address;
  QvSubscriber *messages;
  QvGate *gate;         /* NULL until the settings are known to be good */
  QvHealthLoop *health; /* NULL until there is a worker */
  QvSmokeWatch *smoke;  /* NULL until there is a worker */
  QvPulse *pulse;
  QvMetricsFile *metrics_file; /* NULL: nobody wants one, or there is no worker yet */
  QvBackendFacts *facts; /* NULL: the backend was not tried yet */
  gint64 started_at;    /* Unix ms */
  guint stops;          /* SIGTERMs so far */
  guint grace;          /* timer */
  guint abandon;        /* timer */
  gboolean drained, abandoned;
  gboolean queue_trouble, link_trouble; /* Valkey, seen from the worker and from the subscriber */
  gint64 said_at;       /* monotonic us */
  int status;
} Supervisor;

/* The health record changed. SUPERVISOR is a Supervisor. */
void qv_supervisor_touch(gpointer supervisor);
/* There is a worker: the record is written from here on, the gate opens when it may, the first smoke test starts. */
void qv_supervisor_health_begin(Supervisor *self);
/* Its parts are freed, before the worker is. */
void qv_supervisor_health_end(Supervisor *self);
