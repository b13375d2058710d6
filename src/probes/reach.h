/* SPDX-License-Identifier: Apache-2.0 */
/* What a sandbox with a network can reach: connects to the addresses that it is told, and says what came back. */
#pragma once

enum { QV_REACH_TARGETS_MAX = 192 };

/* TARGETS, a line each is printed: "reach TARGET ANSWER".
 *
 *   tcp:IPV4:PORT     OPEN (accepted), SILENT (nothing came back), or the error's name
 *   udp:IPV4:PORT     SILENT, or the error's name: ECONNREFUSED is the host's word that nobody listens
 *   dns:IPV4:NAME     OPEN (an address came back), CLOSED
 *   resolver:NAME     the same, of each name server in /etc/resolv.conf
 *   route:IPV4        OPEN (there is a way), or the error's name
 *
 * The first is a tcp target that accepts: a connection to it that is begun behind all the others says when their answers
 * must have come. Returns an exit status. */
int qv_reach(char *const *targets, int n);
