/* SPDX-License-Identifier: Apache-2.0 */
/* The port that the rules of quavon-egress-network refuse a sandbox, at the proxy's address, while they drop all others. The kernel
 * answers there, whatever becomes of the proxy. */
#pragma once

enum { QV_EGRESS_CANARY_PORT = 2 };
