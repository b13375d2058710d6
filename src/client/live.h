/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a job's live logs (protocol section 10): chunks in their order, as they come. A chunk that was dropped, has
 * expired or does not unseal is passed over: they inform only. */
#pragma once

#include "client/quavon.h"
#include "client/session.h"

typedef struct QvLive QvLive;

/* Follows from chunk 0 on, in the client's context: FUNCTION is called while that is turned. */
QvLive *qv_live_follow(QuavonClient *client, const QvTicket *ticket, QuavonLogFunction function, void *data);
void qv_live_free(QvLive *live);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvLive, qv_live_free)

/* Turns the context until all that is there now was read, or Valkey did not answer for a while. */
void qv_live_drain(QvLive *live);
