/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the snapshot of protocol section 4: a deterministic tar of a folder's or
 * a commit's regular files, as gzip members of 1 MiB of tar each.
 *
 *   folder ─ work_tree ─┐
 *                       ├─ listing (sorted) ─ snapshot ─ packer ─ spool (an unlinked file)
 *   commit ─ git ───────┘      reads each file         tar, gzip in N threads, digests
 *
 * The same files give the same tar on every machine, and the same gzip for every number of threads. */
#pragma once

#include <gio/gio.h>

#include "client/listing.h"

typedef struct {
  /* The folder. In a git work tree: the tracked files and the untracked that are not ignored,
   * below this folder. Else, and when the work tree around it ignores it: all files. */
  const char *dir;
  const char *rev; /* NULL, or the commit whose tree is packed, without a look at the work tree */
  gboolean all;    /* git or not: all files */
  guint threads_n; /* that compress; 0: one a core */
  /* 0: those of base/limits.h (protocol section 4) */
  guint64 max_entries, max_tar_bytes, max_file_bytes;
} QvSnapshotOptions;

typedef struct {
  int fd; /* the gzip, at its start; nobody else can open it */
  guint64 gzip_bytes, tar_bytes, files_n;
  char sha256[65];      /* of the gzip */
  char tree_sha256[65]; /* of the tar */
  QvLeftOut left_out;
} QvSnapshot;

/* Called on the caller's thread now and then, with the files of the listing that were looked at so far. */
typedef void (*QvSnapshotProgress)(guint64 files_n, guint64 files_total, gpointer data);

/* LIMIT: over a cap. FORMAT: a name that may not be, a file that changed while it was read,
 * a damaged repository. NOT_FOUND: no such folder or revision. SYSTEM: a file that cannot be read. CANCELLED.
 * Each names the path. The caller frees. */
QvSnapshot *qv_snapshot_build(const QvSnapshotOptions *options, QvSnapshotProgress progress, gpointer data,
                              GCancellable *cancellable, GError **error);
void qv_snapshot_free(QvSnapshot *snapshot);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvSnapshot, qv_snapshot_free)

/* "3 .git, 2 symbolic links, 1 FIFO"; NULL where nothing was left out. */
char *qv_left_out_describe(const QvLeftOut *left_out);
