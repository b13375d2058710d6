/* SPDX-License-Identifier: Apache-2.0 */
/* Whose turn it is: the tenants that had a job lately, the latest last. With it
 * the queue is read fairly (qv_worker_set_tenants): round robin between tenants that
 * wait, whoever has how many jobs there. */
#pragma once

#include <glib.h>

/* Tenants remembered: whoever is not among them has waited long enough to be next. */
enum { QV_TENANTS_MAX = 64 };

typedef struct QvTenants QvTenants;

QvTenants *qv_tenants_new(void);
void qv_tenants_free(QvTenants *tenants);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvTenants, qv_tenants_free)

/* TENANT_ID had its turn. */
void qv_tenants_serve(QvTenants *tenants, const char *tenant_id);
/* NULL-terminated, the latest last; borrowed until the next call. */
const char *const *qv_tenants_served(const QvTenants *tenants);
