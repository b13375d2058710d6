/* SPDX-License-Identifier: Apache-2.0 */
#include "tree.h"

#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"

char *tree_new(void)
{
  g_autoptr(GError) error = NULL;
  char *root = g_dir_make_tmp("qv-client-XXXXXX", &error);
  g_assert_no_error(error);
  return root;
}

void tree_free(char *root)
{
  g_autoptr(GError) error = NULL;
  qv_fd_remove_tree(root, &error);
  g_assert_no_error(error);
  g_free(root);
}

char *tree_path(const char *root, const char *path)
{
  return g_build_filename(root, path, NULL);
}

void tree_mkdir(const char *root, const char *path)
{
  g_autofree char *full = tree_path(root, path);
  g_assert_cmpint(g_mkdir_with_parents(full, 0755), ==, 0);
}

void tree_write_bytes(const char *root, const char *path, const void *bytes, gsize n)
{
  g_autofree char *full = tree_path(root, path);
  g_autofree char *parent = g_path_get_dirname(full);
  g_autoptr(GError) error = NULL;
  g_assert_cmpint(g_mkdir_with_parents(parent, 0755), ==, 0);
  g_file_set_contents_full(full, bytes, (gssize)n, G_FILE_SET_CONTENTS_CONSISTENT, 0644, &error);
  g_assert_no_error(error);
}

void tree_write(const char *root, const char *path, const char *text, int mode)
{
  g_autofree char *full = tree_path(root, path);
  tree_write_bytes(root, path, text, strlen(text));
  g_assert_cmpint(g_chmod(full, (mode_t)mode), ==, 0);
}

void tree_run(const char *dir, const char *program, ...)
{
  g_autoptr(GPtrArray) argv = g_ptr_array_new();
  va_list args;
  va_start(args, program);
  for (const char *word = program; word != NULL; word = va_arg(args, const char *))
    g_ptr_array_add(argv, (gpointer)word);
  va_end(args);
  g_ptr_array_add(argv, NULL);
  /* The machine's own git settings and locale are no part of the tests. */
  char **environment = g_get_environ();
  environment = g_environ_setenv(environment, "GIT_CONFIG_NOSYSTEM", "1", TRUE);
  environment = g_environ_setenv(environment, "GIT_CONFIG_GLOBAL", "/dev/null", TRUE);
  environment = g_environ_setenv(environment, "LC_ALL", "C", TRUE);
  g_autofree char *out = NULL, *err = NULL;
  g_autoptr(GError) error = NULL;
  int status = 0;
  g_spawn_sync(dir, (char **)argv->pdata, environment, G_SPAWN_SEARCH_PATH, NULL, NULL, &out, &err, &status, &error);
  g_strfreev(environment);
  g_assert_no_error(error);
  if (!g_spawn_check_wait_status(status, &error))
    g_error("%s: %s: %s%s", program, error->message, out, err);
}

void tree_git_init(const char *dir)
{
  tree_run(dir, "git", "init", "-q", "-b", "main", ".", NULL);
  tree_run(dir, "git", "config", "user.name", "A", NULL);
  tree_run(dir, "git", "config", "user.email", "a@b.example", NULL);
}

void tree_git_commit(const char *dir)
{
  tree_run(dir, "git", "add", "-A", NULL);
  tree_run(dir, "git", "commit", "-q", "--allow-empty", "-m", "c", NULL);
}
