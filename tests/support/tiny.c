/* SPDX-License-Identifier: Apache-2.0 */
#include "support/tiny.h"

#include <string.h>

#include "base/fd.h"

/* Programs of this machine with their libraries, each where it is here. */
static const char script[] =
  "set -e\n"
  "root=$1\n"
  "for name in proc sys dev tmp workspace run etc opt/quavon mnt bin; do mkdir -p \"$root/$name\"; done\n"
  "for name in sh cat cmp env false head ln mkdir mkfifo seq setsid sha256sum sleep tail test touch tr true yes; do\n"
  "  path=$(readlink -f \"$(PATH=/usr/bin:/bin which \"$name\")\")\n"
  "  cp \"$path\" \"$root/bin/$name\"\n"
  "  ldd \"$path\" | grep -o '/[^ ]*' | while read -r library; do\n"
  "    mkdir -p \"$root$(dirname \"$library\")\"\n"
  "    cp --dereference \"$library\" \"$root$library\"\n"
  "  done\n"
  "done\n"
  "install -m 755 \"$2\" \"$root/opt/quavon/entry\"\n"
  "chmod -R go+rX \"$root\"\n";

const char *qv_test_platform(void)
{
#if defined(__aarch64__)
  return "linux/arm64";
#else
  return "linux/amd64";
#endif
}

char *qv_test_tiny_image(QvTestDockerd *engine, const char *name, const char *lock_file)
{
  g_autofree char *root = g_build_filename(qv_test_dockerd_dir(engine), "tiny-root", NULL);
  g_autofree char *entry = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "entry", "entry", NULL);
  const char *argv[] = {"sh", "-c", script, "sh", root, entry, NULL};
  g_autofree char *err = NULL;
  g_autoptr(GError) error = NULL;
  int status;
  g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH, NULL, NULL, NULL, &err, &status, &error);
  g_assert_no_error(error);
  if (!g_spawn_check_wait_status(status, &error))
    g_error("%s: %s", error->message, err);
  char *digest = qv_test_dockerd_image(engine, root, NULL);
  g_assert_true(g_str_has_prefix(digest, "sha256:"));
  g_autofree char *lock = g_strdup_printf("{\"v\":1,\"images\":[{\"name\":\"%s\",\"digest\":\"%s\",\"kind\":\"image-id\",\"platform\":\"%s\"}]}\n",
                                          name, digest, qv_test_platform());
  g_assert_true(qv_fd_write_file(lock_file, lock, strlen(lock), 0644, NULL));
  return digest;
}
