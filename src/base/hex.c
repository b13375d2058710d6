/* SPDX-License-Identifier: Apache-2.0 */
/* Owns hex digits. */
#include "base/hex.h"

static int value_of(char c)
{
  if (c >= '0' && c <= '9')
    return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void qv_hex_encode(const void *bytes, size_t n, char *text)
{
  static const char digits[] = "0123456789abcdef";
  const uint8_t *p = bytes;
  for (size_t i = 0; i < n; i++) {
    text[2 * i] = digits[p[i] >> 4];
    text[2 * i + 1] = digits[p[i] & 15];
  }
  text[2 * n] = '\0';
}

bool qv_hex_valid(const char *text, size_t text_n)
{
  for (size_t i = 0; i < text_n; i++) {
    if (value_of(text[i]) < 0)
      return false;
  }
  return true;
}

bool qv_hex_decode(const char *text, size_t text_n, void *bytes, size_t n)
{
  if (text_n / 2 != n || text_n % 2 != 0 || !qv_hex_valid(text, text_n))
    return false;
  uint8_t *p = bytes;
  for (size_t i = 0; i < n; i++)
    p[i] = (uint8_t)(value_of(text[2 * i]) << 4 | value_of(text[2 * i + 1]));
  return true;
}
