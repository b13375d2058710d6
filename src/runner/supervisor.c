/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the runner's life.
 *
 *   start: settings > lock of the state folder > sweep and test of the backend (a
 *          process of its own) > worker > fetching
 *   gate:  what is wrong with the runner, and whether it fetches (gate.h)
 *   health: told every 30 s; the smoke test (supervisor_health.c)
 *   SIGTERM: drain; grace over or a second one: answer `shutdown`; later, or a
 *          third: leave without the answers that Valkey has not taken
 *   SIGHUP: keys and images again, all or nothing */
#include "runner/supervisor.h"

#include <glib-unix.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/exit.h"
#include "base/log.h"
#include "queue/stores.h"
#include "runner/admitted.h"
#include "runner/egress.h"
#include "runner/job_run.h"
#include "runner/pulse.h"
#include "runner/settings.h"
#include "runner/spawn.h"
#include "runner/state_dir.h"
#include "runner/sweep.h"
#include "runner/supervisor_private.h"
#include "runner/sweeper.h"
#include "runner/warm.h"

enum {
  LOCK_WAIT_MS = 100000,  /* job processes of a runner that was killed clean up, or die after 90 s */
  ABANDON_MS = 45000,     /* after `shutdown` was answered: a kill may take 30 s */
  QUIET_MS = 30000,       /* between two lines that say the same of Valkey */
};

void qv_supervisor_policy(const QvSupervisor *supervisor, QvAdmissionPolicy *policy)
{
  *policy = (QvAdmissionPolicy){.ring = supervisor->ring,
                                .pool = supervisor->config->pool,
                                .backend = supervisor->place.backend,
                                .platform = qv_settings_platform(),
                                .images = supervisor->images,
                                .limits = &supervisor->limits,
                                .registries = supervisor->registries};
}

gboolean qv_supervisor_image(QvSupervisor *supervisor, const QvImage *image, char **path, GError **error)
{
  *path = NULL;
  if (!qv_backend_takes_rootfs(supervisor->place.backend))
    return TRUE;
  if (image->rootfs_file == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND, "image %s has no rootfs in the images lock", image->name);
    return FALSE;
  }
  g_autofree char *file = qv_settings_image_file(supervisor->config, image);
  if (!qv_image_memory_check(supervisor->image_memory, file, image->rootfs_sha256, error))
    return FALSE;
  *path = g_steal_pointer(&file);
  return TRUE;
}

static void add_problem(gpointer supervisor, const char *text)
{
  Supervisor *self = supervisor;
  qv_gate_leftover(self->gate, text);
}

/* ---- the end */

static void maybe_leave(gpointer supervisor)
{
  Supervisor *self = supervisor;
  if (self->shared.draining && self->shared.runs->len == 0 &&
      ((self->drained && qv_warm_pool_n(self->shared.warm) == 0) || self->abandoned))
    g_main_loop_quit(self->loop);
}

static void on_drained(const GError *error, gpointer data)
{
  Supervisor *self = data;
  self->drained = TRUE;
  maybe_leave(self);
}

static gboolean on_abandon(gpointer data)
{
  Supervisor *self = data;
  self->abandon = 0;
  self->abandoned = TRUE;
  qv_logf(QV_LOG_WARNING, "leaving without the answers that Valkey has not taken");
  qv_job_run_abandon_all(&self->shared);
  maybe_leave(self);
  return G_SOURCE_REMOVE;
}

static gboolean on_grace_over(gpointer data)
{
  Supervisor *self = data;
  self->grace = 0;
  if (self->shared.runs->len > 0)
    qv_logf(QV_LOG_WARNING, "%u jobs are ended for the shutdown", self->shared.runs->len);
  qv_job_run_interrupt_all(&self->shared, QV_RUN_CAUSE_SHUTDOWN);
  if (self->abandon == 0)
    self->abandon = g_timeout_add(ABANDON_MS, on_abandon, self);
  return G_SOURCE_REMOVE;
}

static void begin_drain(Supervisor *self)
{
  self->shared.draining = TRUE;
  if (self->smoke != NULL)
    qv_smoke_watch_stop(self->smoke);
  qv_warm_pool_close(self->shared.warm);
  qv_pulse_stopping(self->pulse);
  qv_gate_shut(self->gate, "the runner ends: it takes no more jobs");
  qv_logf(QV_LOG_INFO, "draining: %u jobs in progress", self->shared.runs->len);
  qv_worker_drain(self->shared.worker, on_drained, self);
  self->grace = g_timeout_add(self->shared.config->grace_ms, on_grace_over, self);
  maybe_leave(self);
}

static gboolean on_stop(gpointer data)
{
  Supervisor *self = data;
  self->stops++;
  if (self->shared.worker == NULL) {
    g_main_loop_quit(self->loop);
  } else if (self->stops == 1) {
    begin_drain(self);
  } else if (self->stops == 2 && self->grace != 0) {
    g_clear_handle_id(&self->grace, g_source_remove);
    on_grace_over(self);
  } else {
    g_clear_handle_id(&self->grace, g_source_remove);
    g_clear_handle_id(&self->abandon, g_source_remove);
    on_abandon(self);
  }
  return G_SOURCE_CONTINUE;
}

/* ---- reload */

/* A network is tried at the start, where registries are listed: the first ones of a reload would be without that. */
static gboolean check_tried(const Supervisor *self, const QvRegistries *registries, GError **error)
{
  const QvPlace *place = &self->shared.place;
  if (place->backend == NULL || qv_registries_n(registries) == 0 || !qv_egress_by_network(place->backend) ||
      place->egress_network != NULL)
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_POLICY,
              "QUAVON_SANDBOX_REGISTRIES: there were none at the start, so the network for them was not tried: start the runner anew");
  return FALSE;
}

static gboolean load(Supervisor *self, QvTrialImages *trial, GError **error)
{
  const QvConfig *config = self->shared.config;
  g_autoptr(QvKeyring) ring = qv_settings_keyring(config, error);
  if (ring == NULL)
    return FALSE;
  g_autoptr(QvRegistries) registries = qv_settings_registries(config, error);
  if (registries == NULL)
    return FALSE;
  g_autofree char *ca_pem = NULL;
  if (!qv_egress_settings(config, registries, &ca_pem, error) || !check_tried(self, registries, error))
    return FALSE;
  QvImagesLock *images = qv_settings_images(config, self->shared.image_memory, trial, error);
  if (images == NULL)
    return FALSE;
  g_clear_pointer(&self->shared.ring, qv_keyring_unref);
  g_clear_pointer(&self->shared.images, qv_images_lock_free);
  g_clear_pointer(&self->shared.registries, qv_registries_free);
  self->shared.registries = g_steal_pointer(&registries);
  g_free(self->shared.ca_pem);
  self->shared.ca_pem = g_steal_pointer(&ca_pem);
  self->shared.ring = g_steal_pointer(&ring);
  self->shared.images = images;
  return TRUE;
}

static gboolean on_reload(gpointer data)
{
  Supervisor *self = data;
  g_autoptr(GError) error = NULL;
  qv_pulse_reloading(self->pulse);
  if (load(self, NULL, &error))
    qv_logf(QV_LOG_INFO, "keys and images were read again");
  else
    qv_log(QV_LOG_ERROR, "reload failed; the old keys and images stay in use", "error", error->message, NULL);
  if (error == NULL && self->shared.worker != NULL) /* it may come before the runner is ready */
    qv_warm_pool_reload(self->shared.warm);
  if (error != NULL)
    qv_problems_set(qv_gate_problems(self->gate), QV_PROBLEM_RELOAD, NULL, error->message);
  else
    qv_problems_clear(qv_gate_problems(self->gate), QV_PROBLEM_RELOAD, NULL);
  qv_supervisor_touch(self);
  /* Who has just removed by hand what was in the way need not wait. */
  qv_gate_hurry(self->gate);
  qv_pulse_reloaded(self->pulse);
  return G_SOURCE_CONTINUE;
}

/* ---- the queue */

static void on_job(QvWorker *worker, QvFetchedJob *job, gpointer user)
{
  qv_job_run_begin(user, job);
}

static void on_lock_lost(QvWorker *worker, QvFetchedJob *job, const char *why, gpointer user)
{
  qv_job_run_lock_lost(user, job, why);
}

static void on_cancel_seen(QvWorker *worker, QvFetchedJob *job, gpointer user)
{
  qv_job_run_look_for_cancel(user, job->id);
}

/* Two sources: the worker knows of refused scripts, the subscriber of a server that was never there. */
static void say_valkey(Supervisor *self, gboolean *trouble, const GError *why)
{
  gboolean was_away = self->queue_trouble || self->link_trouble;
  *trouble = why != NULL;
  gint64 now = g_get_monotonic_time();
  if (why != NULL && (!was_away || now - self->said_at > (gint64)QUIET_MS * 1000)) {
    self->said_at = now;
    qv_log(QV_LOG_WARNING, "Valkey gives no answer; trying again", "address", qv_address_display(self->address),
           "error", why->message, NULL);
  } else if (was_away && !self->queue_trouble && !self->link_trouble) {
    qv_logf(QV_LOG_INFO, "Valkey answers again");
  }
}

static void on_queue_state(QvWorker *worker, const GError *why, gpointer user)
{
  Supervisor *self = user;
  say_valkey(self, &self->queue_trouble, why);
}

static void on_message(const char *channel, const char *text, gsize n, gpointer user)
{
  Supervisor *self = user;
  if (g_str_has_suffix(channel, ":smoke")) {
    if (strcmp(text, self->shared.place.runner_id) == 0)
      qv_smoke_watch_look(self->smoke, qv_worker_conn(self->shared.worker));
  } else if (g_str_has_suffix(channel, ":egress-usage"))
    qv_job_run_egress_usage(user, text, n);
  else
    qv_job_run_look_for_cancel(user, text);
}

static void on_cancel_ready(gpointer user)
{
  Supervisor *self = user;
  say_valkey(self, &self->link_trouble, NULL);
  qv_job_run_look_for_cancel(user, NULL);
  qv_smoke_watch_look(self->smoke, qv_worker_conn(self->shared.worker));
}

static void on_cancel_failed(const GError *why, gpointer user)
{
  Supervisor *self = user;
  say_valkey(self, &self->link_trouble, why);
}

static void start_worker(Supervisor *self)
{
  static const QvWorkerEvents events = {.job = on_job,
                                        .lock_lost = on_lock_lost,
                                        .cancel_seen = on_cancel_seen,
                                        .state = on_queue_state};
  static const QvSubscriberEvents cancel_events = {.message = on_message,
                                                   .ready = on_cancel_ready,
                                                   .failed = on_cancel_failed};
  const QvConfig *config = self->shared.config;
  QvWorkerOptions options = {.address = self->address,
                             .prefix = self->shared.prefix,
                             .name = self->shared.place.runner_id,
                             .concurrency = config->concurrency,
                             .lock_ms = config->lock_ms,
                             .stalled_ms = config->stalled_ms,
                             .data_max_bytes = QV_JOB_JSON_BYTES_MAX};
  self->shared.worker = qv_worker_new(&options, &events, self);
  qv_job_run_order_tenants(&self->shared);
  g_autofree char *channel = qv_cancel_channel(self->shared.prefix);
  g_autofree char *usage = qv_egress_usage_channel(self->shared.prefix);
  g_autofree char *smoke = qv_smoke_channel(self->shared.prefix);
  const char *channels[] = {channel, usage, smoke, NULL};
  qv_egress_note_sweep(qv_worker_conn(self->shared.worker), self->shared.prefix, config->state_dir);
  self->messages = qv_subscriber_new(self->address, self->shared.place.runner_id, channels, &cancel_events, self);
  g_autofree char *concurrency = g_strdup_printf("%" G_GINT64_FORMAT, config->concurrency);
  qv_log(QV_LOG_INFO, "runner is ready", "runnerId", self->shared.place.runner_id, "pool", config->pool, "backend",
         config->backend, "concurrency", concurrency, "valkey", qv_address_display(self->address), "version",
         QV_VERSION, NULL);
  qv_supervisor_health_begin(self);
  qv_warm_pool_open(self->shared.warm);
}

/* ---- start */

static void on_first_sweep(const QvSweepEnd *end, gpointer data)
{
  Supervisor *self = data;
  self->status = end->status;
  if (self->stops > 0)
    return;
  if (end->status != QV_SWEEP_CLEAN && end->status != QV_SWEEP_LEFT) {
    g_main_loop_quit(self->loop);
    return;
  }
  if (end->status == QV_SWEEP_LEFT)
    add_problem(self, "of an earlier run");
  if (end->facts != NULL)
    self->facts = qv_backend_facts_copy(end->facts);
  self->status = 0;
  start_worker(self);
}

static int fail_config(const GError *error)
{
  qv_log(QV_LOG_ERROR, "cannot start", "error", error->message, NULL);
  return error->code == QV_ERROR_TIMEOUT ? QV_EXIT_FAILED : QV_EXIT_CONFIG;
}

static gboolean prepare(Supervisor *self, QvTrialImages *trial, GError **error)
{
  const QvConfig *config = self->shared.config;
  self->address = qv_settings_address(config, error);
  if (self->address == NULL || !qv_settings_memory_budget(config, &self->shared.memory_budget_mib, error) ||
      !load(self, trial, error) || !qv_state_dir_prepare(config->state_dir, error))
    return FALSE;
  /* The lock before the id: of two first starts only one makes it. */
  self->shared.lock_fd = qv_state_dir_lock(config->state_dir, LOCK_WAIT_MS, error);
  if (self->shared.lock_fd < 0 || !qv_settings_place(config, &self->shared.place, error) ||
      !qv_egress_prepare(config->state_dir, error))
    return FALSE;
  qv_settings_limits(config, &self->shared.limits);
  self->shared.prefix = qv_config_prefix(config->pool);
  const QvLimits *job = &self->shared.limits.defaults;
  self->gate = qv_gate_new(&self->shared.place, job->memory_mib + job->work_mib + QV_SANDBOX_TMP_MIB + QV_SANDBOX_HEADROOM_MIB,
                           qv_supervisor_touch, self);
  return TRUE;
}

static void warn_insecure(const QvConfig *config)
{
  if (qv_settings_is_insecure(config))
    qv_log(QV_LOG_WARNING, "this backend isolates no hostile code: for development alone", "backend", config->backend, NULL);
}

static void run(Supervisor *self, const QvTrialImages *trial)
{
  self->pulse = qv_pulse_new(self->shared.config->state_dir);
  self->shared.starter = qv_starter_new(!qv_backend_takes_rootfs(self->shared.place.backend), QV_STARTER_PATIENCE);
  guint sources[] = {g_unix_signal_add(SIGTERM, on_stop, self), g_unix_signal_add(SIGINT, on_stop, self),
                     g_unix_signal_add(SIGHUP, on_reload, self)};
  warn_insecure(self->shared.config);
  qv_sweeper_start(&self->shared.place, NULL, trial, NULL, on_first_sweep, self);
  /* Where the sweeper could not even be started, the loop has been told to quit before it ran. */
  if (self->status == 0)
    g_main_loop_run(self->loop);
  for (gsize i = 0; i < G_N_ELEMENTS(sources); i++)
    g_source_remove(sources[i]);
}

static void clear(Supervisor *self)
{
  g_clear_handle_id(&self->grace, g_source_remove);
  g_clear_handle_id(&self->abandon, g_source_remove);
  qv_subscriber_free(self->messages);
  qv_supervisor_health_end(self);
  qv_pulse_free(self->pulse);
  qv_warm_pool_free(self->shared.warm);
  qv_worker_free(self->shared.worker);
  g_ptr_array_unref(self->shared.runs);
  qv_starter_free(self->shared.starter);
  qv_metrics_free(self->shared.metrics);
  g_hash_table_unref(self->shared.admitted);
  qv_gate_free(self->gate);
  qv_backend_facts_free(self->facts);
  qv_tenants_free(self->shared.tenants);
  if (self->shared.lock_fd >= 0)
    close(self->shared.lock_fd);
  g_clear_pointer(&self->address, qv_address_unref);
  g_clear_pointer(&self->shared.ring, qv_keyring_unref);
  qv_images_lock_free(self->shared.images);
  qv_registries_free(self->shared.registries);
  g_free(self->shared.ca_pem);
  qv_image_memory_free(self->shared.image_memory);
  qv_place_clear(&self->shared.place);
  g_free(self->shared.prefix);
  g_main_loop_unref(self->loop);
}

int qv_supervisor_main(const QvConfig *config)
{
  qv_role_enter(FALSE);
  if (geteuid() != 0 && qv_backend_takes_rootfs(config->backend)) {
    qv_logf(QV_LOG_ERROR, "the runner makes cgroups and namespaces: start it as root");
    return QV_EXIT_NOT_ROOT;
  }
  Supervisor self = {.shared = {.config = config, .lock_fd = -1, .released = maybe_leave, .busy = qv_supervisor_touch, .problem = add_problem},
                     .started_at = qv_clock_unix_ms()};
  self.loop = g_main_loop_new(NULL, FALSE);
  self.shared.runs = g_ptr_array_new_with_free_func(qv_job_run_free_func);
  self.shared.warm = qv_warm_pool_new(&self.shared);
  self.shared.admitted = qv_admitted_new();
  self.shared.tenants = qv_tenants_new();
  self.shared.image_memory = qv_image_memory_new();
  QvTrialImages trial = {0};
  g_autoptr(GError) error = NULL;
  if (prepare(&self, &trial, &error)) {
    run(&self, &trial);
    qv_place_tidy(&self.shared.place);
    qv_logf(QV_LOG_INFO, "runner ends");
  } else {
    self.status = fail_config(error);
  }
  int status = self.status;
  qv_trial_images_clear(&trial);
  clear(&self);
  return status;
}
