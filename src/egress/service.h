/* SPDX-License-Identifier: Apache-2.0 */
/* The program's two ways: to serve, and to check that it could. */
#pragma once

#include "base/config.h"

/* ROLE as in qv_resolver_new. Exit statuses. */
int qv_egress_serve(const QvConfig *config, const char *role);
int qv_egress_check(const QvConfig *config);
