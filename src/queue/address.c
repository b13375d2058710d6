/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/address.h"

#include <gio/gunixsocketaddress.h>
#include <string.h>
#include <sys/un.h>

#include "base/error.h"
#include "queue/address_private.h"

#define DB_MAX 65535

static gboolean fail(GError **error, const char *what)
{
  g_set_error(error, QV_ERROR, QV_ERROR_FORMAT,
              "%s; the form is redis://user:password@host:port, rediss://user:password@host:port "
              "or unix://user:password@/path",
              what);
  return FALSE;
}

static gboolean parse_db(const char *text, guint *db)
{
  guint64 value;
  if (!g_ascii_string_to_unsigned(text, 10, 0, DB_MAX, &value, NULL))
    return FALSE;
  *db = value;
  return TRUE;
}

static gboolean parse_unix(QvAddress *a, const char *path, const char *query, GError **error)
{
  if (path[0] != '/')
    return fail(error, "a unix:// address needs an absolute path");
  if (strlen(path) >= sizeof ((struct sockaddr_un *)0)->sun_path)
    return fail(error, "the socket's path is longer than 107 bytes");
  if (query && (!g_str_has_prefix(query, "db=") || !parse_db(query + 3, &a->db)))
    return fail(error, "after the socket's path only ?db=N may follow");
  a->path = g_strdup(path);
  a->display = g_strdup_printf("unix://%s", path);
  return TRUE;
}

static gboolean parse_host(QvAddress *a, const char *host, int port, const char *path, const char *query, GError **error)
{
  if (!host || !*host)
    return fail(error, "the host is missing");
  if (port == 0 || port > G_MAXUINT16)
    return fail(error, "the port is not one");
  if (query)
    return fail(error, "a query is not known here");
  if (path[0] == '/' && path[1] && !parse_db(path + 1, &a->db))
    return fail(error, "the database is not a number");
  a->host = g_strdup(host);
  a->port = port < 0 ? 6379 : port;
  a->display = g_strdup_printf(strchr(host, ':') ? "%s://[%s]:%u" : "%s://%s:%u", a->tls ? "rediss" : "redis", host,
                               a->port);
  return TRUE;
}

QvAddress *qv_address_parse(const char *url, GError **error)
{
  g_autofree char *scheme = NULL, *user = NULL, *host = NULL, *path = NULL, *query = NULL, *fragment = NULL;
  char *password = NULL;
  int port = -1;
  /* GUri's own message may quote the URL, and with it the password. */
  if (!g_uri_split_with_user(url, G_URI_FLAGS_HAS_PASSWORD, &scheme, &user, &password, NULL, &host, &port, &path, &query,
                             &fragment, NULL) ||
      !scheme) {
    if (password) /* GUri leaves it where a later part is wrong */
      explicit_bzero(password, strlen(password));
    g_free(password);
    fail(error, "not an address");
    return NULL;
  }
  g_autoptr(QvAddress) a = g_new0(QvAddress, 1);
  g_atomic_ref_count_init(&a->refs);
  if (password && *password)
    a->password = qv_secret_new_take(password, strlen(password));
  g_free(password);
  if (user && *user)
    a->user = g_strdup(user);
  a->tls = g_str_equal(scheme, "rediss");
  gboolean ok;
  if (fragment)
    ok = fail(error, "a # in it must be written %23");
  else if (a->user && !a->password)
    ok = fail(error, "the user has no password");
  else if (g_str_equal(scheme, "unix"))
    ok = host && *host ? fail(error, "a unix:// address has no host") : parse_unix(a, path, query, error);
  else if (a->tls || g_str_equal(scheme, "redis"))
    ok = parse_host(a, host, port, path, query, error);
  else
    ok = fail(error, "the scheme is not known");
  return ok ? g_steal_pointer(&a) : NULL;
}

gboolean qv_address_set_tls(QvAddress *a, const char *ca_file, const char *cert_file, const char *key_file, GError **error)
{
  if ((ca_file || cert_file || key_file) && !a->tls) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "certificate files are for rediss:// only, and this is %s", a->display);
    return FALSE;
  }
  if (!cert_file != !key_file) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "a certificate and its key are given together or not at all");
    return FALSE;
  }
  g_free(a->ca_file);
  g_free(a->cert_file);
  g_free(a->key_file);
  a->ca_file = g_strdup(ca_file);
  a->cert_file = g_strdup(cert_file);
  a->key_file = g_strdup(key_file);
  return TRUE;
}

QvAddress *qv_address_of_config(const QvConfig *config, GError **error)
{
  g_autoptr(QvAddress) address = qv_address_parse((const char *)qv_secret_bytes(config->valkey_url), error);
  if (address == NULL) {
    g_prefix_error(error, "VALKEY_URL: ");
    return NULL;
  }
  gboolean tls = config->valkey_ca_file != NULL || config->valkey_cert_file != NULL || config->valkey_key_file != NULL;
  if (tls && !qv_address_set_tls(address, config->valkey_ca_file, config->valkey_cert_file, config->valkey_key_file,
                                 error)) {
    g_prefix_error(error, "VALKEY_CA_FILE, VALKEY_CERT_FILE, VALKEY_KEY_FILE: ");
    return NULL;
  }
  return g_steal_pointer(&address);
}

QvAddress *qv_address_ref(QvAddress *a)
{
  g_atomic_ref_count_inc(&a->refs);
  return a;
}

void qv_address_unref(QvAddress *a)
{
  if (!a || !g_atomic_ref_count_dec(&a->refs))
    return;
  qv_secret_free(a->password);
  g_free(a->display);
  g_free(a->user);
  g_free(a->path);
  g_free(a->host);
  g_free(a->ca_file);
  g_free(a->cert_file);
  g_free(a->key_file);
  g_free(a);
}

const char *qv_address_display(const QvAddress *a)
{
  return a->display;
}

const char *qv_address_user(const QvAddress *a)
{
  return a->user ? a->user : "default";
}

GSocketConnectable *qv_address_connectable(const QvAddress *a)
{
  if (a->path)
    return G_SOCKET_CONNECTABLE(g_unix_socket_address_new(a->path));
  return g_network_address_new(a->host, a->port);
}
