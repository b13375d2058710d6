/* SPDX-License-Identifier: Apache-2.0 */
/* QUAVON_SANDBOX_REGISTRIES: where setup steps may go at all. The runner asks
 * it at admission, the proxy at every CONNECT; both read it with this parser.
 *
 *   list  = [entry *("," entry)]        blanks around an entry are dropped
 *   entry = name [":" port] ["@" cidr]  port 443 where none is named
 *   cidr  = IPv4 or IPv6 address ["/" bits]
 *
 * A name is a whole host name: no pattern, no address literal, no final dot. It
 * is compared in lower case. A name and port may stand several times, each time with another
 * cidr. */
#pragma once

#include <glib.h>

enum {
  QV_REGISTRIES_TEXT_BYTES_MAX = 64 * 1024,
  QV_REGISTRIES_MAX = 256,      /* names with a port */
  QV_REGISTRY_CIDRS_MAX = 16,   /* a name with a port */
  QV_REGISTRY_PORT_DEFAULT = 443,
};

/* A range of addresses. IPv4 in the first four bytes. Bits behind the prefix are zero. */
typedef struct {
  gboolean v6;
  guint bits;
  guint8 bytes[16];
} QvCidr;

/* Error: FORMAT, with what is wrong. */
gboolean qv_cidr_parse(const char *text, QvCidr *cidr, GError **error);
/* ADDRESS: 4 or 16 bytes in network order. */
gboolean qv_cidr_contains(const QvCidr *cidr, gboolean v6, const guint8 *address);

typedef struct {
  char *host_port; /* "name:port", lower-case: the form of a job's `egress` */
  guint host_n;    /* bytes of the name in it */
  guint16 port;
  guint cidrs_n;   /* 0: public addresses alone */
  QvCidr cidrs[QV_REGISTRY_CIDRS_MAX];
} QvRegistry;

typedef struct QvRegistries QvRegistries;

/* TEXT NULL or empty: an empty list, which allows nothing. Error: FORMAT, with the entry and what is wrong in it. */
QvRegistries *qv_registries_parse(const char *text, GError **error);
void qv_registries_free(QvRegistries *registries);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvRegistries, qv_registries_free)

guint qv_registries_n(const QvRegistries *registries);
const QvRegistry *qv_registries_at(const QvRegistries *registries, guint i);
/* HOST_PORT: "name:port" in lower case. NULL where it is not listed, and for REGISTRIES NULL. */
const QvRegistry *qv_registries_find(const QvRegistries *registries, const char *host_port);
/* Is NAME listed with any port? N bytes, lower-case. */
gboolean qv_registries_has_name(const QvRegistries *registries, const char *name, gsize n);
