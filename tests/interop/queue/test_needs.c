/* SPDX-License-Identifier: Apache-2.0 */
/* The commands that the user `worker` has for the sake of the public bullmq alone (`node` in needs.def): a service with either major
 * works with all of them, and at least one of both does not without each. */
#include <string.h>

#include "node.h"

static const struct {
  const char *user, *command, *scenario;
} needs[] = {
#define N(user, command, scenario) { user, command, scenario },
#include "../../integration/queue/needs.def"
#undef N
};

static void look(const char *major, GHashTable *needed)
{
  g_autoptr(QvTestValkey) valkey = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  g_autoptr(GPtrArray) commands = g_ptr_array_new();
  for (gsize i = 0; i < G_N_ELEMENTS(needs); i++)
    if (g_str_equal(needs[i].scenario, "node"))
      g_ptr_array_add(commands, (gpointer)needs[i].command);
  g_ptr_array_add(commands, NULL);
  NodeProgram *node = node_start(valkey, "worker", "needs.mjs", major, (const char *const *)commands->pdata, NULL);
  while (node_turn(node))
    ;
  g_auto(GStrv) lines = g_strsplit(node_output(node), "\n", -1);
  for (char **line = lines; *line; line++) {
    char *tab = strchr(*line, '\t');
    if (!tab)
      continue;
    g_test_message("bullmq %s without %s", major, *line);
    *tab = '\0';
    if (tab[1])
      g_hash_table_add(needed, g_strdup(*line));
  }
  node_finish(node);
}

static void test_needs(void)
{
  if (!node_folder())
    return;
  g_autoptr(GHashTable) needed = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  look("5", needed);
  look("6", needed);
  for (gsize i = 0; i < G_N_ELEMENTS(needs); i++)
    if (g_str_equal(needs[i].scenario, "node") && !g_hash_table_contains(needed, needs[i].command))
      g_error("%s may run %s, and a service with bullmq does not need it", needs[i].user, needs[i].command);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/interop/needs/node", test_needs);
  return g_test_run();
}
