/* SPDX-License-Identifier: Apache-2.0 */
/* Owns base64. */
#include "base/base64.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int value_of(char c)
{
  if (c >= 'A' && c <= 'Z')
    return c - 'A';
  if (c >= 'a' && c <= 'z')
    return c - 'a' + 26;
  if (c >= '0' && c <= '9')
    return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

void qv_base64_encode(const void *bytes, size_t n, char *text)
{
  const uint8_t *p = bytes;
  for (size_t i = 0; i < n; i += 3) {
    size_t left = n - i;
    uint32_t group = (uint32_t)p[i] << 16;
    if (left > 1)
      group |= (uint32_t)p[i + 1] << 8;
    if (left > 2)
      group |= p[i + 2];
    *text++ = alphabet[group >> 18];
    *text++ = alphabet[group >> 12 & 63];
    *text++ = left > 1 ? alphabet[group >> 6 & 63] : '=';
    *text++ = left > 2 ? alphabet[group & 63] : '=';
  }
  *text = '\0';
}

bool qv_base64_decode(const char *text, size_t text_n, void *bytes, size_t cap, size_t *n)
{
  if (text_n % 4 != 0)
    return false;
  size_t padding = 0;
  while (padding < 2 && padding < text_n && text[text_n - 1 - padding] == '=')
    padding++;
  size_t total = text_n / 4 * 3 - padding;
  if (total > cap)
    return false;
  uint8_t *p = bytes;
  size_t done = 0;
  uint32_t bits = 0;
  for (size_t i = 0; i < text_n; i++) {
    bool pad = i >= text_n - padding;
    int value = pad ? 0 : value_of(text[i]);
    if (value < 0)
      return false;
    bits = bits << 6 | (uint32_t)value;
    if (i % 4 != 3)
      continue;
    for (int k = 2; k >= 0; k--) {
      uint8_t byte = (uint8_t)(bits >> (8 * k));
      if (done < total)
        p[done++] = byte;
      else if (byte != 0)
        return false;
    }
    bits = 0;
  }
  *n = total;
  return true;
}
