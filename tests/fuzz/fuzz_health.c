/* SPDX-License-Identifier: Apache-2.0 */
/* Health records and smoke requests: any bytes as an envelope, and as a body that somebody with the key signed. */
#include "format/jcs.h"
#include "fuzz_protocol.h"
#include "protocol/envelope.h"
#include "protocol/health.h"

enum { NOW_S = 1700000000 };

static void check_accepted(const QvHealth *health, const json_t *body, QvKey *key, const QvKeyring *ring)
{
  gsize n;
  g_autofree char *text = qv_health_sign(health, key, &n, NULL);
  QV_FUZZ_CHECK(text);
  json_t *again = NULL;
  QV_FUZZ_CHECK(qv_envelope_verify(QV_ENVELOPE_HEALTH, ring, text, n, &again, NULL, NULL) == QV_ENVELOPE_OK);
  QV_FUZZ_CHECK(json_equal(again, body));
  json_decref(again);
  char *const backends[] = {(char *)"runsc", NULL};
  const QvHealthWant want = {.backends = backends, .image_name = "base", .image_digest = "sha256:" FUZZ_HEX64};
  if (qv_health_fits(health, &want, (gint64)NOW_S * 1000, NULL))
    QV_FUZZ_CHECK(health->smoke && health->smoke->passed && !health->insecure && health->images_n > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  const gint64 now_ms = (gint64)NOW_S * 1000;
  g_autoptr(QvKey) key = fuzz_key();
  g_autoptr(QvKeyring) ring = qv_keyring_new(key);
  QvHealth *raw = qv_health_verify((const char *)data, size, ring, "default", "r", now_ms, NULL, NULL);
  qv_health_free(raw);
  json_t *body = qv_json_parse(data, size, QV_RECORD_JSON_BYTES_MAX, QV_JSON_SIGNED, NULL);
  if (json_is_object(body)) {
    gsize n;
    g_autofree char *text = qv_envelope_sign(QV_ENVELOPE_HEALTH, key, body, &n, NULL);
    gboolean current = FALSE;
    g_autoptr(QvHealth) health = text ? qv_health_verify(text, n, ring, "default", "r", now_ms, &current, NULL) : NULL;
    QV_FUZZ_CHECK(!health || current);
    if (health)
      check_accepted(health, body, key, ring);
    g_autofree char *request = qv_envelope_sign(QV_ENVELOPE_SMOKE, key, body, &n, NULL);
    g_autofree char *id = request ? qv_smoke_request_verify(request, n, ring, "default", "r", now_ms, NULL) : NULL;
    QV_FUZZ_CHECK(!id || strlen(id) <= QV_IDENTIFIER_BYTES_MAX);
  }
  json_decref(body);
  return 0;
}
