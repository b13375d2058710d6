/* SPDX-License-Identifier: Apache-2.0 */
/* The two clocks. The pure rooms never call these: times come in as arguments. */
#pragma once

#include <stdint.h>

/* Unix time in ms: for the fields of the protocol alone. */
int64_t qv_clock_unix_ms(void);

/* A clock that never goes back, in ms and in us from an arbitrary start: for deadlines and
 * durations. */
int64_t qv_clock_mono_ms(void);
int64_t qv_clock_mono_us(void);
