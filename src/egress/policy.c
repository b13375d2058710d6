/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the order of the decisions; everything that is not allowed is refused. */
#include "egress/policy.h"

#include <string.h>

QvReason qv_policy_token(const QvTokenRecord *record, const char *source, gint64 now_unix_ms)
{
  if (record->expires_at <= now_unix_ms)
    return QV_REASON_TOKEN_EXPIRED;
  if (record->source != NULL && g_strcmp0(record->source, source) != 0)
    return QV_REASON_TOKEN_SOURCE;
  return QV_REASON_NONE;
}

QvReason qv_policy_host(const QvRequest *request, const QvTokenRecord *record, const QvRegistries *registries,
                        const QvRegistry **registry)
{
  if (request->literal)
    return QV_REASON_ADDRESS_LITERAL;
  const QvRegistry *found = qv_registries_find(registries, request->host_port);
  if (found == NULL)
    return qv_registries_has_name(registries, request->host_port, request->host_n) ? QV_REASON_PORT_NOT_LISTED
                                                                                   : QV_REASON_HOST_NOT_LISTED;
  if (!g_strv_contains((const char *const *)record->hosts, request->host_port))
    return QV_REASON_HOST_NOT_IN_JOB;
  *registry = found;
  return QV_REASON_NONE;
}

QvReason qv_policy_addresses(const QvIp *ips, gsize n, const QvRegistry *registry, const char **row)
{
  if (n == 0)
    return QV_REASON_NAME_NOT_FOUND;
  for (gsize i = 0; i < n; i++) {
    const char *name = qv_ip_refused(&ips[i], registry);
    if (name == NULL)
      continue;
    if (row != NULL)
      *row = name;
    return QV_REASON_ADDRESS_REFUSED;
  }
  return QV_REASON_NONE;
}
