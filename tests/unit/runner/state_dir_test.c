/* SPDX-License-Identifier: Apache-2.0 */
/* The state folder: made, refused, locked once, an id that stays; and key files under the contract's rule. */
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "runner/key_file.h"
#include "runner/state_dir.h"

static char *dir;

static void test_prepare(void)
{
  g_autofree char *path = g_build_filename(dir, "a", "b", NULL);
  g_autoptr(GError) error = NULL;
  g_assert_true(qv_state_dir_prepare(path, &error));
  g_assert_true(qv_state_dir_prepare(path, &error));
  g_assert_false(qv_state_dir_prepare("relative", &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_POLICY);
  g_clear_error(&error);
  g_assert_cmpint(chmod(path, 0777), ==, 0);
  g_assert_false(qv_state_dir_prepare(path, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_POLICY);
}

static void test_lock(void)
{
  g_autoptr(GError) error = NULL;
  int first = qv_state_dir_lock(dir, 0, &error);
  g_assert_no_error(error);
  g_assert_cmpint(qv_state_dir_lock(dir, 120, &error), ==, -1);
  g_assert_error(error, QV_ERROR, QV_ERROR_TIMEOUT);
  g_clear_error(&error);
  /* A job process holds a copy of the descriptor: the lock lives as long as that. */
  int copy = dup(first);
  close(first);
  g_assert_cmpint(qv_state_dir_lock(dir, 0, NULL), ==, -1);
  close(copy);
  int second = qv_state_dir_lock(dir, 0, &error);
  g_assert_no_error(error);
  close(second);
}

static void test_runner_id(void)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *first = qv_state_dir_runner_id(dir, &error);
  g_assert_no_error(error);
  g_assert_cmpuint(strlen(first), ==, 32);
  g_autofree char *second = qv_state_dir_runner_id(dir, &error);
  g_assert_cmpstr(first, ==, second);
  g_autofree char *file = g_build_filename(dir, "runner-id", NULL);
  static const char *const bad[] = {"", "\n", "xyz", "../../etc", "0123456789ABCDEF0123456789ABCDEF"};
  for (gsize i = 0; i < G_N_ELEMENTS(bad); i++) {
    g_assert_true(qv_fd_write_file(file, bad[i], strlen(bad[i]), 0644, NULL));
    g_autoptr(GError) cause = NULL;
    g_assert_null(qv_state_dir_runner_id(dir, &cause));
    g_assert_error(cause, QV_ERROR, QV_ERROR_FORMAT);
  }
}

static void test_keys(void)
{
  g_autofree char *one = g_build_filename(dir, "one", NULL);
  g_autofree char *two = g_build_filename(dir, "two", NULL);
  const char *a = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n", *b = "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
  g_assert_true(qv_fd_write_file(one, a, strlen(a), 0600, NULL));
  g_assert_true(qv_fd_write_file(two, b, strlen(b), 0400, NULL));
  const char *previous[] = {two, NULL};
  g_autoptr(GError) error = NULL;
  g_autoptr(QvKeyring) ring = qv_keyring_load(one, previous, &error);
  g_assert_no_error(error);
  g_autoptr(QvKey) old = qv_key_file_load(two, &error);
  g_assert_nonnull(qv_keyring_find(ring, qv_key_id(old)));
  g_assert_false(qv_keyring_is_current(ring, old));
  g_assert_cmpint(chmod(two, 0644), ==, 0);
  g_assert_null(qv_keyring_load(one, previous, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_AUTH);
  g_assert_nonnull(strstr(error->message, two));
  g_clear_error(&error);
  g_unlink(two);
  g_assert_null(qv_key_file_load(two, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_NOT_FOUND);
  g_clear_error(&error);
  /* A FIFO does not hold the start up. */
  g_assert_cmpint(mkfifo(two, 0600), ==, 0);
  g_assert_null(qv_key_file_load(two, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_AUTH);
  g_clear_error(&error);
  g_autofree char *big = g_strnfill(1000, 'A');
  g_assert_true(qv_fd_write_file(one, big, 1000, 0600, NULL));
  g_assert_null(qv_key_file_load(one, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  dir = g_strdup("/tmp/qv-XXXXXX");
  g_assert_nonnull(g_mkdtemp(dir));
  g_test_add_func("/state-dir/prepare", test_prepare);
  g_test_add_func("/state-dir/lock", test_lock);
  g_test_add_func("/state-dir/runner-id", test_runner_id);
  g_test_add_func("/state-dir/keys", test_keys);
  int status = g_test_run();
  g_assert_true(qv_fd_remove_tree(dir, NULL));
  g_free(dir);
  return status;
}
