/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/warm_plan.h"

/* One more of WANT where there is room for it. */
static gboolean give(const QvWarmWant *want, guint *target, gint64 *free_mib)
{
  if (want->need_mib > *free_mib)
    return FALSE;
  *free_mib -= want->need_mib;
  ++*target;
  return TRUE;
}

void qv_warm_plan(const QvWarmWant *wants, gsize n, guint ceiling, gint64 free_mib, guint *targets)
{
  guint all = 0;
  for (gsize i = 0; i < n; i++) {
    targets[i] = 0;
    while (targets[i] < wants[i].floor && give(&wants[i], &targets[i], &free_mib))
      all++;
  }
  for (gboolean gave = TRUE; gave && all < ceiling;) {
    gave = FALSE;
    for (gsize i = 0; i < n && all < ceiling; i++) {
      if (targets[i] < wants[i].peak && give(&wants[i], &targets[i], &free_mib)) {
        gave = TRUE;
        all++;
      }
    }
  }
}

gboolean qv_warm_vote(guint *votes, gboolean same)
{
  if (!same && *votes > 0) {
    --*votes;
    return FALSE;
  }
  *votes = MIN(*votes + 1, QV_WARM_VOTES_MAX);
  return !same;
}
