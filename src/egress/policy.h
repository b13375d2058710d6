/* SPDX-License-Identifier: Apache-2.0 */
/* The decisions about one CONNECT. Pure: who asks and where to come in as values. */
#pragma once

#include <glib.h>

#include "egress/address.h"
#include "egress/request.h"
#include "protocol/registries.h"

/* May this token be used at all? SOURCE: the peer's IPv4 as text, NULL where it has none. */
QvReason qv_policy_token(const QvTokenRecord *record, const char *source, gint64 now_unix_ms);

/* May it go there? *REGISTRY is set on NONE, borrowed. */
QvReason qv_policy_host(const QvRequest *request, const QvTokenRecord *record, const QvRegistries *registries,
                        const QvRegistry **registry);

/* May these addresses be connected to? One that may not refuses all. *ROW (may be NULL) takes the refusing row's name. */
QvReason qv_policy_addresses(const QvIp *ips, gsize n, const QvRegistry *registry, const char **row);
