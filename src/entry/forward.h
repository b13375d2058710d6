/* SPDX-License-Identifier: Apache-2.0 */
/* The way out during setup: a listener on 127.0.0.1 that carries each
 * connection to the proxy and puts `Proxy-Authorization` into its first head.
 * So clients that never send proxy credentials work, and the token is in no
 * environment, no argument and no file.
 *
 * It lives in PID 1's own poll loop, whose memory a step cannot read. Token:
 * Basic, user `job`, the token as the password (section 7 of the protocol: "inside the
 * proxy URL"). */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "entry/ring.h"

enum {
  QV_ENTRY_FORWARD_CONNS_MAX = 64, /* at once; more wait in the listener's queue */
  QV_ENTRY_FORWARD_FDS_MAX = 1 + 2 * QV_ENTRY_FORWARD_CONNS_MAX,
  QV_ENTRY_FORWARD_HEAD_BYTES_MAX = 16 * 1024,
  QV_ENTRY_FORWARD_TOKEN_BYTES_MAX = 128,
  QV_ENTRY_FORWARD_NOTES_MAX = 32, /* different refusals that are told */
};

typedef struct QvEntryForward QvEntryForward;

/* Listens, for a proxy at ADDRESS ("IPv4:PORT") or behind the unix socket
 * SOCKET_PATH; exactly one is not NULL. The token is copied. NULL with errno. */
QvEntryForward *qv_entry_forward_open(const char *token, const char *address, const char *socket_path);

/* From now on each refusal of the proxy is told in LOG (borrowed), the same one once. */
void qv_entry_forward_set_log(QvEntryForward *forward, QvEntryRing *log);
/* Tells what was refused and not wholly heard. */
void qv_entry_forward_flush_log(QvEntryForward *forward);

/* The port on 127.0.0.1. */
uint16_t qv_entry_forward_port(const QvEntryForward *forward);
/* Where the proxy is: its length; TO has room for every kind. */
socklen_t qv_entry_forward_to(const QvEntryForward *forward, struct sockaddr_storage *to);

/* Fills FDS, of QV_ENTRY_FORWARD_FDS_MAX, with what to poll for: their number. */
size_t qv_entry_forward_fds(QvEntryForward *forward, struct pollfd *fds);
/* ms until the next step must be called even if nothing is ready, or -1. */
int qv_entry_forward_timeout_ms(const QvEntryForward *forward);
/* Moves what is ready. FDS as filled by qv_entry_forward_fds and then polled. */
void qv_entry_forward_step(QvEntryForward *forward, const struct pollfd *fds, size_t n);

/* Closes every connection and wipes the token and all that was carried. */
void qv_entry_forward_close(QvEntryForward *forward);

/* Writes HEAD, a whole head with its empty line, into OUT with one
 * Proxy-Authorization of CREDENTIALS behind the request line; ones that the
 * client sent are left out. OUT has room for HEAD_N + 64 + strlen(CREDENTIALS).
 * Returns the length. */
size_t qv_entry_forward_head(const char *head, size_t head_n, const char *credentials, char *out);
