/* SPDX-License-Identifier: Apache-2.0 */
/* The name server and the far side of tunnels, each a thread of the test. */
#pragma once

/* Once, after the addresses are there. */
void far_start(void);
