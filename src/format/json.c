/* SPDX-License-Identifier: Apache-2.0 */
/* The strict reader: recursive descent over one buffer, values are jansson's.
 *
 * By hand, and not jansson's own parser, since the contract refuses what that takes (depth up to 2048, which is
 * also stack; integers up to 2^63 and any double) and names each refusal. The tests and the fuzz target
 * `json` hold both against each other: what one takes the other takes, with an equal value, but for the named
 * differences. */
#include "format/json.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "format/text.h"

#define QV_JSON_NAME(name, text) #name,
#define QV_JSON_TEXT(name, text) text,
static const char *const reason_names[] = {QV_JSON_REASONS(QV_JSON_NAME)};
static const char *const reason_texts[] = {QV_JSON_REASONS(QV_JSON_TEXT)};

const char *qv_json_reason_name(QvJsonReason reason)
{
  return reason_names[reason];
}

const char *qv_json_reason_text(QvJsonReason reason)
{
  return reason_texts[reason];
}

typedef struct {
  const uint8_t *text;
  size_t n, at;
  QvJsonKind kind;
  QvJsonReason reason;
  int depth;
  char *scratch; /* the string being read; as long as the text, so that it always fits */
} Parser;

static json_t *parse_value(Parser *p);

static void *fail(Parser *p, QvJsonReason reason)
{
  if (p->reason == QV_JSON_OK)
    p->reason = reason;
  return NULL;
}

static bool at_end(const Parser *p)
{
  return p->at == p->n;
}

static void skip_blanks(Parser *p)
{
  while (!at_end(p) && (p->text[p->at] == ' ' || p->text[p->at] == '\t' || p->text[p->at] == '\n' ||
                        p->text[p->at] == '\r'))
    p->at++;
}

/* The next byte, which must be WANTED. */
static bool take(Parser *p, char wanted)
{
  if (at_end(p))
    return fail(p, QV_JSON_TRUNCATED) != NULL;
  if (p->text[p->at] != (uint8_t)wanted)
    return fail(p, QV_JSON_SYNTAX) != NULL;
  p->at++;
  return true;
}

static bool peek(const Parser *p, char wanted)
{
  return !at_end(p) && p->text[p->at] == (uint8_t)wanted;
}

/* ---- strings ---- */

static bool take_hex4(Parser *p, uint32_t *unit)
{
  *unit = 0;
  for (int i = 0; i < 4; i++, p->at++) {
    if (at_end(p))
      return fail(p, QV_JSON_TRUNCATED) != NULL;
    uint8_t c = p->text[p->at];
    static const char digits[] = "0123456789abcdef";
    const char *digit = c >= 'A' && c <= 'F' ? strchr(digits, c | 0x20) : c ? strchr(digits, c) : NULL;
    if (!digit)
      return fail(p, QV_JSON_ESCAPE) != NULL;
    *unit = *unit << 4 | (uint32_t)(digit - digits);
  }
  return true;
}

static size_t put_utf8(char *out, uint32_t c)
{
  if (c < 0x80) {
    out[0] = (char)c;
    return 1;
  }
  size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (size_t i = n - 1; i > 0; i--, c >>= 6)
    out[i] = (char)(0x80 | (c & 0x3f));
  out[0] = (char)((0xf00u >> n) | c);
  return n;
}

/* Behind "\u". */
static bool take_unicode_escape(Parser *p, char *out, size_t *out_n)
{
  uint32_t c, low;
  if (!take_hex4(p, &c))
    return false;
  if (c >= 0xdc00 && c <= 0xdfff)
    return fail(p, QV_JSON_SURROGATE) != NULL;
  if (c >= 0xd800 && c <= 0xdbff) {
    if (!peek(p, '\\'))
      return fail(p, at_end(p) ? QV_JSON_TRUNCATED : QV_JSON_SURROGATE) != NULL;
    p->at++;
    if (!peek(p, 'u'))
      return fail(p, at_end(p) ? QV_JSON_TRUNCATED : QV_JSON_SURROGATE) != NULL;
    p->at++;
    if (!take_hex4(p, &low))
      return false;
    if (low < 0xdc00 || low > 0xdfff)
      return fail(p, QV_JSON_SURROGATE) != NULL;
    c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
  }
  if (c == 0 && p->kind == QV_JSON_SIGNED)
    return fail(p, QV_JSON_NUL) != NULL;
  *out_n += put_utf8(out + *out_n, c);
  return true;
}

static bool take_escape(Parser *p, char *out, size_t *out_n)
{
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  if (at_end(p))
    return fail(p, QV_JSON_TRUNCATED) != NULL;
  uint8_t c = p->text[p->at];
  if (c == 'u') {
    p->at++;
    return take_unicode_escape(p, out, out_n);
  }
  const char *found = c ? strchr(from, c) : NULL;
  if (!found)
    return fail(p, QV_JSON_ESCAPE) != NULL;
  p->at++;
  out[(*out_n)++] = to[found - from];
  return true;
}

/* The string at the parser's place, into scratch. */
static bool take_string(Parser *p, size_t *out_n)
{
  *out_n = 0;
  if (!take(p, '"'))
    return false;
  while (!at_end(p)) {
    uint8_t c = p->text[p->at];
    if (c == '"') {
      p->at++;
      return true;
    }
    if (c < 0x20)
      return fail(p, QV_JSON_CONTROL) != NULL;
    if (c == '\\') {
      p->at++;
      if (!take_escape(p, p->scratch, out_n))
        return false;
      continue;
    }
    size_t c_n = c < 0x80 ? 1 : qv_text_char(p->text + p->at, p->n - p->at, NULL);
    if (c_n == 0)
      return fail(p, QV_JSON_NOT_UTF8) != NULL;
    memcpy(p->scratch + *out_n, p->text + p->at, c_n);
    *out_n += c_n;
    p->at += c_n;
  }
  return fail(p, QV_JSON_TRUNCATED) != NULL;
}

/* ---- numbers ---- */

static bool take_digits(Parser *p)
{
  size_t start = p->at;
  while (!at_end(p) && p->text[p->at] >= '0' && p->text[p->at] <= '9')
    p->at++;
  return p->at > start;
}

/* The number's end by the grammar of RFC 8259; *WHOLE: neither fraction nor exponent. */
static bool take_number(Parser *p, bool *whole)
{
  *whole = true;
  if (peek(p, '-'))
    p->at++;
  if (peek(p, '0'))
    p->at++;
  else if (!take_digits(p))
    return fail(p, at_end(p) ? QV_JSON_TRUNCATED : QV_JSON_NUMBER) != NULL;
  if (!at_end(p) && p->text[p->at] >= '0' && p->text[p->at] <= '9')
    return fail(p, QV_JSON_NUMBER) != NULL; /* a leading zero */
  if (peek(p, '.')) {
    *whole = false;
    p->at++;
    if (!take_digits(p))
      return fail(p, at_end(p) ? QV_JSON_TRUNCATED : QV_JSON_NUMBER) != NULL;
  }
  if (peek(p, 'e') || peek(p, 'E')) {
    *whole = false;
    p->at++;
    if (peek(p, '+') || peek(p, '-'))
      p->at++;
    if (!take_digits(p))
      return fail(p, at_end(p) ? QV_JSON_TRUNCATED : QV_JSON_NUMBER) != NULL;
  }
  return true;
}

/* True and *VALUE where the digits are within +-(2^53 - 1). */
static bool to_integer(const uint8_t *text, size_t n, json_int_t *value)
{
  bool negative = text[0] == '-';
  json_int_t v = 0;
  for (size_t i = negative; i < n; i++) {
    v = v * 10 + (text[i] - '0');
    if (v > QV_JSON_INTEGER_MAX)
      return false;
  }
  *value = negative ? -v : v;
  return true;
}

static json_t *parse_real(Parser *p, size_t start)
{
  size_t n = p->at - start;
  memcpy(p->scratch, p->text + start, n);
  p->scratch[n] = '\0';
  /* The decimal point is a dot, whatever language the program speaks. */
  locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (!c_locale)
    return fail(p, QV_JSON_MEMORY);
  double value = strtod_l(p->scratch, NULL, c_locale);
  freelocale(c_locale);
  if (!isfinite(value))
    return fail(p, QV_JSON_NUMBER_RANGE);
  json_t *real = json_real(value);
  return real ? real : fail(p, QV_JSON_MEMORY);
}

static json_t *parse_number(Parser *p)
{
  size_t start = p->at;
  bool whole;
  if (!take_number(p, &whole))
    return NULL;
  size_t n = p->at - start;
  bool minus_zero = whole && n == 2 && memcmp(p->text + start, "-0", 2) == 0;
  json_int_t value;
  if (whole && !minus_zero && to_integer(p->text + start, n, &value)) {
    json_t *integer = json_integer(value);
    return integer ? integer : fail(p, QV_JSON_MEMORY);
  }
  if (p->kind == QV_JSON_ANY)
    return parse_real(p, start);
  p->at = start;
  return fail(p, whole && !minus_zero ? QV_JSON_NUMBER_RANGE : QV_JSON_NOT_INTEGER);
}

/* ---- structures ---- */

static json_t *parse_word(Parser *p, const char *word, json_t *value)
{
  for (const char *c = word; *c; c++) {
    if (!take(p, *c))
      return NULL;
  }
  return value;
}

/* One member into OBJECT. */
static bool parse_member(Parser *p, json_t *object)
{
  size_t name_at = p->at, name_n;
  if (!take_string(p, &name_n))
    return false;
  if (json_object_getn(object, p->scratch, name_n)) {
    p->at = name_at;
    return fail(p, QV_JSON_DUPLICATE) != NULL;
  }
  char *name = malloc(name_n + 1);
  if (!name)
    return fail(p, QV_JSON_MEMORY) != NULL;
  memcpy(name, p->scratch, name_n);
  skip_blanks(p);
  json_t *value = take(p, ':') ? parse_value(p) : NULL;
  bool done = value && json_object_setn_new_nocheck(object, name, name_n, value) == 0;
  free(name);
  return done || fail(p, QV_JSON_MEMORY) != NULL;
}

static bool parse_element(Parser *p, json_t *array)
{
  json_t *value = parse_value(p);
  return value && (json_array_append_new(array, value) == 0 || fail(p, QV_JSON_MEMORY) != NULL);
}

static json_t *parse_container(Parser *p, json_t *container, char close)
{
  if (!container)
    return fail(p, QV_JSON_MEMORY);
  if (++p->depth > QV_JSON_DEPTH_MAX) {
    json_decref(container);
    return fail(p, QV_JSON_TOO_DEEP);
  }
  p->at++;
  skip_blanks(p);
  bool fine = true;
  if (!peek(p, close)) {
    for (;;) {
      skip_blanks(p);
      fine = close == '}' ? parse_member(p, container) : parse_element(p, container);
      skip_blanks(p);
      if (!fine || !peek(p, ','))
        break;
      p->at++;
    }
  }
  if (!fine || !take(p, close)) {
    json_decref(container);
    return NULL;
  }
  p->depth--;
  return container;
}

static json_t *parse_string(Parser *p)
{
  size_t n;
  if (!take_string(p, &n))
    return NULL;
  json_t *string = json_stringn_nocheck(p->scratch, n);
  return string ? string : fail(p, QV_JSON_MEMORY);
}

static json_t *parse_value(Parser *p)
{
  skip_blanks(p);
  if (at_end(p))
    return fail(p, QV_JSON_TRUNCATED);
  uint8_t c = p->text[p->at];
  switch (c) {
  case '{':
    return parse_container(p, json_object(), '}');
  case '[':
    return parse_container(p, json_array(), ']');
  case '"':
    return parse_string(p);
  case 't':
    return parse_word(p, "true", json_true());
  case 'f':
    return parse_word(p, "false", json_false());
  case 'n':
    return parse_word(p, "null", json_null());
  default:
    if (c == '-' || (c >= '0' && c <= '9'))
      return parse_number(p);
    return fail(p, c < 0x80 || qv_text_char(p->text + p->at, p->n - p->at, NULL) ? QV_JSON_SYNTAX : QV_JSON_NOT_UTF8);
  }
}

json_t *qv_json_parse(const void *text, size_t n, size_t max_bytes, QvJsonKind kind, QvJsonError *error)
{
  Parser p = {.text = text, .n = n, .kind = kind};
  json_t *value = NULL;
  if (n > max_bytes)
    p.reason = QV_JSON_TOO_LONG;
  else if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
    p.reason = QV_JSON_BOM;
  else if (!(p.scratch = malloc(n + 1)))
    p.reason = QV_JSON_MEMORY;
  else
    value = parse_value(&p);
  if (value) {
    skip_blanks(&p);
    if (!at_end(&p)) {
      fail(&p, QV_JSON_TRAILING);
      json_decref(value);
      value = NULL;
    }
  }
  free(p.scratch);
  if (!value && error)
    *error = (QvJsonError){.reason = p.reason, .offset = p.at};
  return value;
}

/* ---- shapes ---- */

static unsigned type_of(const json_t *value)
{
  switch (json_typeof(value)) {
  case JSON_STRING:
    return QV_JSON_STRING;
  case JSON_INTEGER:
    return QV_JSON_INTEGER;
  case JSON_TRUE:
  case JSON_FALSE:
    return QV_JSON_BOOL;
  case JSON_NULL:
    return QV_JSON_NULL;
  case JSON_OBJECT:
    return QV_JSON_OBJECT;
  case JSON_ARRAY:
    return QV_JSON_ARRAY;
  default:
    return 0;
  }
}

bool qv_json_shape(const json_t *object, const QvJsonMember *table, size_t table_n, const char **name)
{
  const char *ignored;
  if (!name)
    name = &ignored;
  *name = "";
  if (!json_is_object(object))
    return false;
  size_t found = 0;
  for (size_t i = 0; i < table_n; i++) {
    const json_t *value = json_object_get(object, table[i].name);
    if (value ? !(type_of(value) & table[i].types) : !(table[i].types & QV_JSON_OPTIONAL)) {
      *name = table[i].name;
      return false;
    }
    found += value != NULL;
  }
  return found == json_object_size(object);
}
