/* SPDX-License-Identifier: Apache-2.0 */
/* images.lock.json (section 9) as a value. */
#pragma once

#include <glib.h>

typedef struct {
  char *name;
  char *digest; /* sha256:<64 hex> */
  gboolean is_repository; /* kind "repository"; else "image-id" */
  char *platform;
  char *rootfs_file; /* or NULL: no rootfs */
  char *rootfs_sha256;
  char *vm_rootfs; /* or NULL: no vm; then the four are set */
  char *vm_rootfs_sha256;
  char *vm_kernel;
  char *vm_kernel_sha256;
} QvImage;

typedef struct {
  QvImage *images;
  gsize n;
} QvImagesLock;

/* Strict; at most 256 entries; at most two entries a name and platform, of different digests, the current one first.
 * File names are single path parts or relative paths without "..".
 * QV_ERROR_FORMAT; the text names the member. */
QvImagesLock *qv_images_lock_parse(const char *text, gsize n, GError **error);
QvImagesLock *qv_images_lock_new(void);
void qv_images_lock_free(QvImagesLock *lock);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvImagesLock, qv_images_lock_free)
void qv_image_clear(QvImage *image);

/* The text, indented, with a final LF; checked by the parser's rules. */
char *qv_images_lock_format(const QvImagesLock *lock, gsize *n, GError **error);

/* Puts a copy of IMAGE in front of the others of its name and platform, keeps one previous entry
 * and drops the rest. The same digest again replaces its entry and becomes the current one. */
void qv_images_lock_put(QvImagesLock *lock, const QvImage *image);
/* Removes the entry of that digest; FALSE where there is none. */
gboolean qv_images_lock_remove(QvImagesLock *lock, const char *name, const char *digest, const char *platform);

/* Borrowed; NULL where there is none. DIGEST NULL: the current one. */
const QvImage *qv_images_lock_find(const QvImagesLock *lock, const char *name, const char *digest,
                                   const char *platform);

/* "sha256:" and 64 lower-case hex digits? */
gboolean qv_image_digest_valid(const char *digest);
