/* SPDX-License-Identifier: Apache-2.0 */
/* RFC 8785. Numbers: ECMA-262, Number::toString(10): the fewest digits that read back as the same double,
 * and of those the nearest. printf's rounding of 17 or fewer digits is not always among them (46 of 2,098 powers
 * of two are wrong that way), so at each precision the last digit minus and plus one are tried too. */
#include "format/jcs.h"

#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "format/json.h"
#include "format/text.h"

/* ---- numbers ---- */

enum { DIGITS_MAX = 17 };

/* VALUE is positive and finite: its digits without leading or trailing zeros, 0.DIGITS x 10^*POINT. Under the C
 * locale. */
static size_t shortest_digits(double value, char digits[DIGITS_MAX + 1], int *point)
{
  for (int n = 1; n <= DIGITS_MAX; n++) {
    char text[40];
    snprintf(text, sizeof text, "%.*e", n - 1, value);
    long long mantissa = 0;
    const char *c = text;
    for (; *c != 'e'; c++) {
      if (*c != '.')
        mantissa = mantissa * 10 + (*c - '0');
    }
    int exponent = atoi(c + 1) - (n - 1);
    static const int steps[] = {0, -1, 1};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
      char attempt[48];
      snprintf(attempt, sizeof attempt, "%llde%d", mantissa + steps[i], exponent);
      if (strtod(attempt, NULL) != value)
        continue;
      int digits_n = snprintf(digits, DIGITS_MAX + 1, "%lld", mantissa + steps[i]);
      *point = exponent + digits_n;
      while (digits_n > 1 && digits[digits_n - 1] == '0')
        digits_n--;
      digits[digits_n] = '\0';
      return (size_t)digits_n;
    }
  }
  return 0; /* 17 digits always read back */
}

/* The cases of Number::toString: N is POINT there, K is DIGITS_N. */
static size_t layout(char *text, bool negative, const char *digits, int digits_n, int point)
{
  const char *sign = negative ? "-" : "";
  int n;
  if (digits_n <= point && point <= 21)
    n = snprintf(text, QV_JCS_NUMBER_BYTES, "%s%s%.*s", sign, digits, point - digits_n, "000000000000000000000");
  else if (0 < point && point <= 21)
    n = snprintf(text, QV_JCS_NUMBER_BYTES, "%s%.*s.%s", sign, point, digits, digits + point);
  else if (-6 < point && point <= 0)
    n = snprintf(text, QV_JCS_NUMBER_BYTES, "%s0.%.*s%s", sign, -point, "000000", digits);
  else if (digits_n == 1)
    n = snprintf(text, QV_JCS_NUMBER_BYTES, "%s%se%+d", sign, digits, point - 1);
  else
    n = snprintf(text, QV_JCS_NUMBER_BYTES, "%s%c.%se%+d", sign, digits[0], digits + 1, point - 1);
  return (size_t)n;
}

enum { INTEGER_BYTES = 17 }; /* sign and 16 digits */

/* |VALUE| is at most QV_JSON_INTEGER_MAX. No NUL. */
static size_t integer_text(long long value, char text[INTEGER_BYTES])
{
  char digits[INTEGER_BYTES];
  size_t at = sizeof digits;
  unsigned long long rest = value < 0 ? -(unsigned long long)value : (unsigned long long)value;
  do {
    digits[--at] = (char)('0' + rest % 10);
    rest /= 10;
  } while (rest > 0);
  if (value < 0)
    digits[--at] = '-';
  memcpy(text, digits + at, sizeof digits - at);
  return sizeof digits - at;
}

size_t qv_jcs_number(double value, char text[QV_JCS_NUMBER_BYTES])
{
  if (!isfinite(value))
    return 0;
  if (fabs(value) <= (double)QV_JSON_INTEGER_MAX && value == (double)(long long)value) {
    size_t integer_n = integer_text((long long)value, text);
    text[integer_n] = '\0';
    return integer_n;
  }
  /* The decimal point is a dot, whatever language the program speaks. */
  locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (!c_locale)
    return 0;
  locale_t before = uselocale(c_locale);
  char digits[DIGITS_MAX + 1];
  int point = 0;
  size_t digits_n = shortest_digits(fabs(value), digits, &point);
  size_t n = digits_n ? layout(text, value < 0, digits, (int)digits_n, point) : 0;
  uselocale(before);
  freelocale(c_locale);
  return n;
}

/* ---- values ---- */

enum {
  BUFFER_FIRST = 4096, /* most bodies fit */
  MEMBERS_NEAR = 32,   /* so many are sorted in place, without memory of their own */
};

typedef struct {
  char *text;
  size_t n, cap;
  bool failed;
} Buffer;

/* Room for N bytes and a NUL behind them. */
static bool grow(Buffer *out, size_t n)
{
  size_t cap = out->cap * 2 + n + BUFFER_FIRST;
  char *grown = out->failed ? NULL : realloc(out->text, cap);
  if (!grown) {
    out->failed = true;
    return false;
  }
  out->text = grown;
  out->cap = cap;
  return true;
}

static inline char *take_room(Buffer *out, size_t n)
{
  if (n >= out->cap - out->n && !grow(out, n))
    return NULL;
  char *room = out->text + out->n;
  out->n += n;
  return room;
}

static inline void put_char(Buffer *out, char c)
{
  char *room = take_room(out, 1);
  if (room)
    *room = c;
}

static void put(Buffer *out, const char *bytes, size_t n)
{
  char *room = take_room(out, n);
  if (room && n > 0)
    memcpy(room, bytes, n);
}

static void put_text(Buffer *out, const char *text)
{
  put(out, text, strlen(text));
}

static bool is_plain(uint8_t c)
{
  return c >= 0x20 && c != '"' && c != '\\';
}

static void put_escaped(Buffer *out, uint8_t c)
{
  static const char named[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\";
  const char *found = c ? strchr(named, c) : NULL;
  char escape[8];
  if (found)
    snprintf(escape, sizeof escape, "\\%c", letters[found - named]);
  else
    snprintf(escape, sizeof escape, "\\u%04x", c);
  put_text(out, escape);
}

#define EVERY(byte) (UINT64_C(0x0101010101010101) * (byte))

/* The high bits of WORD's bytes that are below 0x20, a quotation mark, a backslash or over 0x7f. Each term sets the high bit
 * of such a byte, and of others only where it has set a lower one: so whether there is any is right. */
static uint64_t needs_care(uint64_t word)
{
  uint64_t quote = word ^ EVERY('"'), backslash = word ^ EVERY('\\');
  return ((word - EVERY(0x20)) | (quote - EVERY(1)) | (backslash - EVERY(1)) | word) & EVERY(0x80);
}

/* N bytes that overlap in their middle, 1 to 7 of them, as a word; what is left of it is blanks. */
static inline uint64_t short_word(char *to, const char *from, size_t n)
{
  if (n >= 4) {
    uint32_t start, end;
    memcpy(&start, from, sizeof start);
    memcpy(&end, from + n - sizeof end, sizeof end);
    memcpy(to, &start, sizeof start);
    memcpy(to + n - sizeof end, &end, sizeof end);
    return start | (uint64_t)end << 32;
  }
  uint8_t first = (uint8_t)from[0], middle = (uint8_t)from[n / 2], last = (uint8_t)from[n - 1];
  to[0] = (char)first;
  to[n / 2] = (char)middle;
  to[n - 1] = (char)last;
  return (EVERY(' ') & ~UINT64_C(0xffffff)) | first | (uint64_t)middle << 8 | (uint64_t)last << 16;
}

/* Copies a string that stands for itself as a whole, as nearly every one does: false where this is none. In words, since most
 * are short, the last of which may overlap the one before. */
static inline bool copy_plain(char *to, const char *from, size_t n)
{
  uint64_t word, care = 0;
  if (n < sizeof word)
    return n == 0 || needs_care(short_word(to, from, n)) == 0;
  for (size_t i = 0; i + sizeof word < n; i += sizeof word) {
    memcpy(&word, from + i, sizeof word);
    memcpy(to + i, &word, sizeof word);
    care |= needs_care(word);
  }
  memcpy(&word, from + n - sizeof word, sizeof word);
  memcpy(to + n - sizeof word, &word, sizeof word);
  return (care | needs_care(word)) == 0;
}

/* What is between the quotation marks. */
static void put_inside(Buffer *out, const char *bytes, size_t n)
{
  if (!qv_text_is_utf8(bytes, n))
    out->failed = true;
  size_t start = 0;
  for (size_t i = 0; i < n; i++) {
    if (is_plain((uint8_t)bytes[i]))
      continue;
    put(out, bytes + start, i - start);
    start = i + 1;
    put_escaped(out, (uint8_t)bytes[i]);
  }
  put(out, bytes + start, n - start);
}

static void put_string(Buffer *out, const char *bytes, size_t n)
{
  char *room = take_room(out, n + 2);
  if (!room)
    return;
  room[0] = '"';
  if (copy_plain(room + 1, bytes, n)) {
    room[n + 1] = '"';
    return;
  }
  out->n -= n + 1;
  put_inside(out, bytes, n);
  put_char(out, '"');
}

/* LEAD: what stands before the name. */
static void put_name(Buffer *out, char lead, const char *bytes, size_t n)
{
  char *room = take_room(out, n + 4);
  if (!room)
    return;
  room[0] = lead;
  room[1] = '"';
  if (copy_plain(room + 2, bytes, n)) {
    room[n + 2] = '"';
    room[n + 3] = ':';
    return;
  }
  out->n -= n + 2;
  put_inside(out, bytes, n);
  put(out, "\":", 2);
}

static void put_number(Buffer *out, const json_t *value)
{
  char text[QV_JCS_NUMBER_BYTES];
  json_int_t integer = json_is_integer(value) ? json_integer_value(value) : 0;
  size_t n;
  if (json_is_real(value))
    n = qv_jcs_number(json_real_value(value), text);
  else if (integer < -QV_JSON_INTEGER_MAX || integer > QV_JSON_INTEGER_MAX)
    n = qv_jcs_number((double)integer, text);
  else
    n = integer_text(integer, text);
  if (n == 0)
    out->failed = true;
  put(out, text, n);
}

typedef struct {
  const char *name;
  size_t n;
  json_t *value;
} Member;

/* Order of UTF-16 code units. It differs from the bytes' order in one case: a code point over U+FFFF (first byte
 * 0xf0 and more) starts with a surrogate, which sorts below U+E000..U+FFFF (first byte 0xee, 0xef). */
static int compare_members(const void *a, const void *b)
{
  const Member *x = a, *y = b;
  size_t n = x->n < y->n ? x->n : y->n;
  for (size_t i = 0; i < n; i++) {
    uint8_t u = (uint8_t)x->name[i], v = (uint8_t)y->name[i];
    if (u == v)
      continue;
    if (u >= 0xf0 && (v == 0xee || v == 0xef))
      return -1;
    if (v >= 0xf0 && (u == 0xee || u == 0xef))
      return 1;
    return u < v ? -1 : 1;
  }
  return x->n < y->n ? -1 : x->n > y->n;
}

/* Nearly always the first byte says it; where neither starts a special case above, as its bytes do. */
static inline bool is_before(const Member *x, const Member *y)
{
  uint8_t u = (uint8_t)x->name[0], v = (uint8_t)y->name[0]; /* of an empty name its NUL */
  return u != v && u < 0xee ? u < v : compare_members(x, y) < 0;
}

static void put_value(Buffer *out, json_t *value, int depth);

/* Bodies come in order nearly always, since they were canonical when they were signed: an insertion then only looks. */
static void sort_members(Member *members, size_t n)
{
  if (n > MEMBERS_NEAR) {
    qsort(members, n, sizeof *members, compare_members);
    return;
  }
  for (size_t i = 1; i < n; i++) {
    Member member = members[i];
    size_t at = i;
    for (; at > 0 && is_before(&member, &members[at - 1]); at--)
      members[at] = members[at - 1];
    members[at] = member;
  }
}

static void put_members(Buffer *out, const Member *members, size_t n, int depth)
{
  if (n == 0)
    put_char(out, '{');
  for (size_t i = 0; i < n; i++) {
    put_name(out, i > 0 ? ',' : '{', members[i].name, members[i].n);
    put_value(out, members[i].value, depth);
  }
  put_char(out, '}');
}

static void put_object(Buffer *out, json_t *object, int depth)
{
  Member near[MEMBERS_NEAR];
  size_t n = json_object_size(object), i = 0;
  Member *members = n > MEMBERS_NEAR ? calloc(n, sizeof *members) : near;
  if (!members) {
    out->failed = true;
    return;
  }
  for (void *iter = json_object_iter(object); iter; iter = json_object_iter_next(object, iter))
    members[i++] = (Member){json_object_iter_key(iter), json_object_iter_key_len(iter), json_object_iter_value(iter)};
  sort_members(members, n);
  put_members(out, members, n, depth);
  if (members != near)
    free(members);
}

static void put_array(Buffer *out, json_t *array, int depth)
{
  put_char(out, '[');
  for (size_t i = 0; i < json_array_size(array); i++) {
    if (i > 0)
      put_char(out, ',');
    put_value(out, json_array_get(array, i), depth);
  }
  put_char(out, ']');
}

static void put_value(Buffer *out, json_t *value, int depth)
{
  switch (json_typeof(value)) {
  case JSON_OBJECT:
  case JSON_ARRAY:
    if (depth == QV_JSON_DEPTH_MAX) {
      out->failed = true;
      return;
    }
    if (json_is_object(value))
      put_object(out, value, depth + 1);
    else
      put_array(out, value, depth + 1);
    return;
  case JSON_STRING:
    put_string(out, json_string_value(value), json_string_length(value));
    return;
  case JSON_INTEGER:
  case JSON_REAL:
    put_number(out, value);
    return;
  default:
    put_text(out, json_is_true(value) ? "true" : json_is_false(value) ? "false" : "null");
  }
}

char *qv_jcs(const json_t *value, size_t *n)
{
  Buffer out = {0};
  put_value(&out, (json_t *)(uintptr_t)value, 0);
  if (out.failed) {
    free(out.text);
    return NULL;
  }
  out.text[out.n] = '\0';
  if (n)
    *n = out.n;
  return out.text;
}
