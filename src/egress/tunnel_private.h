/* SPDX-License-Identifier: Apache-2.0 */
/* A tunnel from inside, for tunnel.c (its life, its end, the relay) and tunnel_open.c (the way to the first byte). */
#pragma once

#include "egress/relay.h"
#include "egress/request.h"
#include "egress/tunnel.h"
#include "format/tls_hello.h"

enum {
  /* A whole hello, the heads of its records, and what came along in the last read. */
  QV_OPENING_RAW_BYTES = QV_TLS_HELLO_BYTES_MAX + 5 * QV_TLS_RECORDS_MAX + 4096,
};

typedef enum {
  QV_TUNNEL_HEAD,
  QV_TUNNEL_LOOKUP,
  QV_TUNNEL_RESOLVE,
  QV_TUNNEL_CONNECT,
  QV_TUNNEL_HELLO,
  QV_TUNNEL_RELAY,
  QV_TUNNEL_LINGER,
} QvTunnelState;

/* What is only needed until the first byte has gone through. */
typedef struct QvOpening {
  struct QvOpening *next; /* kept for the next connection */
  QvRequest request;
  char hash[65];
  guint64 lookup;
  gint64 asked_ms;
  QvIps ips;
  guint ip_at;
  gint64 connect_until_ms;
  guint raw_n, raw_fed, raw_sent;
  union {
    QvHttpHead head;
    QvTlsHello hello;
  };
  guint8 raw[QV_OPENING_RAW_BYTES]; /* behind the head, as it came */
} QvOpening;

struct QvTunnel {
  QvWatch client, upstream; /* their descriptors are those of the sides */
  QvSide c, u;
  QvProxy *proxy;
  QvTunnelState state;
  gboolean failed; /* a way broke */
  gboolean resets; /* both sides are told by a reset, not by an end */
  guint8 wait;
  GList in_wait, in_all, in_token;
  gint64 wait_until_ms;
  QvOpening *opening;
  QvToken *token;
  QvTokenHost *host;
  QvWay up, down;
  gint64 linger_bytes;
  guint64 bytes_up, bytes_down;
  gboolean has_peer;
  guint8 peer[4];
};

/* Reads, feeds or moves what is there. */
void qv_tunnel_advance(QvTunnel *tunnel);
/* Queues it for WAIT, whose length MS always is; QV_WAITS_N: for nothing. */
void qv_tunnel_wait(QvTunnel *tunnel, QvWait wait, gint64 ms);
void qv_tunnel_close_upstream(QvTunnel *tunnel);

/* tunnel_open.c */
void qv_tunnel_read_head(QvTunnel *tunnel);
void qv_tunnel_read_hello(QvTunnel *tunnel);
void qv_tunnel_connected(QvTunnel *tunnel);
void qv_tunnel_connect_next(QvTunnel *tunnel);
