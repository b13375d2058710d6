/* SPDX-License-Identifier: Apache-2.0 */
/* pack FOLDER: packs, compresses and seals the snapshot of a folder, all of it, into nothing. Prints wall and CPU
 * milliseconds, bytes of tar and of gzip, the most memory.
 * pack --make FOLDER THOUSANDS: fills a folder with that many thousand small files, a thousand a folder. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "client/snapshot.h"
#include "protocol/blob.h"

static void seal(const QvSnapshot *snapshot)
{
  guint8 raw[32], salt[QV_SALT_BYTES], iv[QV_CHUNK_IV_BYTES];
  qv_random_bytes(raw, sizeof raw);
  qv_random_bytes(salt, sizeof salt);
  g_autoptr(QvKey) key = qv_key_new(raw, sizeof raw);
  const char *id = "01234567-89ab-cdef-0123-456789abcdef.base";
  g_autoptr(QvSecret) secret = qv_blob_key_derive(key, salt, "bench", id);
  g_autoptr(QvBlobWriter) writer = qv_blob_writer_new(secret, salt, "bench", id, (gint64)snapshot->gzip_bytes);
  g_autofree guint8 *plain = g_malloc(QV_CHUNK_BYTES);
  g_autofree guint8 *sealed = g_malloc(QV_CHUNK_BYTES + 28);
  while (qv_blob_writer_next(writer) >= 0) {
    gsize want = qv_blob_writer_want(writer), have = 0;
    while (have < want) {
      ssize_t n = read(snapshot->fd, plain + have, want - have);
      g_assert_cmpint(n, >, 0);
      have += (gsize)n;
    }
    qv_random_bytes(iv, sizeof iv);
    qv_blob_writer_step(writer, iv, plain, sealed);
  }
}

/* ru_maxrss would begin with that of whoever started this program. */
static long most_kib(void)
{
  g_autofree char *status = NULL;
  const char *at = NULL;
  if (g_file_get_contents("/proc/self/status", &status, NULL, NULL))
    at = strstr(status, "VmHWM:");
  return at == NULL ? 0 : atol(at + strlen("VmHWM:"));
}

static void make_files(const char *folder, long thousands)
{
  char name[32], text[140];
  for (gsize i = 0; i < sizeof text; i++)
    text[i] = "int x;\n"[i % 7];
  for (long i = 0; i < thousands * 1000; i++) {
    snprintf(name, sizeof name, "d%04ld", i / 1000);
    if (i % 1000 == 0 && mkdir(name, 0755) != 0)
      g_error("%s/%s cannot be made", folder, name);
    snprintf(name, sizeof name, "d%04ld/f%03ld", i / 1000, i % 1000);
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, text, sizeof text) != sizeof text)
      g_error("%s/%s cannot be written", folder, name);
    close(fd);
  }
}

int main(int argc, char **argv)
{
  if (argc == 4 && strcmp(argv[1], "--make") == 0) {
    if (chdir(argv[2]) != 0)
      g_error("%s cannot be entered", argv[2]);
    make_files(argv[2], atol(argv[3]));
    return 0;
  }
  if (argc != 2)
    return 2;
  g_autoptr(GError) error = NULL;
  QvSnapshotOptions options = {.dir = argv[1], .all = TRUE, .max_entries = 4000000,
                               .max_tar_bytes = (guint64)64 << 30};
  gint64 start = qv_clock_mono_us();
  g_autoptr(QvSnapshot) snapshot = qv_snapshot_build(&options, NULL, NULL, NULL, &error);
  if (snapshot == NULL)
    g_error("%s", error->message);
  seal(snapshot);
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  printf("wall_ms %.1f\n", (double)(qv_clock_mono_us() - start) / 1e3);
  printf("cpu_ms %.1f\n", (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
                            (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e3);
  printf("tar_bytes %" G_GUINT64_FORMAT "\ngzip_bytes %" G_GUINT64_FORMAT "\nfiles %" G_GUINT64_FORMAT "\n",
         snapshot->tar_bytes, snapshot->gzip_bytes, snapshot->files_n);
  printf("max_rss_kib %ld\n", most_kib());
  return 0;
}
