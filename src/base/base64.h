/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 (RFC 4648 section 4), canonical only: padded, no white space, unused
 * bits zero. One byte string has one text. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Characters of the text of N bytes, the NUL not counted. */
#define QV_BASE64_LEN(n) (((n) + 2) / 3 * 4)

/* Writes QV_BASE64_LEN(N) characters and a NUL. */
void qv_base64_encode(const void *bytes, size_t n, char *text);

/* Decodes at most CAP bytes; *N is set to their number. False where the text is not canonical or
 * its bytes are more than CAP; BYTES may then hold a part, *N is untouched. */
bool qv_base64_decode(const char *text, size_t text_n, void *bytes, size_t cap, size_t *n);
