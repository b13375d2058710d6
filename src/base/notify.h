/* SPDX-License-Identifier: Apache-2.0 */
/* What a service tells the manager that started it (sd_notify(3)): a datagram to the socket that NOTIFY_SOCKET names.
 * Without one nothing is sent. */
#pragma once

#include <glib.h>

/* STATE: lines NAME=VALUE, such as "READY=1". TRUE where a manager took it; FALSE where there is none, or it
 * could not be told, which is no reason to end. */
gboolean qv_notify(const char *state);

/* "RELOADING=1" with the moment that managers want beside it; "READY=1" ends it. */
gboolean qv_notify_reloading(void);

/* How often the manager wants "WATCHDOG=1" at least, ms; 0: it does not watch this process. */
guint qv_notify_watchdog_ms(void);
