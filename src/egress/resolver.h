/* SPDX-License-Identifier: Apache-2.0 */
/* Names to addresses. getaddrinfo(3) blocks and reads what strangers send: it
 * runs in a few processes of this program that hold one socket and nothing else; they take
 * questions from one queue.
 *
 * Look-ups are absolute: no search list is used. Questions about the same name share one look-up, and an answer is used
 * for QV_RESOLVER_KEEP_MS; every use checks the addresses anew. Only names of the operator's list are ever asked. */
#pragma once

#include "egress/address.h"
#include "egress/loop.h"

enum {
  QV_RESOLVER_PROCESSES = 4,
  QV_RESOLVER_IPS_MAX = 64, /* of one name, both kinds: large fronts have a dozen of each */
  QV_RESOLVER_KEEP_MS = 3000,
  QV_RESOLVER_LOST_MS = 30000, /* without an answer: a process died over it */
  QV_RESOLVER_FD = 3,          /* of the role */
};

typedef struct {
  guint n; /* 0: no such name, or no answer; above QV_RESOLVER_IPS_MAX: more than can be checked, and none is to be used */
  QvIp ips[QV_RESOLVER_IPS_MAX];
} QvIps;

typedef struct QvResolver QvResolver;
/* IPS is borrowed for the call. */
typedef void (*QvResolverFunc)(const QvIps *ips, gpointer user);

/* ROLE: the argument that makes this program a resolver (qv_resolver_role_main). */
QvResolver *qv_resolver_new(QvLoop *loop, const char *role, GError **error);
void qv_resolver_free(QvResolver *resolver);

/* Calls FUNC once, maybe at once; qv_resolver_forget takes a question back (USER is its name). NAME without a
 * port, in lower case. */
void qv_resolver_ask(QvResolver *resolver, const char *name, gint64 now_ms, QvResolverFunc func, gpointer user);
void qv_resolver_forget(QvResolver *resolver, gpointer user);

/* main() of the role: exit status. */
int qv_resolver_role_main(void);
