/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the operator's list of registries: its grammar and its look-up. */
#include "protocol/registries.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/error.h"
#include "protocol/fields.h"

struct QvRegistries {
  GPtrArray *entries;   /* of QvRegistry, in the order of the text */
  GHashTable *by_name;  /* host_port to QvRegistry */
};

static void registry_free(gpointer data)
{
  QvRegistry *registry = data;
  g_free(registry->host_port);
  g_free(registry);
}

void qv_registries_free(QvRegistries *registries)
{
  if (registries == NULL)
    return;
  g_hash_table_unref(registries->by_name);
  g_ptr_array_unref(registries->entries);
  g_free(registries);
}

static gboolean fail(GError **error, const char *text)
{
  g_set_error_literal(error, QV_ERROR, QV_ERROR_FORMAT, text);
  return FALSE;
}

/* A decimal without sign, blank or leading zero. */
static gboolean parse_decimal(const char *text, guint max, guint *value)
{
  gsize n = strlen(text);
  guint64 sum = 0;
  if (n == 0 || n > 5 || (text[0] == '0' && n > 1))
    return FALSE;
  for (gsize i = 0; i < n; i++) {
    if (!g_ascii_isdigit(text[i]))
      return FALSE;
    sum = sum * 10 + (guint64)(text[i] - '0');
  }
  if (sum > max)
    return FALSE;
  *value = (guint)sum;
  return TRUE;
}

/* Clears what lies behind the prefix: was anything set there? */
static gboolean clear_host_bits(QvCidr *cidr)
{
  gboolean found = FALSE;
  for (guint bit = cidr->bits; bit < (cidr->v6 ? 128u : 32u); bit++) {
    guint8 mask = (guint8)(0x80u >> (bit % 8));
    found |= (cidr->bytes[bit / 8] & mask) != 0;
    cidr->bytes[bit / 8] &= (guint8)~mask;
  }
  return found;
}

gboolean qv_cidr_parse(const char *text, QvCidr *cidr, GError **error)
{
  QvCidr parsed = {0};
  const char *slash = strchr(text, '/');
  g_autofree char *address = slash != NULL ? g_strndup(text, (gsize)(slash - text)) : g_strdup(text);
  parsed.v6 = strchr(address, ':') != NULL;
  if (!parsed.v6 && !qv_ipv4_valid(address))
    return fail(error, "the range behind '@' is no IPv4 or IPv6 address");
  if (inet_pton(parsed.v6 ? AF_INET6 : AF_INET, address, parsed.bytes) != 1)
    return fail(error, "the range behind '@' is no IPv4 or IPv6 address");
  parsed.bits = parsed.v6 ? 128 : 32;
  if (slash != NULL && !parse_decimal(slash + 1, parsed.bits, &parsed.bits))
    return fail(error, "the number of bits behind '/' is not a number of 0 to 32 (IPv6: 128)");
  if (clear_host_bits(&parsed)) {
    char right[INET6_ADDRSTRLEN];
    inet_ntop(parsed.v6 ? AF_INET6 : AF_INET, parsed.bytes, right, sizeof right);
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "the range has bits behind its prefix; %s/%u is what it means", right,
                parsed.bits);
    return FALSE;
  }
  *cidr = parsed;
  return TRUE;
}

gboolean qv_cidr_contains(const QvCidr *cidr, gboolean v6, const guint8 *address)
{
  if (!cidr->v6 != !v6)
    return FALSE;
  guint whole = cidr->bits / 8, rest = cidr->bits % 8;
  if (memcmp(cidr->bytes, address, whole) != 0)
    return FALSE;
  guint8 mask = (guint8)(0xff00u >> rest);
  return rest == 0 || ((cidr->bytes[whole] ^ address[whole]) & mask) == 0;
}

static QvRegistry *take_entry(QvRegistries *registries, const char *host_port, guint host_n, guint port, GError **error)
{
  QvRegistry *registry = g_hash_table_lookup(registries->by_name, host_port);
  if (registry != NULL)
    return registry;
  if (registries->entries->len == QV_REGISTRIES_MAX) {
    g_set_error(error, QV_ERROR, QV_ERROR_LIMIT, "more than %d names", QV_REGISTRIES_MAX);
    return NULL;
  }
  registry = g_new0(QvRegistry, 1);
  registry->host_port = g_strdup(host_port);
  registry->host_n = host_n;
  registry->port = (guint16)port;
  g_ptr_array_add(registries->entries, registry);
  g_hash_table_insert(registries->by_name, registry->host_port, registry);
  return registry;
}

/* ENTRY without blanks around it; changed on the way. */
static gboolean parse_entry(QvRegistries *registries, char *entry, GError **error)
{
  QvCidr cidr;
  guint port = QV_REGISTRY_PORT_DEFAULT;
  char *at = strchr(entry, '@');
  if (at != NULL) {
    *at = '\0';
    if (!qv_cidr_parse(at + 1, &cidr, error))
      return FALSE;
  }
  char *colon = strchr(entry, ':');
  if (colon != NULL) {
    *colon = '\0';
    if (!parse_decimal(colon + 1, 65535, &port) || port == 0)
      return fail(error, "the port is not a number of 1 to 65535");
  }
  g_autofree char *name = g_ascii_strdown(entry, -1);
  g_autofree char *host_port = g_strdup_printf("%s:%u", name, port);
  if (!qv_host_port_valid(host_port))
    return fail(error, "the name is no whole host name (letters, digits, inner hyphens and dots; no pattern, no address)");
  QvRegistry *registry = take_entry(registries, host_port, (guint)strlen(name), port, error);
  if (registry == NULL || at == NULL)
    return registry != NULL;
  if (registry->cidrs_n == QV_REGISTRY_CIDRS_MAX) {
    g_set_error(error, QV_ERROR, QV_ERROR_LIMIT, "more than %d ranges of one name", QV_REGISTRY_CIDRS_MAX);
    return FALSE;
  }
  registry->cidrs[registry->cidrs_n++] = cidr;
  return TRUE;
}

QvRegistries *qv_registries_parse(const char *text, GError **error)
{
  g_autoptr(QvRegistries) registries = g_new0(QvRegistries, 1);
  registries->entries = g_ptr_array_new_with_free_func(registry_free);
  registries->by_name = g_hash_table_new(g_str_hash, g_str_equal);
  if (text == NULL || text[strspn(text, " \t\n")] == '\0')
    return g_steal_pointer(&registries);
  if (strlen(text) > QV_REGISTRIES_TEXT_BYTES_MAX) {
    g_set_error(error, QV_ERROR, QV_ERROR_LIMIT, "longer than %d bytes", QV_REGISTRIES_TEXT_BYTES_MAX);
    return NULL;
  }
  g_auto(GStrv) entries = g_strsplit(text, ",", -1);
  for (guint i = 0; entries[i] != NULL; i++) {
    g_autofree char *whole = g_strdup(g_strstrip(entries[i]));
    if (!parse_entry(registries, entries[i], error)) {
      g_autofree char *shown = g_strescape(whole, NULL);
      g_prefix_error(error, "entry %u, '%.300s': ", i + 1, shown);
      return NULL;
    }
  }
  return g_steal_pointer(&registries);
}

guint qv_registries_n(const QvRegistries *registries)
{
  return registries != NULL ? registries->entries->len : 0;
}

const QvRegistry *qv_registries_at(const QvRegistries *registries, guint i)
{
  return g_ptr_array_index(registries->entries, i);
}

const QvRegistry *qv_registries_find(const QvRegistries *registries, const char *host_port)
{
  return registries != NULL ? g_hash_table_lookup(registries->by_name, host_port) : NULL;
}

gboolean qv_registries_has_name(const QvRegistries *registries, const char *name, gsize n)
{
  for (guint i = 0; i < qv_registries_n(registries); i++) {
    const QvRegistry *registry = qv_registries_at(registries, i);
    if (registry->host_n == n && memcmp(registry->host_port, name, n) == 0)
      return TRUE;
  }
  return FALSE;
}
