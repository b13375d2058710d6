/* SPDX-License-Identifier: Apache-2.0 */
/* Starting this same program in another role: a fresh image of itself, so that
 * nothing of the parent's memory goes along, with the descriptors that the
 * role needs and a bare environment. */
#pragma once

#include <glib.h>

/* X(NAME, argv word): the descriptors that a role finds are listed with it.
 * JOB     3: channel to the supervisor, 4: the lock on the state folder
 * UNPACK  3: socket of the job process: the sandbox's stdout, then a frame; 4: frames to it
 * SWEEP   3: where it says what it found of the backend; then one argument: a sweep order
 * SMOKE   3: for its answer; then one argument: its order
 * STARTER 3: socket to the supervisor, 4: where it notes what it forks; an argument where its jobs need an engine. It becomes JOB
 *         and UNPACK, see starter.h: its word is as long as each of theirs */
#define QV_ROLES(X) X(JOB, "job") X(UNPACK, "unpack") X(SWEEP, "sweep") X(SMOKE, "smoke") X(STARTER, "starter")

typedef enum {
  QV_ROLE_NONE,
#define X(name, word) QV_ROLE_##name,
  QV_ROLES(X)
#undef X
} QvRole;

/* The role in argv, or QV_ROLE_NONE where the program was started by a person. */
QvRole qv_role_of(int argc, char **argv);

enum { QV_SPAWN_FD_FIRST = 3, QV_SPAWN_FDS_MAX = 3 };

/* Starts ROLE with FDS (at most QV_SPAWN_FDS_MAX; -1: that number stays closed)
 * as 3, 4, …; ARGUMENT may be NULL. The caller keeps its own copies, and reaps the child. */
gboolean qv_spawn_role(QvRole role, const char *argument, const int *fds, gsize fds_n, GPid *pid, GError **error);

/* What each role does first: not dumpable, no core, and where DIE_WITH_PARENT
 * holds SIGKILL at the parent's end. */
void qv_role_enter(gboolean die_with_parent);
