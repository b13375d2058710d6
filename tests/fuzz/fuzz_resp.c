/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of Valkey: whole and byte by byte the same ones come out, to the same end; no reply has a hole, and an error's text
 * is short and printable. */
#include <string.h>

#include "fuzz.h"
#include "../support/resp_text.h"

static void check_error(const QvReply *r)
{
  g_autoptr(GError) error = NULL;
  QV_FUZZ_CHECK(qv_reply_check(r, &error) == (r->type != QV_REPLY_ERROR));
  if (!error)
    return;
  QV_FUZZ_CHECK(strlen(error->message) < 8192 && g_utf8_validate(error->message, -1, NULL));
  QV_FUZZ_CHECK(qv_reply_error_is_transient(error) == qv_reply_is_transient(r));
  for (const char *c = error->message; *c; c++)
    QV_FUZZ_CHECK(!g_ascii_iscntrl(*c));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size > 4096) /* byte by byte is slow, and many arrays are large */
    size = 4096;
  GString *whole = qv_test_resp_text(data, size, size + 1, check_error), *single = qv_test_resp_text(data, size, 1, NULL);
  QV_FUZZ_CHECK(g_string_equal(whole, single));
  g_string_free(whole, TRUE);
  g_string_free(single, TRUE);
  return 0;
}
