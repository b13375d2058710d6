/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the memory of admitted ids. Old ones are looked for once in a while, not at each job. */
#include "runner/admitted.h"

#include "base/clock.h"

enum { LOOK_EVERY = 256 };

GHashTable *qv_admitted_new(void)
{
  return g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
}

static gboolean is_old(gpointer key, gpointer value, gpointer now)
{
  return *(gint64 *)value < *(gint64 *)now;
}

gboolean qv_admitted_remember(GHashTable *admitted, const char *job_id, gint64 until_ms)
{
  if (g_hash_table_contains(admitted, job_id))
    return TRUE;
  gint64 now_ms = qv_clock_unix_ms();
  if (g_hash_table_size(admitted) % LOOK_EVERY == LOOK_EVERY - 1)
    g_hash_table_foreach_remove(admitted, is_old, &now_ms);
  gint64 *until = g_new(gint64, 1);
  *until = until_ms;
  g_hash_table_insert(admitted, g_strdup(job_id), until);
  return FALSE;
}
