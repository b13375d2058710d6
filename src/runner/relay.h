/* SPDX-License-Identifier: Apache-2.0 */
/* A job's way to the egress proxy where the sandbox has no network: a unix
 * socket that the sandbox sees as /run/quavon/egress.sock, and from there every
 * connection carried to the proxy. It reads nothing of what it carries: whoever
 * connects needs the token, and the proxy asks for it. Closing it is the
 * runner's own cut, whatever Valkey and the proxy do at that moment.
 *
 * Lives in the main loop of the job process; no call blocks but qv_relay_open,
 * which may ask a resolver. */
#pragma once

#include <glib.h>

enum {
  QV_RELAY_CONNS_MAX = 64,              /* at once; more wait in the listener's queue. The entry's forwarder has as many */
  QV_RELAY_WAY_BYTES = 64 * 1024,       /* kept of each direction of a connection */
};

typedef struct QvRelay QvRelay;

/* PROXY: "/path" of a unix socket, or "host:port" ("[v6]:port"). QV_ERROR_FORMAT with the accepted form. */
gboolean qv_relay_proxy_check(const char *proxy, GError **error);

/* Listens at PATH, whose folder is ours alone and exists; what lies there is replaced. The socket belongs to the
 * sandbox's user, mode 0600. QV_ERROR_SYSTEM, QV_ERROR_FORMAT. */
QvRelay *qv_relay_open(const char *path, const char *proxy, GError **error);

/* Closes every connection and the listener, and removes the socket. NULL is welcome. */
void qv_relay_close(QvRelay *relay);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvRelay, qv_relay_close)

/* Open now. */
guint qv_relay_conns_n(const QvRelay *relay);
