/* SPDX-License-Identifier: Apache-2.0 */
/* Our Lua scripts: texts made from scripts/ at build time, called by their SHA-1,
 * with the text when the server does not know them (first use, restart, SCRIPT FLUSH). */
#pragma once

#include "queue/conn.h"

typedef struct {
  const char *name;
  const char *text;
  char *sha; /* made at the first use; never freed */
} QvScript;

extern QvScript qv_script_fetch, qv_script_finish, qv_script_release, qv_script_renew, qv_script_stalled,
  qv_script_progress, qv_script_add, qv_script_remove, qv_script_count, qv_script_state, qv_script_view, qv_script_pause;

/* P of docs/QUEUE.md: "<prefix>:sandbox:". */
char *qv_queue_prefix(const char *prefix);

/* args are ARGV[1...]; args[0] is P, and the one declared key is `meta` below it. As qv_conn_send, but the call cannot
 * be cancelled: `user` must live until func is called. */
void qv_script_call(QvConn *conn, QvScript *script, QvSend send, gint64 deadline_ms, int args_n,
                    const char *const *args, const gsize *lens, QvReplyFunc func, gpointer user);
