/* SPDX-License-Identifier: Apache-2.0 */
/* QuavonResult from the inside: a result whose checks have all held, with the job that it answers. */
#pragma once

#include "client/session.h"
#include "protocol/result.h"

struct QuavonResult {
  QvTicket *ticket;
  QvResult *result;
  char *json;
};

/* Verifies a return value; AUTH ("bad_result: …") on anything that does not hold. */
QuavonResult *qv_api_result_new(QvTicket *ticket, const char *text, gsize n, GError **error);
