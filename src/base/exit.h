/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemons and their parts end with; quavon's own are in cli/verb.h. */
#pragma once

enum {
  QV_EXIT_FAILED = 1,
  QV_EXIT_USAGE = 64,    /* EX_USAGE */
  QV_EXIT_NOT_ROOT = 77, /* EX_NOPERM */
  QV_EXIT_CONFIG = 78,   /* EX_CONFIG */
};
