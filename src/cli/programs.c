/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/programs.h"

#include <string.h>

#include "base/error.h"

/* The folder of this program; NULL where the kernel does not say. */
static char *own_dir(void)
{
  g_autofree char *exe = g_file_read_link("/proc/self/exe", NULL);
  return exe != NULL ? g_path_get_dirname(exe) : NULL;
}

/* Is this the program that the build made, in the build's folder? */
static gboolean from_build(const char *dir)
{
  return dir != NULL && strcmp(dir, QV_BUILD_ROOT "/src/cli") == 0;
}

char *qv_program_find(const char *room, const char *name, GError **error)
{
  g_autofree char *dir = own_dir();
  g_autofree char *built = g_build_filename(QV_BUILD_ROOT, "src", room, name, NULL);
  g_autofree char *beside = g_build_filename(dir != NULL ? dir : QV_BINDIR, name, NULL);
  const char *places[] = { from_build(dir) ? built : beside, QV_LIBEXECDIR, QV_BINDIR };
  for (guint i = 0; i < G_N_ELEMENTS(places); i++) {
    g_autofree char *path = i == 0 ? g_strdup(places[i]) : g_build_filename(places[i], name, NULL);
    if (g_file_test(path, G_FILE_TEST_IS_EXECUTABLE) && g_file_test(path, G_FILE_TEST_IS_REGULAR))
      return g_steal_pointer(&path);
  }
  g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND, "the program %s is not installed (looked for %s, and in %s and %s)",
              name, places[0], places[1], places[2]);
  return NULL;
}

char *qv_data_find(const char *source_path, const char *installed_path, GError **error)
{
  g_autofree char *dir = own_dir();
  g_autofree char *path = from_build(dir) ? g_build_filename(QV_SOURCE_ROOT, source_path, NULL)
                                          : g_build_filename(QV_DATADIR, installed_path, NULL);
  if (g_file_test(path, G_FILE_TEST_EXISTS))
    return g_steal_pointer(&path);
  g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND, "%s is not there", path);
  return NULL;
}
