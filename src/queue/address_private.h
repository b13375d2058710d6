/* SPDX-License-Identifier: Apache-2.0 */
/* What link.c needs of an address. */
#pragma once

#include <gio/gio.h>

#include "base/secret.h"
#include "queue/address.h"

struct QvAddress {
  gatomicrefcount refs;
  char *display;
  char *user;         /* NULL: default */
  QvSecret *password; /* not ended by NUL; NULL: none */
  char *path;         /* unix socket, else NULL */
  char *host;
  guint16 port;
  gboolean tls;
  guint db;
  char *ca_file, *cert_file, *key_file;
};

GSocketConnectable *qv_address_connectable(const QvAddress *address);
