/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/verb.h"

int main(int argc, char **argv)
{
  return qv_main(argc, argv);
}
