/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the order of the tenants. */
#include "runner/tenants.h"

struct QvTenants {
  GPtrArray *served; /* of char *, and a NULL behind the last */
};

QvTenants *qv_tenants_new(void)
{
  QvTenants *tenants = g_new0(QvTenants, 1);
  tenants->served = g_ptr_array_new_with_free_func(g_free);
  g_ptr_array_add(tenants->served, NULL);
  return tenants;
}

void qv_tenants_free(QvTenants *tenants)
{
  if (tenants == NULL)
    return;
  g_ptr_array_unref(tenants->served);
  g_free(tenants);
}

void qv_tenants_serve(QvTenants *tenants, const char *tenant_id)
{
  GPtrArray *served = tenants->served;
  g_autofree char *mine = g_strdup(tenant_id); /* the caller's may be the one that is removed */
  for (guint i = 0; i + 1 < served->len; i++) {
    if (g_str_equal(served->pdata[i], mine)) {
      g_ptr_array_remove_index(served, i);
      break;
    }
  }
  if (served->len > QV_TENANTS_MAX)
    g_ptr_array_remove_index(served, 0);
  g_ptr_array_insert(served, served->len - 1, g_steal_pointer(&mine));
}

const char *const *qv_tenants_served(const QvTenants *tenants)
{
  return (const char *const *)tenants->served->pdata;
}
