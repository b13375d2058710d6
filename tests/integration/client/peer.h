/* SPDX-License-Identifier: Apache-2.0 */
/* The other side of libquavon in its tests: takes jobs from the queue as a runner does, runs nothing, and answers as the first
 * word of the job's first step says:
 *
 *   succeed  fail (exit 3)  reject  hang (until cancelled)
 *   forge (signed with another key)  swap (another tenant's result)  corrupt (payload altered)  absent (payload gone)
 *
 * A thread with connections of its own. */
#pragma once

#include <glib.h>

typedef struct Peer Peer;

Peer *peer_start(const char *url, const char *key_file, const char *other_key_file);
void peer_stop(Peer *peer);

/* "path size;" of each file of the last job's base, as the strict readers gave them. Free with g_free. */
char *peer_last_base(Peer *peer);
/* Jobs taken so far. */
guint peer_taken(Peer *peer);
