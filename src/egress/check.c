/* SPDX-License-Identifier: Apache-2.0 */
/* Owns --check: a line for each thing that must hold, nothing is left behind. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/exit.h"
#include "egress/service.h"
#include "egress/settings.h"
#include "queue/ask.h"

enum { VALKEY_MS = 10000 };

static gboolean say(const char *verdict, const char *what, const char *found)
{
  printf("%-5s %-14s %s\n", verdict, what, found);
  return strcmp(verdict, "fail") != 0;
}

static gboolean bad(const char *what, const GError *error)
{
  return say("fail", what, error->message);
}

static gboolean check_valkey(const QvConfig *config)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvAddress) address = qv_egress_settings_address(config, &error);
  if (address == NULL)
    return bad("valkey", error);
  g_autofree char *prefix = qv_config_prefix(config->pool);
  g_autofree char *own = g_strconcat(prefix, ":egress:none", NULL);
  g_autofree char *foreign = g_strconcat(prefix, ":sandbox:meta", NULL);
  g_autoptr(QvConn) conn = qv_conn_new(address, NULL);
  qv_conn_set_fail_fast(conn, TRUE);
  if (!qv_conn_ask(conn, VALKEY_MS, &error, "GET", own, NULL))
    return bad("valkey", error);
  say("ok", "valkey", qv_address_display(address));
  g_autoptr(GError) denied = NULL;
  if (!qv_conn_ask(conn, VALKEY_MS, &denied, "GET", foreign, NULL) && g_error_matches(denied, QV_ERROR, QV_ERROR_AUTH))
    return say("ok", "acl", "other keys of the pool cannot be read");
  return say("warn", "acl", "this user reads more than the tokens: use the user `egress` of the ACL file");
}

static gboolean check_registries(const QvConfig *config)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvRegistries) registries = qv_egress_settings_registries(config, &error);
  if (registries == NULL)
    return bad("registries", error);
  if (qv_registries_n(registries) == 0)
    say("warn", "registries", "none: every CONNECT will be refused");
  for (guint i = 0; i < qv_registries_n(registries); i++)
    say("ok", "registries", qv_registries_at(registries, i)->host_port);
  g_autoptr(GPtrArray) doubts = qv_egress_settings_doubts(registries);
  for (guint i = 0; i < doubts->len; i++)
    say("warn", "registries", g_ptr_array_index(doubts, i));
  return TRUE;
}

static gboolean check_listen(const QvConfig *config)
{
  g_autoptr(GError) error = NULL;
  g_auto(GStrv) where = qv_egress_settings_listen(config, &error);
  return where != NULL ? say("ok", "listen", config->egress_listen) : bad("listen", error);
}

static gboolean check_limits(const QvConfig *config)
{
  QvProxyLimits limits;
  qv_egress_settings_limits(config, &limits);
  g_autofree char *text = g_strdup_printf("%u tunnels, %u of one job", limits.tunnels, limits.tunnels_per_token);
  return say(limits.tunnels < config->egress_max_tunnels ? "warn" : "ok", "limits", text);
}

int qv_egress_check(const QvConfig *config)
{
  say("ok", "configuration", config->pool);
  gboolean fine = check_registries(config);
  fine &= check_listen(config);
  fine &= check_limits(config);
  fine &= check_valkey(config);
  return fine ? 0 : QV_EXIT_FAILED;
}
