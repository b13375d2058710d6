/* SPDX-License-Identifier: Apache-2.0 */
/* What a process of the runner would hold in memory without ever using it. */
#pragma once

#include <glib.h>

/* From here on a block is large: as chunks of blobs are. Who holds one that it has no use for frees it. */
enum { QV_FOOTPRINT_LARGE_BYTES = 256 * 1024 };

/* First of all in main(). Blocks as large as chunks of blobs go back to the system as they are freed: malloc else learns from
 * the first of them to keep all that follow. PROBES FALSE: the probe program, which stands in the middle of our constants, is not of
 * this process (the kernel maps what is around a page that is read). */
void qv_footprint_limit(gboolean probes);
