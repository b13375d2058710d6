/* SPDX-License-Identifier: Apache-2.0 */
/* Owns images.lock.json: parser, finder, and the rule that a name has at most
 * a current and a previous entry a platform. Source: section 9. */
#include "protocol/images_lock.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hex.h"
#include "base/limits.h"
#include "format/error.h"
#include "protocol/fields.h"

enum { ENTRIES_A_NAME_MAX = 2 };

gboolean qv_image_digest_valid(const char *digest)
{
  return strlen(digest) == 71 && memcmp(digest, "sha256:", 7) == 0 && qv_hex_valid(digest + 7, 64);
}

static gboolean kind_valid(const char *kind)
{
  return strcmp(kind, "repository") == 0 || strcmp(kind, "image-id") == 0;
}

static gboolean platform_valid(const char *platform)
{
  return strcmp(platform, "linux/amd64") == 0 || strcmp(platform, "linux/arm64") == 0;
}

void qv_image_clear(QvImage *image)
{
  g_free(image->name);
  g_free(image->digest);
  g_free(image->platform);
  g_free(image->rootfs_file);
  g_free(image->rootfs_sha256);
  g_free(image->vm_rootfs);
  g_free(image->vm_rootfs_sha256);
  g_free(image->vm_kernel);
  g_free(image->vm_kernel_sha256);
  memset(image, 0, sizeof *image);
}

QvImagesLock *qv_images_lock_new(void)
{
  return g_new0(QvImagesLock, 1);
}

void qv_images_lock_free(QvImagesLock *lock)
{
  if (lock == NULL)
    return;
  for (gsize i = 0; i < lock->n; i++)
    qv_image_clear(&lock->images[i]);
  g_free(lock->images);
  g_free(lock);
}

static gboolean parse_rootfs(const json_t *json, const char *path, QvImage *image, GError **error)
{
  static const QvJsonMember table[] = { { "file", QV_JSON_STRING }, { "sha256", QV_JSON_STRING } };
  g_autofree char *at = g_strconcat(path, ".rootfs", NULL);
  return qv_fields_shape(json, at, table, G_N_ELEMENTS(table), error) &&
         (image->rootfs_file = qv_field_text(json, at, "file", qv_relative_path_valid, error)) != NULL &&
         (image->rootfs_sha256 = qv_field_text(json, at, "sha256", qv_sha256_hex_valid, error)) != NULL;
}

static gboolean parse_vm(const json_t *json, const char *path, QvImage *image, GError **error)
{
  static const QvJsonMember table[] = {
    { "rootfs", QV_JSON_STRING },
    { "rootfsSha256", QV_JSON_STRING },
    { "kernel", QV_JSON_STRING },
    { "kernelSha256", QV_JSON_STRING },
  };
  g_autofree char *at = g_strconcat(path, ".vm", NULL);
  return qv_fields_shape(json, at, table, G_N_ELEMENTS(table), error) &&
         (image->vm_rootfs = qv_field_text(json, at, "rootfs", qv_relative_path_valid, error)) != NULL &&
         (image->vm_rootfs_sha256 = qv_field_text(json, at, "rootfsSha256", qv_sha256_hex_valid, error)) != NULL &&
         (image->vm_kernel = qv_field_text(json, at, "kernel", qv_relative_path_valid, error)) != NULL &&
         (image->vm_kernel_sha256 = qv_field_text(json, at, "kernelSha256", qv_sha256_hex_valid, error)) != NULL;
}

static gboolean parse_image(const json_t *json, const char *path, QvImage *image, GError **error)
{
  static const QvJsonMember table[] = {
    { "name", QV_JSON_STRING },
    { "digest", QV_JSON_STRING },
    { "kind", QV_JSON_STRING },
    { "platform", QV_JSON_STRING },
    { "rootfs", QV_JSON_OBJECT | QV_JSON_OPTIONAL },
    { "vm", QV_JSON_OBJECT | QV_JSON_OPTIONAL },
  };
  const json_t *rootfs = json_object_get(json, "rootfs");
  const json_t *vm = json_object_get(json, "vm");
  if (!qv_fields_shape(json, path, table, G_N_ELEMENTS(table), error) ||
      (image->name = qv_field_text(json, path, "name", qv_identifier_valid, error)) == NULL ||
      (image->digest = qv_field_text(json, path, "digest", qv_image_digest_valid, error)) == NULL ||
      (image->platform = qv_field_text(json, path, "platform", platform_valid, error)) == NULL)
    return FALSE;
  g_autofree char *kind = qv_field_text(json, path, "kind", kind_valid, error);
  if (kind == NULL)
    return FALSE;
  image->is_repository = strcmp(kind, "repository") == 0;
  return (rootfs == NULL || parse_rootfs(rootfs, path, image, error)) &&
         (vm == NULL || parse_vm(vm, path, image, error));
}

static gboolean same_place(const QvImage *a, const QvImage *b)
{
  return strcmp(a->name, b->name) == 0 && strcmp(a->platform, b->platform) == 0;
}

/* The entry at the end, against those before it. */
static gboolean last_fits(const QvImagesLock *lock, const char *path, GError **error)
{
  const QvImage *last = &lock->images[lock->n - 1];
  guint n = 1;
  for (gsize i = 0; i + 1 < lock->n; i++) {
    if (!same_place(&lock->images[i], last))
      continue;
    if (strcmp(lock->images[i].digest, last->digest) == 0)
      return qv_fields_fail(error, path, "is the same image as images[%zu]", i);
    if (++n > ENTRIES_A_NAME_MAX)
      return qv_fields_fail(error, path, "is the third of its name and platform: one current, one previous");
  }
  return TRUE;
}

static gboolean parse_lock(const json_t *json, QvImagesLock *lock, GError **error)
{
  static const QvJsonMember table[] = { { "v", QV_JSON_INTEGER }, { "images", QV_JSON_ARRAY } };
  gint64 version = 0;
  if (!qv_fields_shape(json, "", table, G_N_ELEMENTS(table), error) ||
      !qv_field_integer(json, "", "v", 1, 1, &version, error))
    return FALSE;
  const json_t *images = json_object_get(json, "images");
  gsize n = json_array_size(images);
  if (n > QV_IMAGES_MAX)
    return qv_fields_fail(error, "images", "has %zu entries, not up to %d", n, QV_IMAGES_MAX);
  lock->images = g_new0(QvImage, n + 1);
  while (lock->n < n) {
    g_autofree char *path = g_strdup_printf("images[%zu]", lock->n);
    gsize i = lock->n++;
    if (!parse_image(json_array_get(images, i), path, &lock->images[i], error) || !last_fits(lock, path, error))
      return FALSE;
  }
  return TRUE;
}

QvImagesLock *qv_images_lock_parse(const char *text, gsize n, GError **error)
{
  g_autoptr(QvImagesLock) lock = qv_images_lock_new();
  json_t *json = qv_json_load(text, n, QV_IMAGES_LOCK_BYTES_MAX, QV_JSON_SIGNED, "images lock", error);
  if (json == NULL)
    return NULL;
  gboolean good = parse_lock(json, lock, error);
  json_decref(json);
  return good ? g_steal_pointer(&lock) : NULL;
}

static json_t *build_image(const QvImage *image)
{
  json_t *json = json_object();
  json_object_set_new(json, "name", qv_text_or_null(image->name));
  json_object_set_new(json, "digest", qv_text_or_null(image->digest));
  json_object_set_new(json, "kind", json_string(image->is_repository ? "repository" : "image-id"));
  json_object_set_new(json, "platform", qv_text_or_null(image->platform));
  if (image->rootfs_file != NULL) {
    json_t *rootfs = json_object();
    json_object_set_new(rootfs, "file", qv_text_or_null(image->rootfs_file));
    json_object_set_new(rootfs, "sha256", qv_text_or_null(image->rootfs_sha256));
    json_object_set_new(json, "rootfs", rootfs);
  }
  if (image->vm_rootfs != NULL) {
    json_t *vm = json_object();
    json_object_set_new(vm, "rootfs", qv_text_or_null(image->vm_rootfs));
    json_object_set_new(vm, "rootfsSha256", qv_text_or_null(image->vm_rootfs_sha256));
    json_object_set_new(vm, "kernel", qv_text_or_null(image->vm_kernel));
    json_object_set_new(vm, "kernelSha256", qv_text_or_null(image->vm_kernel_sha256));
    json_object_set_new(json, "vm", vm);
  }
  return json;
}

char *qv_images_lock_format(const QvImagesLock *lock, gsize *n, GError **error)
{
  json_t *json = json_object();
  json_t *images = json_array();
  for (gsize i = 0; i < lock->n; i++)
    json_array_append_new(images, build_image(&lock->images[i]));
  json_object_set_new(json, "v", json_integer(1));
  json_object_set_new(json, "images", images);
  char *dumped = json_dumps(json, JSON_INDENT(2));
  json_decref(json);
  g_autofree char *text = g_strconcat(dumped, "\n", NULL);
  free(dumped);
  g_autoptr(QvImagesLock) again = qv_images_lock_parse(text, strlen(text), error);
  if (again == NULL)
    return NULL;
  *n = strlen(text);
  return g_steal_pointer(&text);
}

static void copy_image(const QvImage *from, QvImage *to)
{
  *to = (QvImage){
    .name = g_strdup(from->name),
    .digest = g_strdup(from->digest),
    .is_repository = from->is_repository,
    .platform = g_strdup(from->platform),
    .rootfs_file = g_strdup(from->rootfs_file),
    .rootfs_sha256 = g_strdup(from->rootfs_sha256),
    .vm_rootfs = g_strdup(from->vm_rootfs),
    .vm_rootfs_sha256 = g_strdup(from->vm_rootfs_sha256),
    .vm_kernel = g_strdup(from->vm_kernel),
    .vm_kernel_sha256 = g_strdup(from->vm_kernel_sha256),
  };
}

void qv_images_lock_put(QvImagesLock *lock, const QvImage *image)
{
  QvImage *images = g_new0(QvImage, lock->n + 2);
  gsize n = 0;
  gsize kept = 1;
  copy_image(image, &images[n++]);
  for (gsize i = 0; i < lock->n; i++) {
    QvImage *old = &lock->images[i];
    gboolean same = same_place(old, &images[0]);
    if (same && (strcmp(old->digest, images[0].digest) == 0 || kept == ENTRIES_A_NAME_MAX)) {
      qv_image_clear(old);
      continue;
    }
    kept += same;
    images[n++] = *old;
  }
  g_free(lock->images);
  lock->images = images;
  lock->n = n;
}

gboolean qv_images_lock_remove(QvImagesLock *lock, const char *name, const char *digest, const char *platform)
{
  const QvImage *found = qv_images_lock_find(lock, name, digest, platform);
  if (found == NULL)
    return FALSE;
  gsize at = (gsize)(found - lock->images);
  qv_image_clear(&lock->images[at]);
  memmove(&lock->images[at], &lock->images[at + 1], (lock->n - at - 1) * sizeof *lock->images);
  lock->n--;
  return TRUE;
}

const QvImage *qv_images_lock_find(const QvImagesLock *lock, const char *name, const char *digest,
                                   const char *platform)
{
  for (gsize i = 0; lock != NULL && i < lock->n; i++) {
    const QvImage *image = &lock->images[i];
    if (strcmp(image->name, name) == 0 && strcmp(image->platform, platform) == 0 &&
        (digest == NULL || strcmp(image->digest, digest) == 0))
      return image;
  }
  return NULL;
}
