/* SPDX-License-Identifier: Apache-2.0 */
/* What a fuzz target includes. It defines LLVMFuzzerTestOneInput: one input, any bytes; it returns 0
 * and leaves nothing allocated. A promise that is broken is QV_FUZZ_CHECK's to report. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define QV_FUZZ_CHECK(what)                                                    \
  do {                                                                         \
    if (!(what)) {                                                             \
      fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #what); \
      abort();                                                                 \
    }                                                                          \
  } while (0)
