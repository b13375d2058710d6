/* SPDX-License-Identifier: Apache-2.0 */
/* Repaired text is storable and within its cap; printed text has no control but LF, TAB and colours, nothing hidden, and is the same
 * whole and one byte at a time. A line of the log is a line, shows all that is in it, and as JSON says what was to be said. */
#include <string.h>

#include "base/log.h"
#include "format/json.h"
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

static void check_line(const char *line)
{
  size_t n = strlen(line);
  check_visible(line, n);
  for (size_t i = 0; i < n; i++)
    QV_FUZZ_CHECK((uint8_t)line[i] >= 0x20 && line[i] != 0x7f);
}

static void check_log(const uint8_t *data, size_t size)
{
  g_autofree char *value = g_strndup((const char *)data, size), *valid = g_utf8_make_valid(value, -1);
  const char *pairs[] = {"v", value, NULL};
  g_autofree char *text = qv_log_format_line(FALSE, "p", QV_LOG_INFO, 0, value, pairs);
  check_line(text);
  g_autofree char *line = qv_log_format_line(TRUE, "p", QV_LOG_INFO, 0, value, pairs);
  check_line(line);
  json_t *event = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
  QV_FUZZ_CHECK(event && strcmp(json_string_value(json_object_get(event, "v")), valid) == 0 &&
                strcmp(json_string_value(json_object_get(event, "message")), valid) == 0);
  json_t *list = json_pack("[s]", valid);
  g_autofree char *raw = json_dumps(list, JSON_COMPACT);
  const QvLogField field = {"v", raw, TRUE};
  g_autofree char *record = qv_log_format_record(TRUE, "p", 0, "m", &field, 1);
  check_line(record);
  json_t *got = json_loads(record, 0, NULL);
  QV_FUZZ_CHECK(got && json_equal(json_object_get(got, "v"), list));
  json_decref(got);
  json_decref(list);
  json_decref(event);
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
  check_log(data, size);
  return 0;
}
