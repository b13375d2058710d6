/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns against paths: the input up to its first NUL is the pattern, the rest the path. */
#include <string.h>

#include "format/glob.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
  if (!nul)
    return 0;
  size_t pattern_n = (size_t)(nul - data), path_n = size - pattern_n - 1;
  const char *path = (const char *)nul + 1;
  if (path_n > 1024)
    return 0;
  QvGlob *glob = qv_glob_new((const char *)data, pattern_n);
  QV_FUZZ_CHECK((glob != NULL) == qv_glob_valid((const char *)data, pattern_n));
  if (!glob)
    return 0;
  bool matched = qv_glob_match(glob, path, path_n);
  QV_FUZZ_CHECK(qv_glob_match(glob, path, path_n) == matched);
  /* A walk that asks before it enters a folder finds whatever matches. */
  for (size_t i = 1; matched && i + 1 < path_n; i++) {
    if (path[i] == '/')
      QV_FUZZ_CHECK(qv_glob_may_match_below(glob, path, i));
  }
  if (matched && path_n > 0)
    QV_FUZZ_CHECK(qv_glob_may_match_below(glob, "", 0));
  /* A pattern without special characters is its own and only match. */
  if (!memchr(data, '\\', pattern_n) && strcspn((const char *)data, "*?[{(") == pattern_n)
    QV_FUZZ_CHECK(matched == (path_n == pattern_n && memcmp(path, data, path_n) == 0));
  qv_glob_free(glob);
  return 0;
}
