/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the answers. */
#include "egress/reason.h"

#include <string.h>

static const struct {
  const char *code, *text;
  guint16 status;
  guint8 alert;
} table[] = {
#define QV_REASON(name, code, status, alert, text) {code, text, status, alert},
#include "egress/reasons.def"
#undef QV_REASON
};

const char *qv_reason_code(QvReason reason)
{
  return table[reason].code;
}

const char *qv_reason_text(QvReason reason)
{
  return table[reason].text;
}

guint qv_reason_status(QvReason reason)
{
  return table[reason].status;
}

static const char *phrase(guint status)
{
  switch (status) {
  case 200: return "Connection established";
  case 400: return "Bad Request";
  case 403: return "Forbidden";
  case 405: return "Method Not Allowed";
  case 407: return "Proxy Authentication Required";
  case 408: return "Request Timeout";
  case 429: return "Too Many Requests";
  case 431: return "Request Header Fields Too Large";
  case 502: return "Bad Gateway";
  case 503: return "Service Unavailable";
  case 504: return "Gateway Timeout";
  case 505: return "HTTP Version Not Supported";
  default: g_assert_not_reached();
  }
}

static char *make_answer(QvReason reason)
{
  guint status = table[reason].status;
  if (status == 0)
    return g_strdup("");
  if (status == 200)
    return g_strdup_printf("HTTP/1.1 200 %s\r\n\r\n", phrase(200));
  const char *extra = status == 407   ? "Proxy-Authenticate: Basic realm=\"quavon\", charset=\"UTF-8\"\r\n"
                      : status == 405 ? "Allow: CONNECT\r\n"
                      : status == 503 ? "Retry-After: 2\r\n"
                                      : "";
  g_autofree char *body = g_strdup_printf("quavon-sandbox-egress: %s: %s\n", table[reason].code, table[reason].text);
  return g_strdup_printf("HTTP/1.1 %u %s\r\nQuavon-Reason: %s\r\n%sContent-Type: text/plain\r\nContent-Length: %zu\r\n"
                         "Connection: close\r\n\r\n%s",
                         status, phrase(status), table[reason].code, extra, strlen(body), body);
}

const char *qv_reason_answer(QvReason reason, gsize *n)
{
  static char *answers[QV_REASONS_N];
  if (answers[reason] == NULL)
    answers[reason] = make_answer(reason);
  *n = strlen(answers[reason]);
  return answers[reason];
}

gsize qv_reason_alert(QvReason reason, guint8 record[7])
{
  if (table[reason].alert == 0)
    return 0;
  /* alert(21), TLS 1.2 as every record says, two bytes: fatal(2), the description */
  memcpy(record, ((const guint8[7]){21, 3, 3, 0, 2, 2, table[reason].alert}), 7);
  return 7;
}

char *qv_reason_markdown(void)
{
  GString *text = g_string_new("| code | answer | meaning |\n| --- | --- | --- |\n");
  for (gsize i = 1; i < G_N_ELEMENTS(table); i++) {
    g_string_append_printf(text, "| `%s` | ", table[i].code);
    if (table[i].status != 0)
      g_string_append_printf(text, "%u %s", table[i].status, phrase(table[i].status));
    else
      g_string_append(text, table[i].alert != 0 ? "cut, with a TLS alert" : "cut");
    g_string_append_printf(text, " | %s |\n", table[i].text);
  }
  return g_string_free(text, FALSE);
}
