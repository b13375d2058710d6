/* SPDX-License-Identifier: Apache-2.0 */
/* How many warm sandboxes of which kind there should be: pure functions of what was asked for lately and of
 * what there is room for.
 *
 * An image's floor has one kind. Each job of the image without egress votes for its own, and the kind with the floor loses it once it has fewer
 * votes than the others: one odd job changes nothing, nor do two kinds in turn, for which each sandbox would be started in vain.
 * Each kind gets its floor first, kind by kind in the order given; then, one at a time in turn, as many
 * as jobs of it have run at once lately, while the ceiling and the memory allow. */
#pragma once

#include <glib.h>

typedef struct {
  guint floor;     /* QUAVON_SANDBOX_WARM where the kind is an image's current one, else 0 */
  guint peak;      /* most jobs of this kind at once, lately */
  gint64 need_mib; /* of one sandbox, at least 1 */
} QvWarmWant;

/* CEILING: warm ones in all, beyond the floors. FREE_MIB: the budget less what jobs in progress have.
 * TARGETS has N entries. */
void qv_warm_plan(const QvWarmWant *wants, gsize n, guint ceiling, gint64 free_mib, guint *targets);

/* No kind is ahead by more: one job more than that outvotes it. */
#define QV_WARM_VOTES_MAX 4

/* A job votes for the kind that has the floor (SAME), or for another one. VOTES: what the former is ahead by, 1 to begin with.
 * TRUE: the job's kind has the floor from now on. */
gboolean qv_warm_vote(guint *votes, gboolean same);
