/* SPDX-License-Identifier: Apache-2.0 */
/* What is installed is enough: header, library, pkg-config file, and a compiler. */
#include <glib.h>
#include <string.h>

#include "../../unit/client/tree.h"
#include "client/key_file.h"
#include "support/health.h"
#include "support/valkey.h"

static void test_install(void)
{
  char *root = tree_new();
  g_autoptr(QvTestValkey) valkey = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  g_autofree char *key = tree_path(root, "key");
  g_autoptr(QvKey) made = qv_key_file_create(key, NULL);
  g_assert_nonnull(made);
  tree_write(root, "repo/a", "a", 0644);
  g_autofree char *source = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "tests/integration/client/installed.c", NULL);
  g_setenv("ROOT", root, TRUE);
  qv_test_healthy_runner(valkey, key, "base", "sha256:1111111111111111111111111111111111111111111111111111111111111111");
  g_setenv("SOURCE", source, TRUE);
  g_setenv("KEY", key, TRUE);
  g_setenv("URL", qv_test_valkey_url(valkey, "worker"), TRUE);
  tree_run(root, "sh", "-eu", "-c",
           "\"$QUAVON_TEST_MESON\" install -C \"$QUAVON_BUILD_ROOT\" --no-rebuild --tags devel,runtime "
           "  --destdir \"$ROOT/dest\" >install.log\n"
           "pc=$(dirname \"$(find dest -name quavon.pc)\")\n"
           "export PKG_CONFIG_PATH=\"$ROOT/$pc\" PKG_CONFIG_SYSROOT_DIR=\"$ROOT/dest\"\n"
           "test \"$(pkg-config --modversion quavon)\" = " QV_VERSION "\n"
           "cc -std=c99 -pedantic -Wall -Wextra -Werror $QUAVON_TEST_CFLAGS \"$SOURCE\" -o program "
           "  $(pkg-config --cflags --libs quavon)\n"
           "lib=$(dirname \"$(find dest -name 'libquavon.so')\")\n"
           "nm -D --defined-only \"$lib/libquavon.so\" | awk '$2 != \"A\" {print $3}' | sed 's/@.*//' >symbols\n"
           "test \"$(grep -c '^quavon_' symbols)\" -ge 50\n"
           "if grep -v '^quavon_' symbols; then echo 'more is exported than quavon.h has'; exit 1; fi\n"
           "sed -n 's/^QUAVON_API .*[ *]\\(quavon_[a-z_0-9]*\\)(.*/\\1/p' dest/*/*/include/quavon/quavon.h "
           "  dest/*/include/quavon/quavon.h 2>/dev/null | sort -u >declared\n"
           "sort -u symbols | cmp - declared\n"
           "env -i PATH=\"$PATH\" HOME=/nonexistent LD_LIBRARY_PATH=\"$ROOT/$lib\" VALKEY_URL=\"$URL\" "
           "  QUAVON_SANDBOX_SIGNING_KEY_FILE=\"$KEY\" ./program repo >out\n"
           "test \"$(cat out)\" = '" QV_VERSION " id progress'",
           NULL);
  g_autofree char *left = qv_test_valkey_cli(valkey, "KEYS", "quavon-sandbox:blob:*", NULL);
  g_assert_cmpstr(left, ==, "");
  tree_free(root);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/install/program", test_install);
  return g_test_run();
}
