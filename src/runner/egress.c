/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the settings of egress, the folder of sockets and the folder of notes. */
#include "runner/egress.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/hex.h"
#include "base/log.h"
#include "queue/stores.h"
#include "runner/relay.h"

#define SOCKETS "egress"
#define NOTES "tokens"
#define SOCKET_SUFFIX ".sock"

enum { HASH_HEX_N = 64 };

/* ---- settings */

gboolean qv_egress_by_network(const char *backend)
{
  return g_str_has_prefix(backend, "docker-");
}

/* Without a resolver a sandbox cannot take a name. */
static gboolean is_ipv4_port(const char *text)
{
  const char *colon = strrchr(text, ':');
  guint64 port;
  struct in_addr address;
  if (colon == NULL || !g_ascii_string_to_unsigned(colon + 1, 10, 1, 65535, &port, NULL))
    return FALSE;
  g_autofree char *host = g_strndup(text, colon - text);
  return inet_pton(AF_INET, host, &address) == 1;
}

static gboolean check_network(const QvConfig *config, GError **error)
{
  const char *missing = config->egress_network == NULL ? "QUAVON_SANDBOX_EGRESS_NETWORK"
                        : config->egress_proxy == NULL ? "QUAVON_SANDBOX_EGRESS_PROXY" : NULL;
  if (missing != NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_POLICY,
                "%s is not set, although QUAVON_SANDBOX_REGISTRIES lists registries: with the backend %s jobs reach the proxy through "
                "a network of the engine's; quavon-egress-network up makes it and says what to set (docs/DOCKER.md)", missing,
                config->backend);
    return FALSE;
  }
  if (is_ipv4_port(config->egress_proxy))
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_FORMAT,
              "QUAVON_SANDBOX_EGRESS_PROXY: %s is no IPv4 address with a port: with the backend %s it is the proxy's as a sandbox "
              "sees it, which resolves no names", config->egress_proxy, config->backend);
  return FALSE;
}

static gboolean check_proxy(const QvConfig *config, GError **error)
{
  if (qv_egress_by_network(config->backend))
    return check_network(config, error);
  if (config->egress_proxy == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_POLICY,
                "QUAVON_SANDBOX_EGRESS_PROXY is not set, although QUAVON_SANDBOX_REGISTRIES lists registries: the address of "
                "quavon-sandbox-egress, host:port or the path of a unix socket (or unset QUAVON_SANDBOX_REGISTRIES: no job "
                "then has egress)");
    return FALSE;
  }
  if (qv_relay_proxy_check(config->egress_proxy, error))
    return TRUE;
  g_prefix_error(error, "QUAVON_SANDBOX_EGRESS_PROXY: ");
  return FALSE;
}

static gboolean read_ca(const QvConfig *config, char **ca_pem, GError **error)
{
  gsize n;
  *ca_pem = NULL;
  if (config->ca_file == NULL)
    return TRUE;
  g_autofree char *text = qv_fd_read_file(config->ca_file, QV_CA_PEM_BYTES_MAX, &n, error);
  if (text == NULL) {
    g_prefix_error(error, "QUAVON_SANDBOX_CA_FILE: ");
    return FALSE;
  }
  if (strlen(text) != n || !g_utf8_validate(text, n, NULL) || strstr(text, "-----BEGIN CERTIFICATE-----") == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "QUAVON_SANDBOX_CA_FILE: %s holds no certificate in PEM form", config->ca_file);
    return FALSE;
  }
  *ca_pem = g_steal_pointer(&text);
  return TRUE;
}

gboolean qv_egress_settings(const QvConfig *config, const QvRegistries *registries, char **ca_pem, GError **error)
{
  if (qv_registries_n(registries) > 0 && !check_proxy(config, error))
    return FALSE;
  return read_ca(config, ca_pem, error);
}

/* ---- the two folders */

static gboolean make_folder(const char *state_dir, const char *name, GError **error)
{
  g_autofree char *path = g_build_filename(state_dir, name, NULL);
  return mkdir(path, 0700) == 0 || errno == EEXIST || qv_error_set_errno(error, errno, "cannot make %s", path);
}

gboolean qv_egress_prepare(const char *state_dir, GError **error)
{
  return make_folder(state_dir, SOCKETS, error) && make_folder(state_dir, NOTES, error);
}

char *qv_egress_socket_path(const char *state_dir, const char *job_id)
{
  g_autofree char *name = g_strconcat(job_id, SOCKET_SUFFIX, NULL);
  return g_build_filename(state_dir, SOCKETS, name, NULL);
}

void qv_egress_socket_sweep(const char *state_dir, const char *job_id)
{
  if (job_id != NULL) {
    g_autofree char *path = qv_egress_socket_path(state_dir, job_id);
    unlink(path);
    return;
  }
  g_autofree char *folder = g_build_filename(state_dir, SOCKETS, NULL);
  g_autoptr(GDir) dir = g_dir_open(folder, 0, NULL);
  const char *name;
  while (dir != NULL && (name = g_dir_read_name(dir)) != NULL) {
    g_autofree char *path = g_build_filename(folder, name, NULL);
    unlink(path);
  }
}

/* ---- notes */

static char *note_path(const char *state_dir, const char *hash)
{
  return g_build_filename(state_dir, NOTES, hash, NULL);
}

gboolean qv_egress_note_add(const char *state_dir, const char *hash, GError **error)
{
  g_autofree char *path = note_path(state_dir, hash);
  QV_AUTOFD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  return fd >= 0 || qv_error_set_errno(error, errno, "cannot write %s", path);
}

void qv_egress_note_remove(const char *state_dir, const char *hash)
{
  g_autofree char *path = note_path(state_dir, hash);
  unlink(path);
}

typedef struct {
  char *state_dir;
  char *hash;
} Note;

static void on_taken_back(const GError *error, gpointer user)
{
  Note *note = user;
  if (error == NULL)
    qv_egress_note_remove(note->state_dir, note->hash);
  else if (!g_error_matches(error, QV_ERROR, QV_ERROR_CANCELLED))
    qv_log(QV_LOG_WARNING, "a token of an earlier run stays until its time is over", "error", error->message, NULL);
  g_free(note->state_dir);
  g_free(note->hash);
  g_free(note);
}

void qv_egress_note_sweep(QvConn *conn, const char *prefix, const char *state_dir)
{
  g_autofree char *folder = g_build_filename(state_dir, NOTES, NULL);
  g_autoptr(GDir) dir = g_dir_open(folder, 0, NULL);
  guint n = 0;
  const char *name;
  while (dir != NULL && (name = g_dir_read_name(dir)) != NULL) {
    if (strlen(name) != HASH_HEX_N || !qv_hex_valid(name, HASH_HEX_N))
      continue;
    Note *note = g_new0(Note, 1);
    note->state_dir = g_strdup(state_dir);
    note->hash = g_strdup(name);
    qv_egress_token_revoke(conn, prefix, name, 0, on_taken_back, note);
    n++;
  }
  if (n > 0)
    qv_logf(QV_LOG_INFO, "%u egress tokens of an earlier run are taken back", n);
}
