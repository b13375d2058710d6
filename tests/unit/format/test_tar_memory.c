/* SPDX-License-Identifier: Apache-2.0 */
/* The reader without memory for its table of names: it says so, and no file slips in. The linker puts __wrap_calloc in the
 * place of calloc. */
#include <glib.h>
#include <string.h>

#include "format/tar.h"

void *__wrap_calloc(size_t n, size_t size);
void *__real_calloc(size_t n, size_t size);

static gint allowed = G_MAXINT;

void *__wrap_calloc(size_t n, size_t size)
{
  return allowed-- > 0 ? __real_calloc(n, size) : NULL;
}

/* MEMORY after FILES files of ALLOWED tables. */
static void check(gint tables, guint files_most)
{
  static const QvTarCaps wide = {.entries_max = 100000, .total_bytes_max = 1 << 30, .file_bytes_max = 1 << 16};
  QvTarReader reader;
  guint files = 0;
  qv_tar_reader_init(&reader, &wide);
  QvTarEvent event = QV_TAR_MORE;
  allowed = tables;
  while (event != QV_TAR_BAD && files <= files_most) {
    char path[32];
    guint8 header[QV_TAR_HEADER_BYTES_MAX];
    gsize n;
    g_snprintf(path, sizeof path, "d%u/f", files);
    g_assert_cmpint(qv_tar_header(path, 0, FALSE, header, &n), ==, QV_TAR_OK);
    const guint8 *bytes = header;
    while ((event = qv_tar_reader_step(&reader, &bytes, &n)) != QV_TAR_MORE && event != QV_TAR_BAD)
      files += event == QV_TAR_ENTRY;
  }
  allowed = G_MAXINT;
  g_assert_cmpint(event, ==, QV_TAR_BAD);
  g_assert_cmpint(qv_tar_reader_finish(&reader), ==, QV_TAR_MEMORY);
  g_assert_cmpuint(files, <=, files_most);
  qv_tar_reader_clear(&reader);
}

static void test_memory(void)
{
  check(0, 0);
  check(1, 256);
  check(3, 1024);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/tar/memory", test_memory);
  return g_test_run();
}
