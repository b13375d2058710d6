/* SPDX-License-Identifier: Apache-2.0 */
/* One connection from a sandbox.
 *
 *   HEAD     its request is read: capped, in time, nothing is looked up before it is whole and well-formed
 *   LOOKUP   the token is looked up in Valkey; then who, how many, where to: policy.h
 *   RESOLVE  the name is resolved, once; every address is checked
 *   CONNECT  a checked address is connected to, the next one where it fails
 *   HELLO    the client was told 200; its ClientHello must come, in time, and name the host
 *   RELAY    bytes both ways (relay.h), half-closes passed on, until both ends were told or the idle time is over
 *   LINGER   the client was told why not: what it still sends is thrown away until it closes, 2 s at most
 *
 * A token holds its tunnels from the end of LOOKUP on: when it ends, they are cut, whatever they are at. */
#pragma once

#include "egress/proxy.h"

typedef struct QvTunnel QvTunnel;

/* Takes FD. PEER_V4: the peer's IPv4 in network order, NULL where it has none. */
void qv_tunnel_start(QvProxy *proxy, int fd, const guint8 *peer_v4);
/* Ends it with WHY, told to the client where it can still be told; both sides are reset where bytes have gone through. */
void qv_tunnel_cut(QvTunnel *tunnel, QvReason why);
/* Would the list of registries, as it is now, refuse one that holds a token? NONE: no. */
QvReason qv_tunnel_review(const QvTunnel *tunnel);
/* Its wait is over. */
void qv_tunnel_timeout(QvTunnel *tunnel);
/* When its wait is over, monotonic ms. */
gint64 qv_tunnel_deadline_ms(const QvTunnel *tunnel);
/* "name:port" where it is known, else NULL; whether a token holds it. */
const char *qv_tunnel_host(const QvTunnel *tunnel);
gboolean qv_tunnel_holds_token(const QvTunnel *tunnel);
/* Drops it without a word. */
void qv_tunnel_drop(QvTunnel *tunnel);
