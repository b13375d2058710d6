/* SPDX-License-Identifier: Apache-2.0 */
/* Lower-case hex digits, the only form that the protocol knows (section 0). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes 2 × N digits and a NUL. */
void qv_hex_encode(const void *bytes, size_t n, char *text);

/* Exactly 2 × N lower-case digits in TEXT_N bytes; false leaves BYTES as they
 * were. */
bool qv_hex_decode(const char *text, size_t text_n, void *bytes, size_t n);

/* TEXT_N bytes, all of them lower-case hex digits? */
bool qv_hex_valid(const char *text, size_t text_n);
