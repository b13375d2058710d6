/* SPDX-License-Identifier: Apache-2.0 */
/* What a runner may leave on the machine and in Valkey: finding it, and planting it, so
 * that the finding is known to find. */
#pragma once

#include "world.h"

/* One line each, NULL at the end: processes, cgroups, run folders and states of sandboxes, mounts, and every key that is not BullMQ's
 * own record of ended jobs, a replay guard or a health record. Of this world alone. Free with g_strfreev. */
char **leftovers_find(World *world);
/* Waits until there is none; ends the test with what there is. */
void leftovers_await_none(World *world);

/* A container is for engines; state, cgroup and process are what a runner that starts sandboxes itself can leave. */
#define LEFTOVER_KINDS(X) X(bundle) X(state) X(cgroup) X(process) X(container) X(mount) X(blob) X(token) X(lock)

typedef enum {
#define X(name) LEFTOVER_##name,
  LEFTOVER_KINDS(X)
#undef X
  LEFTOVER_KINDS_N
} LeftoverKind;

const char *leftover_name(LeftoverKind kind);

/* Can the chosen place leave it? */
gboolean leftover_can(LeftoverKind kind);
/* Makes one (none where it cannot be), asserts that leftovers_find tells of it, and, where no sweep of a runner is to remove it (mount, blob, token,
 * lock), takes it away again. Only while no runner runs, after one had. */
void leftover_plant(World *world, LeftoverKind kind, GRand *rand);
