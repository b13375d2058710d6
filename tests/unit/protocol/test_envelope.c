/* SPDX-License-Identifier: Apache-2.0 */
/* Envelopes: a number made by node:crypto from the contract's text, the order
 * of the checks, and what is no envelope. */
#include <string.h>

#include "base/error.h"
#include "protocol/envelope.h"
#include "support.h"

static const char *const members[] = { "job", "result", "health", "cancel", "smoke" };

static char *sign(QvEnvelopeKind kind, const QvKey *key, const char *body_text, gsize *n)
{
  json_t *body = t_json(body_text);
  GError *error = NULL;
  char *text = qv_envelope_sign(kind, key, body, n, &error);
  g_assert_no_error(error);
  g_assert_nonnull(text);
  json_decref(body);
  return text;
}

/* keyId and sig: node, createHmac("sha256", 32 bytes of 0x01) over "quavon/sandbox/cancel/v1\n" and the JCS. */
static void test_node(void)
{
  g_autoptr(QvKey) key = t_key(1);
  gsize n = 0;
  g_autofree char *text = sign(QV_ENVELOPE_CANCEL, key, "{'v':1,'at':5,'\\u20ac':'\\u0007x','\\ud83d\\ude00':[],'\\ufb33':null}", &n);
  g_assert_cmpstr(text, ==,
                  "{\"cancel\":{\"at\":5,\"v\":1,\"\xe2\x82\xac\":\"\\u0007x\",\"\xf0\x9f\x98\x80\":[],\"\xef\xac\xb3\":null},"
                  "\"keyId\":\"72cd6e8422c407fb\",\"sig\":\"0zRxhZCkOWBEq+J9xhLvXoThCmIvcCqO4o743+CTsRg=\"}");
  g_assert_cmpuint(n, ==, strlen(text));
}

static void test_round_trip(void)
{
  g_autoptr(QvKey) key = t_key(1);
  g_autoptr(QvKey) old = t_key(2);
  g_autoptr(QvKeyring) ring = qv_keyring_new(key);
  qv_keyring_add_previous(ring, old);
  for (QvEnvelopeKind kind = QV_ENVELOPE_JOB; kind <= QV_ENVELOPE_SMOKE; kind++) {
    g_assert_cmpstr(qv_envelope_member(kind), ==, members[kind]);
    for (int previous = 0; previous < 2; previous++) {
      gsize n = 0;
      g_autofree char *text = sign(kind, previous ? old : key, "{'b':[1,true,null],'a':'x'}", &n);
      g_autoptr(QvKey) by = NULL;
      json_t *body = NULL;
      GError *error = NULL;
      g_assert_cmpint(qv_envelope_verify(kind, ring, text, n, &body, &by, &error), ==, QV_ENVELOPE_OK);
      g_assert_no_error(error);
      g_assert_true(by == (previous ? old : key));
      g_assert_cmpint(json_integer_value(json_array_get(json_object_get(body, "b"), 0)), ==, 1);
      json_decref(body);
      /* What is signed as one thing is no other thing. */
      for (QvEnvelopeKind other = QV_ENVELOPE_JOB; other <= QV_ENVELOPE_SMOKE; other++) {
        json_t *none = NULL;
        g_autofree char *renamed = NULL;
        if (other == kind)
          continue;
        g_assert_cmpint(qv_envelope_verify(other, ring, text, n, &none, NULL, NULL), ==, QV_ENVELOPE_MALFORMED);
        g_autoptr(GString) forged = g_string_new(text);
        g_autofree char *from = g_strdup_printf("\"%s\":", members[kind]);
        g_autofree char *to = g_strdup_printf("\"%s\":", members[other]);
        g_string_replace(forged, from, to, 1);
        g_assert_cmpint(qv_envelope_verify(other, ring, forged->str, forged->len, &none, NULL, NULL), ==,
                        QV_ENVELOPE_BAD_SIGNATURE);
        g_assert_null(none);
      }
    }
  }
}

/* Any member order and any white space verifies; any changed byte of the body does not. */
static void test_text_is_free_value_is_not(void)
{
  g_autoptr(QvKey) key = t_key(1);
  gsize n = 0;
  g_autofree char *text = sign(QV_ENVELOPE_JOB, key, "{'a':1}", &n);
  json_t *envelope = json_loadb(text, n, 0, NULL);
  const char *sig = json_string_value(json_object_get(envelope, "sig"));
  static const struct {
    const char *format;
    QvEnvelopeVerdict verdict;
  } rows[] = {
    { "{\"sig\":\"%s\",\"keyId\":\"%s\",\"job\":{\"a\":1}}", QV_ENVELOPE_OK },
    { " {\n\"sig\" : \"%s\",\t\"keyId\":\"%s\",\"job\":{ \"\\u0061\" : 1 } } ", QV_ENVELOPE_OK },
    { "{\"sig\":\"%s\",\"keyId\":\"%s\",\"job\":{\"a\":2}}", QV_ENVELOPE_BAD_SIGNATURE },
    { "{\"sig\":\"%s\",\"keyId\":\"%s\",\"job\":{\"a\":\"1\"}}", QV_ENVELOPE_BAD_SIGNATURE },
    { "{\"sig\":\"%s\",\"keyId\":\"%s\",\"job\":{\"b\":1}}", QV_ENVELOPE_BAD_SIGNATURE },
    { "{\"sig\":\"%s\",\"keyId\":\"%s\",\"job\":{\"a\":1,\"b\":1}}", QV_ENVELOPE_BAD_SIGNATURE },
    { "{\"sig\":\"%s\",\"keyId\":\"%s\",\"job\":{}}", QV_ENVELOPE_BAD_SIGNATURE },
    { "{\"sig\":\"%s\",\"keyId\":\"%s\",\"job\":{\"a\":1.0}}", QV_ENVELOPE_MALFORMED },
    { "{\"sig\":\"%s\",\"keyId\":\"%s\",\"job\":{\"a\":1e0}}", QV_ENVELOPE_MALFORMED },
    { "{\"sig\":\"%s\",\"keyId\":\"%s\",\"job\":{\"a\":-0}}", QV_ENVELOPE_MALFORMED },
    { "{\"sig\":\"%s\",\"keyId\":\"%s\",\"job\":{\"a\":9007199254740992}}", QV_ENVELOPE_MALFORMED },
    { "{\"sig\":\"%s\",\"keyId\":\"%s\",\"job\":{\"a\":1,\"a\":1}}", QV_ENVELOPE_MALFORMED },
    { "{\"sig\":\"%s\",\"keyId\":\"%s\",\"job\":[]}", QV_ENVELOPE_MALFORMED },
    { "{\"sig\":\"%s\",\"keyId\":\"%s\",\"job\":null}", QV_ENVELOPE_MALFORMED },
    { "{\"sig\":\"%s\",\"keyId\":\"%s\"}", QV_ENVELOPE_MALFORMED },
    { "{\"sig\":\"%s\",\"keyId\":\"%s\",\"job\":{\"a\":1},\"x\":1}", QV_ENVELOPE_MALFORMED },
    { "{\"sig\":\"%s\",\"keyId\":\"%s\",\"job\":{\"a\":1}}x", QV_ENVELOPE_MALFORMED },
    { "{\"sig\":\"%s\",\"keyId\":\"%s\",\"job\":{\"a\":1}", QV_ENVELOPE_MALFORMED },
    { "\xef\xbb\xbf{\"sig\":\"%s\",\"keyId\":\"%s\",\"job\":{\"a\":1}}", QV_ENVELOPE_MALFORMED },
    { "{\"sig\":\"%.43s\",\"keyId\":\"%s\",\"job\":{\"a\":1}}", QV_ENVELOPE_MALFORMED },
    { "{\"sig\":\"%s \",\"keyId\":\"%s\",\"job\":{\"a\":1}}", QV_ENVELOPE_MALFORMED },
    { "{\"sig\":\"A%s\",\"keyId\":\"%s\",\"job\":{\"a\":1}}", QV_ENVELOPE_MALFORMED },
    { "{\"sig\":\"%s\",\"keyId\":\"%.15s\",\"job\":{\"a\":1}}", QV_ENVELOPE_MALFORMED },
    { "{\"sig\":\"%s\",\"keyId\":\"0%s\",\"job\":{\"a\":1}}", QV_ENVELOPE_MALFORMED },
    { "{\"sig\":\"%s\",\"keyId\":\"%.15sA\",\"job\":{\"a\":1}}", QV_ENVELOPE_MALFORMED },
    { "{\"sig\":\"%s\",\"keyId\":\"%.15sg\",\"job\":{\"a\":1}}", QV_ENVELOPE_MALFORMED },
    /* The signature of 128 bits, and one that is all zeros. */
    { "{\"sig\":\"%.22s==\",\"keyId\":\"%s\",\"job\":{\"a\":1}}", QV_ENVELOPE_MALFORMED },
    { "{\"sig\":\"%.0sAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\",\"keyId\":\"%s\",\"job\":{\"a\":1}}",
      QV_ENVELOPE_BAD_SIGNATURE },
    { "[\"%s\",\"%s\"]", QV_ENVELOPE_MALFORMED },
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    json_t *body = NULL;
    GError *error = NULL;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    g_autofree char *made = g_strdup_printf(rows[i].format, sig, qv_key_id(key));
#pragma GCC diagnostic pop
    QvEnvelopeVerdict verdict = qv_envelope_verify_key(QV_ENVELOPE_JOB, key, made, strlen(made), &body, &error);
    if (verdict != rows[i].verdict)
      g_error("%s: %d", made, verdict);
    g_assert_cmpint(verdict == QV_ENVELOPE_OK, ==, body != NULL);
    g_assert_cmpint(verdict == QV_ENVELOPE_OK, ==, error == NULL);
    if (error != NULL && verdict == QV_ENVELOPE_BAD_SIGNATURE)
      g_assert_error(error, QV_ERROR, QV_ERROR_AUTH);
    g_clear_error(&error);
    json_decref(body);
  }
  json_decref(envelope);
}

/* An unknown key is refused before any key is tried. */
static void test_unknown_key(void)
{
  g_autoptr(QvKey) key = t_key(1);
  g_autoptr(QvKey) other = t_key(9);
  g_autoptr(QvKeyring) ring = qv_keyring_new(other);
  gsize n = 0;
  GError *error = NULL;
  json_t *body = NULL;
  g_autofree char *text = sign(QV_ENVELOPE_JOB, key, "{'a':1}", &n);
  g_assert_cmpint(qv_envelope_verify(QV_ENVELOPE_JOB, ring, text, n, &body, NULL, &error), ==, QV_ENVELOPE_UNKNOWN_KEY);
  t_assert_error(&error, QV_ERROR_AUTH, qv_key_id(key));
  /* The ring's key id with the other key's signature. */
  g_autoptr(GString) forged = g_string_new(text);
  g_string_replace(forged, qv_key_id(key), qv_key_id(other), 1);
  g_assert_cmpint(qv_envelope_verify(QV_ENVELOPE_JOB, ring, forged->str, forged->len, &body, NULL, NULL), ==,
                  QV_ENVELOPE_BAD_SIGNATURE);
  /* Right key, wrong slot: a verifier with one key takes no other of the pool's. */
  g_assert_cmpint(qv_envelope_verify_key(QV_ENVELOPE_JOB, other, text, n, &body, &error), ==, QV_ENVELOPE_UNKNOWN_KEY);
  g_clear_error(&error);
  g_assert_null(body);
}

static void test_size(void)
{
  g_autoptr(QvKey) key = t_key(1);
  static const gsize caps[] = { 1048576, 1048576, 65536, 65536, 65536 };
  for (QvEnvelopeKind kind = QV_ENVELOPE_JOB; kind <= QV_ENVELOPE_SMOKE; kind++) {
    gsize n = 0;
    GError *error = NULL;
    g_assert_cmpuint(qv_envelope_bytes_max(kind), ==, caps[kind]);
    g_autofree char *empty = sign(kind, key, "{'a':''}", &n);
    json_t *fits = json_object();
    json_object_set_new(fits, "a", t_text(caps[kind] - n, 'x'));
    g_autofree char *text = qv_envelope_sign(kind, key, fits, &n, &error);
    g_assert_no_error(error);
    g_assert_cmpuint(n, ==, caps[kind]);
    json_t *body = NULL;
    g_assert_cmpint(qv_envelope_verify_key(kind, key, text, n, &body, NULL), ==, QV_ENVELOPE_OK);
    json_decref(body);
    g_autofree char *longer = g_strconcat(text, " ", NULL);
    g_assert_cmpint(qv_envelope_verify_key(kind, key, longer, n + 1, &body, NULL), ==, QV_ENVELOPE_MALFORMED);
    json_object_set_new(fits, "b", json_integer(1));
    g_assert_null(qv_envelope_sign(kind, key, fits, &n, &error));
    t_assert_error(&error, QV_ERROR_LIMIT, "cap");
    json_decref(fits);
  }
}

static void test_depth(void)
{
  g_autoptr(QvKey) key = t_key(1);
  for (int depth = 30; depth <= 33; depth++) {
    json_t *value = json_array();
    for (int i = 3; i < depth; i++) {
      json_t *outer = json_array();
      json_array_append_new(outer, value);
      value = outer;
    }
    json_t *body = json_object();
    json_object_set_new(body, "a", value);
    gsize n = 0;
    g_autofree char *text = qv_envelope_sign(QV_ENVELOPE_JOB, key, body, &n, NULL);
    json_decref(body);
    g_assert_nonnull(text);
    body = NULL;
    /* The envelope itself, the body, and the arrays: 32 levels in all. */
    g_assert_cmpint(qv_envelope_verify_key(QV_ENVELOPE_JOB, key, text, n, &body, NULL) == QV_ENVELOPE_OK, ==, depth <= 32);
    json_decref(body);
  }
}

static void test_body_sha256(void)
{
  char hex[65];
  json_t *body = t_json("{'b':1,'a':2}");
  g_assert_true(qv_envelope_body_sha256(body, hex, NULL));
  /* printf '{"a":2,"b":1}' | sha256sum */
  g_assert_cmpstr(hex, ==, "d3626ac30a87e6f7a6428233b3c68299976865fa5508e4267c5415c76af7a772");
  json_decref(body);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/envelope/node", test_node);
  g_test_add_func("/envelope/round-trip", test_round_trip);
  g_test_add_func("/envelope/text-is-free-value-is-not", test_text_is_free_value_is_not);
  g_test_add_func("/envelope/unknown-key", test_unknown_key);
  g_test_add_func("/envelope/size", test_size);
  g_test_add_func("/envelope/depth", test_depth);
  g_test_add_func("/envelope/body-sha256", test_body_sha256);
  return g_test_run();
}
