/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the grammar of the target and of the credentials. Sources: RFC 9110 sections 7.2 and 9.3.6, RFC 9112 section
 * 3.2.3, RFC 7617; RFC 1123 section 2.1 for names. */
#include "egress/request.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/base64.h"

enum { NAME_BYTES_MAX = 253, LABEL_BYTES_MAX = 63, CREDENTIALS_BYTES_MAX = 256 };

static gboolean span_is(const QvHttpHead *head, QvHttpSpan span, const char *text)
{
  return span.n == strlen(text) && memcmp(head->bytes + span.at, text, span.n) == 0;
}

static gboolean parse_port(const char *text, gsize n, guint16 *port)
{
  guint value = 0;
  if (n == 0 || n > 5 || text[0] == '0')
    return FALSE;
  for (gsize i = 0; i < n; i++) {
    if (!g_ascii_isdigit(text[i]))
      return FALSE;
    value = value * 10 + (guint)(text[i] - '0');
  }
  *port = (guint16)value;
  return value <= 65535;
}

/* Letters, digits, inner hyphens. */
static gboolean label_valid(const char *text, gsize n)
{
  if (n == 0 || n > LABEL_BYTES_MAX || text[0] == '-' || text[n - 1] == '-')
    return FALSE;
  for (gsize i = 0; i < n; i++)
    if (!g_ascii_isalnum(text[i]) && text[i] != '-')
      return FALSE;
  return TRUE;
}

/* A last label that is a number, decimal or 0x, makes the whole an address to resolvers and to WHATWG's URL parser. */
static gboolean is_number(const char *label, gsize n)
{
  gboolean hex = n >= 2 && label[0] == '0' && (label[1] == 'x' || label[1] == 'X');
  for (gsize i = hex ? 2 : 0; i < n; i++)
    if (hex ? !g_ascii_isxdigit(label[i]) : !g_ascii_isdigit(label[i]))
      return FALSE;
  return TRUE;
}

/* A name, with at most one final dot; *LITERAL where it stands for an address. */
static gboolean name_valid(const char *text, gsize n, gboolean *literal)
{
  if (n > 0 && text[n - 1] == '.')
    n--;
  if (n == 0 || n > NAME_BYTES_MAX)
    return FALSE;
  gsize from = 0;
  for (gsize i = 0; i <= n; i++) {
    if (i < n && text[i] != '.')
      continue;
    if (!label_valid(text + from, i - from))
      return FALSE;
    if (i == n)
      *literal = is_number(text + from, i - from);
    from = i + 1;
  }
  return TRUE;
}

static gboolean bracketed_valid(const char *text, gsize n)
{
  char address[INET6_ADDRSTRLEN];
  struct in6_addr parsed;
  if (n < 4 || n - 2 >= sizeof address || text[0] != '[' || text[n - 1] != ']')
    return FALSE;
  memcpy(address, text + 1, n - 2);
  address[n - 2] = '\0';
  return strlen(address) == n - 2 && inet_pton(AF_INET6, address, &parsed) == 1;
}

gboolean qv_request_parse_target(const char *text, gsize n, QvRequest *request)
{
  gsize colon = n;
  while (colon > 0 && text[colon - 1] != ':')
    colon--;
  if (colon-- == 0 || n >= sizeof request->host_port)
    return FALSE;
  gboolean literal = FALSE;
  guint16 port;
  if (!parse_port(text + colon + 1, n - colon - 1, &port))
    return FALSE;
  if (colon > 0 && text[0] == '[')
    literal = TRUE;
  if (literal ? !bracketed_valid(text, colon) : !name_valid(text, colon, &literal))
    return FALSE;
  for (gsize i = 0; i < n; i++)
    request->host_port[i] = g_ascii_tolower(text[i]);
  request->host_port[n] = '\0';
  request->host_n = (guint)colon;
  request->port = port;
  request->literal = literal;
  return TRUE;
}

/* Host may say the target with or without its port, and decides nothing. */
static gboolean host_field_valid(const QvHttpHead *head, const QvRequest *request)
{
  QvHttpSpan value;
  gsize n = qv_http_head_count(head, "Host", &value);
  if (n != 1)
    return n == 0;
  return (value.n == request->host_n || value.n == strlen(request->host_port)) &&
         g_ascii_strncasecmp(head->bytes + value.at, request->host_port, value.n) == 0;
}

/* "Basic" SP base64 of user ":" token. */
static gboolean parse_credentials(const char *text, gsize n, char token[QV_TOKEN_LEN + 1])
{
  char plain[CREDENTIALS_BYTES_MAX];
  gsize plain_n = 0;
  if (n < 6 || g_ascii_strncasecmp(text, "Basic ", 6) != 0)
    return FALSE;
  gboolean valid = qv_base64_decode(text + 6, n - 6, plain, sizeof plain, &plain_n);
  const char *colon = valid ? memchr(plain, ':', plain_n) : NULL;
  if (colon != NULL) {
    gsize token_n = plain_n - (gsize)(colon + 1 - plain);
    valid = qv_token_valid(colon + 1, token_n);
    if (valid) {
      memcpy(token, colon + 1, token_n);
      token[token_n] = '\0';
    }
  }
  explicit_bzero(plain, sizeof plain);
  return valid && colon != NULL;
}

static QvReason parse_who(const QvHttpHead *head, QvRequest *request)
{
  QvHttpSpan value;
  gsize n = qv_http_head_count(head, "Proxy-Authorization", &value);
  if (n == 0)
    return QV_REASON_NO_CREDENTIALS;
  if (n > 1)
    return QV_REASON_TWO_CREDENTIALS;
  return parse_credentials(head->bytes + value.at, value.n, request->token) ? QV_REASON_NONE : QV_REASON_BAD_CREDENTIALS;
}

QvReason qv_request_parse(const QvHttpHead *head, QvRequest *request)
{
  request->host_port[0] = '\0';
  request->token[0] = '\0';
  if (head->major != 1 || head->minor > 1)
    return QV_REASON_VERSION;
  if (!span_is(head, head->method, "CONNECT"))
    return QV_REASON_METHOD;
  if (!qv_request_parse_target(head->bytes + head->target.at, head->target.n, request))
    return QV_REASON_TARGET;
  if (qv_http_head_count(head, "Content-Length", NULL) != 0 || qv_http_head_count(head, "Transfer-Encoding", NULL) != 0)
    return QV_REASON_BODY;
  if (!host_field_valid(head, request))
    return QV_REASON_HOST_FIELD;
  return parse_who(head, request);
}
