/* SPDX-License-Identifier: Apache-2.0 */
/* Artefacts: the regular files of the repository that a glob names, in path
 * order, each whole or dropped and counted. What lies there was left by
 * hostile code: no link is followed, nothing outside the folder is reached, nothing
 * that blocks is opened. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "entry/output.h"

typedef struct {
  char *const *globs;
  size_t globs_n;
  uint64_t bytes_max; /* of all together */
  uint64_t count_max;
} QvEntryCollectSpec;

/* Writes the members artefacts/<path>: how many files were named but dropped. */
uint64_t qv_entry_collect(int root_fd, const QvEntryCollectSpec *spec, QvEntryOutput *output);
