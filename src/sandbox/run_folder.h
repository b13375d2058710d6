/* SPDX-License-Identifier: Apache-2.0 */
/* The run folders STATE_DIR/runs/<sandbox id>: the first thing made of a
 * sandbox and the last one removed, whatever the backend. Its file `lock` is held
 * (flock) by the process that owns the sandbox: what exists without a lock that
 * somebody holds was left behind. */
#pragma once

#include <glib.h>

/* STATE_DIR as a real path, or NULL. Free with g_free. */
char *qv_run_state_dir(const char *state_dir, GError **error);
/* Makes the folder NAME below it; the path, or NULL. Free with g_free. */
char *qv_run_state_part(const char *state_dir, const char *name, GError **error);
/* "r" and 12 hex digits of runner id and state folder: two runners of one host, or a copied state folder, never have
 * the same. Free with g_free. */
char *qv_run_owner_name(const char *runner_id, const char *state_dir);

/* Makes and locks the folder: the descriptor of the lock, or -1. */
int qv_run_folder_make(const char *runs_dir, const char *id, GError **error);
/* Takes the lock of a run that may or may not exist: the descriptor; -1 with *BUSY when somebody
 * holds it, -1 with an error otherwise; -2 when there is no run folder. */
int qv_run_folder_lock(const char *runs_dir, const char *id, gboolean *busy, GError **error);
gboolean qv_run_folder_remove(const char *runs_dir, const char *id, GError **error);
/* The ids of all folders are added to IDS (owned keys). */
gboolean qv_run_folder_ids(const char *runs_dir, GHashTable *ids, GError **error);
