/* SPDX-License-Identifier: Apache-2.0 */
/* What the supervisor and --check make of the configuration before anything is
 * started: keys, images, limits, place. Every error is one for the operator. */
#pragma once

#include "base/config.h"
#include "images/images.h"
#include "protocol/images_lock.h"
#include "protocol/key.h"
#include "protocol/limits_policy.h"
#include "protocol/registries.h"
#include "queue/address.h"
#include "runner/setup.h"

/* linux/amd64 or linux/arm64. */
const char *qv_settings_platform(void);

/* Needs VALKEY_URL. */
QvAddress *qv_settings_address(const QvConfig *config, GError **error);

/* Needs QUAVON_SANDBOX_SIGNING_KEY_FILE. */
QvKeyring *qv_settings_keyring(const QvConfig *config, GError **error);

/* Where setup steps may go; empty where nothing is listed. */
QvRegistries *qv_settings_registries(const QvConfig *config, GError **error);

void qv_settings_limits(const QvConfig *config, QvLimitsPolicy *policy);

/* The memory budget, auto resolved, in MiB. QV_ERROR_POLICY where the default limits do not fit in it
 * CONCURRENCY times. */
gboolean qv_settings_memory_budget(const QvConfig *config, gint64 *budget_mib, GError **error);

/* The lock, with every image file of this platform present and right where the configured backend takes files:
 * *TRIAL (may be NULL) takes what the backend's test needs. A lock without any image for this platform is QV_ERROR_NOT_FOUND. */
QvImagesLock *qv_settings_images(const QvConfig *config, QvImageMemory *memory, QvTrialImages *trial,
                                 GError **error);

/* The absolute path of IMAGE's file. Free with g_free. */
char *qv_settings_image_file(const QvConfig *config, const QvImage *image);

/* Is it the backend that is to be warned of at every start? */
gboolean qv_settings_is_insecure(const QvConfig *config);

/* Prepares the state folder and reads the runner id. QV_ERROR_POLICY where the insecure backend is not permitted. */
gboolean qv_settings_place(const QvConfig *config, QvPlace *place, GError **error);
