/* SPDX-License-Identifier: Apache-2.0 */
/* The canonical text of a JSON value: RFC 8785. Member names sort by UTF-16 code unit; numbers are written as
 * ECMAScript's Number::toString does, any finite double. No normalisation of text. */
#pragma once

#include <jansson.h>
#include <stddef.h>

/* The text (free() it; a NUL follows the N bytes), or NULL: out of memory, a number that is not finite, a
 * string that is not UTF-8, or deeper than QV_JSON_DEPTH_MAX. N may be NULL. */
char *qv_jcs(const json_t *value, size_t *n);

enum { QV_JCS_NUMBER_BYTES = 32 };
/* The text of one double and a NUL; its length, or 0 where it is not finite. */
size_t qv_jcs_number(double value, char text[QV_JCS_NUMBER_BYTES]);
