/* SPDX-License-Identifier: Apache-2.0 */
/* Owns what of a stranger's text reaches a terminal or a CI system's log.
 *
 * Bytes are held back where what follows decides: an unfinished character, escape sequence or run of `:` or `#`.
 * `held` is bounded: what is still undecided when it is full is escaped.
 *
 * CI systems read commands out of logs: GitHub `::name …::` at the start of a line and `##[name]` anywhere, Azure
 * `##vso[…]`, TeamCity `##teamcity[…]`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/invisible.h"
#include "format/text.h"

enum { UNDECIDED = 0, SEQUENCE_BYTES_MAX = 32 };

static void put(QvTextPrinter *printer, const char *text, size_t n)
{
  if (n > 0)
    printer->sink(printer->user, text, n);
}

static void put_escape(QvTextPrinter *printer, uint32_t c)
{
  char text[16];
  int n = snprintf(text, sizeof text, c < 0x80 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
  put(printer, text, (size_t)n);
  printer->line_start = false;
}

/* What a CI system may trim off the start of a line before it looks for a command. */
static bool is_blank(uint32_t c)
{
  return c == ' ' || c == '\t' || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200b) || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

/* Parameters that change colour or weight and nothing else: not 5 and 6 (blink), not 8 (conceal). */
static bool is_colour(const uint8_t *text, size_t n)
{
  unsigned value[16] = {0};
  size_t value_n = 1;
  for (size_t i = 0; i < n; i++) {
    if (text[i] == ';') {
      if (++value_n > 16)
        return false;
    } else {
      value[value_n - 1] = value[value_n - 1] * 10 + (unsigned)(text[i] - '0');
      if (value[value_n - 1] > 255)
        return false;
    }
  }
  for (size_t i = 0; i < value_n; i++) {
    unsigned v = value[i];
    if (v == 38 || v == 48) {
      size_t more = i + 1 < value_n && value[i + 1] == 5 ? 2 : i + 1 < value_n && value[i + 1] == 2 ? 4 : 0;
      if (more == 0 || i + more >= value_n)
        return false;
      i += more;
    } else if (!(v <= 4 || v == 7 || v == 9 || (v >= 21 && v <= 24) || v == 27 || v == 29 || (v >= 30 && v <= 49) ||
                 (v >= 90 && v <= 107))) {
      return false;
    }
  }
  return true;
}

/* BYTES start with ESC. Bytes used up, 0: undecided. */
static size_t step_escape(QvTextPrinter *printer, const uint8_t *bytes, size_t n, bool last)
{
  size_t i = 1;
  if (printer->colours && n == 1 && !last)
    return UNDECIDED;
  if (printer->colours && n > 1 && bytes[1] == '[') {
    for (i = 2; i < n && i < SEQUENCE_BYTES_MAX && ((bytes[i] >= '0' && bytes[i] <= '9') || bytes[i] == ';');)
      i++;
    if (i == n && i < SEQUENCE_BYTES_MAX && !last)
      return UNDECIDED;
    if (i < n && i < SEQUENCE_BYTES_MAX && bytes[i] == 'm' && is_colour(bytes + 2, i - 2)) {
      put(printer, (const char *)bytes, i + 1);
      printer->coloured = true;
      return i + 1;
    }
  }
  put_escape(printer, 0x1b);
  return 1;
}

/* BYTES start with '#': a second one, letters, '[' is a command. */
static size_t step_hash(QvTextPrinter *printer, const uint8_t *bytes, size_t n, bool last)
{
  size_t i = 1;
  if (n > 1 && bytes[1] == '#') {
    for (i = 2; i < n && i < SEQUENCE_BYTES_MAX && ((bytes[i] | 0x20) >= 'a' && (bytes[i] | 0x20) <= 'z');)
      i++;
  }
  if (i == n && i < SEQUENCE_BYTES_MAX && !last)
    return UNDECIDED;
  if (i > 1 && (i == SEQUENCE_BYTES_MAX || (i < n && bytes[i] == '['))) {
    put_escape(printer, '#');
  } else {
    put(printer, "#", 1);
    printer->line_start = false;
  }
  return 1;
}

static size_t step_colon(QvTextPrinter *printer, const uint8_t *bytes, size_t n, bool last)
{
  if (printer->line_start && n == 1 && !last)
    return UNDECIDED;
  if (printer->line_start && n > 1 && bytes[1] == ':')
    put_escape(printer, ':');
  else
    put(printer, ":", 1);
  printer->line_start = false;
  return 1;
}

static size_t step_return(QvTextPrinter *printer, const uint8_t *bytes, size_t n, bool last)
{
  if (n == 1 && !last)
    return UNDECIDED;
  put(printer, "\n", 1);
  printer->line_start = true;
  return n > 1 && bytes[1] == '\n' ? 2 : 1;
}

static size_t step_character(QvTextPrinter *printer, const uint8_t *bytes, size_t n, bool last)
{
  uint32_t c;
  size_t c_n = qv_text_char(bytes, n, &c);
  if (c_n == 0) {
    /* Any start of a character is shorter than four bytes; what cannot become one is escaped in one or more steps. */
    if (n < 4 && !last && bytes[0] >= 0xc2 && bytes[0] <= 0xf4)
      return UNDECIDED;
    put_escape(printer, bytes[0] < 0x80 ? bytes[0] : 0xfffd);
    return 1;
  }
  if (qv_invisible_is(c)) {
    put_escape(printer, c);
  } else {
    put(printer, (const char *)bytes, c_n);
    if (c == '\n')
      printer->line_start = true;
    else if (!is_blank(c))
      printer->line_start = false;
  }
  return c_n;
}

static size_t step(QvTextPrinter *printer, const uint8_t *bytes, size_t n, bool last)
{
  switch (bytes[0]) {
  case 0x1b:
    return step_escape(printer, bytes, n, last);
  case '#':
    return step_hash(printer, bytes, n, last);
  case ':':
    return step_colon(printer, bytes, n, last);
  case '\r':
    return step_return(printer, bytes, n, last);
  default:
    return step_character(printer, bytes, n, last);
  }
}

void qv_text_printer_init(QvTextPrinter *printer, bool colours, QvTextSink sink, void *user)
{
  memset(printer, 0, sizeof *printer);
  printer->colours = colours;
  printer->sink = sink;
  printer->user = user;
  printer->line_start = true;
}

/* A run of ordinary ASCII in one piece. */
static size_t plain_run(const QvTextPrinter *printer, const uint8_t *bytes, size_t n)
{
  size_t i = 0;
  while (!printer->line_start && i < n && bytes[i] >= 0x20 && bytes[i] < 0x7f && bytes[i] != '#')
    i++;
  return i;
}

/* Steps through BYTES: the number of bytes at the end that are undecided. */
static size_t run(QvTextPrinter *printer, const uint8_t *bytes, size_t n, bool last)
{
  size_t i = 0;
  while (i < n) {
    size_t used = plain_run(printer, bytes + i, n - i);
    if (used > 0)
      put(printer, (const char *)bytes + i, used);
    else
      used = step(printer, bytes + i, n - i, last);
    if (used == UNDECIDED)
      break;
    i += used;
  }
  return n - i;
}

void qv_text_printer_add(QvTextPrinter *printer, const void *bytes, size_t n)
{
  const uint8_t *b = bytes;
  /* While something is held, one byte at a time decides it. */
  while (printer->held_n > 0 && n > 0) {
    printer->held[printer->held_n++] = *b++;
    n--;
    size_t left = run(printer, printer->held, printer->held_n, false);
    memmove(printer->held, printer->held + printer->held_n - left, left);
    printer->held_n = left;
  }
  size_t left = n > 0 ? run(printer, b, n, false) : 0;
  if (left > 0) {
    memcpy(printer->held, b + n - left, left);
    printer->held_n = left;
  }
}

void qv_text_printer_finish(QvTextPrinter *printer)
{
  run(printer, printer->held, printer->held_n, true);
  printer->held_n = 0;
  if (printer->coloured)
    put(printer, "\x1b[0m", 4);
  printer->coloured = false;
}

typedef struct {
  char *text;
  size_t n, cap;
  bool failed, line;
} Buffer;

static void append(void *user, const char *text, size_t n)
{
  Buffer *buffer = user;
  size_t need = buffer->n + 2 * n + 1;
  if (need > buffer->cap) {
    size_t cap = need + need / 2;
    char *grown = realloc(buffer->text, cap);
    if (!grown) {
      buffer->failed = true;
      return;
    }
    buffer->text = grown;
    buffer->cap = cap;
  }
  for (size_t i = 0; i < n; i++) {
    bool control = buffer->line && (text[i] == '\n' || text[i] == '\t');
    if (control)
      buffer->text[buffer->n++] = '\\';
    buffer->text[buffer->n++] = !control ? text[i] : text[i] == '\n' ? 'n' : 't';
  }
}

static char *printable(const void *bytes, size_t n, bool colours, bool line, size_t *out_n)
{
  Buffer buffer = {.line = line};
  append(&buffer, "", 0);
  QvTextPrinter printer;
  qv_text_printer_init(&printer, colours, append, &buffer);
  qv_text_printer_add(&printer, bytes, n);
  qv_text_printer_finish(&printer);
  if (buffer.failed) {
    free(buffer.text);
    return NULL;
  }
  buffer.text[buffer.n] = '\0';
  if (out_n)
    *out_n = buffer.n;
  return buffer.text;
}

char *qv_text_printable(const void *bytes, size_t n, bool colours, size_t *out_n)
{
  return printable(bytes, n, colours, false, out_n);
}

char *qv_text_printable_line(const void *bytes, size_t n)
{
  return printable(bytes, n, false, true, NULL);
}
