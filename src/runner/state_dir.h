/* SPDX-License-Identifier: Apache-2.0 */
/* The runner's folder on disk: made where it is absent, held by one runner at
 * a time, and the place of the id that outlives restarts and host names. */
#pragma once

#include <glib.h>

/* Makes PATH (mode 0711: the guest's image below it is opened by nobody else) where it
 * is absent. A relative path, one that others may write to, or one too long
 * for the sockets of the backend is refused (QV_ERROR_POLICY). */
gboolean qv_state_dir_prepare(const char *path, GError **error);

/* A folder that is ours and that nobody else may write to? QV_ERROR_POLICY. */
gboolean qv_state_dir_private(const char *path, GError **error);

/* Takes the lock, waiting at most WAIT_MS for an earlier runner's job processes to clean up:
 * they inherit the descriptor. Returns it, or -1 (QV_ERROR_TIMEOUT: held by another). */
int qv_state_dir_lock(const char *path, gint64 wait_ms, GError **error);

/* Reads PATH/runner-id, or makes it. An unreadable or malformed file is an
 * error, not a reason for a new id. Free with g_free. */
char *qv_state_dir_runner_id(const char *path, GError **error);
