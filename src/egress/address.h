/* SPDX-License-Identifier: Apache-2.0 */
/* May a tunnel go to this address? Decided on the binary address, from
 * address_table.def, after unwrapping IPv4 from IPv6. Pure.
 *
 * Every row that holds the address must be opened, each by a range of the operator that holds the address and lies
 * within the row: a range that is wider than the row does not name it. So `@10.0.0.0/8` opens private
 * addresses, and `@0.0.0.0/0` nothing at all; `@169.254.0.0/16` opens link-local ones and leaves 169.254.169.254
 * closed. */
#pragma once

#include <glib.h>

#include "protocol/registries.h"

typedef struct {
  gboolean v6;
  guint8 bytes[16]; /* IPv4: the first four */
} QvIp;

/* NULL: it may. Else the name of the row that refuses it. REGISTRY: whose ranges count. */
const char *qv_ip_refused(const QvIp *ip, const QvRegistry *registry);

/* Where a connection to IP really goes: IPv4-mapped addresses become IPv4. */
QvIp qv_ip_unwrap(const QvIp *ip);

/* Text for logs, at most INET6_ADDRSTRLEN bytes. */
void qv_ip_format(const QvIp *ip, char text[46]);
gboolean qv_ip_parse(const char *text, QvIp *ip);

/* Does RANGE open anything? FALSE for public ranges and those wider than every row: the operator meant something else. */
gboolean qv_ip_range_opens(const QvCidr *range);

/* The table, for docs and tests: FALSE past the end. */
typedef struct {
  const char *kind, *prefix, *name;
  guint bits;
} QvIpRow;
gboolean qv_ip_row(guint i, QvIpRow *row);
