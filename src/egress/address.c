/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the verdict on one address. */
#include "egress/address.h"

#include <arpa/inet.h>
#include <string.h>

typedef enum { SPECIAL, NEVER, FALLBACK, WITHIN, CARRY_END, CARRY_2, CARRY_NOT_END } Kind;

typedef struct {
  Kind kind;
  QvIpRow row;
  QvCidr range; /* of prefix and bits; parsed once */
} Row;

static Row rows[] = {
#define QV_ADDRESS(kind, prefix, bits, name) {kind, {#kind, prefix, name, bits}, {0}},
#include "egress/address_table.def"
#undef QV_ADDRESS
};

static void prepare(void)
{
  static gsize done = 0;
  if (!g_once_init_enter(&done))
    return;
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autofree char *text = g_strdup_printf("%s/%u", rows[i].row.prefix, rows[i].row.bits);
    g_assert(qv_cidr_parse(text, &rows[i].range, NULL));
  }
  g_once_init_leave(&done, 1);
}

gboolean qv_ip_row(guint i, QvIpRow *row)
{
  if (i >= G_N_ELEMENTS(rows))
    return FALSE;
  *row = rows[i].row;
  return TRUE;
}

static gboolean lies_within(const QvCidr *inner, const QvCidr *outer)
{
  return inner->bits >= outer->bits && qv_cidr_contains(outer, inner->v6, inner->bytes);
}

gboolean qv_ip_range_opens(const QvCidr *range)
{
  prepare();
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++)
    if (rows[i].kind != NEVER && rows[i].kind != WITHIN && lies_within(range, &rows[i].range))
      return TRUE;
  return FALSE;
}

static gboolean opened(const Row *row, const QvIp *ip, const QvRegistry *registry)
{
  for (guint i = 0; registry != NULL && i < registry->cidrs_n; i++) {
    const QvCidr *range = &registry->cidrs[i];
    if (lies_within(range, &row->range) && qv_cidr_contains(range, ip->v6, ip->bytes))
      return TRUE;
  }
  return FALSE;
}

/* The IPv4 address that IP carries in a row of KIND. */
static gboolean carried(Kind kind, const QvIp *ip, QvIp *inner)
{
  gsize from = kind == CARRY_2 ? 2 : 12;
  if (kind != WITHIN && kind != CARRY_END && kind != CARRY_2 && kind != CARRY_NOT_END)
    return FALSE;
  *inner = (QvIp){.v6 = FALSE};
  for (gsize i = 0; i < 4; i++)
    inner->bytes[i] = (guint8)(ip->bytes[from + i] ^ (kind == CARRY_NOT_END ? 0xff : 0));
  return TRUE;
}

const char *qv_ip_refused(const QvIp *ip, const QvRegistry *registry)
{
  gboolean held = FALSE;
  prepare();
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    const Row *row = &rows[i];
    QvIp inner;
    if (!qv_cidr_contains(&row->range, ip->v6, ip->bytes) || (row->kind == FALLBACK && held))
      continue;
    held = TRUE;
    if (row->kind != WITHIN && (row->kind == NEVER || !opened(row, ip, registry)))
      return row->row.name;
    if (carried(row->kind, ip, &inner) && qv_ip_refused(&inner, registry) != NULL &&
        /* ::1 is no IPv4-compatible 0.0.0.1, though it lies in that range. */
        !(row->kind == CARRY_END && memcmp(ip->bytes, (guint8[15]){0}, 15) == 0 && ip->bytes[15] == 1))
      return row->row.name;
  }
  return NULL;
}

QvIp qv_ip_unwrap(const QvIp *ip)
{
  static const guint8 mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  QvIp inner;
  if (ip->v6 && memcmp(ip->bytes, mapped, sizeof mapped) == 0 && carried(WITHIN, ip, &inner))
    return inner;
  return *ip;
}

void qv_ip_format(const QvIp *ip, char text[46])
{
  inet_ntop(ip->v6 ? AF_INET6 : AF_INET, ip->bytes, text, 46);
}

gboolean qv_ip_parse(const char *text, QvIp *ip)
{
  QvIp parsed = {.v6 = strchr(text, ':') != NULL};
  if (inet_pton(parsed.v6 ? AF_INET6 : AF_INET, text, parsed.bytes) != 1)
    return FALSE;
  *ip = parsed;
  return TRUE;
}
