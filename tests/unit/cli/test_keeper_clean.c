/* SPDX-License-Identifier: Apache-2.0 */
/* What quavon makes of a sweep by the runner, which is a script here (fake_runner.sh). */
#include <glib.h>
#include <signal.h>
#include <unistd.h>

#include "../client/tree.h"
#include "base/error.h"
#include "cli/keeper.h"
#include "cli/progress.h"

static char *folder_with(const char *fake)
{
  char *folder = tree_new();
  tree_write(folder, "fake", fake, 0600);
  return folder;
}

static gboolean is_there(const char *folder)
{
  return g_file_test(folder, G_FILE_TEST_IS_DIR);
}

/* Of a sweep that complains without end the last words are what counts. */
static void test_talkative(void)
{
  g_autofree char *folder = folder_with("head -c 300000 /dev/zero | tr '\\0' 'x'; echo\n"
                                        "echo 'removed 1 sandboxes; 0 are in use; 0 may come'\n");
  tree_write(folder, "state/runs/one/mark", "", 0600);
  g_autoptr(GError) error = NULL;
  gboolean cleaned = qv_keeper_clean(folder, &error);
  g_assert_no_error(error);
  g_assert_true(cleaned);
  g_assert_false(is_there(folder));
}

static gpointer interrupt_later(gpointer mark)
{
  while (!g_file_test(mark, G_FILE_TEST_EXISTS))
    g_usleep(10000);
  kill(getpid(), SIGINT);
  return NULL;
}

/* A sweep that was not let to its end may have left something, also where no sandbox was known of. The last test: the signal stays. */
static void test_interrupted(void)
{
  char *folder = folder_with(": > \"${QUAVON_SANDBOX_STATE_DIR%/*}/begun\"; exec sleep 1000\n");
  g_autofree char *mark = tree_path(folder, "begun");
  g_autoptr(GError) error = NULL;
  qv_interrupt_watch();
  GThread *thread = g_thread_new("interrupt", interrupt_later, mark);
  gboolean cleaned = qv_keeper_clean(folder, &error);
  g_thread_join(thread);
  g_assert_false(cleaned);
  g_assert_error(error, QV_ERROR, QV_ERROR_CANCELLED);
  g_assert_true(is_there(folder));
  tree_free(folder);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/cli/keeper-clean/talkative", test_talkative);
  g_test_add_func("/cli/keeper-clean/interrupted", test_interrupted);
  return g_test_run();
}
