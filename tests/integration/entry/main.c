/* SPDX-License-Identifier: Apache-2.0 */
/* The entry program against what a job may do to it. The argument chooses the
 * sandbox: "namespaces" or "gvisor". */
#include <string.h>

#include "harness.h"
#include "scenarios.h"

int main(int argc, char **argv)
{
  harness_kind = argc > 1 && strcmp(argv[1], "gvisor") == 0 ? HARNESS_GVISOR : HARNESS_NAMESPACES;
  if (argc > 1) {
    argv[1] = argv[0];
    argv++;
    argc--;
  }
  g_test_init(&argc, &argv, NULL);
  add_step_scenarios();
  add_file_scenarios();
  add_hostile_scenarios();
  add_egress_scenarios();
  return g_test_run();
}
