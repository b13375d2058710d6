/* SPDX-License-Identifier: Apache-2.0 */
/* What a CONNECT asks for, out of its head. Pure; nothing is looked up. */
#pragma once

#include <glib.h>

#include "egress/reason.h"
#include "format/http_head.h"
#include "protocol/egress_token.h"

typedef struct {
  char host_port[264]; /* "name:port", lower-case; what is counted */
  guint host_n;        /* bytes of the name, or of a literal with its brackets */
  guint16 port;
  gboolean literal;    /* an address, or a name that resolvers read as one */
  char token[QV_TOKEN_LEN + 1]; /* of valid form; empty where REASON is about credentials or before them */
} QvRequest;

/* HEAD was read to its end. The first fault decides, in the order of section "request" and "who asks" of reasons.def;
 * NONE: host and token are both there. Where the target was good, host_port is set whatever the reason. */
QvReason qv_request_parse(const QvHttpHead *head, QvRequest *request);

/* The target alone: authority-form, "name:port" or "[literal]:port". FALSE: malformed. */
gboolean qv_request_parse_target(const char *text, gsize n, QvRequest *request);
