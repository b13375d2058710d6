/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the reading of the proxy's settings. */
#include "egress/settings.h"

#include <string.h>
#include <sys/resource.h>

#include "base/error.h"

/* A tunnel has two sockets; beside them Valkey, resolvers, listeners. */
enum { FILES_A_TUNNEL = 2, FILES_BESIDE = 64, OPENING_MAX = 1024 };

QvAddress *qv_egress_settings_address(const QvConfig *config, GError **error)
{
  if (config->valkey_url == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_POLICY,
                "VALKEY_URL: is not set; accepted: redis://egress:password@host:port/db, rediss://… or unix:///path (or VALKEY_URL_FILE)");
    return NULL;
  }
  return qv_address_of_config(config, error);
}

QvRegistries *qv_egress_settings_registries(const QvConfig *config, GError **error)
{
  g_autofree char *text = qv_config_registries(config, error);
  if (text == NULL)
    return NULL;
  QvRegistries *registries = qv_registries_parse(text, error);
  if (registries == NULL)
    g_prefix_error(error, "%s: ", config->registries_file != NULL ? "QUAVON_SANDBOX_REGISTRIES_FILE" : "QUAVON_SANDBOX_REGISTRIES");
  return registries;
}

void qv_egress_settings_limits(const QvConfig *config, QvProxyLimits *limits)
{
  struct rlimit files = {0};
  rlim_t wanted = (rlim_t)config->egress_max_tunnels * FILES_A_TUNNEL + OPENING_MAX + FILES_BESIDE;
  getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < wanted) {
    files.rlim_cur = MIN(wanted, files.rlim_max);
    setrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_NOFILE, &files);
  }
  guint opening = OPENING_MAX;
  rlim_t tunnels = (rlim_t)config->egress_max_tunnels;
  if (files.rlim_cur < wanted) {
    rlim_t left = files.rlim_cur > FILES_BESIDE * 2 ? files.rlim_cur - FILES_BESIDE : FILES_BESIDE;
    opening = (guint)MIN(OPENING_MAX, left / 8);
    tunnels = MIN(tunnels, MAX(1, (left - opening) / FILES_A_TUNNEL));
  }
  *limits = (QvProxyLimits){.tunnels = (guint)tunnels,
                            .tunnels_per_token = (guint)config->egress_max_tunnels_per_token,
                            .opening = opening,
                            .token_bytes = config->egress_max_bytes,
                            .head_ms = config->egress_head_ms,
                            .connect_ms = config->egress_connect_ms,
                            .idle_ms = config->egress_idle_ms};
}

char **qv_egress_settings_listen(const QvConfig *config, GError **error)
{
  g_auto(GStrv) parts = g_strsplit(config->egress_listen, ",", -1);
  for (guint i = 0; parts[i] != NULL; i++) {
    if (!qv_proxy_where_valid(g_strstrip(parts[i]), error)) {
      g_prefix_error(error, "QUAVON_EGRESS_LISTEN: ");
      return NULL;
    }
  }
  return g_steal_pointer(&parts);
}

GPtrArray *qv_egress_settings_doubts(const QvRegistries *registries)
{
  GPtrArray *doubts = g_ptr_array_new_with_free_func(g_free);
  for (guint i = 0; i < qv_registries_n(registries); i++) {
    const QvRegistry *registry = qv_registries_at(registries, i);
    for (guint j = 0; j < registry->cidrs_n; j++) {
      char text[46];
      const QvCidr *range = &registry->cidrs[j];
      if (qv_ip_range_opens(range))
        continue;
      QvIp ip = {.v6 = range->v6};
      memcpy(ip.bytes, range->bytes, sizeof ip.bytes);
      qv_ip_format(&ip, text);
      g_ptr_array_add(doubts, g_strdup_printf("%s@%s/%u: the range opens nothing: it lies within no special-purpose range, and public "
                                              "addresses need none",
                                              registry->host_port, text, range->bits));
    }
  }
  return doubts;
}
