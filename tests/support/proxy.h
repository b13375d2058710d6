/* SPDX-License-Identifier: Apache-2.0 */
/* A relay between a client and a Valkey socket, in a thread, that misbehaves on
 * demand: loses replies, goes silent without closing, refuses connections. */
#pragma once

#include <glib.h>

typedef struct QvTestProxy QvTestProxy;

/* Listens on `<dir>/proxy.sock` and connects to `target` (a unix socket). */
QvTestProxy *qv_test_proxy_start(const char *dir, const char *target);
void qv_test_proxy_free(QvTestProxy *proxy);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvTestProxy, qv_test_proxy_free)

const char *qv_test_proxy_socket(const QvTestProxy *proxy); /* borrowed */
/* The next `times` times that a client's bytes hold `text`: they reach the server, whose answer is thrown away, and both
 * sides are closed. times 0: off. */
void qv_test_proxy_lose_reply_to(QvTestProxy *proxy, const char *text, guint times);
guint qv_test_proxy_lost_n(QvTestProxy *proxy); /* replies thrown away so far */
/* Silent: everything stays open, no byte moves, connections are accepted and left alone. */
void qv_test_proxy_freeze(QvTestProxy *proxy, gboolean frozen);
/* Closes all connections that there are. */
void qv_test_proxy_cut(QvTestProxy *proxy);
