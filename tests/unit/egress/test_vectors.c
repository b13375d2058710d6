/* SPDX-License-Identifier: Apache-2.0 */
/* The shared suites `http` and `url` against the proxy's readers. */
#include <jansson.h>
#include <string.h>

#include "egress/request.h"

/* The suites have lone surrogates, which are no text: each becomes U+FFFD, also bytes over 0x7f. */
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

/* Gives each row of the shared file NAME (an array, or .jsonl: a value a line) to FUNC with DATA. The number of rows;
 * 0, and the test skipped, where the vectors are not there. */
static gsize walk(const char *name, void (*func)(const json_t *row, gpointer data), gpointer data)
{
  const char *folder = g_getenv("QUAVON_VECTORS");
  if (folder == NULL || !g_file_test(folder, G_FILE_TEST_IS_DIR)) {
    g_test_skip("the shared vectors are not beside this clone (QUAVON_VECTORS)");
    return 0;
  }
  g_autofree char *path = g_build_filename(folder, name, NULL), *text = NULL;
  g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
  if (g_str_has_suffix(name, ".jsonl")) {
    g_auto(GStrv) lines = g_strsplit(g_strchomp(text), "\n", -1);
    g_autofree char *rows = g_strjoinv(",", lines);
    g_free(text);
    text = g_strconcat("[", rows, "]", NULL);
  }
  json_t *json = load(text), *row;
  size_t i, n = json_array_size(json);
  g_assert_cmpuint(n, >, 0);
  json_array_foreach(json, i, row)
    func(row, data);
  json_decref(json);
  return n;
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

typedef struct {
  guint requests, faults, refused, connects;
} HttpTally;

static void http_row(const json_t *json, gpointer data)
{
  HttpTally *tally = data;
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
    tally->requests++;
    tally->faults += is_fault(json);
    /* Refused, or never whole: the head's time-out refuses it. */
    tally->refused += is_fault(json) && whole != QV_REASON_NONE;
    tally->connects += whole == QV_REASON_BAD_CREDENTIALS || whole == QV_REASON_NO_CREDENTIALS;
  }
}

static void test_http(void)
{
  HttpTally tally = {0};
  if (walk("http/llhttp-cases.jsonl", http_row, &tally) == 0)
    return;
  g_test_message("http: %u strict requests, %u with a fault, %u of these refused; %u well-formed CONNECTs", tally.requests,
                 tally.faults, tally.refused, tally.connects);
  g_assert_cmpuint(tally.requests, ==, 85);
  g_assert_cmpuint(tally.faults, >=, 20);
  g_assert_cmpuint(tally.refused, ==, tally.faults);
  g_assert_cmpuint(tally.connects, ==, 1); /* "CONNECT request": the others have a body, no end, or an underscore */
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

static void url_row(const json_t *row, gpointer data)
{
  g_autofree char *authority = authority_of(json_object_get(row, "input"));
  g_autofree char *host = authority != NULL ? accept_host(authority) : NULL;
  if (host == NULL)
    return;
  ++*(guint *)data;
  g_test_message("%s", authority);
  /* Another reading of the same text would be another host. */
  g_assert_false(json_is_true(json_object_get(row, "failure")));
  g_assert_cmpstr(host, ==, json_string_value(json_object_get(row, "hostname")));
}

static void test_url(void)
{
  guint accepted = 0;
  gsize n = walk("url/urltestdata-http.json", url_row, &accepted);
  if (n == 0)
    return;
  g_test_message("url: %zu cases, %u accepted as a name, each as WHATWG reads it", n, accepted);
  g_assert_cmpuint(n, ==, 259);
  g_assert_cmpuint(accepted, >, 20);
}

static void length_row(const json_t *row, gpointer data)
{
  g_autofree char *authority = authority_of(json_object_get(row, "input"));
  g_autofree char *host = accept_host(authority);
  if (!json_is_true(json_object_get(row, "failure")))
    return;
  g_test_message("%.60s", authority);
  g_assert_null(host);
  ++*(guint *)data;
}

static void test_lengths(void)
{
  guint refused = 0;
  if (walk("url/dnslength.json", length_row, &refused) == 0)
    return;
  g_test_message("dnslength: %u failures, all refused", refused);
  g_assert_cmpuint(refused, ==, 7);
}

typedef struct {
  guint raw, plain;
} AsciiTally;

static void ascii_row(const json_t *row, gpointer data)
{
  AsciiTally *tally = data;
  const char *input = json_string_value(json_object_get(row, "input"));
  g_autofree char *host = accept_host(input);
  if (!g_str_is_ascii(input)) {
    g_assert_null(host);
    tally->raw++;
  } else if (host != NULL) {
    g_autofree char *lower = g_ascii_strdown(input, -1);
    g_assert_cmpstr(host, ==, lower);
    tally->plain++;
  }
}

/* Bytes over 0x7f are refused; what is ASCII is taken as it stands, or not at all. */
static void test_to_ascii(void)
{
  AsciiTally tally = {0};
  gsize n = walk("url/toascii.json", ascii_row, &tally);
  if (n == 0)
    return;
  g_test_message("toascii: %zu cases, %u with raw bytes refused, %u taken as they stand", n, tally.raw, tally.plain);
  g_assert_cmpuint(n, ==, 58);
  g_assert_cmpuint(tally.raw, >, 0);
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
