/* SPDX-License-Identifier: Apache-2.0 */
/* The gzip reader of format/inflate.h for whoever can hold a member: what that takes is taken with the same bytes, and members
 * of the snapshot profile (QV_GZIP_MEMBER_BYTES of output) are inflated whole by libdeflate, in a third of zlib's time.
 * From the first member on that is not one of these, zlib reads the rest as a stream. Needs about 3.2 MiB.
 *
 * Not all that zlib refuses is refused: libdeflate takes some DEFLATE that no writer writes (length symbol 286, distance
 * symbol 30, a code longer than its alphabet, a code with one symbol that has both its bits), as a whole member whose
 * CRC and length are right. Cap and checks hold for it as for any other. What is refused is so for zlib's reason. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/inflate.h"

typedef struct QvMembers QvMembers;

/* NULL: out of memory. */
QvMembers *qv_members_new(uint64_t max_output_bytes);
void qv_members_free(QvMembers *members); /* NULL is fine */

/* Consumes BYTES. QV_GUNZIP_OUTPUT: *OUT, *OUT_N until the next call, which may have the same input, even none;
 * QV_GUNZIP_MORE: the input is used up. LAST: no more input will come. */
QvGunzipStatus qv_members_step(QvMembers *members, const uint8_t **bytes, size_t *n, bool last, const uint8_t **out,
                               size_t *out_n);
QvGzipReason qv_members_reason(const QvMembers *members);
/* After a step with LAST gave QV_GUNZIP_MORE: as qv_gunzip_finish. */
QvGzipReason qv_members_finish(const QvMembers *members);
