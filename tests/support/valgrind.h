/* SPDX-License-Identifier: Apache-2.0 */
/* Valgrind has system calls, memory and a process layout of its own, which some tests would meet instead of ours. */
#pragma once

#include <glib.h>
#include <string.h>

/* TRUE where this program runs under valgrind. */
static inline gboolean qv_test_under_valgrind(void)
{
  const char *preload = g_getenv("LD_PRELOAD");
  return preload != NULL && strstr(preload, "vgpreload") != NULL;
}
