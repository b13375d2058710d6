/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the places of programs and files. Relative ones first: an installation may be moved as a whole. */
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

/* The first of the paths (char *, NULLs are skipped) that is there; NOT_FOUND names them all. */
static char *first_of(const char *what, char **paths, guint n, GFileTest test, GError **error)
{
  g_autoptr(GString) tried = g_string_new(NULL);
  char *found = NULL;
  for (guint i = 0; i < n; i++) {
    if (found == NULL && paths[i] != NULL && g_file_test(paths[i], test))
      found = g_steal_pointer(&paths[i]);
    if (paths[i] != NULL)
      g_string_append_printf(tried, "%s%s", tried->len > 0 ? ", " : "", paths[i]);
    g_free(paths[i]);
  }
  if (found == NULL)
    g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND, "%s is not installed: none of %s is there", what, tried->str);
  return found;
}

char *qv_program_find(const char *room, const char *name, GError **error)
{
  g_autofree char *dir = own_dir();
  if (from_build(dir)) {
    char *built[] = { g_build_filename(QV_BUILD_ROOT, "src", room, name, NULL) };
    return first_of(name, built, G_N_ELEMENTS(built), G_FILE_TEST_IS_EXECUTABLE, error);
  }
  char *paths[] = {
    /* libexec first: `entry` is a name that another program in bin may have. */
    dir != NULL ? g_build_filename(dir, "..", "libexec", "quavon", name, NULL) : NULL,
    dir != NULL ? g_build_filename(dir, "..", "sbin", name, NULL) : NULL,
    dir != NULL ? g_build_filename(dir, name, NULL) : NULL,
    g_build_filename(QV_SBINDIR, name, NULL),
    g_build_filename(QV_LIBEXECDIR, name, NULL),
  };
  return first_of(name, paths, G_N_ELEMENTS(paths), G_FILE_TEST_IS_EXECUTABLE, error);
}

char *qv_data_find(const char *source_path, const char *installed_path, GError **error)
{
  g_autofree char *dir = own_dir();
  if (from_build(dir)) {
    char *source[] = { g_build_filename(QV_SOURCE_ROOT, source_path, NULL) };
    return first_of(source_path, source, G_N_ELEMENTS(source), G_FILE_TEST_EXISTS, error);
  }
  char *paths[] = {
    dir != NULL ? g_build_filename(dir, "..", "share", "quavon", installed_path, NULL) : NULL,
    g_build_filename(QV_DATADIR, installed_path, NULL),
  };
  return first_of(installed_path, paths, G_N_ELEMENTS(paths), G_FILE_TEST_EXISTS, error);
}
