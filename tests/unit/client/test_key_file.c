/* SPDX-License-Identifier: Apache-2.0 */
/* Key files: made once, private, read under the rule of section 1. */
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "client/key_file.h"
#include "tree.h"

static void refused(const char *path, QvError code, const char *text)
{
  g_autoptr(GError) error = NULL;
  g_assert_null(qv_key_file_read(path, &error));
  g_assert_error(error, QV_ERROR, (int)code);
  g_assert_nonnull(strstr(error->message, path));
  g_assert_nonnull(strstr(error->message, text));
}

static void test_round_trip(void)
{
  char *root = tree_new();
  g_autofree char *path = tree_path(root, "key");
  g_autofree char *other = tree_path(root, "other");
  g_autoptr(GError) error = NULL;
  g_autoptr(QvKey) made = qv_key_file_create(path, &error);
  g_assert_no_error(error);
  struct stat st;
  g_assert_cmpint(stat(path, &st), ==, 0);
  g_assert_cmpint(st.st_mode & 07777, ==, 0600);
  g_autoptr(QvKey) read = qv_key_file_read(path, &error);
  g_assert_no_error(error);
  g_assert_cmpstr(qv_key_id(read), ==, qv_key_id(made));
  g_autoptr(QvKey) second = qv_key_file_create(other, &error);
  g_assert_cmpstr(qv_key_id(second), !=, qv_key_id(made));
  g_assert_null(qv_key_file_create(path, &error)); /* a key is never overwritten */
  g_assert_error(error, QV_ERROR, QV_ERROR_SYSTEM);
  g_clear_error(&error);
  g_autoptr(QvKeyring) ring = qv_key_files_read(path, (const char *const[]){ other, NULL }, &error);
  g_assert_no_error(error);
  g_assert_nonnull(qv_keyring_find(ring, qv_key_id(made)));
  g_assert_nonnull(qv_keyring_find(ring, qv_key_id(second)));
  g_assert_cmpstr(qv_key_id(qv_keyring_current(ring)), ==, qv_key_id(made));
  tree_free(root);
}

static void test_refused(void)
{
  char *root = tree_new();
  g_autofree char *path = tree_path(root, "key");
  g_autoptr(QvKey) made = qv_key_file_create(path, NULL);
  g_assert_nonnull(made);
  g_assert_cmpint(g_chmod(path, 0604), ==, 0);
  refused(path, QV_ERROR_AUTH, "chmod");
  g_assert_cmpint(g_chmod(path, 0620), ==, 0);
  refused(path, QV_ERROR_AUTH, "chmod");
  g_assert_cmpint(g_chmod(path, 0600), ==, 0);
  tree_write(root, "short", "c2hvcnQ=\n", 0600);
  g_autofree char *too_short = tree_path(root, "short");
  refused(too_short, QV_ERROR_FORMAT, "");
  g_autofree char *absent = tree_path(root, "absent");
  refused(absent, QV_ERROR_NOT_FOUND, "");
  g_autofree char *fifo = tree_path(root, "fifo");
  g_assert_cmpint(mkfifo(fifo, 0600), ==, 0);
  refused(fifo, QV_ERROR_AUTH, "");
  tree_free(root);
}

/* The ring of a worker at each step: what it signs with, and whether it knows the other two. */
static void expect_ring(const char *path, const char *current, const char *knows, const char *knows_not)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvKeyring) ring = qv_key_files_read(path, NULL, &error);
  g_assert_no_error(error);
  g_assert_cmpstr(qv_key_id(qv_keyring_current(ring)), ==, current);
  g_assert_true(knows == NULL || qv_keyring_find(ring, knows) != NULL);
  g_assert_true(knows_not == NULL || qv_keyring_find(ring, knows_not) == NULL);
}

static void test_rotation(void)
{
  char *root = tree_new();
  g_autofree char *path = tree_path(root, "key");
  g_autofree char *next_path = tree_path(root, "key.next");
  g_autoptr(GError) error = NULL;
  gboolean made = FALSE;
  g_autoptr(QvKey) old = qv_key_file_create(path, NULL);
  g_assert_cmpint(g_chmod(path, 0400), ==, 0);
  g_assert_false(qv_key_rotate_switch(path, &error)); /* nothing is prepared, and nothing is changed */
  g_clear_error(&error);
  g_assert_cmpint(qv_key_rotate_switched_at(path), ==, -1);
  expect_ring(path, qv_key_id(old), NULL, NULL);
  g_autofree char *before = qv_key_files_stamp(path, NULL);
  g_autoptr(QvKey) next = qv_key_rotate_prepare(path, &made, &error);
  g_assert_no_error(error);
  g_assert_true(made);
  g_autofree char *after = qv_key_files_stamp(path, NULL);
  g_assert_cmpstr(before, !=, after);
  struct stat st;
  g_assert_cmpint(stat(next_path, &st), ==, 0);
  g_assert_cmpint(st.st_mode & 07777, ==, 0400);
  expect_ring(path, qv_key_id(old), qv_key_id(next), NULL);
  g_autoptr(QvKey) again = qv_key_rotate_prepare(path, &made, &error);
  g_assert_false(made);
  g_assert_cmpstr(qv_key_id(again), ==, qv_key_id(next));
  g_assert_true(qv_key_rotate_switch(path, &error));
  g_assert_cmpint(qv_key_rotate_switched_at(path), >, 0);
  expect_ring(path, qv_key_id(next), qv_key_id(old), NULL);
  /* A second one before the first is finished would forget a key that jobs are signed with. */
  g_autoptr(QvKey) third = qv_key_rotate_prepare(path, &made, &error);
  g_assert_nonnull(third);
  g_assert_false(qv_key_rotate_switch(path, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_POLICY);
  g_clear_error(&error);
  g_assert_true(qv_key_rotate_finish(path, &error));
  expect_ring(path, qv_key_id(next), qv_key_id(third), qv_key_id(old));
  g_assert_false(qv_key_rotate_finish(path, &error));
  g_clear_error(&error);
  /* A neighbour that others may read is an error, no reason to do without it. */
  g_assert_cmpint(g_chmod(next_path, 0644), ==, 0);
  g_assert_null(qv_key_files_read(path, NULL, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_AUTH);
  tree_free(root);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/key-file/round-trip", test_round_trip);
  g_test_add_func("/key-file/refused", test_refused);
  g_test_add_func("/key-file/rotation", test_rotation);
  return g_test_run();
}
