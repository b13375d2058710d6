/* SPDX-License-Identifier: Apache-2.0 */
/* quavon's side of the keeper (keeper.h): the private Valkey and runner of one `quavon run`. */
#pragma once

#include <glib.h>

typedef struct QvEmbedded QvEmbedded;

/* Starts the keeper, with an egress proxy where EGRESS holds, and waits until its Valkey serves. SYSTEM, with what is
 * missing. Sweeps what earlier ones left. A signal (progress.h) ends any wait of these functions; what is then left is said. */
QvEmbedded *qv_embedded_start(gboolean egress, GError **error);

/* "NAME=VALUE" settings for quavon_client_open. */
const char *const *qv_embedded_settings(const QvEmbedded *embedded);

/* Has something of it ended? What the keeper said, or that itself is gone; NULL: all is well. Does not block. Borrowed. */
const char *qv_embedded_trouble(QvEmbedded *embedded);

/* Ends all of it, waits, and removes what the keeper could not. A signal that comes meanwhile leaves the keeper to it. NULL is fine. */
void qv_embedded_stop(QvEmbedded *embedded);
