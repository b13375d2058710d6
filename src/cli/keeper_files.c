/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the content of the keeper's folder. */
#include "cli/keeper_files.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/config.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/hex.h"
#include "base/random.h"
#include "base/sha256.h"
#include "cli/keeper.h"
#include "cli/users_acl.h"
#include "client/key_file.h"

enum { PASSWORD_BYTES = 32 };

static gboolean write_file(const char *folder, const char *name, const char *text, GError **error)
{
  g_autofree char *path = g_build_filename(folder, name, NULL);
  return qv_fd_write_file(path, text, strlen(text), 0600, error);
}

/* A fresh password in place of the user's token in the ACL; the URL with it into the file, where there is one. */
static gboolean make_user(const char *folder, GString *acl, const char *user, const char *token, const char *url_file,
                          GError **error)
{
  guint8 bytes[PASSWORD_BYTES], digest[QV_SHA256_BYTES];
  char password[2 * PASSWORD_BYTES + 1], hex[2 * QV_SHA256_BYTES + 1];
  qv_random_bytes(bytes, sizeof bytes);
  qv_hex_encode(bytes, sizeof bytes, password);
  qv_sha256(password, strlen(password), digest);
  qv_hex_encode(digest, sizeof digest, hex);
  gboolean ok = g_string_replace(acl, token, hex, 0) == 1;
  if (!ok)
    g_set_error(error, QV_ERROR, QV_ERROR_BUG, "users.acl does not name %s once", token);
  if (ok && url_file != NULL) {
    g_autofree char *url = g_strdup_printf("unix://%s:%s@%s/valkey.sock\n", user, password, folder);
    ok = write_file(folder, url_file, url, error);
    explicit_bzero(url, strlen(url));
  }
  explicit_bzero(password, sizeof password);
  explicit_bzero(bytes, sizeof bytes);
  return ok;
}

gboolean qv_keeper_files_make(const char *folder, GError **error)
{
  g_autoptr(GString) acl = g_string_new_len(qv_users_acl, (gssize)qv_users_acl_n);
  g_autofree char *key_path = g_build_filename(folder, QV_KEEPER_KEY, NULL);
  g_autofree char *state = g_build_filename(folder, QV_KEEPER_STATE, NULL);
  if (!make_user(folder, acl, "worker", "%WORKER_SHA256%", QV_KEEPER_WORKER_URL, error) ||
      !make_user(folder, acl, "sandbox", "%SANDBOX_SHA256%", QV_KEEPER_RUNNER_URL, error) ||
      !make_user(folder, acl, "egress", "%EGRESS_SHA256%", QV_KEEPER_EGRESS_URL, error) ||
      !write_file(folder, "users.acl", acl->str, error))
    return FALSE;
  if (mkdir(state, 0700) != 0)
    return qv_error_set_errno(error, errno, "%s", state);
  g_autoptr(QvKey) key = qv_key_file_create(key_path, error);
  return key != NULL;
}

static int dial(const char *socket_path)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  g_strlcpy(address.sun_path, socket_path, sizeof address.sun_path);
  QV_AUTOFD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  return fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 ? qv_io_steal(&fd) : -1;
}

gboolean qv_keeper_listens(const char *socket_path)
{
  QV_AUTOFD int fd = dial(socket_path);
  return fd >= 0;
}

gboolean qv_keeper_answers(const char *socket_path)
{
  QV_AUTOFD int fd = dial(socket_path);
  char byte = '\0';
  return fd >= 0 && qv_io_write_full(fd, "PING\r\n", 6) && read(fd, &byte, 1) == 1 && byte == '-'; /* NOAUTH */
}

static char **with(char **environment, const char *name, const char *value)
{
  return g_environ_setenv(environment, name, value, TRUE);
}

static char **with_file(char **environment, const char *name, const char *folder, const char *file)
{
  g_autofree char *path = g_build_filename(folder, file, NULL);
  return with(environment, name, path);
}

static char **common(const char *folder)
{
  char **environment = g_get_environ();
  static const char *const dropped[] = { "VALKEY_URL", "VALKEY_URL_FILE", "VALKEY_CA_FILE", "VALKEY_CERT_FILE",
                                         "VALKEY_KEY_FILE", "QUAVON_SANDBOX_SIGNING_KEY_PREVIOUS_FILES" };
  for (guint i = 0; i < G_N_ELEMENTS(dropped); i++)
    environment = g_environ_unsetenv(environment, dropped[i]);
  /* The images stay where they are; everything else of the state is private. */
  g_autoptr(QvConfig) config = qv_config_load((const char *const *)environment, NULL);
  if (config != NULL) {
    g_autofree char *images = qv_config_images_file(config);
    environment = with(environment, "QUAVON_SANDBOX_IMAGES_FILE", images);
  }
  environment = with_file(environment, "QUAVON_SANDBOX_SIGNING_KEY_FILE", folder, QV_KEEPER_KEY);
  return with(environment, "QUAVON_SANDBOX_POOL", "default");
}

char **qv_keeper_environment(const char *folder, gboolean egress)
{
  static const char *const about_egress[] = { "QUAVON_SANDBOX_REGISTRIES", "QUAVON_SANDBOX_REGISTRIES_FILE",
                                              "QUAVON_SANDBOX_EGRESS_PROXY" };
  char **environment = with_file(common(folder), "VALKEY_URL_FILE", folder, QV_KEEPER_RUNNER_URL);
  environment = with_file(environment, "QUAVON_SANDBOX_STATE_DIR", folder, QV_KEEPER_STATE);
  if (g_environ_getenv(environment, "QUAVON_SANDBOX_BACKEND") == NULL)
    environment = with(environment, "QUAVON_SANDBOX_BACKEND", "runsc");
  environment = with(environment, "QUAVON_SANDBOX_CONCURRENCY", "1");
  /* It lives for one job: the smoke test of this boot, these programs and this image is remembered beside the images. */
  const char *lock = g_environ_getenv(environment, "QUAVON_SANDBOX_IMAGES_FILE");
  if (lock != NULL && g_environ_getenv(environment, "QUAVON_SANDBOX_SMOKE_MEMORY") == NULL) {
    g_autofree char *images = g_path_get_dirname(lock);
    environment = with_file(environment, "QUAVON_SANDBOX_SMOKE_MEMORY", images, "smoke");
  }
  for (guint i = 0; !egress && i < G_N_ELEMENTS(about_egress); i++)
    environment = g_environ_unsetenv(environment, about_egress[i]);
  if (egress)
    environment = with_file(environment, "QUAVON_SANDBOX_EGRESS_PROXY", folder, QV_KEEPER_EGRESS_SOCKET);
  environment = with(environment, "QUAVON_SANDBOX_GRACE_MS", "0"); /* it is stopped when nobody waits any more */
  return with(environment, "QUAVON_LOG_FORMAT", "text");
}

char **qv_keeper_egress_environment(const char *folder)
{
  char **environment = with_file(common(folder), "VALKEY_URL_FILE", folder, QV_KEEPER_EGRESS_URL);
  g_autofree char *listen = g_strconcat("unix:", folder, "/" QV_KEEPER_EGRESS_SOCKET, NULL);
  environment = with(environment, "QUAVON_EGRESS_LISTEN", listen);
  environment = with(environment, "QUAVON_SANDBOX_GRACE_MS", "0");
  return with(environment, "QUAVON_LOG_FORMAT", "text");
}

char **qv_keeper_settings(const char *folder)
{
  return with_file(common(folder), "VALKEY_URL_FILE", folder, QV_KEEPER_WORKER_URL);
}
