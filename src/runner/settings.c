/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the way from variables to values that can be used. */
#include "runner/settings.h"

#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/limits.h"
#include "runner/egress.h"
#include "runner/key_file.h"
#include "runner/state_dir.h"

enum { HOST_SHARE_MIB = 1024 };

const char *qv_settings_platform(void)
{
#if defined(__x86_64__)
  return "linux/amd64";
#elif defined(__aarch64__)
  return "linux/arm64";
#else
#error "sandboxes are made on amd64 and arm64"
#endif
}

static gpointer missing(const char *name, const char *how, GError **error)
{
  g_set_error(error, QV_ERROR, QV_ERROR_POLICY, "%s is not set: %s", name, how);
  return NULL;
}

QvAddress *qv_settings_address(const QvConfig *config, GError **error)
{
  if (config->valkey_url == NULL)
    return missing("VALKEY_URL", "redis://user:password@host:port/db, rediss://… or unix:///path (or VALKEY_URL_FILE)",
                   error);
  return qv_address_of_config(config, error);
}

QvKeyring *qv_settings_keyring(const QvConfig *config, GError **error)
{
  if (config->signing_key_file == NULL)
    return missing("QUAVON_SANDBOX_SIGNING_KEY_FILE", "the pool's key, made by `quavon keygen`", error);
  QvKeyring *ring = qv_keyring_load(config->signing_key_file,
                                    (const char *const *)config->signing_key_previous_files, error);
  if (ring == NULL)
    g_prefix_error(error, "QUAVON_SANDBOX_SIGNING_KEY_FILE: ");
  return ring;
}

QvRegistries *qv_settings_registries(const QvConfig *config, GError **error)
{
  g_autofree char *text = qv_config_registries(config, error);
  if (text == NULL)
    return NULL;
  QvRegistries *registries = qv_registries_parse(text, error);
  if (registries == NULL)
    g_prefix_error(error, "%s: ", config->registries_file != NULL ? "QUAVON_SANDBOX_REGISTRIES_FILE" : "QUAVON_SANDBOX_REGISTRIES");
  return registries;
}

void qv_settings_limits(const QvConfig *config, QvLimitsPolicy *policy)
{
  policy->defaults = (QvLimits){.wall_ms = config->default_wall_ms,
                                .memory_mib = config->default_memory_mib,
                                .milli_cpus = config->default_milli_cpus,
                                .pids = config->default_pids,
                                .work_mib = config->default_work_mib,
                                .log_bytes = config->default_log_bytes,
                                .artefact_bytes = config->default_artefact_bytes,
                                .artefact_count = config->default_artefact_count};
  policy->ceilings = (QvLimits){.wall_ms = config->max_wall_ms,
                                .memory_mib = config->max_memory_mib,
                                .milli_cpus = config->max_milli_cpus,
                                .pids = config->max_pids,
                                .work_mib = config->max_work_mib,
                                .log_bytes = config->max_log_bytes,
                                .artefact_bytes = config->max_artefact_bytes,
                                .artefact_count = config->max_artefact_count};
  policy->max_blob_bytes = config->max_blob_mib * 1024 * 1024;
}

gboolean qv_settings_memory_budget(const QvConfig *config, gint64 *budget_mib, GError **error)
{
  *budget_mib = config->memory_budget_mib;
  gint64 one = MIN(config->default_memory_mib, config->max_memory_mib) +
               MIN(config->default_work_mib, config->max_work_mib) + QV_SANDBOX_TMP_MIB + QV_SANDBOX_HEADROOM_MIB;
  if (one * config->concurrency <= *budget_mib)
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_POLICY,
              "%" G_GINT64_FORMAT " jobs of %" G_GINT64_FORMAT " MiB each (memoryMiB + workMiB + 384) are over the "
              "memory budget of %" G_GINT64_FORMAT " MiB: lower QUAVON_SANDBOX_CONCURRENCY, "
              "QUAVON_SANDBOX_DEFAULT_MEMORY_MIB or QUAVON_SANDBOX_DEFAULT_WORK_MIB, or raise "
              "QUAVON_SANDBOX_MEMORY_BUDGET_MIB",
              config->concurrency, one, *budget_mib);
  return FALSE;
}

char *qv_settings_image_file(const QvConfig *config, const QvImage *image)
{
  g_autofree char *lock_file = qv_config_images_file(config);
  g_autofree char *folder = g_path_get_dirname(lock_file);
  return g_build_filename(folder, image->rootfs_file, NULL);
}

static gboolean verify_images(const QvConfig *config, const QvImagesLock *lock, QvImageMemory *memory,
                              QvTrialImages *trial, GError **error)
{
  gboolean files = qv_backend_takes_rootfs(config->backend);
  g_autoptr(GPtrArray) digests = g_ptr_array_new_with_free_func(g_free);
  for (gsize i = 0; i < lock->n; i++) {
    const QvImage *image = &lock->images[i];
    if ((files && image->rootfs_file == NULL) || !g_str_equal(image->platform, qv_settings_platform()))
      continue;
    g_autofree char *path = files ? qv_settings_image_file(config, image) : NULL;
    if (files && !qv_image_memory_check(memory, path, image->rootfs_sha256, error)) {
      g_prefix_error(error, "image %s: ", image->name);
      return FALSE;
    }
    if (trial->rootfs_file == NULL)
      trial->rootfs_file = g_steal_pointer(&path);
    g_ptr_array_add(digests, g_strdup(image->digest));
  }
  if (digests->len == 0) {
    g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND, "no image for %s: `quavon images build` makes one",
                qv_settings_platform());
    return FALSE;
  }
  g_ptr_array_add(digests, NULL);
  trial->digests = (char **)g_ptr_array_free(g_steal_pointer(&digests), FALSE);
  return TRUE;
}

QvImagesLock *qv_settings_images(const QvConfig *config, QvImageMemory *memory, QvTrialImages *trial, GError **error)
{
  g_autofree char *path = qv_config_images_file(config);
  gsize n;
  QvTrialImages found = {0};
  g_autofree char *text = qv_fd_read_file(path, QV_IMAGES_LOCK_BYTES_MAX, &n, error);
  g_autoptr(QvImagesLock) lock = text != NULL ? qv_images_lock_parse(text, n, error) : NULL;
  if (lock == NULL || !verify_images(config, lock, memory, &found, error)) {
    g_prefix_error(error, "QUAVON_SANDBOX_IMAGES_FILE: %s: ", path);
    qv_trial_images_clear(&found);
    return NULL;
  }
  if (trial != NULL)
    *trial = found;
  else
    qv_trial_images_clear(&found);
  return g_steal_pointer(&lock);
}

gboolean qv_settings_is_insecure(const QvConfig *config)
{
  return g_str_equal(config->backend, "docker-runc-insecure");
}

static gboolean check_insecure(const QvConfig *config, GError **error)
{
  if (!qv_settings_is_insecure(config) ||
      (g_str_equal(config->environment, "development") && g_str_equal(config->edition, "community")))
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_POLICY,
              "QUAVON_SANDBOX_BACKEND=docker-runc-insecure isolates no hostile code: it starts only with "
              "QUAVON_ENV=development and QUAVON_EDITION=community (they are %s and %s)", config->environment, config->edition);
  return FALSE;
}

gboolean qv_settings_place(const QvConfig *config, QvPlace *place, GError **error)
{
  if (!check_insecure(config, error))
    return FALSE;
  if (!qv_state_dir_prepare(config->state_dir, error))
    return FALSE;
  g_autofree char *runner_id = qv_state_dir_runner_id(config->state_dir, error);
  if (runner_id == NULL)
    return FALSE;
  g_autoptr(QvRegistries) registries = qv_settings_registries(config, error);
  if (registries == NULL)
    return FALSE;
  /* Without registries no job is ever put on it, and it need not be there. */
  gboolean networked = qv_registries_n(registries) > 0 && qv_egress_by_network(config->backend);
  *place = (QvPlace){.backend = g_strdup(config->backend),
                     .state_dir = g_strdup(config->state_dir),
                     .runner_id = g_steal_pointer(&runner_id),
                     .runsc = g_strdup(config->runsc),
                     .pool = g_strdup(config->pool),
                     .docker_socket = g_strdup(config->docker_socket),
                     .runtime = g_strdup(config->runtime),
                     .runtime_offline = g_strdup(config->runtime_offline),
                     .docker_allow = g_strdup(config->docker_allow),
                     .egress_network = networked ? g_strdup(config->egress_network) : NULL,
                     .egress_proxy = networked ? g_strdup(config->egress_proxy) : NULL,
                     .engine_min = (guint)config->engine_min};
  return TRUE;
}
