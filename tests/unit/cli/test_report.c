/* SPDX-License-Identifier: Apache-2.0 */
/* Exit statuses, and where artefacts may go. */
#include <glib.h>
#include <glib/gstdio.h>

#include "base/fd.h"
#include "cli/report.h"

static void test_exit_status(void)
{
  static const struct {
    const char *status, *code;
    int exit_code, signal, wanted;
  } cases[] = {
    { "succeeded", NULL, 0, 0, 0 },           { "succeeded", NULL, 5, 0, 0 }, /* continueOnFailure */
    { "failed", "step_failed", 3, 0, 3 },     { "failed", "step_failed", -1, 15, 143 },
    { "failed", "step_failed", 137, 0, 137 }, { "failed", "setup_failed", 9, 0, 9 },
    { "failed", "memory", 1, 0, 137 },        { "failed", "disk", 2, 0, 2 },
    { "failed", "disk", 0, 0, 125 },          { "failed", "processes", -1, 0, 125 },
    { "timed_out", "timeout", -1, 9, 124 },   { "timed_out", "wall", 0, 0, 124 },
    { "cancelled", "cancelled", 0, 0, 130 },  { "error", "sandbox_lost", 0, 0, 125 },
    { "error", "bad_output", 3, 0, 125 },
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    QuavonStepRecord record = { .exit_code = cases[i].exit_code, .signal = cases[i].signal };
    g_assert_cmpint(qv_exit_status(cases[i].status, cases[i].code, &record), ==, cases[i].wanted);
  }
  g_assert_cmpint(qv_exit_status("failed", "memory", NULL), ==, 137);
  g_assert_cmpint(qv_exit_status("failed", "output", NULL), ==, 125);
  g_assert_cmpint(qv_exit_status("succeeded", NULL, NULL), ==, 0);
}

/* No error may look like a success. */
static void test_error_status(void)
{
  for (int code = QUAVON_ERROR_SYSTEM; code <= QUAVON_ERROR_BUG; code++)
    g_assert_cmpint(qv_error_status((QuavonErrorCode)code), >=, 64);
  g_assert_cmpint(qv_error_status(QUAVON_ERROR_QUEUE_FULL), ==, 69);
  g_assert_cmpint(qv_error_status(QUAVON_ERROR_UNAVAILABLE), ==, 69);
  g_assert_cmpint(qv_error_status(QUAVON_ERROR_CONFIG), ==, 78);
  g_assert_cmpint(qv_error_status(QUAVON_ERROR_CANCELLED), ==, 130);
  g_assert_cmpint(qv_error_status(QUAVON_ERROR_REJECTED), ==, 125);
  g_assert_cmpint(qv_error_status(QUAVON_ERROR_AUTH), ==, 125);
}

static void test_output(void)
{
  g_autofree char *root = g_dir_make_tmp("qv-cli-XXXXXX", NULL);
  g_autofree char *absent = g_build_filename(root, "absent", NULL);
  g_autofree char *file = g_build_filename(root, "file", NULL);
  g_assert_true(qv_output_check(root, FALSE));
  g_assert_true(qv_output_check(absent, FALSE));
  g_assert_true(g_file_set_contents(file, "x", 1, NULL));
  g_assert_false(qv_output_check(root, FALSE));
  g_assert_true(qv_output_check(root, TRUE));
  g_assert_false(qv_output_check(file, FALSE));
  g_assert_true(qv_fd_remove_tree(root, NULL));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/report/exit-status", test_exit_status);
  g_test_add_func("/report/error-status", test_error_status);
  g_test_add_func("/report/output", test_output);
  return g_test_run();
}
