/* SPDX-License-Identifier: Apache-2.0 */
/* The characters that are never written as they are where a person reads: they move, hide or reorder what is around them, drive a
 * terminal, or show nothing and carry words that way. For the log and for what a guest printed. libc alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* False for LF and TAB, and for the variation selectors FE00 to FE0F, which are on any coloured tick. */
bool qv_invisible_is(uint32_t code_point);
