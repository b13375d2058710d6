/* SPDX-License-Identifier: Apache-2.0 */
/* Owns getrandom. */
#include "base/random.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/hex.h"

void qv_random_bytes(void *bytes, size_t n)
{
  uint8_t *p = bytes;
  while (n > 0) {
    ssize_t got = getrandom(p, n, 0);
    if (got < 0 && errno != EINTR)
      abort();
    if (got > 0) {
      p += got;
      n -= (size_t)got;
    }
  }
}

void qv_random_uuid(char text[QV_UUID_LEN + 1])
{
  uint8_t b[16];
  qv_random_bytes(b, sizeof b);
  b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
  b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
  static const uint8_t group[] = {4, 2, 2, 2, 6};
  size_t from = 0;
  for (size_t i = 0; i < sizeof group; i++) {
    qv_hex_encode(b + from, group[i], text);
    text += 2 * group[i];
    *text++ = '-';
    from += group[i];
  }
  text[-1] = '\0';
}
