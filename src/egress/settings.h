/* SPDX-License-Identifier: Apache-2.0 */
/* What the proxy makes of the configuration. Every error is one for the operator. */
#pragma once

#include "base/config.h"
#include "egress/proxy.h"

/* Needs VALKEY_URL. */
QvAddress *qv_egress_settings_address(const QvConfig *config, GError **error);
QvRegistries *qv_egress_settings_registries(const QvConfig *config, GError **error);
/* Raises the limit of open files as far as it goes, and lowers the number of tunnels to what it then allows. */
void qv_egress_settings_limits(const QvConfig *config, QvProxyLimits *limits);
/* The parts of QUAVON_EGRESS_LISTEN, each of valid form. */
char **qv_egress_settings_listen(const QvConfig *config, GError **error);
/* Ranges of the list that open nothing, one text each: the operator meant something else. */
GPtrArray *qv_egress_settings_doubts(const QvRegistries *registries);
