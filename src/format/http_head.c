/* SPDX-License-Identifier: Apache-2.0 */
/* One state a place in the grammar; every byte is looked at once. */
#include "format/http_head.h"

#include <string.h>
#include <strings.h>

enum State {
  METHOD,
  TARGET,
  VERSION,    /* "HTTP/D.D", by position */
  LINE_LF,    /* CR of the request line was read */
  FIELD_START,
  NAME,
  VALUE_BLANK, /* blanks before the value */
  VALUE,
  VALUE_LF,
  END_LF,      /* CR of the empty line was read */
};

/* RFC 9110 section 5.6.2. */
static bool is_token_byte(uint8_t c)
{
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
    return true;
  return c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static bool is_value_byte(uint8_t c)
{
  return c >= 0x20 ? c != 0x7f : c == '\t';
}

void qv_http_head_init(QvHttpHead *head)
{
  memset(head, 0, offsetof(QvHttpHead, fields));
}

static QvHttpSpan span(const QvHttpHead *head, size_t end)
{
  return (QvHttpSpan){.at = head->from, .n = (uint16_t)(end - head->from)};
}

static bool step_to(QvHttpHead *head, enum State state)
{
  head->state = (uint8_t)state;
  head->from = (uint16_t)(head->used + 1); /* behind the byte in hand */
  return true;
}

static bool version_byte(QvHttpHead *head, uint8_t c)
{
  static const char literal[] = "HTTP/";
  size_t i = (size_t)(head->used - head->from);
  if (i < 5)
    return c == (uint8_t)literal[i];
  bool digit = c >= '0' && c <= '9';
  if (i == 5)
    head->major = (uint8_t)(c - '0');
  if (i == 7)
    head->minor = (uint8_t)(c - '0');
  if (i == 5 || i == 7)
    return digit;
  if (i == 6)
    return c == '.';
  return c == '\r' && step_to(head, LINE_LF);
}

static bool field_start(QvHttpHead *head, uint8_t c)
{
  if (c == '\r')
    return step_to(head, END_LF);
  if (!is_token_byte(c)) /* a blank: a folded line */
    return false;
  if (head->fields_n == QV_HTTP_FIELDS_MAX) {
    head->verdict = QV_HTTP_TOO_LONG;
    return true;
  }
  head->state = NAME;
  head->from = head->used;
  return true;
}

static bool name_byte(QvHttpHead *head, uint8_t c)
{
  if (c != ':')
    return is_token_byte(c);
  head->fields[head->fields_n].name = span(head, head->used);
  return step_to(head, VALUE_BLANK);
}

static bool value_byte(QvHttpHead *head, uint8_t c)
{
  if (c != '\r')
    return is_value_byte(c);
  size_t end = head->used;
  while (end > head->from && (head->bytes[end - 1] == ' ' || head->bytes[end - 1] == '\t'))
    end--;
  head->fields[head->fields_n++].value = span(head, end);
  return step_to(head, VALUE_LF);
}

/* False: no head. */
static bool step(QvHttpHead *head, uint8_t c)
{
  switch ((enum State)head->state) {
  case METHOD:
    if (c != ' ')
      return is_token_byte(c);
    head->method = span(head, head->used);
    return head->method.n > 0 && step_to(head, TARGET);
  case TARGET:
    if (c != ' ')
      return c > 0x20 && c < 0x7f;
    head->target = span(head, head->used);
    return head->target.n > 0 && step_to(head, VERSION);
  case VERSION:
    return version_byte(head, c);
  case LINE_LF:
  case VALUE_LF:
    return c == '\n' && step_to(head, FIELD_START);
  case FIELD_START:
    return field_start(head, c);
  case NAME:
    return name_byte(head, c);
  case VALUE_BLANK:
    if (c == ' ' || c == '\t')
      return step_to(head, VALUE_BLANK);
    head->state = VALUE;
    return value_byte(head, c);
  case VALUE:
    return value_byte(head, c);
  case END_LF:
    head->verdict = QV_HTTP_DONE;
    return c == '\n';
  }
  return false;
}

QvHttpVerdict qv_http_head_feed(QvHttpHead *head, const void *bytes, size_t n, size_t *taken)
{
  const uint8_t *from = bytes;
  size_t i = 0;
  while (head->verdict == QV_HTTP_MORE && i < n) {
    if (head->used == QV_HTTP_HEAD_BYTES_MAX) {
      head->verdict = QV_HTTP_TOO_LONG;
      break;
    }
    uint8_t c = from[i++];
    head->bytes[head->used] = (char)c;
    if (!step(head, c))
      head->verdict = QV_HTTP_BAD;
    head->used++;
  }
  *taken = i;
  return head->verdict;
}

size_t qv_http_head_count(const QvHttpHead *head, const char *name, QvHttpSpan *first)
{
  size_t n = strlen(name), found = 0;
  for (size_t i = 0; i < head->fields_n; i++) {
    QvHttpSpan at = head->fields[i].name;
    if (at.n != n || strncasecmp(head->bytes + at.at, name, n) != 0)
      continue;
    if (found++ == 0 && first != NULL)
      *first = head->fields[i].value;
  }
  return found;
}
