/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot's gzip, fed in any portions, becomes files and folders below a
 * folder: inflated, read by the strict tar reader and written, all as a
 * stream. No step has run yet, so nobody changes the folder meanwhile. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
  QV_ENTRY_UNPACK_GOOD,
  QV_ENTRY_UNPACK_REFUSED, /* not a snapshot, or a file where a folder must be, or the other way round */
  QV_ENTRY_UNPACK_FULL,    /* no room */
} QvEntryUnpackVerdict;

typedef struct QvEntryUnpack QvEntryUnpack;

/* Below ROOT_FD (borrowed); every file written and folder passed gets the
 * modification time MTIME_S. A file takes the place of a file where REPLACE is set. */
QvEntryUnpack *qv_entry_unpack_new(int root_fd, int64_t mtime_s, bool replace);

/* The first verdict that is not GOOD stays. */
QvEntryUnpackVerdict qv_entry_unpack_feed(QvEntryUnpack *unpack, const char *bytes, size_t n);
/* All was fed: is it whole? */
QvEntryUnpackVerdict qv_entry_unpack_end(QvEntryUnpack *unpack);
/* What was wrong, for the diagnostics. */
const char *qv_entry_unpack_why(const QvEntryUnpack *unpack);
void qv_entry_unpack_free(QvEntryUnpack *unpack);
