/* SPDX-License-Identifier: Apache-2.0 */
/* The cancel record (section 2.3). */
#pragma once

#include <glib.h>

#include "protocol/job.h"

/* The signed text to store; KEY is the job's. */
char *qv_cancel_sign(const QvJob *job, gint64 at_ms, const QvKey *key, gsize *n, GError **error);

/* Is it a cancel of this very job, under its key? FALSE with QV_ERROR_FORMAT or QV_ERROR_AUTH: to be ignored and
 * logged. */
gboolean qv_cancel_verify(const char *text, gsize n, const QvJob *job, QvKey *key, GError **error);

/* PX of the cancel key: notAfter - now + 120 000 + wallMs, at least 1. */
gint64 qv_cancel_ttl_ms(const QvJob *job, gint64 now_ms);
