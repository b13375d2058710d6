/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacking, on a real folder: the input is the tar of an overlay, put into a gzip here so that the fuzzer gets
 * to the paths. The folder has files, a folder and a link that leads out; nothing may ever be written behind
 * it. Whole and in pieces the verdict is the same. */
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "entry/unpack.h"
#include "format/gzip.h"
#include "fuzz.h"

static void append(void *user, const guint8 *bytes, gsize n)
{
  g_byte_array_append(user, bytes, (guint)n);
}

static void make_file(int fd, const char *path)
{
  int file = openat(fd, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  QV_FUZZ_CHECK(file >= 0);
  close(file);
}

/* The verdict; afterwards the outside is as empty as before. */
static QvEntryUnpackVerdict unpack(const GByteArray *blob, gsize portion)
{
  g_autofree char *folder = g_dir_make_tmp("quavon-fuzz-XXXXXX", NULL);
  struct stat before, after;
  QV_FUZZ_CHECK(folder != NULL);
  QV_AUTOFD int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  QV_FUZZ_CHECK(mkdirat(fd, "outside", 0755) == 0 && mkdirat(fd, "root", 0755) == 0 &&
                mkdirat(fd, "root/dir", 0755) == 0 && symlinkat("../outside", fd, "root/link") == 0);
  make_file(fd, "root/a");
  make_file(fd, "root/dir/b");
  QV_FUZZ_CHECK(fstatat(fd, "outside", &before, 0) == 0);
  QV_AUTOFD int root = openat(fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  QvEntryUnpack *state = qv_entry_unpack_new(root, 1000, true);
  for (gsize at = 0; at < blob->len; at += portion)
    qv_entry_unpack_feed(state, (const char *)blob->data + at, MIN(portion, blob->len - at));
  QvEntryUnpackVerdict verdict = qv_entry_unpack_end(state);
  qv_entry_unpack_free(state);
  QV_FUZZ_CHECK(fstatat(fd, "outside", &after, 0) == 0);
  QV_FUZZ_CHECK(before.st_nlink == after.st_nlink && before.st_mtim.tv_sec == after.st_mtim.tv_sec &&
                before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
  QV_FUZZ_CHECK(qv_fd_remove_tree(folder, NULL));
  return verdict;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size > 256 * 1024)
    return 0;
  GByteArray *blob = g_byte_array_new();
  QvGzipWriter *writer = qv_gzip_writer_new(append, blob);
  qv_gzip_writer_add(writer, data, size);
  qv_gzip_writer_finish(writer);
  qv_gzip_writer_free(writer);
  QvEntryUnpackVerdict whole = unpack(blob, G_MAXSIZE / 2);
  if (blob->len < 2048)
    QV_FUZZ_CHECK(unpack(blob, 1 + size % 7) == whole);
  g_byte_array_unref(blob);
  return 0;
}
