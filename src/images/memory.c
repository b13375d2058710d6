/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the memory of files that were hashed. The key is what changes when
 * somebody writes: ctime cannot be set back without another clock. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/fd.h"
#include "images/images.h"
#include "images/store.h"

struct QvImageMemory {
  GHashTable *hex_by_identity; /* char * to char * */
};

/* Files that come and go must not fill the memory; over this it starts afresh. */
static const guint identities_max = 1024;

QvImageMemory *qv_image_memory_new(void)
{
  QvImageMemory *memory = g_new0(QvImageMemory, 1);
  memory->hex_by_identity = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
  return memory;
}

void qv_image_memory_free(QvImageMemory *memory)
{
  if (memory == NULL)
    return;
  g_hash_table_unref(memory->hex_by_identity);
  g_free(memory);
}

static char *identity_of(int fd)
{
  struct stat s;
  if (fstat(fd, &s) < 0 || !S_ISREG(s.st_mode))
    return NULL;
  return g_strdup_printf("%" G_GUINT64_FORMAT ":%" G_GUINT64_FORMAT ":%" G_GINT64_FORMAT ":%" G_GINT64_FORMAT
                         ".%09ld:%" G_GINT64_FORMAT ".%09ld",
                         (guint64)s.st_dev, (guint64)s.st_ino, (gint64)s.st_size, (gint64)s.st_mtim.tv_sec,
                         s.st_mtim.tv_nsec, (gint64)s.st_ctim.tv_sec, s.st_ctim.tv_nsec);
}

/* The hash of an open file, from memory where it did not change. */
static const char *remembered_hash(QvImageMemory *memory, int fd, const char *path, GError **error)
{
  g_autofree char *before = identity_of(fd);
  if (before == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "%s is not a regular file", path);
    return NULL;
  }
  const char *known = g_hash_table_lookup(memory->hex_by_identity, before);
  if (known != NULL)
    return known;
  g_autofree char *hex = qv_store_hash_fd(fd, path, error);
  if (hex == NULL)
    return NULL;
  g_autofree char *after = identity_of(fd);
  if (g_strcmp0(before, after) != 0) {
    g_set_error(error, QV_ERROR, QV_ERROR_AUTH, "%s changed while it was read", path);
    return NULL;
  }
  if (g_hash_table_size(memory->hex_by_identity) >= identities_max)
    g_hash_table_remove_all(memory->hex_by_identity);
  const char *answer = hex;
  g_hash_table_insert(memory->hex_by_identity, g_steal_pointer(&before), g_steal_pointer(&hex));
  return answer;
}

gboolean qv_image_memory_check(QvImageMemory *memory, const char *path, const char *hex, GError **error)
{
  QV_AUTOFD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    int code = errno == ENOENT ? QV_ERROR_NOT_FOUND : QV_ERROR_SYSTEM;
    g_set_error(error, QV_ERROR, code, "%s: %s", path, g_strerror(errno));
    return FALSE;
  }
  const char *found = remembered_hash(memory, fd, path, error);
  if (found == NULL)
    return FALSE;
  if (strcmp(found, hex) == 0)
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_AUTH, "%s is not what the images lock says; build the image again", path);
  return FALSE;
}
