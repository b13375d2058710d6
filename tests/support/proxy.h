/* SPDX-License-Identifier: Apache-2.0 */
/* A relay between a client and a unix socket (Valkey's, a Docker engine's), in a thread, that misbehaves on
 * demand: loses replies, alters them, goes silent without closing, refuses connections, answers in the server's place. The
 * server is real: whatever the relay is not told to spoil is the same scenario without harm. */
#pragma once

#include <glib.h>

typedef struct QvTestProxy QvTestProxy;

typedef enum {
  QV_TEST_AFTER_GO_ON,   /* as if nothing had been */
  QV_TEST_AFTER_HANG_UP, /* both sides are closed */
  QV_TEST_AFTER_HUSH,    /* open, and not a byte more either way */
} QvTestAfter;

typedef struct {
  const char *name;
  const char *bytes; /* sent in place of the server's answer */
  gsize bytes_n;     /* 0: up to the NUL */
  const char *again; /* and then this, again_n times (NULL: nothing); stops when the client hangs up */
  guint64 again_n;
  QvTestAfter after;
  const char *said; /* a part of what the client must say of it; NULL: it may go unnoticed */
} QvTestAnswer;

/* Listens on `<dir>/proxy.sock` and connects to `target` (a unix socket). */
QvTestProxy *qv_test_proxy_start(const char *dir, const char *target);
/* The same over TCP: listens on HOST (an IPv4 address of this machine, a free port) and connects to 127.0.0.1:TARGET_PORT from
 * the address SOURCE, any of 127.0.0.0/8, by which the server's side can tell one relay from another. */
QvTestProxy *qv_test_proxy_start_tcp(const char *host, const char *source, guint16 target_port);
void qv_test_proxy_free(QvTestProxy *proxy);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvTestProxy, qv_test_proxy_free)

const char *qv_test_proxy_socket(const QvTestProxy *proxy); /* borrowed */
guint16 qv_test_proxy_port(const QvTestProxy *proxy); /* TCP */
/* TCP: from now on connections lead to that port; those that there are end. */
void qv_test_proxy_aim(QvTestProxy *proxy, guint16 target_port);
/* The next `times` times that a client's bytes hold `text`: they reach the server, whose answer is thrown away, and both
 * sides are closed. times 0: off. */
void qv_test_proxy_lose_reply_to(QvTestProxy *proxy, const char *text, guint times);
guint qv_test_proxy_lost_n(QvTestProxy *proxy); /* replies thrown away so far */
/* The next `times` times that a client's bytes hold `text`: they reach the server, whose answer is thrown away, and
 * ANSWER (borrowed) is sent in its place. TEXT "": in the place of whatever the server says. */
void qv_test_proxy_answer(QvTestProxy *proxy, const char *text, const QvTestAnswer *answer, guint times);
guint qv_test_proxy_answered_n(QvTestProxy *proxy); /* since it began */
/* Every TEXT in what the server says becomes OTHER, of the same length; NULL: off. Not across two reads. */
void qv_test_proxy_alter(QvTestProxy *proxy, const char *text, const char *other);
/* What the server says is handed on byte by byte. */
void qv_test_proxy_trickle(QvTestProxy *proxy, gboolean trickle);
/* Silent: everything stays open, no byte moves, connections are accepted and left alone. */
void qv_test_proxy_freeze(QvTestProxy *proxy, gboolean frozen);
/* Frozen as soon as a client's bytes hold TEXT (NULL: off). They do not reach the server; that connection is silent for good,
 * the others until it is thawed. */
void qv_test_proxy_freeze_at(QvTestProxy *proxy, const char *text);
gboolean qv_test_proxy_frozen(QvTestProxy *proxy);
/* What the client that began to speak last said first, up to a NUL in it; NULL: none has. Free with g_free. */
char *qv_test_proxy_first_words(QvTestProxy *proxy);
/* From now on all that clients say is kept; once, before the first of them. */
void qv_test_proxy_listen(QvTestProxy *proxy);
/* So far, of GBytes: one a connection. */
GPtrArray *qv_test_proxy_heard(QvTestProxy *proxy);
/* Closes all connections that there are. */
void qv_test_proxy_cut(QvTestProxy *proxy);
