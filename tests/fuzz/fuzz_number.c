/* SPDX-License-Identifier: Apache-2.0 */
/* The canonical text of a double reads back as the same double and is no longer than 17 digits. */
#include <math.h>
#include <string.h>

#include "format/jcs.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  for (; size >= sizeof(double); data += sizeof(double), size -= sizeof(double)) {
    double value;
    memcpy(&value, data, sizeof value);
    char text[QV_JCS_NUMBER_BYTES];
    size_t n = qv_jcs_number(value, text);
    QV_FUZZ_CHECK((n > 0) == (isfinite(value) != 0));
    if (n == 0)
      continue;
    QV_FUZZ_CHECK(n < QV_JCS_NUMBER_BYTES && strlen(text) == n && strtod(text, NULL) == value);
    size_t digits = 0, i = strspn(text, "-0.");
    for (; i < n && text[i] != 'e'; i++)
      digits += text[i] != '.';
    QV_FUZZ_CHECK(digits <= 21);
  }
  return 0;
}
