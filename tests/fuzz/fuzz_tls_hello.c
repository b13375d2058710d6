/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the beginning of a TLS connection. */
#include <string.h>

#include "format/tls_hello.h"
#include "fuzz.h"

static QvTlsVerdict read_hello(QvTlsHello *hello, const uint8_t *data, size_t size, size_t step, size_t *used)
{
  QvTlsVerdict verdict = QV_TLS_MORE;
  qv_tls_hello_init(hello);
  *used = 0;
  while (*used < size && verdict == QV_TLS_MORE) {
    size_t taken, part = size - *used < step ? size - *used : step;
    verdict = qv_tls_hello_feed(hello, data + *used, part, &taken);
    QV_FUZZ_CHECK(taken <= part && (taken == part || verdict != QV_TLS_MORE));
    *used += taken;
  }
  return verdict;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  size_t used, used_other;
  QvTlsHello *hello = malloc(sizeof *hello);
  QvTlsHello *other = malloc(sizeof *other);
  QvTlsVerdict verdict = read_hello(hello, data, size, size + 1, &used);
  size_t step = size > 0 ? 1 + data[size - 1] % 7 : 1;
  QV_FUZZ_CHECK(read_hello(other, data, size, step, &used_other) == verdict && used_other == used);
  QV_FUZZ_CHECK(hello->used <= QV_TLS_HELLO_BYTES_MAX && hello->name_n <= QV_TLS_NAME_BYTES_MAX);
  if (verdict == QV_TLS_DONE) {
    /* The name is there, is a text, and stood in what was read. */
    QV_FUZZ_CHECK(hello->name_n > 0 && strlen(hello->name) == hello->name_n);
    QV_FUZZ_CHECK(memmem(hello->bytes, hello->used, hello->name, hello->name_n) != NULL);
    QV_FUZZ_CHECK(hello->record_left == 0);
  }
  free(other);
  free(hello);
  return 0;
}
