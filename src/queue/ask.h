/* SPDX-License-Identifier: Apache-2.0 */
/* One question to Valkey that a program waits for: of what tries a configuration, never of what serves. */
#pragma once

#include "queue/conn.h"

/* Sends the NULL-terminated words once and turns the thread-default main context until they are answered. FALSE: they were
 * not, or with an error; one of QvReplyFunc's. */
gboolean qv_conn_ask(QvConn *conn, gint64 deadline_ms, GError **error, ...) G_GNUC_NULL_TERMINATED;
