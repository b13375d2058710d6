/* SPDX-License-Identifier: Apache-2.0 */
/* QuavonPayload from the inside. */
#pragma once

#include <glib.h>

#include "client/quavon.h"

#define QV_PAYLOAD_ARTEFACTS "artefacts/"

typedef struct {
  char *path; /* "logs/0.log", "artefacts/…" */
  gboolean executable;
  GByteArray *bytes;
} QvPayloadMember;

struct QuavonPayload {
  GPtrArray *members; /* of QvPayloadMember */
};

/* Writes the artefacts among `members` below a folder: see quavon_payload_save. */
gboolean qv_artefacts_save(const GPtrArray *members, const char *folder, gboolean replace, GError **error);
