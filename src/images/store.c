/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the store's folder: the lock, its flock, list, verify, prune. Readers
 * need no flock: the lock and the files it names are replaced by rename, and
 * files go only when no lock names them. */
#include "images/store.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/hex.h"
#include "base/limits.h"
#include "base/sha256.h"
#include "images/images.h"

static const gsize hash_buffer_bytes = 1024 * 1024;

char *qv_store_path(const char *lock_file, const char *file)
{
  g_autofree char *folder = g_path_get_dirname(lock_file);
  g_autofree char *path = g_build_filename(folder, file, NULL);
  return g_canonicalize_filename(path, NULL);
}

QvImagesLock *qv_store_read_lock(const char *lock_file, GError **error)
{
  gsize n;
  g_autofree char *text = qv_fd_read_file(lock_file, QV_IMAGES_LOCK_BYTES_MAX, &n, error);
  if (text == NULL)
    return NULL;
  QvImagesLock *lock = qv_images_lock_parse(text, n, error);
  if (lock == NULL)
    g_prefix_error(error, "%s: ", lock_file);
  return lock;
}

const char *qv_store_architecture(void)
{
  static struct utsname machine;
  uname(&machine);
  return strcmp(machine.machine, "aarch64") == 0 ? "arm64" : "amd64";
}

char *qv_store_find(const char *lock_file, const char *name, const char *digest, GError **error)
{
  g_autofree char *platform = g_strconcat("linux/", qv_store_architecture(), NULL);
  g_autoptr(QvImagesLock) lock = qv_store_read_lock(lock_file, error);
  if (lock == NULL)
    return NULL;
  const QvImage *image = qv_images_lock_find(lock, name, digest, platform);
  if (image != NULL && !image->is_repository)
    return g_strdup(image->digest);
  g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND, "%s has no image %s%s%s for %s that was built here", lock_file, name,
              digest != NULL ? "@" : "", digest != NULL ? digest : "", platform);
  return NULL;
}

gboolean qv_store_write_lock(const char *lock_file, const QvImagesLock *lock, GError **error)
{
  gsize n;
  g_autofree char *text = qv_images_lock_format(lock, &n, error);
  return text != NULL && qv_fd_write_file(lock_file, text, n, 0644, error);
}

int qv_store_hold(const char *lock_file, GError **error)
{
  g_autofree char *folder = g_path_get_dirname(lock_file);
  g_autofree char *path = g_strconcat(lock_file, ".lock", NULL);
  if (g_mkdir_with_parents(folder, 0755) < 0) {
    qv_error_set_errno(error, errno, "making %s", folder);
    return -1;
  }
  QV_AUTOFD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  int failed = fd < 0 ? errno : 0;
  while (failed == 0 && flock(fd, LOCK_EX) < 0)
    failed = errno == EINTR ? 0 : errno;
  if (failed != 0) {
    qv_error_set_errno(error, failed, "holding %s", path);
    return -1;
  }
  return qv_io_steal(&fd);
}

char *qv_store_hash_fd(int fd, const char *name, GError **error)
{
  g_autofree guint8 *buffer = g_malloc(hash_buffer_bytes);
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  guint8 digest[QV_SHA256_BYTES];
  gboolean good = context != NULL && EVP_DigestInit_ex(context, EVP_sha256(), NULL);
  ssize_t got = 1;
  while (good && (got = qv_io_read_full(fd, buffer, hash_buffer_bytes)) > 0)
    good = EVP_DigestUpdate(context, buffer, (gsize)got);
  good = good && got == 0 && EVP_DigestFinal_ex(context, digest, NULL);
  EVP_MD_CTX_free(context);
  if (got < 0) {
    qv_error_set_errno(error, errno, "reading %s", name);
    return NULL;
  }
  if (!good) {
    g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "%s: libcrypto has no SHA-256", name);
    return NULL;
  }
  char *hex = g_malloc(2 * sizeof digest + 1);
  qv_hex_encode(digest, sizeof digest, hex);
  return hex;
}

char *qv_store_hash_file(const char *path, GError **error)
{
  QV_AUTOFD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat info;
  if (fd < 0 || fstat(fd, &info) < 0) {
    int code = errno == ENOENT ? QV_ERROR_NOT_FOUND : QV_ERROR_SYSTEM;
    g_set_error(error, QV_ERROR, code, "%s: %s", path, g_strerror(errno));
    return NULL;
  }
  if (!S_ISREG(info.st_mode)) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "%s is not a regular file", path);
    return NULL;
  }
  return qv_store_hash_fd(fd, path, error);
}

void qv_stored_image_free(QvStoredImage *image)
{
  if (image == NULL)
    return;
  g_free(image->name);
  g_free(image->digest);
  g_free(image->platform);
  g_free(image->rootfs_path);
  g_free(image->rootfs_sha256);
  g_free(image);
}

static QvStoredImage *describe(const char *lock_file, const QvImagesLock *lock, gsize i)
{
  const QvImage *entry = &lock->images[i];
  QvStoredImage *image = g_new0(QvStoredImage, 1);
  image->name = g_strdup(entry->name);
  image->digest = g_strdup(entry->digest);
  image->platform = g_strdup(entry->platform);
  image->rootfs_sha256 = g_strdup(entry->rootfs_sha256);
  g_autofree char *platform = g_strconcat("linux/", qv_store_architecture(), NULL);
  image->fits = strcmp(entry->platform, platform) == 0;
  image->is_repository = entry->is_repository;
  image->size_bytes = -1;
  image->current = qv_images_lock_find(lock, entry->name, NULL, entry->platform) == entry;
  if (entry->rootfs_file != NULL) {
    struct stat info;
    image->rootfs_path = qv_store_path(lock_file, entry->rootfs_file);
    if (stat(image->rootfs_path, &info) == 0)
      image->size_bytes = info.st_size;
  }
  return image;
}

GPtrArray *qv_images_list(const char *lock_file, GError **error)
{
  g_autoptr(QvImagesLock) lock = qv_store_read_lock(lock_file, error);
  if (lock == NULL)
    return NULL;
  GPtrArray *images = g_ptr_array_new_with_free_func((GDestroyNotify)qv_stored_image_free);
  for (gsize i = 0; i < lock->n; i++)
    g_ptr_array_add(images, describe(lock_file, lock, i));
  return images;
}

static gboolean verify_one(const QvStoredImage *image, GError **error)
{
  if (image->rootfs_path == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND, "image %s has no root file system", image->name);
    return FALSE;
  }
  g_autofree char *hex = qv_store_hash_file(image->rootfs_path, error);
  if (hex == NULL) {
    g_prefix_error(error, "image %s: ", image->name);
    return FALSE;
  }
  if (strcmp(hex, image->rootfs_sha256) == 0)
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_AUTH, "image %s: %s is not what the images lock says; build the image again",
              image->name, image->rootfs_path);
  return FALSE;
}

gboolean qv_images_verify(const char *lock_file, const char *name, guint *checked_n, GError **error)
{
  g_autoptr(GPtrArray) images = qv_images_list(lock_file, error);
  if (images == NULL)
    return FALSE;
  guint held = 0;
  gboolean good = TRUE;
  for (guint i = 0; good && i < images->len; i++) {
    const QvStoredImage *image = images->pdata[i];
    if (name != NULL && strcmp(name, image->name) != 0)
      continue;
    good = verify_one(image, error);
    held += good;
  }
  if (checked_n != NULL)
    *checked_n = held;
  if (good && held == 0) {
    g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND, "%s names no image%s%s", lock_file, name != NULL ? " " : "",
                name != NULL ? name : "");
    return FALSE;
  }
  return good;
}

static void drop_previous(QvImagesLock *lock)
{
  for (gsize i = lock->n; i > 0; i--) {
    const QvImage *entry = &lock->images[i - 1];
    if (qv_images_lock_find(lock, entry->name, NULL, entry->platform) == entry)
      continue;
    g_autofree char *name = g_strdup(entry->name);
    g_autofree char *digest = g_strdup(entry->digest);
    g_autofree char *platform = g_strdup(entry->platform);
    qv_images_lock_remove(lock, name, digest, platform);
  }
}

/* Is FILE, of the lock's folder, one that the lock keeps, or none of ours? */
static gboolean is_kept(const QvImagesLock *lock, const char *file)
{
  if (g_str_has_prefix(file, QV_STORE_BUILD_PREFIX))
    return FALSE;
  const char *suffix = strchr(file, '.');
  gboolean ours = suffix == file + 2 * QV_SHA256_BYTES && qv_hex_valid(file, 2 * QV_SHA256_BYTES) &&
                  (strcmp(suffix, QV_STORE_ROOTFS_SUFFIX) == 0 || strcmp(suffix, QV_STORE_CONFIG_SUFFIX) == 0 ||
                   strcmp(suffix, QV_STORE_LAYER_SUFFIX) == 0);
  for (gsize i = 0; ours && i < lock->n; i++) {
    const QvImage *entry = &lock->images[i];
    if (g_strcmp0(entry->rootfs_file, file) == 0 ||
        strncmp(entry->digest + strlen("sha256:"), file, 2 * QV_SHA256_BYTES) == 0)
      return TRUE;
  }
  return !ours;
}

gboolean qv_images_prune(const char *lock_file, gboolean previous_too, GPtrArray **removed, GError **error)
{
  QV_AUTOFD int held = qv_store_hold(lock_file, error);
  g_autoptr(QvImagesLock) lock = held >= 0 ? qv_store_read_lock(lock_file, error) : NULL;
  if (lock == NULL)
    return FALSE;
  if (previous_too) {
    drop_previous(lock);
    if (!qv_store_write_lock(lock_file, lock, error))
      return FALSE;
  }
  g_autofree char *folder = g_path_get_dirname(lock_file);
  g_autoptr(GDir) files = g_dir_open(folder, 0, NULL);
  if (files == NULL)
    return qv_error_set_errno(error, errno, "listing %s", folder);
  g_autoptr(GPtrArray) gone = g_ptr_array_new_with_free_func(g_free);
  const char *file;
  while ((file = g_dir_read_name(files)) != NULL) {
    if (is_kept(lock, file))
      continue;
    g_autofree char *path = qv_store_path(lock_file, file);
    if (!qv_fd_remove_tree(path, error))
      return FALSE;
    g_ptr_array_add(gone, g_steal_pointer(&path));
  }
  *removed = g_steal_pointer(&gone);
  return TRUE;
}
