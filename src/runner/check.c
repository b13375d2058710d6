/* SPDX-License-Identifier: Apache-2.0 */
/* Owns --check and --sweep. */
#include "runner/check.h"

#include <stdio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/exit.h"
#include "queue/ask.h"
#include "runner/egress.h"
#include "runner/egress_trial.h"
#include "runner/settings.h"
#include "sandbox/backend.h"

enum { VALKEY_MS = 10000 };

static void ok(const char *what, const char *found)
{
  printf("ok    %-14s %s\n", what, found);
}

static gboolean bad(const char *what, const GError *error)
{
  printf("fail  %-14s %s\n", what, error->message);
  return FALSE;
}

static gboolean check_keys(const QvConfig *config)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvKeyring) ring = qv_settings_keyring(config, &error);
  if (ring == NULL)
    return bad("key", error);
  ok("key", qv_key_id(qv_keyring_current(ring)));
  return TRUE;
}

static gboolean check_images(const QvConfig *config, QvTrialImages *trial)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvImageMemory) memory = qv_image_memory_new();
  g_autoptr(QvImagesLock) lock = qv_settings_images(config, memory, trial, &error);
  if (lock == NULL)
    return bad("images", error);
  for (gsize i = 0; i < lock->n; i++) {
    g_autofree char *text = g_strdup_printf("%s@%s %s", lock->images[i].name, lock->images[i].digest,
                                            lock->images[i].platform);
    ok("images", text);
  }
  return TRUE;
}

static gboolean check_valkey(const QvConfig *config)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvAddress) address = qv_settings_address(config, &error);
  if (address == NULL)
    return bad("valkey", error);
  g_autoptr(QvConn) conn = qv_conn_new(address, NULL);
  qv_conn_set_fail_fast(conn, TRUE);
  if (qv_conn_ask(conn, VALKEY_MS, &error, "PING", NULL)) {
    ok("valkey", qv_address_display(address));
    return TRUE;
  }
  g_prefix_error(&error, "%s: ", qv_address_display(address));
  return bad("valkey", error);
}

static gboolean check_memory(const QvConfig *config)
{
  g_autoptr(GError) error = NULL;
  gint64 budget_mib;
  if (!qv_settings_memory_budget(config, &budget_mib, &error))
    return bad("memory", error);
  g_autofree char *text = g_strdup_printf("%" G_GINT64_FORMAT " jobs at once, %" G_GINT64_FORMAT " MiB for all",
                                          config->concurrency, budget_mib);
  ok("memory", text);
  return TRUE;
}

static gboolean check_registries(const QvConfig *config)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *ca_pem = NULL;
  g_autoptr(QvRegistries) registries = qv_settings_registries(config, &error);
  if (registries == NULL || !qv_egress_settings(config, registries, &ca_pem, &error))
    return bad("registries", error);
  g_autofree char *text = g_strdup_printf("%zu", (gsize)qv_registries_n(registries));
  ok("registries", text);
  return TRUE;
}

static gboolean check_backend(const QvConfig *config, const QvTrialImages *trial)
{
  g_autoptr(GError) error = NULL;
  g_auto(QvPlace) place = {0};
  g_autoptr(QvBackend) backend = NULL;
  if (qv_settings_place(config, &place, &error))
    backend = qv_place_open(&place, &error);
  if (backend == NULL)
    return bad("backend", error);
  if (trial->digests == NULL) {
    printf("skip  %-14s no image to try it with\n", "backend");
    return TRUE;
  }
  g_autofree char *version = NULL;
  QvBackendImages images = {.rootfs_file = trial->rootfs_file, .digests = (const char *const *)trial->digests};
  if (!qv_backend_check(backend, &images, &version, &error))
    return bad("backend", error);
  g_autofree char *text = g_strdup_printf("%s, %s, %s, cgroup %s: a sandbox was started and removed",
                                          qv_backend_name(backend), version, qv_backend_platform(backend),
                                          qv_backend_cgroup(backend));
  ok("backend", text);
  if (!qv_egress_trial(backend, trial, place.egress_proxy, NULL, &error))
    return bad("egress", error);
  if (place.egress_network != NULL) {
    g_autofree char *way = g_strdup_printf("a sandbox on the network %s reached %s and nothing else", place.egress_network,
                                           place.egress_proxy);
    ok("egress", way);
  }
  if (qv_settings_is_insecure(config))
    printf("warn  %-14s %s isolates no hostile code: for development alone\n", "backend", config->backend);
  return TRUE;
}

/* The engine makes containers for whoever may use its socket. */
static gboolean need_root(const QvConfig *config)
{
  if (geteuid() == 0 || !qv_backend_takes_rootfs(config->backend))
    return TRUE;
  fprintf(stderr, "quavon-sandbox-runner: sandboxes need root: run it with sudo\n");
  return FALSE;
}

int qv_check_main(const QvConfig *config)
{
  if (!need_root(config))
    return QV_EXIT_NOT_ROOT;
  QvTrialImages trial = {0};
  ok("configuration", config->pool);
  gboolean fine = check_keys(config);
  fine &= check_images(config, &trial);
  fine &= check_memory(config);
  fine &= check_valkey(config);
  fine &= check_registries(config) && check_backend(config, &trial);
  qv_trial_images_clear(&trial);
  return fine ? 0 : QV_EXIT_FAILED;
}

int qv_check_sweep_main(const QvConfig *config)
{
  if (!need_root(config))
    return QV_EXIT_NOT_ROOT;
  g_autoptr(GError) error = NULL;
  QvPlace place = {0};
  g_autoptr(QvBackend) backend = NULL;
  if (qv_settings_place(config, &place, &error))
    backend = qv_place_open(&place, &error);
  qv_place_clear(&place);
  QvSweepReport report = {0};
  if (backend == NULL || !qv_backend_sweep(backend, NULL, &report, &error)) {
    fprintf(stderr, "quavon-sandbox-runner: %s\n", error->message);
    return QV_EXIT_FAILED;
  }
  printf("removed %u sandboxes; %u are in use; %u may come\n", report.removed, report.busy, report.later);
  if (report.later > 0)
    printf("starts were cut off, and the engine may go on with them: sweep again in half a minute\n");
  return 0;
}
