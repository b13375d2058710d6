/* SPDX-License-Identifier: Apache-2.0 */
/* The strict reader against jansson's own parser, and the canonical text against the strict reader. */
#include <string.h>

#include "base/limits.h"
#include "format/jcs.h"
#include "format/json.h"
#include "format/text.h"
#include "fuzz.h"

/* What is refused here and not by jansson, and the other way round. */
static int only_ours_refuses(QvJsonReason reason)
{
  return reason == QV_JSON_TOO_DEEP || reason == QV_JSON_NOT_INTEGER || reason == QV_JSON_NUMBER_RANGE ||
         reason == QV_JSON_NUL || reason == QV_JSON_TOO_LONG;
}

static int has_nul_in_name(const json_t *value)
{
  size_t i;
  json_t *child;
  if (json_is_array(value)) {
    json_array_foreach(value, i, child) {
      if (has_nul_in_name(child))
        return 1;
    }
  }
  for (void *iter = json_object_iter((json_t *)(uintptr_t)value); iter;
       iter = json_object_iter_next((json_t *)(uintptr_t)value, iter)) {
    if (strlen(json_object_iter_key(iter)) != json_object_iter_key_len(iter) || has_nul_in_name(json_object_iter_value(iter)))
      return 1;
  }
  return 0;
}

static void check_canonical(const json_t *value)
{
  size_t n, again_n;
  char *text = qv_jcs(value, &n);
  QV_FUZZ_CHECK(text && strlen(text) == n && qv_text_is_utf8(text, n));
  json_t *read = qv_json_parse(text, n, SIZE_MAX, QV_JSON_ANY, NULL);
  QV_FUZZ_CHECK(read);
  char *again = qv_jcs(read, &again_n);
  QV_FUZZ_CHECK(again && again_n == n && memcmp(text, again, n) == 0);
  json_decref(read);
  free(text);
  free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  QvJsonError error;
  json_t *any = qv_json_parse(data, size, QV_JOB_JSON_BYTES_MAX, QV_JSON_ANY, &error);
  QvJsonReason any_reason = any ? QV_JSON_OK : error.reason;
  /* jansson takes a NUL byte behind the value for the end of the text. */
  json_t *other = size <= QV_JOB_JSON_BYTES_MAX && !(size && memchr(data, 0, size))
                    ? json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY |
                                                             JSON_DECODE_INT_AS_REAL, NULL)
                    : NULL;
  if (any) {
    QV_FUZZ_CHECK(other || has_nul_in_name(any) || memchr(data, 0, size));
    check_canonical(any);
    if (other) {
      char *a = qv_jcs(any, NULL), *b = qv_jcs(other, NULL);
      QV_FUZZ_CHECK(a && b && strcmp(a, b) == 0);
      free(a);
      free(b);
    }
  } else {
    QV_FUZZ_CHECK(!other || only_ours_refuses(any_reason));
    QV_FUZZ_CHECK(error.offset <= size);
  }
  json_t *strict = qv_json_parse(data, size, QV_JOB_JSON_BYTES_MAX, QV_JSON_SIGNED, &error);
  if (strict) {
    QV_FUZZ_CHECK(any && json_equal(strict, any));
  } else if (any) {
    QV_FUZZ_CHECK(error.reason == QV_JSON_NOT_INTEGER || error.reason == QV_JSON_NUMBER_RANGE || error.reason == QV_JSON_NUL);
  }
  json_decref(strict);
  json_decref(any);
  json_decref(other);
  return 0;
}
