/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper: the process that owns what `quavon run` starts for itself.
 *
 *   quavon ──socketpair── keeper ─┬─ valkey-server   unix socket, shipped ACL, no disk
 *      └────── lock ────────┘     ├─ quavon-sandbox-runner   backend runsc, state in the folder
 *                                 └─ quavon-sandbox-egress   for a job with egress: unix socket
 *
 * All lies in one private folder, /run/quavon-XXXXXX, whose file `lock` both hold (one open file description): as long as
 * one of them lives, nobody else touches the folder.
 *
 *   quavon ends, or is killed     the keeper reads the end of its socket: stops them, sweeps, removes
 *   one of the three is killed    the keeper sees it: says so to quavon, then the same
 *   the keeper is killed          its children get SIGKILL from the kernel; quavon reads the end of its socket,
 *                                 sweeps and removes
 *   quavon and keeper are killed  the next `quavon run` finds the lock free: sweeps and removes
 *
 * The keeper is in a session of its own, so that Ctrl-C on the terminal reaches quavon alone. */
#pragma once

#include <glib.h>

enum { QV_KEEPER_CONTROL_FD = 3, QV_KEEPER_LOCK_FD = 4 };

/* What the keeper writes, a line each; after FAILED it ends. */
#define QV_KEEPER_READY "ready\n"
#define QV_KEEPER_FAILED "failed "

/* Files of the folder. */
#define QV_KEEPER_LOCK "lock"
#define QV_KEEPER_KEY "pool.key"
#define QV_KEEPER_WORKER_URL "worker.url"
#define QV_KEEPER_RUNNER_URL "runner.url"
#define QV_KEEPER_EGRESS_URL "egress.url"
#define QV_KEEPER_EGRESS_SOCKET "egress.sock"
#define QV_KEEPER_RUNNER_LOG "runner.log"
#define QV_KEEPER_EGRESS_LOG "egress.log"

/* The keeper's second argument where the job wants egress. */
#define QV_KEEPER_WITH_EGRESS "egress"
#define QV_KEEPER_STATE "state"

/* The runner of this folder ended, and not all of its sandboxes with it: a start that was cut off, for one. */
gboolean qv_keeper_has_sandboxes(const char *folder);

/* Removes what is left in a folder whose owners have ended: sandboxes (by the runner's own sweep), then the folder.
 * QV_ERROR_CANCELLED: a signal that came meanwhile has ended the wait for what may still come. */
gboolean qv_keeper_clean(const char *folder, GError **error);

/* Cleans every folder whose owners have ended without doing so. Best effort. */
void qv_keeper_sweep(void);
