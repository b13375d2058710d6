/* SPDX-License-Identifier: Apache-2.0 */
/* The end of the way out. The runner takes it away when it has read setup.json: it
 * closes the socket, or has the engine take the sandbox off its network, which takes the engine's time.
 * No word comes back to the entry; so it looks itself, and no step runs before there is none. */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>

enum {
  QV_ENTRY_CUT_MS = 30000,       /* the runner itself ends a sandbox that it cannot take off its network, sooner */
  QV_ENTRY_CUT_SILENT_MS = 600,  /* where a network is gone, gVisor has no other answer than none */
  QV_ENTRY_CUT_SILENT_N = 2,     /* in a row, each asked for anew: one packet may be lost */
};

/* Waits until nobody can be reached at TO any more, MS at most and a look. False: somebody still can. In gVisor connect() to a unix
 * socket may block all the same: then the runner's wall clock is the bound. Of a network the canary's port is asked as
 * well (base/canary.h): a proxy that is busy is silent like one that is out of reach, the kernel before it is not. */
bool qv_entry_cut_await(const struct sockaddr *to, socklen_t to_n, int ms);
