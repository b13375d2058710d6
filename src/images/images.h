/* SPDX-License-Identifier: Apache-2.0 */
/* Sandbox images of this host: build, list, verify, prune, load into a container engine.
 *
 * The store is the folder of the images lock (section 9; usually
 * STATE_DIR/images): the lock itself, and of each image three files, named by the hex digits of its digest: .erofs, what
 * the backend runsc mounts; .json, the OCI config, whose SHA-256 the digest is; .tar.gz, its only layer, which a
 * container engine loads. A relative rootfs.file of the lock is below that
 * folder. Writers hold an exclusive flock on <lock file>.lock. */
#pragma once

#include <glib.h>

typedef struct {
  char *name;
  char *digest;       /* sha256:<64 hex>: of the OCI config */
  char *platform;     /* linux/amd64, linux/arm64 */
  char *rootfs_path;  /* absolute, or NULL where the entry has no rootfs */
  char *rootfs_sha256;
  gint64 size_bytes;  /* of the file; -1 where it is absent */
  gboolean current;   /* the first of its name and platform; else the previous one */
  gboolean fits;      /* of this machine's platform */
  gboolean is_repository; /* DIGEST is a repository's: no image that was built here */
} QvStoredImage;

void qv_stored_image_free(QvStoredImage *image);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvStoredImage, qv_stored_image_free)

/* The lock's entries in its order, as QvStoredImage. An absent lock is QV_ERROR_NOT_FOUND. */
GPtrArray *qv_images_list(const char *lock_file, GError **error);

/* Hashes the file of each entry whose name is NAME (NULL: of all). FALSE with
 * the first that is absent (NOT_FOUND) or differs (AUTH); *CHECKED_N (may be NULL) is the number of
 * entries that held. No entry at all is NOT_FOUND. */
gboolean qv_images_verify(const char *lock_file, const char *name, guint *checked_n, GError **error);

/* Removes what the lock does not name from its folder: image files and the
 * left-overs of broken builds. REMOVED: paths, as char *. With DROP_PREVIOUS the
 * lock first loses its previous entries. */
gboolean qv_images_prune(const char *lock_file, gboolean drop_previous, GPtrArray **removed, GError **error);

typedef void (*QvImagesProgress)(const char *line, gpointer data);

typedef struct {
  const char *name;        /* of the image, as jobs will name it */
  const char *recipe_dir;  /* deploy/images/sandbox/NAME or its installed copy: the program `build` and what it needs */
  const char *from;        /* an existing image to build on, NAME@sha256:HEX, in the place of packages; or NULL */
  const char *entry_file;  /* the entry program that goes to /opt/quavon/entry */
  const char *lock_file;
  QvImagesProgress progress; /* may be NULL: the recipe's own lines as they come */
  gpointer progress_data;
} QvImagesBuild;

/* Builds an image, stores it and makes it the current one of its name; an
 * entry that was current becomes the previous one. Needs root. The digest (free with g_free), or NULL. The same
 * recipe, packages and entry give the same digest. */
char *qv_images_build(const QvImagesBuild *build, GError **error);

/* Writes an image to FD as a docker-archive, which `docker load` and podman read: manifest.json, the config and the
 * layer, without a tag, all times zero. The engine's id of it is DIGEST, which it computes
 * itself and checks the layer against. DIGEST NULL: the current one of this machine's platform. NOT_FOUND where the lock or
 * the store has no such image; AUTH where the config is not what the digest says. */
gboolean qv_images_export(const char *lock_file, const char *name, const char *digest, int fd, GError **error);

typedef enum {
  QV_IMAGES_LOAD_PACKING, /* the archive is written to a file without a name */
  QV_IMAGES_LOAD_SENDING, /* DONE of TOTAL bytes of it are the engine's */
  QV_IMAGES_LOAD_UNPACKING, /* DONE of TOTAL bytes of the layer, as the engine counts them; 0 of 0: it does not say */
} QvImagesLoadStage;

typedef struct {
  const char *lock_file;
  const char *name;
  const char *digest; /* NULL: the current one of this machine's platform */
  const char *socket; /* of the engine; NULL: where one usually is */
  void (*progress)(QvImagesLoadStage stage, gint64 done, gint64 total, gpointer data); /* may be NULL */
  gpointer progress_data;
} QvImagesLoad;

/* Gives an image to the container engine, which computes its id, and requires that it then has DIGEST for this machine. An
 * image that the engine has is left alone. Blocks for minutes with large images; a standstill of ten is
 * QV_ERROR_TIMEOUT. *LOADED: FALSE, it was there. NOT_FOUND and AUTH as qv_images_export; GONE, or AUTH with the group's
 * name, where the socket is of no use; PEER with the engine's words; AUTH where it has another image under the digest, or none. */
gboolean qv_images_load(const QvImagesLoad *load, gboolean *loaded, GError **error);

/* Has the engine at SOCKET (NULL: where one usually is) the image DIGEST, for this machine? Errors as qv_images_load. */
gboolean qv_images_is_loaded(const char *socket, const char *digest, gboolean *there, GError **error);

/* The environment of the image whose file system is ROOTFS_FILE, from the OCI config beside it, which must have
 * that DIGEST: AUTH where it differs. An image without a config has a PATH only: NULL without an
 * error. */
gboolean qv_images_env(const char *rootfs_file, const char *digest, char ***env, GError **error);

/* Is the file at PATH the one whose SHA-256 is HEX? AUTH where it differs.
 * The answer for a file that did not change since (device, inode, size, mtime,
 * ctime) is remembered, so that it may be asked at each sandbox creation: by the one who holds the memory,
 * and not for longer than its process. */
typedef struct QvImageMemory QvImageMemory;
QvImageMemory *qv_image_memory_new(void);
void qv_image_memory_free(QvImageMemory *memory);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvImageMemory, qv_image_memory_free)
gboolean qv_image_memory_check(QvImageMemory *memory, const char *path, const char *hex, GError **error);
