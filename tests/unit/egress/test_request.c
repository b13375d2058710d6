/* SPDX-License-Identifier: Apache-2.0 */
/* Heads and requests: what a CONNECT may look like, and the reason of each that may not, whole and byte by byte. */
#include <string.h>

#include "egress/policy.h"
#include "egress/request.h"

#define TOKEN "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
#define AUTH "Proxy-Authorization: Basic am9iOkFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=\r\n"
#define HOST "pkg.allowed.example:443"
#define LINE "CONNECT " HOST " HTTP/1.1\r\n"

static QvReason judge(const char *bytes, gsize n, gsize step, QvRequest *request)
{
  g_autofree QvHttpHead *head = g_new(QvHttpHead, 1);
  QvHttpVerdict verdict = QV_HTTP_MORE;
  gsize taken;
  qv_http_head_init(head);
  for (gsize at = 0; at < n && verdict == QV_HTTP_MORE; at += taken)
    verdict = qv_http_head_feed(head, bytes + at, MIN(step, n - at), &taken);
  switch (verdict) {
  case QV_HTTP_DONE: return qv_request_parse(head, request);
  case QV_HTTP_BAD: return QV_REASON_BAD_HEAD;
  case QV_HTTP_TOO_LONG: return QV_REASON_HEAD_TOO_LONG;
  default: return QV_REASON_HEAD_TIMEOUT;
  }
}

static void expect_bytes(const char *bytes, gsize n, const char *code)
{
  QvRequest request;
  QvReason whole = judge(bytes, n, n, &request);
  QvReason single = judge(bytes, n, 1, &request);
  g_test_message("%.70s -> %s", bytes, qv_reason_code(whole));
  g_assert_cmpstr(qv_reason_code(whole), ==, code);
  g_assert_cmpint(whole, ==, single);
}

static void test_heads(void)
{
  static const char *const rows[][2] = {
    {LINE AUTH "\r\n", "none"},
    {LINE "Host: " HOST "\r\n" AUTH "\r\n", "none"},
    {LINE "Host: PKG.allowed.example\r\nUser-Agent: x\xc3\xa9\r\nEmpty:\r\n" AUTH "\r\n", "none"},
    {"CONNECT " HOST " HTTP/1.0\r\n" AUTH "\r\n", "none"},
    {LINE "proxy-AUTHORIZATION:Basic am9iOkFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE= \t\r\n\r\n", "none"},
    {LINE "Connection: Proxy-Authorization, Upgrade\r\nUpgrade: h2c\r\n" AUTH "\r\n", "none"},
    {"CONNECT " HOST " HTTP/1.1\n\n", "bad_head"}, {"CONNECT " HOST " HTTP/1.1\r\r\n\r\n", "bad_head"},
    {LINE "A: b\n\r\n", "bad_head"}, {LINE "A: b\r\r\n\r\n", "bad_head"}, {LINE "A: b\rc\r\n\r\n", "bad_head"},
    {LINE "A: b\r\n c\r\n\r\n", "bad_head"}, {LINE " A: b\r\n\r\n", "bad_head"}, {LINE "A : b\r\n\r\n", "bad_head"},
    {LINE "A\r\n\r\n", "bad_head"}, {LINE ": b\r\n\r\n", "bad_head"}, {LINE "A\t: b\r\n\r\n", "bad_head"},
    {LINE "A: \x01\r\n\r\n", "bad_head"}, {LINE "A: \x7f\r\n\r\n", "bad_head"}, {LINE "\xc3\xa9: b\r\n\r\n", "bad_head"},
    {LINE "A(b): c\r\n\r\n", "bad_head"}, {LINE "\r\n" AUTH, "no_credentials"},
    {"\r\n" LINE AUTH "\r\n", "bad_head"}, {" CONNECT " HOST " HTTP/1.1\r\n\r\n", "bad_head"},
    {"CONNECT  " HOST " HTTP/1.1\r\n\r\n", "bad_head"}, {"CONNECT " HOST "  HTTP/1.1\r\n\r\n", "bad_head"},
    {"CONNECT\t" HOST " HTTP/1.1\r\n\r\n", "bad_head"}, {"CONNECT " HOST " HTTP/1.1 \r\n\r\n", "bad_head"},
    {"CONNECT " HOST " HTTP/1.1 extra\r\n\r\n", "bad_head"}, {"CONNECT " HOST "\r\n", "bad_head"}, {"CONNECT " HOST "\r\n\r\n", "bad_head"},
    {"CONNECT " HOST " http/1.1\r\n\r\n", "bad_head"}, {"CONNECT " HOST " HTTP/11\r\n\r\n", "bad_head"}, {"CONNECT " HOST " HTTP/1.10\r\n\r\n", "bad_head"},
    {"CONNECT pkg.allowed.example :443 HTTP/1.1\r\n\r\n", "bad_head"}, {"CONNECT pkg.allowed\x7f.example:443 HTTP/1.1\r\n\r\n", "bad_head"},
    {"CONNECT pkg\xe3\x80\x82" "allowed.example:443 HTTP/1.1\r\n\r\n", "bad_head"},
    {"CONNECT " HOST " HTTP/1.2\r\n" AUTH "\r\n", "version"}, {"CONNECT " HOST " HTTP/2.0\r\n" AUTH "\r\n", "version"},
    {"CONNECT " HOST " HTTP/0.9\r\n" AUTH "\r\n", "version"}, {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "version"},
    {"GET http:" "//pkg.allowed.example/ HTTP/1.1\r\nHost: pkg.allowed.example\r\n\r\n", "method"}, {"GET / HTTP/1.1\r\n\r\n", "method"},
    {"OPTIONS * HTTP/1.1\r\n\r\n", "method"}, {"TRACE / HTTP/1.1\r\n\r\n", "method"}, {"connect " HOST " HTTP/1.1\r\n\r\n", "method"},
    {"CoNnEcT " HOST " HTTP/1.1\r\n\r\n", "method"}, {"CONNECTX " HOST " HTTP/1.1\r\n\r\n", "method"},
    {LINE "Content-Length: 0\r\n" AUTH "\r\n", "body"}, {LINE "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", "body"},
    {LINE "content-length: +5\r\n\r\n", "body"}, {LINE "Transfer-Encoding: chunked\r\n\r\n", "body"},
    {LINE "Transfer-Encoding: ,chunked\r\nContent-Length: 3\r\n\r\n", "body"}, {LINE "Transfer-Encoding: identity\r\n\r\n", "body"},
    {LINE "Host: evil.example:443\r\n" AUTH "\r\n", "bad_host"}, {LINE "Host: " HOST "\r\nHost: " HOST "\r\n" AUTH "\r\n", "bad_host"},
    {LINE "Host: pkg.allowed.example:80\r\n" AUTH "\r\n", "bad_host"}, {LINE "Host: \r\n" AUTH "\r\n", "bad_host"},
    {LINE "Host: pkg.allowed.example:44\r\n" AUTH "\r\n", "bad_host"},
    {LINE "\r\n", "no_credentials"}, {LINE "Authorization: Basic x\r\n\r\n", "no_credentials"}, {LINE AUTH AUTH "\r\n", "two_credentials"},
    {LINE "Proxy-Authorization: Basic eDp5\r\n" AUTH "\r\n", "two_credentials"},
    {LINE "Proxy-Authorization: Bearer " TOKEN "\r\n\r\n", "bad_credentials"}, {LINE "Proxy-Authorization: Basic\r\n\r\n", "bad_credentials"},
    {LINE "Proxy-Authorization:\r\n\r\n", "bad_credentials"}, {LINE "Proxy-Authorization: Basic eDp5\r\n\r\n", "bad_credentials"},
    {LINE "Proxy-Authorization: Basic ====\r\n\r\n", "bad_credentials"}, {LINE "Proxy-Authorization: Basic " TOKEN "=\r\n\r\n", "bad_credentials"},
    /* the right token with no colon, with padding that is not needed, with bits behind, with two blanks, with a newline */
    {LINE "Proxy-Authorization: Basic QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQQ==\r\n\r\n", "bad_credentials"},
    {LINE "Proxy-Authorization: Basic am9iOkFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE==\r\n\r\n", "bad_credentials"},
    {LINE "Proxy-Authorization: Basic  am9iOkFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=\r\n\r\n", "bad_credentials"},
    {LINE "Proxy-Authorization: Basic am9iOkFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUF=\r\n\r\n", "bad_credentials"},
  };
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++)
    expect_bytes(rows[i][0], strlen(rows[i][0]), rows[i][1]);
  static const char nul[] = "CONNECT " HOST " HTTP/1.1\r\nA: b\0c\r\n\r\n";
  expect_bytes(nul, sizeof nul - 1, "bad_head");
  static const char target_nul[] = "CONNECT pkg.allowed.example\0:443 HTTP/1.1\r\n\r\n";
  expect_bytes(target_nul, sizeof target_nul - 1, "bad_head");
}

static void test_caps(void)
{
  g_autoptr(GString) fields = g_string_new(LINE);
  for (guint i = 0; i < QV_HTTP_FIELDS_MAX - 1; i++)
    g_string_append(fields, "A: b\r\n");
  g_string_append(fields, AUTH);
  gsize n = fields->len;
  g_string_append(fields, "\r\n");
  expect_bytes(fields->str, fields->len, "none");
  g_string_truncate(fields, n);
  g_string_append(fields, "A: b\r\n\r\n");
  expect_bytes(fields->str, fields->len, "head_too_long");

  g_string_assign(fields, LINE AUTH "A: ");
  while (fields->len < QV_HTTP_HEAD_BYTES_MAX - 4)
    g_string_append_c(fields, 'x');
  n = fields->len;
  g_string_append(fields, "\r\n\r\n");
  expect_bytes(fields->str, fields->len, "none");
  g_string_truncate(fields, n);
  g_string_append(fields, "x\r\n\r\n");
  expect_bytes(fields->str, fields->len, "head_too_long");
  g_string_assign(fields, "CONNECT ");
  for (guint i = 0; i < 64 * 1024; i++)
    g_string_append_c(fields, 'a');
  expect_bytes(fields->str, fields->len, "head_too_long");
  g_string_assign(fields, LINE "Proxy-Authorization: Basic ");
  for (guint i = 0; i < 4096; i++)
    g_string_append_c(fields, 'A');
  g_string_append(fields, "\r\n\r\n");
  expect_bytes(fields->str, fields->len, "bad_credentials");
  /* No prefix of a good head is a verdict. */
  QvRequest request;
  for (n = 0; n < strlen(LINE AUTH "\r\n"); n++)
    g_assert_cmpint(judge(LINE AUTH "\r\n", n, G_MAXSIZE, &request), ==, QV_REASON_HEAD_TIMEOUT);
}

#define LABEL63 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

/* The bypass table's targets: what each is called. "bad": malformed. */
static void test_targets(void)
{
  static const char *const rows[][2] = {
    {HOST, "none"}, {"PKG.Allowed.EXAMPLE:443", "none"}, {"pkg.allowed.example.:443", "host_not_listed"}, {"pkg.allowed.example..:443", "bad"},
    {"pkg.allowed.example.evil.test:443", "host_not_listed"}, {"evil-pkg.allowed.example:443", "host_not_listed"},
    {"xpkg.allowed.example:443", "host_not_listed"}, {"allowed.example:443", "host_not_listed"}, {"example:443", "host_not_listed"},
    {"pkg.allowed.example:80", "port_not_listed"}, {"pkg.allowed.example:22", "port_not_listed"}, {"pkg.allowed.example:6379", "port_not_listed"},
    {"pkg.allowed.example:8443", "port_not_listed"}, {"pkg.allowed.example:44", "port_not_listed"}, {"pkg.allowed.example:4433", "port_not_listed"},
    {"pkg.allowed.example:0443", "bad"}, {"pkg.allowed.example:+443", "bad"}, {"pkg.allowed.example:65979", "bad"}, {"pkg.allowed.example:443:443", "bad"},
    {"pkg.allowed.example:0x1bb", "bad"}, {"pkg.allowed.example:443%00", "bad"}, {"pkg.allowed.example:", "bad"}, {"pkg.allowed.example", "bad"},
    {"pkg.allowed.example:-443", "bad"}, {"pkg.allowed.example:0", "bad"}, {"pkg.allowed.example:4294967739", "bad"}, {":443", "bad"}, {"443", "bad"},
    {"pkg.allowed.example@evil.test:443", "bad"}, {"pkg.allowed.example:443@evil.test:443", "bad"}, {"u:p@pkg.allowed.example:443", "bad"},
    {"http:" "//pkg.allowed.example:443/", "bad"}, {"http:" "//pkg.allowed.example:443", "bad"}, {"/", "bad"}, {"*", "bad"},
    {"pkg.allowed.example:443/", "bad"},
    {"pkg.allowed.example:443?x", "bad"}, {"pkg.allowed.example:443#x", "bad"}, {"/pkg.allowed.example:443", "bad"},
    {"192.0.2.10:443", "address_literal"}, {"127.0.0.1:443", "address_literal"}, {"127.1:443", "address_literal"}, {"2130706433:443", "address_literal"},
    {"0x7f000001:443", "address_literal"}, {"0X7F.1:443", "address_literal"}, {"0177.0.0.1:443", "address_literal"}, {"0:443", "address_literal"},
    {"017700000001:443", "address_literal"}, {"127.0.0.1.:443", "address_literal"}, {"a.b.1:443", "address_literal"}, {"a.b.0x:443", "address_literal"},
    {"1.2.3.4.5:443", "address_literal"}, {"[::1]:443", "address_literal"}, {"[::]:443", "address_literal"}, {"[::ffff:127.0.0.1]:443", "address_literal"},
    {"[::127.0.0.1]:443", "address_literal"}, {"[64:ff9b::7f00:1]:443", "address_literal"}, {"[2002:7f00:1::]:443", "address_literal"},
    {"[fe80::1%25eth0]:443", "bad"}, {"[fe80::1%eth0]:443", "bad"}, {"::1:443", "bad"}, {"[pkg.allowed.example]:443", "bad"}, {"[::1:443", "bad"},
    {"::1]:443", "bad"}, {"[]:443", "bad"}, {"[::1]x:443", "bad"}, {"[v1.x]:443", "bad"}, {"[[::1]]:443", "bad"}, {"[127.0.0.1]:443", "bad"},
    {"localhost:443", "host_not_listed"}, {"host.docker.internal:443", "host_not_listed"}, {"kubernetes.default.svc:443", "host_not_listed"},
    {"metadata.google.internal:80", "host_not_listed"}, {"pkg:443", "host_not_listed"}, {"proxy.example:3128", "host_not_listed"},
    {"pkg%2eallowed.example:443", "bad"}, {"pkg.allowed.example%00:443", "bad"}, {"pkg_.allowed.example:443", "bad"}, {"pkg,allowed.example:443", "bad"},
    {"pkg\\.allowed.example:443", "bad"}, {"pkg.allowed.example;:443", "bad"}, {"pkg..example:443", "bad"}, {".pkg.allowed.example:443", "bad"},
    {"-pkg.allowed.example:443", "bad"}, {"pkg-.allowed.example:443", "bad"}, {"*.allowed.example:443", "bad"},
    {"xn--bcher-kva.example:443", "host_not_listed"},
    {LABEL63 ".example:443", "host_not_listed"}, {LABEL63 "a.example:443", "bad"}, {"other.allowed.example:443", "host_not_in_job"},
    {LABEL63 "." LABEL63 "." LABEL63 ".aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:443", "host_not_listed"},
    {LABEL63 "." LABEL63 "." LABEL63 ".aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:443", "bad"},
  };
  g_autoptr(QvRegistries) registries = qv_registries_parse("pkg.allowed.example,other.allowed.example", NULL);
  char *hosts[] = {(char *)HOST, (char *)"not-listed.example:443", NULL};
  QvTokenRecord record = {.hosts = hosts};
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    QvRequest request;
    const QvRegistry *registry = NULL;
    gboolean good = qv_request_parse_target(rows[i][0], strlen(rows[i][0]), &request);
    const char *code = good ? qv_reason_code(qv_policy_host(&request, &record, registries, &registry)) : "bad";
    g_test_message("%s -> %s", rows[i][0], code);
    g_assert_cmpstr(code, ==, rows[i][1]);
    g_assert_cmpint(registry != NULL, ==, strcmp(code, "none") == 0);
  }
  /* In the token's hosts, but not in the operator's list; and nothing at all with an empty list. */
  QvRequest request;
  const QvRegistry *registry = NULL;
  g_assert_true(qv_request_parse_target("not-listed.example:443", 22, &request));
  g_assert_cmpint(qv_policy_host(&request, &record, registries, &registry), ==, QV_REASON_HOST_NOT_LISTED);
  g_autoptr(QvRegistries) none = qv_registries_parse("", NULL);
  g_assert_true(qv_request_parse_target(HOST, strlen(HOST), &request));
  g_assert_cmpint(qv_policy_host(&request, &record, none, &registry), ==, QV_REASON_HOST_NOT_LISTED);
  g_assert_cmpint(qv_policy_host(&request, &record, NULL, &registry), ==, QV_REASON_HOST_NOT_LISTED);
}

static void test_token(void)
{
  QvTokenRecord record = {.expires_at = 1000, .source = NULL};
  g_assert_cmpint(qv_policy_token(&record, NULL, 999), ==, QV_REASON_NONE);
  g_assert_cmpint(qv_policy_token(&record, "10.0.0.1", 999), ==, QV_REASON_NONE);
  g_assert_cmpint(qv_policy_token(&record, NULL, 1000), ==, QV_REASON_TOKEN_EXPIRED);
  record.source = (char *)"10.0.0.2";
  g_assert_cmpint(qv_policy_token(&record, "10.0.0.2", 999), ==, QV_REASON_NONE);
  g_assert_cmpint(qv_policy_token(&record, "10.0.0.20", 999), ==, QV_REASON_TOKEN_SOURCE);
  g_assert_cmpint(qv_policy_token(&record, NULL, 999), ==, QV_REASON_TOKEN_SOURCE);
}

static void test_addresses(void)
{
  QvIp ips[2];
  const char *row = NULL;
  g_assert_true(qv_ip_parse("8.8.8.8", &ips[0]));
  g_assert_true(qv_ip_parse("10.0.0.1", &ips[1]));
  g_assert_cmpint(qv_policy_addresses(ips, 0, NULL, NULL), ==, QV_REASON_NAME_NOT_FOUND);
  g_assert_cmpint(qv_policy_addresses(ips, 1, NULL, NULL), ==, QV_REASON_NONE);
  g_assert_cmpint(qv_policy_addresses(ips, 2, NULL, &row), ==, QV_REASON_ADDRESS_REFUSED); /* one of two: none at all */
  g_assert_cmpstr(row, ==, "private use");
}

/* Answers are fixed texts with a length that holds, and have no detail of what was asked. */
static void test_answers(void)
{
  for (guint i = 0; i < QV_REASONS_N; i++) {
    gsize n;
    guint8 alert[7];
    const char *answer = qv_reason_answer((QvReason)i, &n);
    if (qv_reason_status((QvReason)i) == 0 || i == QV_REASON_NONE) {
      g_assert_true(n == 0 || i == QV_REASON_NONE);
      continue;
    }
    g_autofree char *field = g_strdup_printf("\r\nQuavon-Reason: %s\r\n", qv_reason_code((QvReason)i));
    g_assert_nonnull(strstr(answer, field));
    g_assert_nonnull(strstr(answer, "\r\nConnection: close\r\n"));
    g_assert_cmpint(strstr(answer, "Proxy-Authenticate: Basic ") != NULL, ==, qv_reason_status((QvReason)i) == 407);
    const char *body = strstr(answer, "\r\n\r\n") + 4;
    g_autofree char *length = g_strdup_printf("\r\nContent-Length: %zu\r\n", strlen(body));
    g_assert_nonnull(strstr(answer, length));
    g_assert_nonnull(strstr(body, qv_reason_text((QvReason)i)));
    g_assert_cmpuint(qv_reason_alert((QvReason)i, alert) % 7, ==, 0);
  }
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/request/heads", test_heads);
  g_test_add_func("/request/caps", test_caps);
  g_test_add_func("/request/targets", test_targets);
  g_test_add_func("/policy/token", test_token);
  g_test_add_func("/policy/addresses", test_addresses);
  g_test_add_func("/reason/answers", test_answers);
  return g_test_run();
}
