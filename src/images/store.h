/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room share: the lock file's reading and writing, and digests of files. */
#pragma once

#include <glib.h>

#include "protocol/images_lock.h"

/* The lock, or NULL. */
QvImagesLock *qv_store_read_lock(const char *lock_file, GError **error);
gboolean qv_store_write_lock(const char *lock_file, const QvImagesLock *lock, GError **error);

/* This machine's, as images have it: amd64, arm64. */
const char *qv_store_architecture(void);

/* The digest of an image of this machine that was built here: DIGEST, or NAME's current one with NULL. NOT_FOUND. Free with
 * g_free. */
char *qv_store_find(const char *lock_file, const char *name, const char *digest, GError **error);

/* How long the archive of DIGEST will be, at most; 0: its files are not there. */
gint64 qv_store_archive_bytes(const char *lock_file, const char *digest);

/* Takes the writers' flock beside the lock file, waiting for it; makes the folder where it is missing. The
 * descriptor, which holds it until it is closed, or -1. */
int qv_store_hold(const char *lock_file, GError **error);

/* A path below the lock file's folder. */
char *qv_store_path(const char *lock_file, const char *file);

/* Lower-case hex of a file's SHA-256. */
char *qv_store_hash_fd(int fd, const char *name, GError **error);
char *qv_store_hash_file(const char *path, GError **error);

/* Writes FROM as gzip to the new file TO; the SHA-256 of FROM as lower-case hex. */
char *qv_store_compress_file(const char *from, const char *to, GError **error);

/* What an image's files are called: <hex of the digest>SUFFIX. The file system for the backend runsc, the
 * OCI config, the only layer. */
#define QV_STORE_ROOTFS_SUFFIX ".erofs"
#define QV_STORE_CONFIG_SUFFIX ".json"
#define QV_STORE_LAYER_SUFFIX ".tar.gz"
/* Folders of builds, below the lock file's; one that nobody holds is a left-over. */
#define QV_STORE_BUILD_PREFIX "build."
