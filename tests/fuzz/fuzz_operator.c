/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator writes by hand: the list of registries, ranges of addresses, a key file. */
#include <string.h>

#include "fuzz.h"
#include "protocol/key.h"
#include "protocol/registries.h"

static void check_registries(const char *text)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvRegistries) list = qv_registries_parse(text, &error);
  QV_FUZZ_CHECK((list == NULL) == (error != NULL));
  for (guint i = 0; list && i < qv_registries_n(list); i++) {
    const QvRegistry *registry = qv_registries_at(list, i);
    QV_FUZZ_CHECK(registry->cidrs_n <= QV_REGISTRY_CIDRS_MAX && registry->port > 0);
    QV_FUZZ_CHECK(registry->host_port[registry->host_n] == ':');
    QV_FUZZ_CHECK(qv_registries_find(list, registry->host_port) != NULL);
    QV_FUZZ_CHECK(qv_registries_has_name(list, registry->host_port, registry->host_n));
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  g_autofree char *text = g_strndup((const char *)data, size);
  QvCidr cidr;
  check_registries(text);
  if (qv_cidr_parse(text, &cidr, NULL))
    QV_FUZZ_CHECK(cidr.bits <= (cidr.v6 ? 128u : 32u) && qv_cidr_contains(&cidr, cidr.v6, cidr.bytes));
  g_autoptr(QvKey) key = qv_key_parse((const char *)data, size, NULL);
  QV_FUZZ_CHECK(!key || (size >= 44 && size <= 89));
  return 0;
}
