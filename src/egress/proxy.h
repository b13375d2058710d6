/* SPDX-License-Identifier: Apache-2.0 */
/* The proxy as a whole: listeners, limits, deadlines, what happens at a token's
 * end, reload and drain. One process, one loop; a connection's life is tunnel.c's. */
#pragma once

#include "egress/loop.h"
#include "egress/resolver.h"
#include "egress/store.h"
#include "egress/tokens.h"

typedef struct {
  guint tunnels;           /* in all, opening ones included */
  guint tunnels_per_token;
  guint opening;           /* connections that hold no token, refused ones that linger among them. For one more goes one that was answered, or
                            * else the oldest without a whole head; where all wait for Valkey the new one is closed */
  gint64 token_bytes;      /* both ways */
  gint64 head_ms;          /* for the head, and for the ClientHello */
  gint64 connect_ms;
  gint64 idle_ms;
} QvProxyLimits;

/* What a connection waits for; each kind has one length, so a queue in order of arrival is in order of deadlines. */
typedef enum { QV_WAIT_HEAD, QV_WAIT_SETUP, QV_WAIT_ATTEMPT, QV_WAIT_HELLO, QV_WAIT_IDLE, QV_WAIT_LINGER, QV_WAITS_N } QvWait;

typedef struct {
  QvProxyLimits limits;
  QvLoop *loop;
  QvStore *store;
  QvResolver *resolver;
  QvTokens *tokens;
  QvRegistries *registries;
  GQueue waits[QV_WAITS_N]; /* of QvTunnel, by their link */
  GQueue all;               /* every connection */
  guint tunnels;            /* those that hold a token */
  gboolean draining;
  GArray *ports;            /* guint16: where we listen, for the look at our own address */
  /* proxy.c's own */
  GPtrArray *listeners;
  guint tick, accept_again;
  guint log_allowance, log_withheld;
  gint64 log_second;
} QvProxy;

/* Takes REGISTRIES. ROLE as in qv_resolver_new. Nothing is listened at yet. */
QvProxy *qv_proxy_new(const QvProxyLimits *limits, QvRegistries *registries, QvAddress *valkey, const char *prefix,
                      const char *role, GError **error);
void qv_proxy_free(QvProxy *proxy);

/* "ADDRESS:PORT", "[ADDRESS]:PORT" or "unix:/path"; port 0: any (qv_proxy_port). */
gboolean qv_proxy_listen(QvProxy *proxy, const char *where, GError **error);
/* Is WHERE of that form? Error: FORMAT. */
gboolean qv_proxy_where_valid(const char *where, GError **error);
guint16 qv_proxy_port(const QvProxy *proxy, guint i);

/* Takes REGISTRIES; tunnels that it would not let through are cut, whatever they are at: their number. */
guint qv_proxy_reload(QvProxy *proxy, QvRegistries *registries);

/* No new connections; open tunnels go on. */
void qv_proxy_drain(QvProxy *proxy);
/* Cuts what is left and says each token's usage. */
void qv_proxy_end(QvProxy *proxy);
gboolean qv_proxy_is_idle(const QvProxy *proxy);

/* May a refusal be logged? Sandboxes can cause any number of them. */
gboolean qv_proxy_log_allows(QvProxy *proxy);
