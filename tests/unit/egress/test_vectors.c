/* SPDX-License-Identifier: Apache-2.0 */
/* The shared suites `http` and `url` against the proxy's readers. */
#include <jansson.h>
#include <string.h>

#include "egress/request.h"

static char *read_vector(const char *name, gsize *n)
{
  const char *folder = g_getenv("QUAVON_VECTORS");
  if (folder == NULL || !g_file_test(folder, G_FILE_TEST_IS_DIR)) {
    g_test_skip("the shared vectors are not beside this clone (QUAVON_VECTORS)");
    return NULL;
  }
  char *text = NULL;
  g_autofree char *path = g_build_filename(folder, name, NULL);
  g_assert_true(g_file_get_contents(path, &text, n, NULL));
  return text;
}

static QvReason judge(const guint8 *bytes, gsize n, gsize step)
{
  g_autofree QvHttpHead *head = g_new(QvHttpHead, 1);
  QvHttpVerdict verdict = QV_HTTP_MORE;
  gsize taken;
  QvRequest request;
  qv_http_head_init(head);
  for (gsize at = 0; at < n && verdict == QV_HTTP_MORE; at += taken)
    verdict = qv_http_head_feed(head, bytes + at, MIN(step, n - at), &taken);
  return verdict == QV_HTTP_DONE ? qv_request_parse(head, &request)
         : verdict == QV_HTTP_MORE ? QV_REASON_HEAD_TIMEOUT
                                   : QV_REASON_BAD_HEAD;
}

/* A parser error that is a pause in llhttp is none. */
static gboolean is_fault(const json_t *json)
{
  const json_t *error = json_object_get(json, "error");
  json_int_t code = json_integer_value(json_object_get(error, "code"));
  return json_is_object(error) && code != 21 && code != 22;
}

static void test_http(void)
{
  gsize n;
  guint requests = 0, faults = 0, refused = 0, connects = 0;
  g_autofree char *text = read_vector("http/llhttp-cases.jsonl", &n);
  if (text == NULL)
    return;
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  for (guint i = 0; lines[i] != NULL && lines[i][0] != '\0'; i++) {
    json_t *json = json_loads(lines[i], 0, NULL);
    g_assert_nonnull(json);
    const char *hex = json_string_value(json_object_get(json, "input_hex"));
    gboolean strict = strcmp(json_string_value(json_object_get(json, "type")), "request") == 0;
    g_autoptr(GByteArray) bytes = g_byte_array_new();
    for (; *hex != '\0'; hex += 2)
      g_byte_array_append(bytes, (const guint8[1]){(guint8)(g_ascii_xdigit_value(hex[0]) << 4 | g_ascii_xdigit_value(hex[1]))}, 1);
    QvReason whole = judge(bytes->data, bytes->len, MAX(bytes->len, 1));
    g_assert_cmpint(judge(bytes->data, bytes->len, 1), ==, whole);
    /* No input of the suite carries a token of ours: nothing may pass. */
    g_assert_cmpint(whole, !=, QV_REASON_NONE);
    if (strict) {
      requests++;
      faults += is_fault(json);
      /* Refused, or never whole: the head's time-out refuses it. */
      refused += is_fault(json) && whole != QV_REASON_NONE;
      connects += whole == QV_REASON_BAD_CREDENTIALS || whole == QV_REASON_NO_CREDENTIALS;
    }
    json_decref(json);
  }
  g_test_message("http: %u strict requests, %u with a fault, %u of these refused; %u well-formed CONNECTs", requests, faults, refused,
                 connects);
  g_assert_cmpuint(requests, ==, 85);
  g_assert_cmpuint(faults, >=, 20);
  g_assert_cmpuint(refused, ==, faults);
  g_assert_cmpuint(connects, ==, 1); /* "CONNECT request": the others have a body, no end, or an underscore */
}

/* The suite has lone surrogates, which are no text: each becomes U+FFFD, also bytes over 0x7f. */
static json_t *load(const char *text)
{
  g_autoptr(GRegex) surrogates = g_regex_new("\\\\u[dD][89a-fA-F][0-9a-fA-F]{2}", 0, 0, NULL);
  g_autofree char *clean = g_regex_replace_literal(surrogates, text, -1, 0, "\\ufffd", 0, NULL);
  json_error_t error;
  json_t *json = json_loads(clean, JSON_ALLOW_NUL, &error);
  if (json == NULL)
    g_error("line %d: %s", error.line, error.text);
  return json;
}

/* What stands between "//" and the next / ? or #, as a CONNECT host. */
static char *authority_of(const json_t *text)
{
  const char *input = json_string_value(text);
  if (strlen(input) != json_string_length(text))
    return NULL; /* a NUL: no head carries it */
  const char *from = strstr(input, "//");
  if (from == NULL)
    return NULL;
  from += 2;
  return g_strndup(from, strcspn(from, "/?#"));
}

/* Accepted as a name: its canonical form, else NULL. */
static char *accept_host(const char *authority)
{
  QvRequest request;
  const char *colon = strrchr(authority, ':');
  g_autofree char *target = colon != NULL && strchr(colon, ']') == NULL ? g_strdup(authority) : g_strconcat(authority, ":443", NULL);
  if (!qv_request_parse_target(target, strlen(target), &request) || request.literal)
    return NULL;
  return g_strndup(request.host_port, request.host_n);
}

static void test_url(void)
{
  gsize n;
  guint cases = 0, accepted = 0;
  g_autofree char *text = read_vector("url/urltestdata-http.json", &n);
  if (text == NULL)
    return;
  json_t *json = load(text), *row;
  size_t i;
  json_array_foreach(json, i, row) {
    g_autofree char *authority = authority_of(json_object_get(row, "input"));
    cases++;
    g_autofree char *host = authority != NULL ? accept_host(authority) : NULL;
    if (host == NULL)
      continue;
    accepted++;
    g_test_message("%s", authority);
    /* Another reading of the same text would be another host. */
    g_assert_false(json_is_true(json_object_get(row, "failure")));
    g_assert_cmpstr(host, ==, json_string_value(json_object_get(row, "hostname")));
  }
  json_decref(json);
  g_test_message("url: %u cases, %u accepted as a name, each as WHATWG reads it", cases, accepted);
  g_assert_cmpuint(cases, ==, 259);
  g_assert_cmpuint(accepted, >, 20);
}

static void test_lengths(void)
{
  gsize n;
  guint refused = 0;
  g_autofree char *text = read_vector("url/dnslength.json", &n);
  if (text == NULL)
    return;
  json_t *json = load(text), *row;
  size_t i;
  json_array_foreach(json, i, row) {
    g_autofree char *authority = authority_of(json_object_get(row, "input"));
    g_autofree char *host = accept_host(authority);
    if (!json_is_true(json_object_get(row, "failure")))
      continue;
    g_test_message("%.60s", authority);
    g_assert_null(host);
    refused++;
  }
  json_decref(json);
  g_test_message("dnslength: %u failures, all refused", refused);
  g_assert_cmpuint(refused, ==, 7);
}

/* Bytes over 0x7f are refused; what is ASCII is taken as it stands, or not at all. */
static void test_to_ascii(void)
{
  gsize n;
  guint raw = 0, plain = 0;
  g_autofree char *text = read_vector("url/toascii.json", &n);
  if (text == NULL)
    return;
  json_t *json = load(text), *row;
  size_t i;
  json_array_foreach(json, i, row) {
    const char *input = json_string_value(json_object_get(row, "input"));
    g_autofree char *host = accept_host(input);
    if (!g_str_is_ascii(input)) {
      g_assert_null(host);
      raw++;
    } else if (host != NULL) {
      g_autofree char *lower = g_ascii_strdown(input, -1);
      g_assert_cmpstr(host, ==, lower);
      plain++;
    }
  }
  g_test_message("toascii: %zu cases, %u with raw bytes refused, %u taken as they stand", json_array_size(json), raw, plain);
  g_assert_cmpuint(json_array_size(json), ==, 58);
  g_assert_cmpuint(raw, >, 0);
  json_decref(json);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/vectors/http", test_http);
  g_test_add_func("/vectors/url", test_url);
  g_test_add_func("/vectors/dnslength", test_lengths);
  g_test_add_func("/vectors/toascii", test_to_ascii);
  return g_test_run();
}
