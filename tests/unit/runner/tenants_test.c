/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/tenants.h"

#include <glib.h>
#include <stdio.h>

static void expect(const QvTenants *tenants, const char *text)
{
  g_autofree char *got = g_strjoinv(" ", (char **)qv_tenants_served(tenants));
  g_assert_cmpstr(got, ==, text);
}

static void test_order(void)
{
  g_autoptr(QvTenants) tenants = qv_tenants_new();
  expect(tenants, "");
  qv_tenants_serve(tenants, "a");
  qv_tenants_serve(tenants, "b");
  qv_tenants_serve(tenants, "c");
  expect(tenants, "a b c");
  qv_tenants_serve(tenants, "c");
  expect(tenants, "a b c");
  qv_tenants_serve(tenants, qv_tenants_served(tenants)[0]);
  expect(tenants, "b c a");
}

static void test_many(void)
{
  g_autoptr(QvTenants) tenants = qv_tenants_new();
  for (int i = 0; i < 3 * QV_TENANTS_MAX; i++) {
    g_autofree char *id = g_strdup_printf("t%d", i);
    qv_tenants_serve(tenants, id);
  }
  const char *const *served = qv_tenants_served(tenants);
  g_assert_cmpuint(g_strv_length((char **)served), ==, QV_TENANTS_MAX);
  g_assert_cmpstr(served[0], ==, "t128");
  g_assert_cmpstr(served[QV_TENANTS_MAX - 1], ==, "t191");
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/runner/tenants/order", test_order);
  g_test_add_func("/runner/tenants/many", test_many);
  return g_test_run();
}
