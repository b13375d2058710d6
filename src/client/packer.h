/* SPDX-License-Identifier: Apache-2.0 */
/* Writes files into a tar, compresses it in threads, and keeps the gzip in an unlinked file. */
#pragma once

#include <glib.h>

typedef struct QvPacker QvPacker;

/* threads_n 0: one a core. SYSTEM: no temporary file. */
QvPacker *qv_packer_new(guint threads_n, guint64 max_tar_bytes, GError **error);
void qv_packer_free(QvPacker *packer);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvPacker, qv_packer_free)

/* One file: begin, exactly `size` bytes in any number of pieces, end. Paths come sorted.
 * LIMIT: the tar would be over its cap (names the path). SYSTEM: the spool cannot be written. */
gboolean qv_packer_begin(QvPacker *packer, const char *path, guint64 size, gboolean executable, GError **error);
gboolean qv_packer_add(QvPacker *packer, const void *bytes, gsize n, GError **error);
/* The same without a copy: room for the file's next bytes, at least one while some are left, and at most what is left of
 * it; then how many of them are there. */
guint8 *qv_packer_room(QvPacker *packer, gsize *n);
gboolean qv_packer_took(QvPacker *packer, gsize n, GError **error);
gboolean qv_packer_end(QvPacker *packer, GError **error);

typedef struct {
  int fd; /* at its start */
  guint64 gzip_bytes, tar_bytes, files_n;
  char sha256[65], tree_sha256[65];
} QvPacked;

/* Writes the end of the archive and waits for the threads; the descriptor is the caller's. */
gboolean qv_packer_finish(QvPacker *packer, QvPacked *packed, GError **error);
