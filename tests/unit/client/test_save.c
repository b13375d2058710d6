/* SPDX-License-Identifier: Apache-2.0 */
/* Artefacts on their way to disk: nothing outside, nothing through a link, nothing replaced unasked. */
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "client/payload.h"
#include "tree.h"

static GPtrArray *members_new(const char *const *paths)
{
  GPtrArray *members = g_ptr_array_new();
  for (guint i = 0; paths[i] != NULL; i++) {
    QvPayloadMember *member = g_new0(QvPayloadMember, 1);
    member->path = g_strdup(paths[i]);
    member->executable = g_str_has_suffix(paths[i], ".sh");
    member->bytes = g_byte_array_new();
    g_byte_array_append(member->bytes, (const guint8 *)"new", 3);
    g_ptr_array_add(members, member);
  }
  return members;
}

static void members_free(GPtrArray *members)
{
  for (guint i = 0; i < members->len; i++) {
    QvPayloadMember *member = g_ptr_array_index(members, i);
    g_free(member->path);
    g_byte_array_unref(member->bytes);
    g_free(member);
  }
  g_ptr_array_unref(members);
}

static void save(const char *dir, const char *const *paths, gboolean replace, GError **error)
{
  GPtrArray *members = members_new(paths);
  gboolean saved = qv_artefacts_save(members, dir, replace, error);
  g_assert_true(error == NULL || saved == (*error == NULL));
  members_free(members);
}

static char *content(const char *root, const char *path)
{
  g_autofree char *full = tree_path(root, path);
  char *text = NULL;
  g_file_get_contents(full, &text, NULL, NULL);
  return text;
}

static guint count_entries(const char *root)
{
  g_autoptr(GDir) dir = g_dir_open(root, 0, NULL);
  guint n = 0;
  while (g_dir_read_name(dir) != NULL)
    n++;
  return n;
}

static void test_plain(void)
{
  char *root = tree_new();
  g_autofree char *out = tree_path(root, "made/here");
  g_autoptr(GError) error = NULL;
  save(out, (const char *const[]){ "artefacts/a", "artefacts/d/e/run.sh", "logs/0.log", NULL }, FALSE, &error);
  g_assert_no_error(error);
  g_autofree char *a = content(out, "a");
  g_autofree char *run = content(out, "d/e/run.sh");
  g_assert_cmpstr(a, ==, "new");
  g_assert_cmpstr(run, ==, "new");
  struct stat st;
  g_autofree char *path = tree_path(out, "d/e/run.sh");
  g_assert_cmpint(stat(path, &st), ==, 0);
  g_assert_cmpint(st.st_mode & S_IXUSR, !=, 0);
  g_autofree char *plain = tree_path(out, "a");
  g_assert_cmpint(stat(plain, &st), ==, 0);
  g_assert_cmpint(st.st_mode & S_IXUSR, ==, 0);
  g_assert_cmpuint(count_entries(out), ==, 2); /* no log, no temporary file */
  tree_free(root);
}

static void test_exists(void)
{
  char *root = tree_new();
  tree_write(root, "b", "old", 0644);
  g_autoptr(GError) error = NULL;
  save(root, (const char *const[]){ "artefacts/a", "artefacts/b", NULL }, FALSE, &error);
  g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
  g_assert_nonnull(strstr(error->message, "b exists"));
  g_assert_cmpuint(count_entries(root), ==, 1); /* nothing was written */
  g_clear_error(&error);
  save(root, (const char *const[]){ "artefacts/a", "artefacts/b", NULL }, TRUE, &error);
  g_assert_no_error(error);
  g_autofree char *b = content(root, "b");
  g_assert_cmpstr(b, ==, "new");
  tree_free(root);
}

static void test_links(void)
{
  char *root = tree_new();
  tree_mkdir(root, "out");
  tree_mkdir(root, "outside");
  tree_write(root, "target", "old", 0644);
  g_autofree char *out = tree_path(root, "out");
  g_autofree char *file_link = tree_path(root, "out/file");
  g_autofree char *folder_link = tree_path(root, "out/folder");
  g_assert_cmpint(symlink("../target", file_link), ==, 0);
  g_assert_cmpint(symlink("../outside", folder_link), ==, 0);
  for (int replace = 0; replace < 2; replace++) {
    g_autoptr(GError) error = NULL;
    save(out, (const char *const[]){ "artefacts/folder/x", NULL }, replace, &error);
    g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
  }
  g_autofree char *outside = tree_path(root, "outside");
  g_assert_cmpuint(count_entries(outside), ==, 0);
  g_autoptr(GError) error = NULL;
  save(out, (const char *const[]){ "artefacts/file", NULL }, FALSE, &error);
  g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
  g_clear_error(&error);
  save(out, (const char *const[]){ "artefacts/file", NULL }, TRUE, &error); /* the link itself is replaced */
  g_assert_no_error(error);
  g_autofree char *target = content(root, "target");
  g_autofree char *file = content(root, "out/file");
  g_assert_cmpstr(target, ==, "old");
  g_assert_cmpstr(file, ==, "new");
  tree_free(root);
}

static void test_names(void)
{
  static const char *const bad[] = { "artefacts/../x",      "artefacts//x",       "artefacts/.git/hooks/post-checkout",
                                     "artefacts/a/.GIT/b",  "artefacts/git~1/x",  "artefacts/a\\b",
                                     "artefacts/new\nline", "artefacts/.",        "artefacts/" };
  char *root = tree_new();
  for (guint i = 0; i < G_N_ELEMENTS(bad); i++) {
    g_autoptr(GError) error = NULL;
    save(root, (const char *const[]){ "artefacts/fine", bad[i], NULL }, TRUE, &error);
    g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
    g_assert_cmpuint(count_entries(root), ==, 0);
  }
  tree_free(root);
}

static void test_folder_in_the_way(void)
{
  char *root = tree_new();
  tree_mkdir(root, "a");
  tree_write(root, "b", "old", 0644);
  for (int replace = 0; replace < 2; replace++) {
    g_autoptr(GError) error = NULL;
    save(root, (const char *const[]){ "artefacts/a", NULL }, replace, &error);
    g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
    g_clear_error(&error);
    save(root, (const char *const[]){ "artefacts/b/c", NULL }, replace, &error);
    g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
  }
  tree_free(root);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/save/plain", test_plain);
  g_test_add_func("/save/exists", test_exists);
  g_test_add_func("/save/links", test_links);
  g_test_add_func("/save/names", test_names);
  g_test_add_func("/save/folder-in-the-way", test_folder_in_the_way);
  return g_test_run();
}
