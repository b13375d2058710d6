/* SPDX-License-Identifier: Apache-2.0 */
/* What a process does not use does not stay with it: blocks that were freed, the embedded program. */
#include <glib.h>
#include <malloc.h>
#include <string.h>

#include "runner/footprint.h"
#include "runner/probes_program.h"
#include "support/valgrind.h"

enum { BLOCKS = 16, BLOCK_BYTES = 1024 * 1024 + 100, PAGE_BYTES = 4096 };

/* KiB that are in memory of the mapping which begins at AT; -1: none begins there. */
static gint64 resident_kib(guintptr at)
{
  g_autofree char *text = NULL, *head = g_strdup_printf("%" G_GINT64_MODIFIER "x-", (guint64)at);
  g_assert_true(g_file_get_contents("/proc/self/smaps", &text, NULL, NULL));
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  gboolean found = FALSE;
  for (char **line = lines; *line != NULL; line++) {
    found = found || g_str_has_prefix(*line, head);
    if (found && g_str_has_prefix(*line, "Rss:"))
      return g_ascii_strtoll(*line + 4 + strspn(*line + 4, " "), NULL, 10);
  }
  return -1;
}

static void test_probes(void)
{
  if (qv_test_under_valgrind()) {
    g_test_skip("valgrind maps the program itself");
    return;
  }
  guint sum = 0;
  for (gsize i = 0; i < qv_probes_program_n; i += PAGE_BYTES / 2)
    sum += qv_probes_program[i];
  qv_footprint_limit(FALSE);
  guintptr from = ((guintptr)qv_probes_program + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
  g_assert_cmpint(resident_kib(from), ==, 0);
  /* Whoever reads it finds it. */
  for (gsize i = 0; i < qv_probes_program_n; i += PAGE_BYTES / 2)
    sum -= qv_probes_program[i];
  g_assert_cmpuint(sum, ==, 0);
  g_assert_cmpmem(qv_probes_program, 4, "\177ELF", 4);
  g_assert_cmpint(resident_kib(from), >, 0);
}

/* The way of chunks: the last of them is freed while others stand behind it. */
static void test_blocks(void)
{
#if defined(__SANITIZE_ADDRESS__)
  g_test_skip("it has an allocator of its own");
#else
  if (qv_test_under_valgrind()) {
    g_test_skip("it has an allocator of its own");
    return;
  }
  qv_footprint_limit(TRUE);
  gsize before = mallinfo2().fordblks;
  void *blocks[BLOCKS], *small[BLOCKS];
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < BLOCKS; i++) {
      blocks[i] = memset(g_malloc(BLOCK_BYTES), 1, BLOCK_BYTES);
      small[i] = g_malloc(64);
    }
    for (int i = 0; i < BLOCKS; i++)
      g_free(blocks[i]);
    gsize after = mallinfo2().fordblks;
    g_assert_cmpuint(after, <, before + BLOCK_BYTES / 2);
    for (int i = 0; i < BLOCKS; i++)
      g_free(small[i]);
  }
#endif
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/runner/footprint/probes", test_probes);
  g_test_add_func("/runner/footprint/blocks", test_blocks);
  return g_test_run();
}
