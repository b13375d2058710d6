/* SPDX-License-Identifier: Apache-2.0 */
/* Repaired text is storable and within its cap; printed text has no control but LF, TAB and colours, nothing hidden, and is the same
 * whole and one byte at a time. */
#include <string.h>

#include "format/text.h"
#include "fuzz.h"

typedef struct {
  char text[1 << 17];
  size_t n;
} Printed;

static void append(void *user, const char *text, size_t n)
{
  Printed *printed = user;
  QV_FUZZ_CHECK(n <= sizeof printed->text - printed->n);
  memcpy(printed->text + printed->n, text, n);
  printed->n += n;
}

/* What hides text in text: not the printer's table, but the best known of it. */
static void check_visible(const char *text, size_t n)
{
  uint32_t c;
  for (size_t i = 0; i < n;) {
    i += qv_text_char((const uint8_t *)text + i, n - i, &c);
    QV_FUZZ_CHECK(!(c >= 0x80 && c < 0xa0) && c != 0xad && c != 0x180e && c != 0xfeff && !(c >= 0x200b && c <= 0x200f) &&
                  !(c >= 0x2028 && c <= 0x202e) && !(c >= 0x2060 && c <= 0x206f) && !(c >= 0xfff9 && c <= 0xfffb) && c >> 12 != 0xe0);
  }
}

static void check_printed(const char *text, size_t n, bool colours)
{
  QV_FUZZ_CHECK(qv_text_is_utf8(text, n));
  check_visible(text, n);
  for (size_t i = 0; i < n; i++) {
    uint8_t c = (uint8_t)text[i];
    if (c == 0x1b) {
      size_t end = i + 2 + strspn(text + i + 2, "0123456789;");
      QV_FUZZ_CHECK(colours && i + 2 < n && text[i + 1] == '[' && end < n && text[end] == 'm');
    } else {
      QV_FUZZ_CHECK((c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t');
    }
    if (c == '#' && i + 1 < n && text[i + 1] == '#') {
      size_t end = i + 2;
      while (end < n && (text[end] | 0x20) >= 'a' && (text[end] | 0x20) <= 'z')
        end++;
      QV_FUZZ_CHECK(end == n || text[end] != '[');
    }
    if (c == ':' && i + 1 < n && text[i + 1] == ':') {
      size_t start = i;
      while (start > 0 && (text[start - 1] == ' ' || text[start - 1] == '\t'))
        start--;
      QV_FUZZ_CHECK(start > 0 && text[start - 1] != '\n');
    }
  }
}

static void check_print(const uint8_t *data, size_t size, bool colours)
{
  static Printed pieces;
  size_t n;
  char *whole = qv_text_printable(data, size, colours, &n);
  QV_FUZZ_CHECK(whole && strlen(whole) == n);
  check_printed(whole, n, colours);
  QvTextPrinter printer;
  pieces.n = 0;
  qv_text_printer_init(&printer, colours, append, &pieces);
  for (size_t i = 0; i < size; i++)
    qv_text_printer_add(&printer, data + i, 1);
  qv_text_printer_finish(&printer);
  QV_FUZZ_CHECK(pieces.n == n && memcmp(pieces.text, whole, n) == 0);
  free(whole);
}

static void check_repaired(char *text, size_t n, size_t max)
{
  QV_FUZZ_CHECK(text && n <= max && strlen(text) == n && qv_text_is_utf8(text, n));
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size > 8192)
    return 0;
  size_t n = 0, max = size ? data[0] : 0;
  char *tail = qv_text_repair_tail(data, size, max, size % 2, &n);
  check_repaired(tail, n, max);
  char *head = qv_text_repair_head(data, size, max, &n);
  check_repaired(head, n, max);
  char *all = qv_text_repair_head(data, size, SIZE_MAX, &n);
  if (qv_text_is_utf8(data, size) && !(size && memchr(data, 0, size)))
    QV_FUZZ_CHECK(n == size && memcmp(all, data, n) == 0);
  free(all);
  check_print(data, size, true);
  check_print(data, size, false);
  char *line = qv_text_printable_line(data, size);
  QV_FUZZ_CHECK(line && !strpbrk(line, "\n\t\r\x1b"));
  free(line);
  return 0;
}
