/* SPDX-License-Identifier: Apache-2.0 */
/* docs/EGRESS.md has the table of reasons as it is. */
#include <string.h>

#include "base/fd.h"
#include "egress/reason.h"

static void test_table(void)
{
  g_autofree char *path = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "docs", "EGRESS.md", NULL);
  g_autofree char *table = qv_reason_markdown();
  g_autofree char *page = NULL;
  g_assert_true(g_file_get_contents(path, &page, NULL, NULL));
  const char *from = strstr(page, "| code | answer | meaning |");
  g_assert_nonnull(from);
  if (g_getenv("QUAVON_TEST_WRITE_DOCS") != NULL) {
    g_autofree char *head = g_strndup(page, (gsize)(from - page));
    g_autofree char *whole = g_strconcat(head, table, NULL);
    g_assert_true(qv_fd_write_file(path, whole, strlen(whole), 0644, NULL));
    return;
  }
  g_assert_cmpstr(from, ==, table);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/docs/reasons", test_table);
  return g_test_run();
}
