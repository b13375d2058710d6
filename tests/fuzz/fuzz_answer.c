/* SPDX-License-Identifier: Apache-2.0 */
/* What the proxy, or whatever answers in its place, says to the forwarder of the entry: at most one line is told, printable,
 * and the same whole and byte by byte. */
#include <string.h>

#include "entry/answer.h"
#include "fuzz.h"

static int read_in(const uint8_t *data, size_t size, size_t step, char line[QV_ENTRY_ANSWER_LINE_MAX])
{
  static const char head[] = "CONNECT registry.example:443 HTTP/1.1\r\n\r\n";
  QvEntryAnswer answer;
  int told = 0;
  qv_entry_answer_init(&answer, head, sizeof head - 1);
  for (size_t at = 0; at < size && told == 0; at += step)
    told += qv_entry_answer_feed(&answer, (const char *)data + at, step < size - at ? step : size - at, line);
  if (told == 0)
    told += qv_entry_answer_end(&answer, line);
  return told;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  char whole[QV_ENTRY_ANSWER_LINE_MAX] = "", single[QV_ENTRY_ANSWER_LINE_MAX] = "";
  int told = read_in(data, size, size + 1, whole);
  QV_FUZZ_CHECK(told == read_in(data, size, 1, single) && strcmp(whole, single) == 0);
  if (!told)
    return 0;
  size_t n = strlen(whole);
  QV_FUZZ_CHECK(n > 0 && n < sizeof whole && whole[n - 1] == '\n' && strchr(whole, '\n') == whole + n - 1);
  for (size_t i = 0; i + 1 < n; i++)
    QV_FUZZ_CHECK((unsigned char)whole[i] >= ' ' && (unsigned char)whole[i] != 127);
  return 0;
}
