/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the building of an image.
 *
 *   recipe ──> build.XXXXXX/rootfs.tar    its SHA-256 is the layer's diff_id
 *              build.XXXXXX/rootfs.erofs  the same tree, what the backend runsc mounts
 *              build.XXXXXX/env           of an image on an existing one: its environment
 *   config (RFC 8785, fixed `created`) ──> its SHA-256 is the image's digest
 *   rootfs.erofs, the tar as gzip and the config are renamed to the digest's name, then the lock is replaced
 *
 * The writers' flock is held throughout, so that a prune cannot take a build
 * for a left-over. */
#include <errno.h>
#include <gio/gio.h>
#include <glib/gstdio.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "format/jcs.h"
#include "images/images.h"
#include "images/store.h"

/* The recipe's SOURCE_DATE_EPOCH. */
#define CREATED "2025-01-01T00:00:00Z"
#define IMAGE_PATH "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define TAIL_LINES_MAX 20u
#define ENV_BYTES_MAX (256u * 1024)

static const char *architecture(void)
{
  struct utsname machine;
  uname(&machine);
  return strcmp(machine.machine, "x86_64") == 0 ? "amd64" : strcmp(machine.machine, "aarch64") == 0 ? "arm64" : NULL;
}

/* Runs the recipe and hands on its lines; the last ones go into the error. */
static gboolean run_recipe(const QvImagesBuild *build, const char *folder, GError **error)
{
  g_autofree char *recipe = g_build_filename(build->recipe_dir, "build", NULL);
  const char *const argv[] = {recipe, build->entry_file, folder, build->from, NULL};
  g_autoptr(GSubprocessLauncher) launcher = g_subprocess_launcher_new(
    G_SUBPROCESS_FLAGS_STDOUT_PIPE | G_SUBPROCESS_FLAGS_STDERR_MERGE);
  g_autoptr(GSubprocess) child = g_subprocess_launcher_spawnv(launcher, argv, error);
  if (child == NULL)
    return FALSE;
  g_autoptr(GDataInputStream) lines = g_data_input_stream_new(g_subprocess_get_stdout_pipe(child));
  GQueue tail = G_QUEUE_INIT;
  char *line;
  while ((line = g_data_input_stream_read_line(lines, NULL, NULL, NULL)) != NULL) {
    if (build->progress != NULL)
      build->progress(line, build->progress_data);
    g_queue_push_tail(&tail, line);
    if (tail.length > TAIL_LINES_MAX)
      g_free(g_queue_pop_head(&tail));
  }
  gboolean good = g_subprocess_wait_check(child, NULL, error);
  if (!good) {
    g_autoptr(GString) text = g_string_new(NULL);
    for (GList *item = tail.head; item != NULL; item = item->next)
      g_string_append_printf(text, "\n%s", (const char *)item->data);
    g_prefix_error(error, "recipe %s: ", recipe);
    if (error != NULL)
      g_string_prepend(text, (*error)->message);
    g_clear_error(error);
    g_set_error_literal(error, QV_ERROR, QV_ERROR_SYSTEM, text->str);
  }
  g_queue_clear_full(&tail, g_free);
  return good;
}

/* The environment that the recipe left, as JSON; a PATH alone where it left none. */
static json_t *read_env(const char *folder, GError **error)
{
  g_autofree char *path = g_build_filename(folder, "env", NULL);
  g_autoptr(GError) absent = NULL;
  gsize n;
  g_autofree char *text = qv_fd_read_file(path, ENV_BYTES_MAX, &n, &absent);
  if (text == NULL && !g_error_matches(absent, QV_ERROR, QV_ERROR_NOT_FOUND)) {
    g_propagate_error(error, g_steal_pointer(&absent));
    return NULL;
  }
  json_t *env = json_array();
  g_auto(GStrv) lines = g_strsplit(text != NULL ? text : IMAGE_PATH, "\n", -1);
  for (guint i = 0; lines[i] != NULL; i++) {
    if (*lines[i] == '\0')
      continue;
    json_t *line = strchr(lines[i], '=') > lines[i] ? json_string(lines[i]) : NULL;
    if (line == NULL) {
      g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "line %u of the recipe's env is no NAME=value in UTF-8", i + 1);
      json_decref(env);
      return NULL;
    }
    json_array_append_new(env, line);
  }
  return env;
}

/* The OCI config of an image whose only layer is the tar of that SHA-256. Takes ENV. */
static char *format_config(const char *tar_hex, json_t *env, gsize *n)
{
  g_autofree char *diff_id = g_strconcat("sha256:", tar_hex, NULL);
  json_t *config = json_pack("{s:s, s:s, s:s, s:{s:o, s:[s], s:s, s:s}, s:{s:s, s:[s]}}",
                             "architecture", architecture(), "os", "linux", "created", CREATED,
                             "config", "Env", env, "Entrypoint", "/opt/quavon/entry", "User", "65532:65532",
                             "WorkingDir", "/",
                             "rootfs", "type", "layers", "diff_ids", diff_id);
  g_assert(config != NULL);
  char *text = qv_jcs(config, n);
  json_decref(config);
  g_assert(text != NULL);
  return text;
}

/* FILE of the build's folder becomes the digest's. */
static gboolean store_file(const QvImagesBuild *build, const char *folder, const char *file, const char *name,
                           GError **error)
{
  g_autofree char *from = g_build_filename(folder, file, NULL);
  g_autofree char *to = qv_store_path(build->lock_file, name);
  if (chmod(from, 0444) < 0 || g_rename(from, to) < 0)
    return qv_error_set_errno(error, errno, "storing %s", to);
  return TRUE;
}

/* Puts the finished build in its place; DIGEST is the image's hex. */
static gboolean store(const QvImagesBuild *build, const char *folder, const char *digest, GError **error)
{
  g_autofree char *rootfs = g_build_filename(folder, "rootfs.erofs", NULL);
  g_autofree char *rootfs_name = g_strconcat(digest, QV_STORE_ROOTFS_SUFFIX, NULL);
  g_autofree char *config_name = g_strconcat(digest, QV_STORE_CONFIG_SUFFIX, NULL);
  g_autofree char *layer_name = g_strconcat(digest, QV_STORE_LAYER_SUFFIX, NULL);
  g_autofree char *rootfs_hex = qv_store_hash_file(rootfs, error);
  if (rootfs_hex == NULL)
    return FALSE;
  g_autoptr(GError) absent = NULL;
  g_autoptr(QvImagesLock) lock = qv_store_read_lock(build->lock_file, &absent);
  if (g_error_matches(absent, QV_ERROR, QV_ERROR_NOT_FOUND)) {
    lock = qv_images_lock_new();
  } else if (lock == NULL) {
    g_propagate_error(error, g_steal_pointer(&absent));
    return FALSE;
  }
  g_autofree char *name = g_strdup(build->name);
  g_autofree char *full_digest = g_strconcat("sha256:", digest, NULL);
  g_autofree char *platform = g_strconcat("linux/", architecture(), NULL);
  QvImage image = {.name = name, .digest = full_digest, .is_repository = FALSE, .platform = platform,
                   .rootfs_file = rootfs_name, .rootfs_sha256 = rootfs_hex};
  qv_images_lock_put(lock, &image);
  return store_file(build, folder, "rootfs.erofs", rootfs_name, error) &&
         store_file(build, folder, "layer.tar.gz", layer_name, error) &&
         store_file(build, folder, "config.json", config_name, error) &&
         qv_store_write_lock(build->lock_file, lock, error);
}

/* Everything between the making of the build's folder and its removal. */
static char *build_in(const QvImagesBuild *build, const char *folder, GError **error)
{
  if (!run_recipe(build, folder, error))
    return NULL;
  g_autofree char *tar = g_build_filename(folder, "rootfs.tar", NULL);
  g_autofree char *layer = g_build_filename(folder, "layer.tar.gz", NULL);
  g_autofree char *config_path = g_build_filename(folder, "config.json", NULL);
  g_autofree char *tar_hex = qv_store_compress_file(tar, layer, error);
  json_t *env = tar_hex != NULL ? read_env(folder, error) : NULL;
  if (env == NULL)
    return NULL;
  gsize n;
  char *config = format_config(tar_hex, env, &n);
  guint8 digest[QV_SHA256_BYTES];
  char digest_hex[2 * QV_SHA256_BYTES + 1];
  qv_sha256(config, n, digest);
  qv_hex_encode(digest, sizeof digest, digest_hex);
  gboolean good = qv_fd_write_file(config_path, config, n, 0444, error) && store(build, folder, digest_hex, error);
  free(config);
  return good ? g_strconcat("sha256:", digest_hex, NULL) : NULL;
}

char *qv_images_build(const QvImagesBuild *build, GError **error)
{
  if (geteuid() != 0 || architecture() == NULL) {
    g_set_error(error, QV_ERROR, geteuid() != 0 ? QV_ERROR_POLICY : QV_ERROR_SYSTEM, "%s",
                geteuid() != 0 ? "building an image needs root: run it with sudo"
                               : "images are built on x86_64 and aarch64 alone");
    return NULL;
  }
  if (!g_file_test(build->entry_file, G_FILE_TEST_IS_REGULAR)) {
    g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND, "the entry program %s does not exist", build->entry_file);
    return NULL;
  }
  QV_AUTOFD int held = qv_store_hold(build->lock_file, error);
  if (held < 0)
    return NULL;
  g_autofree char *folder = qv_store_path(build->lock_file, QV_STORE_BUILD_PREFIX "XXXXXX");
  if (g_mkdtemp_full(folder, 0755) == NULL) {
    qv_error_set_errno(error, errno, "making %s", folder);
    return NULL;
  }
  char *digest = build_in(build, folder, error);
  g_autoptr(GError) left = NULL;
  if (!qv_fd_remove_tree(folder, &left) && digest != NULL) {
    g_clear_pointer(&digest, g_free);
    g_propagate_error(error, g_steal_pointer(&left));
  }
  return digest;
}
