/* SPDX-License-Identifier: Apache-2.0 */
/* What harness.c and harness_stream.c share. */
#pragma once

#include "harness.h"

struct Harness {
  HarnessOptions options;
  GPid pid;
  int in_fd, out_fd; /* our ends */
  char *folder;
  char *err_path;
  char *id;
};

/* Kills the sandbox; harness_free still has to be called. */
void harness_stop(Harness *harness);
