/* SPDX-License-Identifier: Apache-2.0 */
/* Owns start, reload and drain. */
#include "egress/service.h"

#include <glib-unix.h>
#include <signal.h>

#include "base/error.h"
#include "base/exit.h"
#include "base/log.h"
#include "egress/settings.h"

enum { DRAIN_LOOK_MS = 100, LAST_WORDS_MS = 3000 };

typedef struct {
  const QvConfig *config;
  GMainLoop *loop;
  QvProxy *proxy;
  guint stops, look;
  gint64 until_ms; /* of the grace period, then of the last words */
  gboolean ended;
} Service;

static void say_doubts(const QvRegistries *registries)
{
  g_autoptr(GPtrArray) doubts = qv_egress_settings_doubts(registries);
  for (guint i = 0; i < doubts->len; i++)
    qv_log(QV_LOG_WARNING, "a registry's range has no effect", "range", g_ptr_array_index(doubts, i), NULL);
}

static gboolean on_reload(gpointer user)
{
  Service *service = user;
  g_autoptr(GError) error = NULL;
  QvRegistries *registries = qv_egress_settings_registries(service->config, &error);
  if (registries == NULL) {
    qv_log(QV_LOG_ERROR, "reload failed; the old registries stay in use", "error", error->message, NULL);
    return G_SOURCE_CONTINUE;
  }
  say_doubts(registries);
  g_autofree char *n = g_strdup_printf("%u", qv_registries_n(registries));
  g_autofree char *cut = g_strdup_printf("%u", qv_proxy_reload(service->proxy, registries));
  qv_log(QV_LOG_INFO, "registries were read again", "registries", n, "cut", cut, NULL);
  return G_SOURCE_CONTINUE;
}

/* Open tunnels go on until the grace period is over; then each token's usage is said, and heard or given up. */
static gboolean on_look(gpointer user)
{
  Service *service = user;
  gint64 now_ms = g_get_monotonic_time() / 1000;
  if (!service->ended && (qv_proxy_is_idle(service->proxy) || now_ms >= service->until_ms)) {
    qv_proxy_end(service->proxy);
    service->ended = TRUE;
    service->until_ms = now_ms + LAST_WORDS_MS;
  }
  if (service->ended && (qv_store_is_quiet(service->proxy->store) || now_ms >= service->until_ms))
    g_main_loop_quit(service->loop);
  return G_SOURCE_CONTINUE;
}

static gboolean on_stop(gpointer user)
{
  Service *service = user;
  gint64 now_ms = g_get_monotonic_time() / 1000;
  if (++service->stops == 1) {
    qv_log(QV_LOG_INFO, "draining: no new tunnels", NULL);
    qv_proxy_drain(service->proxy);
    service->until_ms = now_ms + service->config->grace_ms;
    service->look = g_timeout_add(DRAIN_LOOK_MS, on_look, service);
  } else if (!service->ended) {
    service->until_ms = now_ms;
  }
  on_look(service);
  return G_SOURCE_CONTINUE;
}

static QvProxy *open_proxy(const QvConfig *config, const char *role, GError **error)
{
  g_autoptr(QvAddress) address = qv_egress_settings_address(config, error);
  g_autoptr(QvRegistries) registries = address != NULL ? qv_egress_settings_registries(config, error) : NULL;
  g_auto(GStrv) where = registries != NULL ? qv_egress_settings_listen(config, error) : NULL;
  if (where == NULL)
    return NULL;
  QvProxyLimits limits;
  qv_egress_settings_limits(config, &limits);
  if (limits.tunnels < config->egress_max_tunnels) {
    g_autofree char *n = g_strdup_printf("%u", limits.tunnels);
    qv_log(QV_LOG_WARNING, "the limit of open files allows fewer tunnels than QUAVON_EGRESS_MAX_TUNNELS", "tunnels", n, NULL);
  }
  if (qv_registries_n(registries) == 0)
    qv_log(QV_LOG_WARNING, "QUAVON_SANDBOX_REGISTRIES is empty: every CONNECT will be refused", NULL);
  say_doubts(registries);
  g_autofree char *prefix = qv_config_prefix(config->pool);
  QvProxy *proxy = qv_proxy_new(&limits, g_steal_pointer(&registries), address, prefix, role, error);
  for (guint i = 0; proxy != NULL && where[i] != NULL; i++) {
    if (qv_proxy_listen(proxy, where[i], error)) {
      g_autofree char *port = g_strdup_printf("%u", qv_proxy_port(proxy, i));
      qv_log(QV_LOG_INFO, "listening", "at", where[i], "port", port, NULL);
      continue;
    }
    g_prefix_error(error, "QUAVON_EGRESS_LISTEN: ");
    g_clear_pointer(&proxy, qv_proxy_free);
  }
  return proxy;
}

int qv_egress_serve(const QvConfig *config, const char *role)
{
  g_autoptr(GError) error = NULL;
  Service service = {.config = config};
  signal(SIGPIPE, SIG_IGN);
  service.proxy = open_proxy(config, role, &error);
  if (service.proxy == NULL) {
    qv_log(QV_LOG_ERROR, "cannot start", "error", error->message, NULL);
    return g_error_matches(error, QV_ERROR, QV_ERROR_SYSTEM) ? QV_EXIT_FAILED : QV_EXIT_CONFIG;
  }
  service.loop = g_main_loop_new(NULL, FALSE);
  const guint sources[] = {g_unix_signal_add(SIGTERM, on_stop, &service), g_unix_signal_add(SIGINT, on_stop, &service),
                           g_unix_signal_add(SIGHUP, on_reload, &service)};
  g_main_loop_run(service.loop);
  for (gsize i = 0; i < G_N_ELEMENTS(sources); i++)
    g_source_remove(sources[i]);
  if (service.look != 0)
    g_source_remove(service.look);
  qv_proxy_free(service.proxy);
  g_main_loop_unref(service.loop);
  qv_log(QV_LOG_INFO, "ended", NULL);
  return 0;
}
