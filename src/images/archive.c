/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the docker-archive of an image, the gzip of its layer, and the reading of its config.
 *
 *   <hex>.json           the OCI config: its SHA-256 is the image's id
 *   <hex>/layer.tar      the only layer; a gzip, which engines recognise by its first bytes
 *   manifest.json        which is which; no tag
 *
 * The layer's bytes are not hashed here: the engine inflates them and refuses what is not the config's diff_id. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "format/error.h"
#include "format/gzip.h"
#include "format/tar.h"
#include "images/images.h"
#include "images/store.h"

#define CONFIG_BYTES_MAX (1024u * 1024)
#define ARCHIVE_FRAME_BYTES 16384 /* headers, padding, manifest and end */
static const gsize copy_bytes = 1024 * 1024;

/* ---- the layer */

typedef struct {
  int fd;
  const char *name;
  gboolean good;
  GError **error;
} Sink;

static void sink(void *user, const guint8 *bytes, gsize n)
{
  Sink *to = user;
  to->good = to->good && qv_fd_write_all(to->fd, to->name, bytes, n, to->error);
}

char *qv_store_compress_file(const char *from, const char *to, GError **error)
{
  QV_AUTOFD int in = open(from, O_RDONLY | O_CLOEXEC);
  QV_AUTOFD int out = in >= 0 ? open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
  if (out < 0) {
    int code = in < 0 && errno == ENOENT ? QV_ERROR_NOT_FOUND : QV_ERROR_SYSTEM;
    g_set_error(error, QV_ERROR, code, "%s: %s", in < 0 ? from : to, g_strerror(errno));
    return NULL;
  }
  Sink to_file = {.fd = out, .name = to, .good = TRUE, .error = error};
  g_autoptr(QvGzipWriter) writer = qv_gzip_writer_new(sink, &to_file);
  g_autofree guint8 *buffer = g_malloc(copy_bytes);
  EVP_MD_CTX *context = EVP_MD_CTX_new();
  gboolean hashed = context != NULL && EVP_DigestInit_ex(context, EVP_sha256(), NULL);
  ssize_t got = 0;
  while (hashed && to_file.good && (got = qv_io_read_full(in, buffer, copy_bytes)) > 0) {
    hashed = EVP_DigestUpdate(context, buffer, (gsize)got);
    qv_gzip_writer_add(writer, buffer, (gsize)got);
  }
  int failed = got < 0 ? errno : 0;
  guint8 digest[QV_SHA256_BYTES];
  hashed = hashed && EVP_DigestFinal_ex(context, digest, NULL);
  EVP_MD_CTX_free(context);
  if (to_file.good && failed == 0)
    qv_gzip_writer_finish(writer);
  if (!to_file.good)
    return NULL;
  if (failed != 0 || !hashed) {
    g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "reading %s: %s", from,
                failed != 0 ? g_strerror(failed) : "libcrypto has no SHA-256");
    return NULL;
  }
  char *hex = g_malloc(2 * sizeof digest + 1);
  qv_hex_encode(digest, sizeof digest, hex);
  return hex;
}

/* ---- the archive */

static gboolean write_header(int fd, const char *path, guint64 size, GError **error)
{
  guint8 header[QV_TAR_HEADER_BYTES_MAX];
  size_t n;
  QvTarReason reason = qv_tar_header(path, size, FALSE, header, &n);
  if (reason != QV_TAR_OK) {
    g_set_error(error, QV_ERROR, QV_ERROR_LIMIT, "%s: %s", path, qv_tar_reason_text(reason));
    return FALSE;
  }
  return qv_fd_write_all(fd, "the archive", header, n, error);
}

static gboolean write_padding(int fd, guint64 size, GError **error)
{
  return qv_fd_write_all(fd, "the archive", qv_tar_zeros, qv_tar_padding(size), error);
}

static gboolean write_text(int fd, const char *path, const char *text, gsize n, GError **error)
{
  return write_header(fd, path, n, error) && qv_fd_write_all(fd, "the archive", text, n, error) &&
         write_padding(fd, n, error);
}

static gboolean write_file(int fd, const char *path, const char *source, GError **error)
{
  QV_AUTOFD int in = open(source, O_RDONLY | O_CLOEXEC);
  struct stat info;
  if (in < 0 || fstat(in, &info) < 0) {
    if (errno != ENOENT)
      return qv_error_set_errno(error, errno, "opening %s", source);
    g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND, "%s is missing; build the image again", source);
    return FALSE;
  }
  if (!write_header(fd, path, (guint64)info.st_size, error))
    return FALSE;
  g_autofree guint8 *buffer = g_malloc(copy_bytes);
  gint64 left = info.st_size;
  while (left > 0) {
    ssize_t got = qv_io_read_full(in, buffer, (gsize)MIN(left, (gint64)copy_bytes));
    if (got <= 0)
      return qv_error_set_errno(error, got < 0 ? errno : EIO, "reading %s", source);
    if (!qv_fd_write_all(fd, "the archive", buffer, (gsize)got, error))
      return FALSE;
    left -= got;
  }
  return write_padding(fd, (guint64)info.st_size, error);
}

/* The config at PATH, which must be what DIGEST says. */
static char *read_config(const char *path, const char *digest, gsize *n, GError **error)
{
  g_autofree char *config = qv_fd_read_file(path, CONFIG_BYTES_MAX, n, error);
  if (config == NULL)
    return NULL;
  guint8 hash[QV_SHA256_BYTES];
  char hex[2 * QV_SHA256_BYTES + 1];
  qv_sha256(config, *n, hash);
  qv_hex_encode(hash, sizeof hash, hex);
  if (strcmp(hex, digest + strlen("sha256:")) == 0)
    return g_steal_pointer(&config);
  g_set_error(error, QV_ERROR, QV_ERROR_AUTH, "%s is not what its digest says; build the image again", path);
  return NULL;
}

static char *format_manifest(const char *config_name, const char *layer_name, gsize *n)
{
  json_t *manifest = json_pack("[{s:s, s:n, s:[s]}]", "Config", config_name, "RepoTags", "Layers", layer_name);
  char *dumped = json_dumps(manifest, JSON_COMPACT | JSON_SORT_KEYS);
  json_decref(manifest);
  char *text = g_strdup(dumped);
  free(dumped);
  *n = strlen(text);
  return text;
}

static gboolean write_archive(const char *lock_file, const char *hex, int fd, GError **error)
{
  g_autofree char *digest = g_strconcat("sha256:", hex, NULL);
  g_autofree char *config_file = g_strconcat(hex, QV_STORE_CONFIG_SUFFIX, NULL);
  g_autofree char *layer_file = g_strconcat(hex, QV_STORE_LAYER_SUFFIX, NULL);
  g_autofree char *config_path = qv_store_path(lock_file, config_file);
  g_autofree char *layer_path = qv_store_path(lock_file, layer_file);
  g_autofree char *layer_name = g_strconcat(hex, "/layer.tar", NULL);
  gsize config_n, manifest_n;
  g_autofree char *config = read_config(config_path, digest, &config_n, error);
  if (config == NULL)
    return FALSE;
  g_autofree char *manifest = format_manifest(config_file, layer_name, &manifest_n);
  return write_text(fd, config_file, config, config_n, error) && write_file(fd, layer_name, layer_path, error) &&
         write_text(fd, "manifest.json", manifest, manifest_n, error) &&
         qv_fd_write_all(fd, "the archive", qv_tar_zeros, QV_TAR_END_BYTES, error);
}

gint64 qv_store_archive_bytes(const char *lock_file, const char *digest)
{
  static const char *const suffixes[] = {QV_STORE_CONFIG_SUFFIX, QV_STORE_LAYER_SUFFIX};
  gint64 bytes = ARCHIVE_FRAME_BYTES;
  for (gsize i = 0; i < G_N_ELEMENTS(suffixes); i++) {
    struct stat info;
    g_autofree char *name = g_strconcat(digest + strlen("sha256:"), suffixes[i], NULL);
    g_autofree char *path = qv_store_path(lock_file, name);
    if (stat(path, &info) != 0)
      return 0;
    bytes += info.st_size;
  }
  return bytes;
}

gboolean qv_images_export(const char *lock_file, const char *name, const char *digest, int fd, GError **error)
{
  g_autofree char *found = qv_store_find(lock_file, name, digest, error);
  return found != NULL && write_archive(lock_file, found + strlen("sha256:"), fd, error);
}

/* ---- the config */

static gboolean collect_env(const json_t *config, char ***env)
{
  const json_t *lines = json_object_get(json_object_get(config, "config"), "Env");
  g_autoptr(GPtrArray) texts = g_ptr_array_new_with_free_func(g_free);
  for (gsize i = 0; i < json_array_size(lines); i++) {
    const char *line = json_string_value(json_array_get(lines, i));
    if (line == NULL)
      return FALSE;
    g_ptr_array_add(texts, g_strdup(line));
  }
  g_ptr_array_add(texts, NULL);
  *env = texts->len > 1 ? (char **)g_ptr_array_free(g_steal_pointer(&texts), FALSE) : NULL;
  return TRUE;
}

gboolean qv_images_env(const char *rootfs_file, const char *digest, char ***env, GError **error)
{
  *env = NULL;
  g_autofree char *folder = g_path_get_dirname(rootfs_file);
  g_autofree char *name = g_strconcat(digest + strlen("sha256:"), QV_STORE_CONFIG_SUFFIX, NULL);
  g_autofree char *path = g_build_filename(folder, name, NULL);
  g_autoptr(GError) cause = NULL;
  gsize n;
  g_autofree char *text = read_config(path, digest, &n, &cause);
  if (g_error_matches(cause, QV_ERROR, QV_ERROR_NOT_FOUND))
    return TRUE;
  if (text == NULL) {
    g_propagate_error(error, g_steal_pointer(&cause));
    return FALSE;
  }
  json_t *config = qv_json_load(text, n, CONFIG_BYTES_MAX, QV_JSON_ANY, path, error);
  gboolean good = config != NULL && collect_env(config, env);
  if (config != NULL && !good)
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "%s has an environment that is no list of texts", path);
  json_decref(config);
  return good;
}
