/* SPDX-License-Identifier: Apache-2.0 */
/* Signed envelopes {keyId, sig, M: {…}} (section 1). */
#pragma once

#include <glib.h>
#include <jansson.h>

#include "protocol/key.h"

typedef enum {
  QV_ENVELOPE_JOB,
  QV_ENVELOPE_RESULT,
  QV_ENVELOPE_HEALTH,
  QV_ENVELOPE_CANCEL,
  QV_ENVELOPE_SMOKE,
} QvEnvelopeKind;

typedef enum {
  QV_ENVELOPE_OK,
  QV_ENVELOPE_MALFORMED,
  QV_ENVELOPE_UNKNOWN_KEY,
  QV_ENVELOPE_BAD_SIGNATURE,
} QvEnvelopeVerdict;

/* "job", "result", … */
const char *qv_envelope_member(QvEnvelopeKind kind);
/* Bytes that an envelope of this kind may have (section 0). */
gsize qv_envelope_bytes_max(QvEnvelopeKind kind);

/* The signed text. QV_ERROR_LIMIT where it is over the kind's cap,
 * QV_ERROR_BUG where BODY has no canonical form. Free with g_free. */
char *qv_envelope_sign(QvEnvelopeKind kind, const QvKey *key, const json_t *body, gsize *n, GError **error);

/* Checks form, key and signature, in this order, and hands out the body (a new reference; free with
 * json_decref) and the key that verified it (a new reference; KEY may be NULL). ERROR is set, and
 * BODY and KEY are untouched, for every verdict but OK. Nothing of the body has been looked at but its
 * being a JSON object. */
QvEnvelopeVerdict qv_envelope_verify(QvEnvelopeKind kind, const QvKeyring *ring, const char *text, gsize n,
                                     json_t **body, QvKey **key, GError **error);

/* The same with one key alone: any other keyId is UNKNOWN_KEY. */
QvEnvelopeVerdict qv_envelope_verify_key(QvEnvelopeKind kind, QvKey *key, const char *text, gsize n, json_t **body,
                                         GError **error);

/* Hex SHA-256 of JCS(BODY): jobSha256. */
gboolean qv_envelope_body_sha256(const json_t *body, char hex[65], GError **error);
