/* SPDX-License-Identifier: Apache-2.0 */
/* What the keeper writes into its folder, and what it tells its runner. */
#pragma once

#include <glib.h>

/* ACL file with fresh passwords, the URLs, a fresh pool key, the runner's state folder. */
gboolean qv_keeper_files_make(const char *folder, GError **error);

/* Does somebody accept on this socket? */
gboolean qv_keeper_listens(const char *socket_path);
/* Does a Valkey answer on this socket? */
gboolean qv_keeper_answers(const char *socket_path);

/* The environment of the runner: the caller's own, with ours in place of what is about Valkey, keys, pool and state.
 * EGRESS: through the keeper's own proxy; without it no registry is left. */
char **qv_keeper_environment(const char *folder, gboolean egress);

/* The environment of the proxy. */
char **qv_keeper_egress_environment(const char *folder);

/* The same for libquavon. */
char **qv_keeper_settings(const char *folder);
