/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of the probe program (src/probes), made at build time: the runner ships it, no image needs it. */
#pragma once

#include <glib.h>

extern const unsigned char qv_probes_program[];
extern const gsize qv_probes_program_n;
