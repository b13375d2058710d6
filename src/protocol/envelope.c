/* SPDX-License-Identifier: Apache-2.0 */
/* Owns envelopes: the canonical bytes that are signed, the order of a
 * verifier's checks. Source: section 1, and 2.1 for the order. */
#include "protocol/envelope.h"

#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/error.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "format/error.h"
#include "format/jcs.h"
#include "format/json.h"
#include "protocol/crypto.h"
#include "protocol/fields.h"

static const struct {
  const char *member;
  const char *domain; /* signed before the body */
  gsize bytes_max;
} kinds[] = {
#define KIND(member, bytes_max) { member, "quavon/sandbox/" member "/v1\n", bytes_max }
  [QV_ENVELOPE_JOB] = KIND("job", QV_JOB_JSON_BYTES_MAX),
  [QV_ENVELOPE_RESULT] = KIND("result", QV_RESULT_JSON_BYTES_MAX),
  [QV_ENVELOPE_HEALTH] = KIND("health", QV_RECORD_JSON_BYTES_MAX),
  [QV_ENVELOPE_CANCEL] = KIND("cancel", QV_RECORD_JSON_BYTES_MAX),
  [QV_ENVELOPE_SMOKE] = KIND("smoke", QV_RECORD_JSON_BYTES_MAX),
#undef KIND
};

const char *qv_envelope_member(QvEnvelopeKind kind)
{
  return kinds[kind].member;
}

gsize qv_envelope_bytes_max(QvEnvelopeKind kind)
{
  return kinds[kind].bytes_max;
}

/* HMAC(key, "quavon/sandbox/M/v1" LF JCS(body)). */
static void compute_sig(QvEnvelopeKind kind, const QvKey *key, const char *canonical, gsize n, guint8 sig[QV_SIG_BYTES])
{
  const QvSecret *secret = qv_key_secret(key);
  g_autoptr(QvDigest) digest = qv_digest_new_hmac(qv_secret_bytes(secret), qv_secret_len(secret));
  qv_digest_update(digest, kinds[kind].domain, strlen(kinds[kind].domain));
  qv_digest_update(digest, canonical, n);
  qv_digest_final(digest, sig);
}

char *qv_envelope_sign(QvEnvelopeKind kind, const QvKey *key, const json_t *body, gsize *n, GError **error)
{
  const char *member = kinds[kind].member;
  gsize canonical_n = 0;
  char *canonical = qv_jcs(body, &canonical_n);
  if (canonical == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_BUG, "a %s without a canonical form", member);
    return NULL;
  }
  guint8 sig[QV_SIG_BYTES];
  char sig_text[QV_BASE64_LEN(QV_SIG_BYTES) + 1];
  compute_sig(kind, key, canonical, canonical_n, sig);
  qv_base64_encode(sig, sizeof sig, sig_text);
  g_autofree char *text = g_strdup_printf("{\"%s\":%s,\"keyId\":\"%s\",\"sig\":\"%s\"}", member, canonical,
                                          qv_key_id(key), sig_text);
  free(canonical);
  gsize text_n = strlen(text);
  if (text_n > kinds[kind].bytes_max) {
    g_set_error(error, QV_ERROR, QV_ERROR_LIMIT, "the %s has %zu bytes, its cap is %zu", member, text_n,
                kinds[kind].bytes_max);
    return NULL;
  }
  *n = text_n;
  return g_steal_pointer(&text);
}

typedef QvKey *(*KeyPicker)(gconstpointer source, const char *key_id);

static QvKey *pick_from_ring(gconstpointer ring, const char *key_id)
{
  return qv_keyring_find(ring, key_id);
}

static QvKey *pick_only(gconstpointer key, const char *key_id)
{
  return strcmp(qv_key_id(key), key_id) == 0 ? (QvKey *)key : NULL;
}

static json_t *parse_envelope(QvEnvelopeKind kind, const char *text, gsize n, char key_id[QV_KEY_ID_HEX_N + 1],
                              guint8 sig[QV_SIG_BYTES], GError **error)
{
  const QvJsonMember table[] = {
    { "keyId", QV_JSON_STRING }, { "sig", QV_JSON_STRING }, { kinds[kind].member, QV_JSON_OBJECT } };
  json_t *envelope = qv_json_load(text, n, kinds[kind].bytes_max, QV_JSON_SIGNED, kinds[kind].member, error);
  if (envelope == NULL)
    return NULL;
  if (qv_fields_shape(envelope, "", table, G_N_ELEMENTS(table), error) &&
      qv_field_text_into(envelope, "", "keyId", qv_key_id_valid, key_id, QV_KEY_ID_HEX_N + 1, error) &&
      qv_field_bytes(envelope, "", "sig", sig, QV_SIG_BYTES, error))
    return envelope;
  json_decref(envelope);
  return NULL;
}

static gboolean sig_is_right(QvEnvelopeKind kind, const QvKey *key, const json_t *body, const guint8 *sig)
{
  guint8 want[QV_SIG_BYTES];
  gsize n = 0;
  char *canonical = qv_jcs(body, &n);
  if (canonical == NULL)
    return FALSE;
  compute_sig(kind, key, canonical, n, want);
  free(canonical);
  return qv_equal_ct(want, sig, QV_SIG_BYTES);
}

static QvEnvelopeVerdict verify(QvEnvelopeKind kind, KeyPicker pick, gconstpointer source, const char *text, gsize n,
                                json_t **body, QvKey **key, GError **error)
{
  char key_id[QV_KEY_ID_HEX_N + 1];
  guint8 sig[QV_SIG_BYTES];
  QvEnvelopeVerdict verdict = QV_ENVELOPE_OK;
  json_t *envelope = parse_envelope(kind, text, n, key_id, sig, error);
  if (envelope == NULL)
    return QV_ENVELOPE_MALFORMED;
  json_t *inner = json_object_get(envelope, kinds[kind].member);
  QvKey *found = pick(source, key_id);
  if (found == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_AUTH, "no key has the id %s", key_id);
    verdict = QV_ENVELOPE_UNKNOWN_KEY;
  } else if (!sig_is_right(kind, found, inner, sig)) {
    g_set_error(error, QV_ERROR, QV_ERROR_AUTH, "the signature by key %s does not verify", key_id);
    verdict = QV_ENVELOPE_BAD_SIGNATURE;
  } else {
    *body = json_incref(inner);
    if (key != NULL)
      *key = qv_key_ref(found);
  }
  json_decref(envelope);
  return verdict;
}

QvEnvelopeVerdict qv_envelope_verify(QvEnvelopeKind kind, const QvKeyring *ring, const char *text, gsize n,
                                     json_t **body, QvKey **key, GError **error)
{
  return verify(kind, pick_from_ring, ring, text, n, body, key, error);
}

QvEnvelopeVerdict qv_envelope_verify_key(QvEnvelopeKind kind, QvKey *key, const char *text, gsize n, json_t **body,
                                         GError **error)
{
  return verify(kind, pick_only, key, text, n, body, NULL, error);
}

gboolean qv_envelope_body_sha256(const json_t *body, char hex[65], GError **error)
{
  gsize n = 0;
  char *canonical = qv_jcs(body, &n);
  if (canonical == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_BUG, "a body without a canonical form");
    return FALSE;
  }
  g_autoptr(QvDigest) digest = qv_digest_new_sha256();
  qv_digest_update(digest, canonical, n);
  qv_digest_final_hex(digest, hex);
  free(canonical);
  return TRUE;
}
