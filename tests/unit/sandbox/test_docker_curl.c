/* SPDX-License-Identifier: Apache-2.0 */
/* Which library libcurl's calls are taken from. */
#include <string.h>

#include "base/error.h"
#include "sandbox/docker_curl.h"

static const char ABSENT[] = "libquavon-no-such.so.1", OTHER[] = "libm.so.6", CURL_NAME[] = "libcurl.so.4";

/* Neither one that is not there nor one without the calls keeps from the next. */
static void test_next(void)
{
  const char *const list[] = {ABSENT, OTHER, CURL_NAME};
  g_autoptr(GError) error = NULL;
  QvCurl curl = {0};
  g_assert_true(qv_curl_load_named(list, G_N_ELEMENTS(list), &curl, &error));
  g_assert_no_error(error);
#define X(name) g_assert_nonnull((gpointer)curl.name);
  QV_CURL_CALLS(X)
#undef X
}

/* An operator's to mend, by the name of each: not to be tried for ever. */
static void test_none(void)
{
  const char *const list[] = {OTHER, ABSENT};
  static const char *const parts[] = {OTHER, "curl_", "; ", ABSENT, "apt-get install libcurl4"};
  g_autoptr(GError) error = NULL;
  QvCurl curl = {0}, untouched = {0};
  g_assert_false(qv_curl_load_named(list, G_N_ELEMENTS(list), &curl, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_POLICY);
  for (gsize i = 0; i < G_N_ELEMENTS(parts); i++)
    if (strstr(error->message, parts[i]) == NULL)
      g_error("'%s' is not in: %s", parts[i], error->message);
  g_assert_cmpmem(&curl, sizeof curl, &untouched, sizeof untouched);
}

static void test_own(void)
{
  g_autoptr(GError) error = NULL;
  const QvCurl *first = qv_curl_load(&error);
  g_assert_no_error(error);
  g_assert_nonnull(first);
  g_assert_true(qv_curl_load(&error) == first);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/docker-curl/next", test_next);
  g_test_add_func("/docker-curl/none", test_none);
  g_test_add_func("/docker-curl/own", test_own);
  return g_test_run();
}
