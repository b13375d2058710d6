/* SPDX-License-Identifier: Apache-2.0 */
/* The images lock: what is accepted is written and read back equal, and names no file outside of its folder. */
#include <string.h>

#include "base/limits.h"
#include "fuzz.h"
#include "protocol/images_lock.h"

static void check_file(const char *file)
{
  if (file)
    QV_FUZZ_CHECK(*file && *file != '/' && !g_str_has_prefix(file, "../") && !strstr(file, "/../") && !g_str_has_suffix(file, "/.."));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvImagesLock) lock = qv_images_lock_parse((const char *)data, size, &error);
  QV_FUZZ_CHECK((lock == NULL) == (error != NULL));
  if (!lock)
    return 0;
  QV_FUZZ_CHECK(lock->n <= QV_IMAGES_MAX);
  for (gsize i = 0; i < lock->n; i++) {
    check_file(lock->images[i].rootfs_file);
    check_file(lock->images[i].vm_rootfs);
    check_file(lock->images[i].vm_kernel);
  }
  gsize n, again_n;
  g_autofree char *text = qv_images_lock_format(lock, &n, NULL);
  QV_FUZZ_CHECK(text);
  g_autoptr(QvImagesLock) again = qv_images_lock_parse(text, n, NULL);
  QV_FUZZ_CHECK(again);
  g_autofree char *same = qv_images_lock_format(again, &again_n, NULL);
  QV_FUZZ_CHECK(same && again_n == n && memcmp(text, same, n) == 0);
  return 0;
}
