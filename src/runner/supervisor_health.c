/* SPDX-License-Identifier: Apache-2.0 */
/* Owns what the supervisor tells of itself, and the smoke test's place in its life. */
#include <string.h>

#include "base/clock.h"
#include "base/exit.h"
#include "base/log.h"
#include "runner/pulse.h"
#include "runner/settings.h"
#include "runner/smoke.h"
#include "runner/smoke_memory.h"
#include "runner/supervisor_private.h"

#define INSECURE_BACKEND "docker-runc-insecure"

void qv_supervisor_touch(gpointer supervisor)
{
  Supervisor *self = supervisor;
  qv_health_loop_touch(self->health);
  qv_metrics_file_touch(self->metrics_file);
  if (qv_smoke_watch_report(self->smoke) != NULL) {
    g_autofree char *why = qv_problems_why(qv_gate_problems(self->gate));
    qv_pulse_ready(self->pulse, why);
  }
}

/* ---- the record */

static const char *runtime_name(const char *backend)
{
  if (strcmp(backend, "firecracker") == 0)
    return "firecracker";
  return strcmp(backend, INSECURE_BACKEND) == 0 ? "runc" : "runsc";
}

static void describe_images(const QvImagesLock *lock, QvHealth *health)
{
  gboolean files = qv_backend_takes_rootfs(health->backend);
  health->images = g_new0(QvImageRef, lock->n + 1);
  for (gsize i = 0; i < lock->n; i++) {
    const QvImage *image = &lock->images[i];
    if ((files && image->rootfs_file == NULL) || strcmp(image->platform, qv_settings_platform()) != 0)
      continue;
    health->images[health->images_n++] = (QvImageRef){.name = g_strdup(image->name), .digest = g_strdup(image->digest)};
  }
}

static QvHealth *describe(gpointer user)
{
  Supervisor *self = user;
  const QvConfig *config = self->shared.config;
  const QvBackendFacts *facts = qv_gate_fits(self->gate) ? self->facts : NULL;
  QvHealth *health = qv_health_new();
  health->runner_id = g_strdup(self->shared.place.runner_id);
  health->pool = g_strdup(config->pool);
  health->version = g_strdup(QV_VERSION);
  health->backend = g_strdup(config->backend);
  health->runtime_name = g_strdup(runtime_name(config->backend));
  health->runtime_version = facts != NULL ? g_strdup(facts->runtime_version) : NULL;
  health->platform = g_strdup(facts != NULL ? facts->platform : "unknown");
  health->cgroup = g_strdup(facts != NULL ? facts->cgroup : "unknown");
  describe_images(self->shared.images, health);
  qv_health_fill_host(health);
  health->concurrency = config->concurrency;
  health->busy = self->shared.runs->len;
  health->started_at = self->started_at;
  g_strfreev(health->problems);
  health->problems = qv_problems_texts(qv_gate_problems(self->gate));
  const QvSmokeReport *smoke = qv_smoke_watch_report(self->smoke);
  if (smoke != NULL)
    health->smoke = qv_smoke_report_copy(smoke);
  health->insecure = strcmp(config->backend, INSECURE_BACKEND) == 0;
  return health;
}

static QvKey *signing_key(gpointer user)
{
  const Supervisor *self = user;
  return qv_keyring_current(self->shared.ring);
}

static void on_clock(gint64 ahead_ms, gpointer user)
{
  Supervisor *self = user;
  qv_gate_clock(self->gate, ahead_ms);
  qv_gate_look_at_host(self->gate);
}

/* ---- the smoke test */

/* The image that it is tried in: the first of this platform. */
static const QvImage *smoke_image(Supervisor *self)
{
  gboolean files = qv_backend_takes_rootfs(self->shared.config->backend);
  for (gsize i = 0; i < self->shared.images->n; i++) {
    const QvImage *image = &self->shared.images->images[i];
    if ((!files || image->rootfs_file != NULL) && strcmp(image->platform, qv_settings_platform()) == 0)
      return image;
  }
  return NULL;
}

typedef struct {
  Supervisor *self;
  QvSmokeWatchDone done;
  gpointer data;
  char *identity; /* of what is tested; NULL: it cannot be remembered */
} Smoke;

/* A runner that lives for one job has no time for a second try: whoever waits for the job shall know. */
static void give_up(Supervisor *self, char **failed)
{
  g_autofree char *names = g_strjoinv(", ", failed);
  qv_log(QV_LOG_ERROR, "the smoke test did not pass: no job is run here", "failed", names, NULL);
  self->status = QV_EXIT_FAILED;
  g_main_loop_quit(self->loop);
}

static void on_smoke(QvSmokeReport *report, gpointer data)
{
  Smoke *smoke = data;
  Supervisor *self = smoke->self;
  const char *folder = self->shared.config->smoke_memory;
  g_auto(GStrv) failed = folder != NULL && !report->passed && qv_smoke_watch_report(self->smoke) == NULL
                           ? g_strdupv(report->failed)
                           : NULL;
  g_autoptr(GError) error = NULL;
  if (report->passed && folder != NULL && smoke->identity != NULL &&
      !qv_smoke_memory_put(folder, smoke->identity, report, &error))
    qv_log(QV_LOG_WARNING, "the smoke test is not remembered", "error", error->message, NULL);
  smoke->done(report, smoke->data);
  if (failed != NULL)
    give_up(self, failed);
  g_free(smoke->identity);
  g_free(smoke);
}

/* There is nothing to try it in any more: altered, or gone at a reload. */
static gboolean on_no_image(gpointer data)
{
  QvSmokeReport *report = g_new0(QvSmokeReport, 1);
  *report = (QvSmokeReport){.at = qv_clock_unix_ms(), .failed = g_strsplit("image", " ", -1)};
  on_smoke(report, data);
  return G_SOURCE_REMOVE;
}

static void start_smoke(QvSmokeWatchDone done, gpointer done_data, gpointer user)
{
  Supervisor *self = user;
  Smoke *smoke = g_new0(Smoke, 1);
  *smoke = (Smoke){.self = self, .done = done, .data = done_data};
  const QvImage *image = smoke_image(self);
  g_autofree char *file = NULL;
  g_autoptr(GError) error = NULL;
  if (image == NULL || !qv_supervisor_image(&self->shared, image, &file, &error)) {
    qv_log(QV_LOG_ERROR, "no image for the smoke test", "error", error != NULL ? error->message : NULL, NULL);
    g_idle_add(on_no_image, smoke);
    return;
  }
  smoke->identity = qv_smoke_identity(&self->shared.place, self->facts, image);
  char *digests[] = {image->digest, NULL};
  QvTrialImages trial = {.rootfs_file = file, .digests = digests};
  qv_smoke_start(&self->shared.place, &trial, on_smoke, smoke);
}

static QvSmokeReport *remembered(Supervisor *self)
{
  const QvConfig *config = self->shared.config;
  const QvImage *image = smoke_image(self);
  g_autofree char *identity =
    image != NULL && config->smoke_memory != NULL ? qv_smoke_identity(&self->shared.place, self->facts, image) : NULL;
  if (identity == NULL)
    return NULL;
  return qv_smoke_memory_find(config->smoke_memory, identity, qv_clock_unix_ms(), config->smoke_interval_ms);
}

static QvKeyring *keyring(gpointer user)
{
  return ((Supervisor *)user)->shared.ring;
}

/* ---- metrics */

static void fill_metrics(QvMetricsNow *now, gpointer user)
{
  Supervisor *self = user;
  now->running = self->shared.runs->len;
  now->concurrency = self->shared.config->concurrency;
  now->valkey = !self->queue_trouble && !self->link_trouble;
  now->problems = qv_gate_problems(self->gate);
  now->fetching = !qv_problems_stop(now->problems) && !self->shared.draining;
  now->smoke = qv_smoke_watch_report(self->smoke);
}

static void begin_metrics(Supervisor *self)
{
  const QvConfig *config = self->shared.config;
  if (config->metrics_file == NULL)
    return;
  self->shared.metrics = qv_metrics_new(QV_VERSION, config->pool, self->shared.place.runner_id, config->backend,
                                        self->started_at);
  self->metrics_file = qv_metrics_file_new(config->metrics_file, self->shared.metrics, qv_worker_conn(self->shared.worker),
                                           self->shared.prefix, fill_metrics, self);
}

/* ---- */

void qv_supervisor_health_begin(Supervisor *self)
{
  static const QvHealthSource source = {.describe = describe, .key = signing_key, .clock = on_clock};
  const char *runner_id = self->shared.place.runner_id;
  QvSmokeWatchOptions options = {.start = start_smoke,
                                 .ring = keyring,
                                 .changed = qv_supervisor_touch,
                                 .pool = self->shared.config->pool,
                                 .runner_id = runner_id,
                                 .prefix = self->shared.prefix,
                                 .interval_ms = self->shared.config->smoke_interval_ms,
                                 .apart_ms = QV_SMOKE_APART_MS,
                                 .again_ms = QV_SMOKE_AGAIN_MS};
  self->smoke = qv_smoke_watch_new(&options, qv_gate_problems(self->gate), self);
  self->health = qv_health_loop_new(qv_worker_conn(self->shared.worker), self->shared.prefix, runner_id, &source, self);
  begin_metrics(self);
  qv_pulse_up(self->pulse);
  qv_smoke_watch_begin(self->smoke, remembered(self));
  qv_gate_attach(self->gate, self->shared.worker);
  qv_supervisor_touch(self);
}

void qv_supervisor_health_end(Supervisor *self)
{
  qv_metrics_file_free(g_steal_pointer(&self->metrics_file));
  qv_health_loop_free(g_steal_pointer(&self->health));
  qv_smoke_watch_free(g_steal_pointer(&self->smoke));
}
