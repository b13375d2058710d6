/* SPDX-License-Identifier: Apache-2.0 */
/* The wire form of commands and replies: the only door to hiredis. */
#pragma once

#include "queue/reply.h"

/* One command as bytes. lens NULL: the strings end at NUL. The bytes are wiped when freed: they may hold a password. */
GBytes *qv_resp_format(int argc, const char *const *argv, const gsize *lens);

typedef struct QvRespReader QvRespReader;
QvRespReader *qv_resp_reader_new(void);
void qv_resp_reader_free(QvRespReader *reader);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvRespReader, qv_resp_reader_free)

/* Replies above these are FORMAT errors. */
#define QV_RESP_BYTES_MAX (96 * 1024 * 1024) /* received and not yet taken; and of one reply as it is in memory */
#define QV_RESP_LINE_MAX (64 * 1024)         /* a status, an error, a number, a count */
#define QV_RESP_ELEMENTS_MAX (1024 * 1024)   /* of one array */

/* FALSE, FORMAT: no RESP 2, or above a bound; the reader is of no further use. */
gboolean qv_resp_reader_feed(QvRespReader *reader, const void *bytes, gsize n, GError **error);
/* The next whole reply (caller's), or *reply NULL when more bytes are needed. */
gboolean qv_resp_reader_next(QvRespReader *reader, QvReply **reply, GError **error);
