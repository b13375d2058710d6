/* SPDX-License-Identifier: Apache-2.0 */
/* Reason codes and what a client is told of them. reasons.def is the only source. Pure. */
#pragma once

#include <glib.h>

typedef enum {
#define QV_REASON(name, code, status, alert, text) QV_REASON_##name,
#include "egress/reasons.def"
#undef QV_REASON
  QV_REASONS_N,
} QvReason;

const char *qv_reason_code(QvReason reason);
const char *qv_reason_text(QvReason reason);
guint qv_reason_status(QvReason reason);

/* The whole HTTP answer, fixed texts alone: status line, `Quavon-Reason: CODE`, a challenge with 407, a body of one
 * line. Made once, borrowed for ever. */
const char *qv_reason_answer(QvReason reason, gsize *n);

/* A fatal TLS alert record for a client whose tunnel is open: 7 bytes, or 0 where the reason has none. */
gsize qv_reason_alert(QvReason reason, guint8 record[7]);

/* The table as Markdown, for docs/EGRESS.md. Free with g_free. */
char *qv_reason_markdown(void);
