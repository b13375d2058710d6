/* SPDX-License-Identifier: Apache-2.0 */
/* Owns UTF-8: recognising it, and repairing text that is to be stored. Table 3-7 of the
 * Unicode Standard says which byte sequences are characters, section 3.9 (U+FFFD substitution of maximal
 * subparts) how much one U+FFFD stands for. */
#include "format/text.h"

#include <stdlib.h>
#include <string.h>

/* What may follow a first byte: the number of further bytes, the range of the second. */
static size_t follow(uint8_t first, uint8_t *low, uint8_t *high)
{
  *low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  *high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (first >= 0xc2 && first <= 0xdf)
    return 1;
  if (first >= 0xe0 && first <= 0xef)
    return 2;
  return first >= 0xf0 && first <= 0xf4 ? 3 : 0;
}

/* Length of the longest start of a character at BYTES, at least 1; *WHOLE: it is one. */
static size_t maximal_part(const uint8_t *bytes, size_t n, bool *whole)
{
  if (bytes[0] < 0x80) {
    *whole = true;
    return 1;
  }
  uint8_t low, high;
  size_t more = follow(bytes[0], &low, &high), i = 1;
  for (; i <= more && i < n && bytes[i] >= low && bytes[i] <= high; i++) {
    low = 0x80;
    high = 0xbf;
  }
  *whole = more > 0 && i == more + 1;
  return i;
}

size_t qv_text_char(const uint8_t *bytes, size_t n, uint32_t *code_point)
{
  bool whole;
  size_t c_n = maximal_part(bytes, n, &whole);
  if (!whole)
    return 0;
  uint32_t c = c_n == 1 ? bytes[0] : bytes[0] & (0x7fu >> c_n);
  for (size_t i = 1; i < c_n; i++)
    c = c << 6 | (bytes[i] & 0x3f);
  if (code_point)
    *code_point = c;
  return c_n;
}

bool qv_text_is_utf8(const void *bytes, size_t n)
{
  const uint8_t *b = bytes;
  for (size_t i = 0; i < n;) {
    /* Most text is ASCII: eight bytes at a time. */
    uint64_t word;
    if (n - i >= sizeof word) {
      memcpy(&word, b + i, sizeof word);
      if ((word & UINT64_C(0x8080808080808080)) == 0) {
        i += sizeof word;
        continue;
      }
    }
    size_t c_n = qv_text_char(b + i, n - i, NULL);
    if (c_n == 0)
      return false;
    i += c_n;
  }
  return true;
}

static const char replacement[] = "\xef\xbf\xbd";

/* The repaired text: its length, and the bytes where OUT is not NULL. Stops before MAX_BYTES would be passed. */
static size_t repair(const uint8_t *bytes, size_t n, size_t max_bytes, char *out)
{
  size_t out_n = 0;
  for (size_t i = 0; i < n;) {
    bool whole;
    size_t part_n = maximal_part(bytes + i, n - i, &whole);
    bool dropped = bytes[i] == 0;
    size_t put_n = dropped ? 0 : whole ? part_n : sizeof replacement - 1;
    if (put_n > max_bytes - out_n)
      break;
    if (out && put_n > 0)
      memcpy(out + out_n, whole ? (const char *)bytes + i : replacement, put_n);
    out_n += put_n;
    i += part_n;
  }
  return out_n;
}

char *qv_text_repair_head(const void *bytes, size_t n, size_t max_bytes, size_t *out_n)
{
  size_t need = repair(bytes, n, max_bytes, NULL);
  char *out = malloc(need + 1);
  if (!out)
    return NULL;
  repair(bytes, n, max_bytes, out);
  out[need] = '\0';
  if (out_n)
    *out_n = need;
  return out;
}

char *qv_text_repair_tail(const void *bytes, size_t n, size_t max_bytes, bool cut_before, size_t *out_n)
{
  const uint8_t *start = bytes;
  for (int i = 0; cut_before && i < 3 && n > 0 && (start[0] & 0xc0) == 0x80; i++) {
    start++;
    n--;
  }
  size_t whole_n;
  char *whole = qv_text_repair_head(start, n, SIZE_MAX, &whole_n);
  if (!whole)
    return NULL;
  size_t skip = whole_n > max_bytes ? whole_n - max_bytes : 0;
  while (skip < whole_n && ((uint8_t)whole[skip] & 0xc0) == 0x80)
    skip++;
  memmove(whole, whole + skip, whole_n - skip + 1);
  if (out_n)
    *out_n = whole_n - skip;
  return whole;
}
