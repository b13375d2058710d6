/* SPDX-License-Identifier: Apache-2.0 */
/* A network of the test's own, in a network and a mount namespace that end with
 * it: addresses on its loopback, a name server, a far side that echoes, a Valkey with the shipped users, the
 * proxy as a program. */
#pragma once

#include <glib.h>

#include "support/loop.h"
#include "support/proxy.h"
#include "support/valkey.h"

#define W_HOST "pkg.allowed.example"
#define W_PUBLIC "11.22.33.1"  /* the far side: ports 443, 8443 echo; 444 says nothing; 445 sends without end */
#define W_PUBLIC6 "2a0b:1::1"
#define W_PRIVATE "10.0.0.7"   /* the same on a private address */
#define W_PROXY_PORT 3128
#define W_STALLED_PORT 446     /* of W_PUBLIC: who connects there is not answered */

typedef struct World World;

/* Call first in main(): FALSE (and the test program ends with a skip) where namespaces cannot be made. */
gboolean world_enter(void);

/* Starts all. ENVIRONMENT: NAME=value texts for the proxy besides VALKEY_URL and LISTEN, NULL at the end. */
World *world_new(const char *const *environment);
/* The same with a relay between the proxy and Valkey, which has everything of them in its hands. */
World *world_new_relayed(const char *const *environment);
QvTestProxy *world_relay(World *world);
void world_free(World *world);
QvTestValkey *world_valkey(World *world);
GPid world_proxy_pid(const World *world);
/* Everything that the proxy has logged so far. */
char *world_log(const World *world);
void world_await_log(World *world, const char *part);
/* Ends the proxy with SIGTERM and waits: its exit status. */
int world_stop(World *world);

/* A new token for HOSTS (NULL at the end), in Valkey. SOURCE may be NULL. Free the text. */
char *world_token(World *world, const char *const *hosts, const char *source, gint64 life_ms);
/* As the runner revokes: UNLINK, and the message where MESSAGE. */
void world_revoke(World *world, const char *token, gboolean message);
char *world_token_hash(const char *token);

/* ---- names */

/* The answer for NAME from now on: addresses with blanks between them ("" none: no such name), or "alias NAME". The
 * first of LATER (may be NULL) is the answer from the second look-up on. */
void world_name(const char *name, const char *addresses, const char *later);
/* Do not answer at all. */
void world_name_silent(const char *name);
/* Look-ups of NAME so far. */
guint world_lookups(const char *name);
/* All names that were asked for, once each, sorted, with blanks between them. Free it. */
char *world_asked(void);

/* ---- the far side */

/* Connections that have come to port 443 so far, at any of its addresses; all that were made are counted. */
guint world_arrivals(void);

/* ---- clients */

/* A connection to the proxy. */
int world_connect(const World *world);
void world_send(int fd, const void *bytes, gsize n);
/* Reads up to the end of a head; the whole as text, "" where the connection ended before. Free it. */
char *world_head(int fd);
/* Reads exactly N bytes, FALSE where the connection ends before. */
gboolean world_read(int fd, void *bytes, gsize n);
/* Waits for the end (or reset) of the connection; bytes that came before. */
gsize world_await_end(int fd);
/* A CONNECT head with TOKEN (NULL: none). Free it. */
char *world_request(const char *target, const char *token);
/* Status and reason of an answer: "403 host_not_listed"; "200 " for an open one; "" for none. Free it. */
char *world_verdict(const char *head);
/* Opens a tunnel to W_HOST: CONNECT, 200, ClientHello, which is echoed. */
int world_tunnel(const World *world, const char *token);
/* The same to port PORT of HOST; without the ClientHello where it is SILENT. */
int world_tunnel_to(const World *world, const char *token, const char *host, guint port, gboolean silent);
/* Is it alive? Sends and gets back W_LIFE_BYTES. */
#define W_LIFE_BYTES 5
gboolean world_tunnel_lives(int fd);

/* ---- usage */

/* Waits for the usage record of TOKEN: "host connections up down refused" a row, LF behind each, sorted. Free it. */
char *world_usage(World *world, const char *token);
