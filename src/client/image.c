/* SPDX-License-Identifier: Apache-2.0 */
#include "client/image.h"

#include "base/error.h"
#include "base/fd.h"
#include "protocol/images_lock.h"

enum { IMAGES_LOCK_BYTES_MAX = 1024 * 1024 };

#if defined(__aarch64__)
static const char platform[] = "linux/arm64";
#else
static const char platform[] = "linux/amd64";
#endif

char *qv_image_current_digest(const QvConfig *config, const char *name, GError **error)
{
  g_autofree char *path = qv_config_images_file(config);
  g_autoptr(GError) cause = NULL;
  gsize n = 0;
  g_autofree char *text = qv_fd_read_file(path, IMAGES_LOCK_BYTES_MAX, &n, &cause);
  g_autoptr(QvImagesLock) lock = text != NULL ? qv_images_lock_parse(text, n, &cause) : NULL;
  if (g_error_matches(cause, QV_ERROR, QV_ERROR_NOT_FOUND)) {
    g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND, "there is no image `%s` (nor %s): `quavon images build %s` makes it",
                name, path, name);
    return NULL;
  }
  if (lock == NULL) {
    g_propagate_prefixed_error(error, g_steal_pointer(&cause), "images lock %s: ", path);
    return NULL;
  }
  const QvImage *image = qv_images_lock_find(lock, name, NULL, platform);
  if (image == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND, "%s has no image `%s` for %s: `quavon images build %s` makes it",
                path, name, platform, name);
    return NULL;
  }
  return g_strdup(image->digest);
}
