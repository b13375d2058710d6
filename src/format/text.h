/* SPDX-License-Identifier: Apache-2.0 */
/* Text that others wrote: made storable (UTF-8, no NUL) and printable (no control of a terminal, no commands to
 * a CI system). libc alone. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True where BYTES are UTF-8 (no overlong forms, surrogates or code points over U+10FFFF). NUL is a character. */
bool qv_text_is_utf8(const void *bytes, size_t n);

/* Length of the character at BYTES: 1 to 4, or 0 where none is valid there. N > 0. CODE_POINT may be NULL. */
size_t qv_text_char(const uint8_t *bytes, size_t n, uint32_t *code_point);

/* A copy (free() it, a NUL follows) of the tail of BYTES of at most MAX_BYTES bytes, cut at a character border: NUL
 * dropped, each maximal invalid part replaced by U+FFFD. CUT_BEFORE: BYTES are themselves a tail, so up to three
 * continuation bytes at the start are the rest of a cut character and dropped. NULL: out of memory. */
char *qv_text_repair_tail(const void *bytes, size_t n, size_t max_bytes, bool cut_before, size_t *out_n);
/* The same, but the head is kept. */
char *qv_text_repair_head(const void *bytes, size_t n, size_t max_bytes, size_t *out_n);

/* Printing: control characters other than LF and TAB, all that is there to format (bidirectional controls, joiners, tags) or shows
 * nothing, line and paragraph separators and invalid bytes become visible escapes (\x1b, \u202e, \U000e0041); CR LF and CR become LF; `::` at the start of a
 * line and `##` before `[` or a word and `[` lose their first character to an escape (\x3a, \x23). With COLOURS, the colour and weight
 * sequences of ECMA-48 (CSI … m, without concealed or blinking) pass, and are switched off at the end. */
typedef void (*QvTextSink)(void *user, const char *text, size_t n);

typedef struct {
  bool colours;
  QvTextSink sink;
  void *user;
  /* below: its own */
  bool line_start; /* nothing but blanks on this line yet */
  bool coloured;
  uint8_t held[64]; /* bytes that cannot be judged yet */
  size_t held_n;
} QvTextPrinter;

void qv_text_printer_init(QvTextPrinter *printer, bool colours, QvTextSink sink, void *user);
void qv_text_printer_add(QvTextPrinter *printer, const void *bytes, size_t n);
void qv_text_printer_finish(QvTextPrinter *printer);

/* One text at once; free() it. NULL: out of memory. OUT_N may be NULL. */
char *qv_text_printable(const void *bytes, size_t n, bool colours, size_t *out_n);
/* For names within a line: LF and TAB become escapes too, never colours. */
char *qv_text_printable_line(const void *bytes, size_t n);
