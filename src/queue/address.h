/* SPDX-License-Identifier: Apache-2.0 */
/* Where a Valkey server is and who we are to it:
 *   redis://[user[:password]@]host[:port][/db]     rediss:// the same over TLS
 *   unix://[user[:password]@]/path[?db=N]
 * User and password may be percent-encoded. The password is wiped when the
 * address is freed and never part of an error text. */
#pragma once

#include <glib.h>

#include "base/config.h"

typedef struct QvAddress QvAddress;

/* Errors: FORMAT (the text says what is wrong, without the URL). */
QvAddress *qv_address_parse(const char *url, GError **error);
/* Files for rediss://, each may be NULL: the CA that is trusted instead of the system's, our certificate and its key
 * (both or none), PEM. They are read at every connect, so that renewed files are taken up. Error: FORMAT when given for
 * another scheme, or a certificate without a key. */
gboolean qv_address_set_tls(QvAddress *address, const char *ca_file, const char *cert_file, const char *key_file,
                            GError **error);
/* That of VALKEY_URL, which must be set, with the files of VALKEY_CA_FILE, VALKEY_CERT_FILE and VALKEY_KEY_FILE. The errors
 * of both, with the variable's name in front. */
QvAddress *qv_address_of_config(const QvConfig *config, GError **error);
QvAddress *qv_address_ref(QvAddress *address);
void qv_address_unref(QvAddress *address);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvAddress, qv_address_unref)

/* "redis://host:port" without user and password, for logs. Borrowed. */
const char *qv_address_display(const QvAddress *address);
/* The ACL user, or "default". Borrowed. */
const char *qv_address_user(const QvAddress *address);
