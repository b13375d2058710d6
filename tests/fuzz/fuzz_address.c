/* SPDX-License-Identifier: Apache-2.0 */
/* Valkey's URL: what is refused is told without the URL, which may hold a password; what is accepted can be shown. */
#include <string.h>

#include "base/error.h"
#include "fuzz.h"
#include "queue/address.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  g_autofree char *url = g_strndup((const char *)data, size);
  g_autoptr(GError) error = NULL;
  g_autoptr(QvAddress) address = qv_address_parse(url, &error);
  QV_FUZZ_CHECK((address == NULL) == (error != NULL));
  if (!address) {
    QV_FUZZ_CHECK(g_error_matches(error, QV_ERROR, QV_ERROR_FORMAT));
    QV_FUZZ_CHECK(strlen(url) < 24 || !strstr(error->message, url));
    return 0;
  }
  QV_FUZZ_CHECK(strlen(qv_address_display(address)) > 0 && strlen(qv_address_user(address)) > 0);
  return 0;
}
