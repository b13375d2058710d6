/* SPDX-License-Identifier: Apache-2.0 */
/* Which errno becomes which code, and the text. */
#include <errno.h>
#include <glib.h>

#include "base/error.h"

static void test_codes(void)
{
  static const struct {
    int err;
    QvError code;
  } rows[] = {{ECONNRESET, QV_ERROR_GONE}, {EPIPE, QV_ERROR_GONE}, {ENOTCONN, QV_ERROR_GONE},
              {ETIMEDOUT, QV_ERROR_TIMEOUT}, {EACCES, QV_ERROR_SYSTEM}, {ENOENT, QV_ERROR_SYSTEM}};
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autoptr(GError) error = NULL;
    g_assert_false(qv_error_set_errno(&error, rows[i].err, "opening %s", "x"));
    g_assert_error(error, QV_ERROR, (int)rows[i].code);
    g_autofree char *text = g_strdup_printf("opening x: %s", g_strerror(rows[i].err));
    g_assert_cmpstr(error->message, ==, text);
  }
  g_assert_false(qv_error_set_errno(NULL, EACCES, "nobody asks"));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/error/codes", test_codes);
  return g_test_run();
}
