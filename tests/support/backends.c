/* SPDX-License-Identifier: Apache-2.0 */
#include "support/backends.h"

#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* gVisor started by us has sockets as stdin and stdout, which no step can open again; an engine gives pipes. runc 1.1.5 gives
 * a tmpfs the mode of the image's folder. Under runc process 1 is one that no signal of its own kind reaches. */
static const BackendRow ROWS[] = {
  {"runsc", ON_RUNSC, "systrap", "exe", "open ENXIO", "open ENXIO", "", "open EROFS", "mode 700 65532:65532",
   "mode 700 65532:65532", NULL, "sandbox_lost"},
  {"docker-runsc", ON_DOCKER_RUNSC, "systrap", "exe", "open yes", "open yes", " 65532", "open EACCES", "mode 700 65532:65532",
   "mode 700 65532:65532", "bad_output", "sandbox_lost"},
  {"docker-runc-insecure", ON_DOCKER_RUNC, "host", "entry", "open yes", "open yes", " 65532", "open EROFS",
   "mode 755 65532:65532", "mode 755 65532:65532", NULL, NULL},
};
const BackendRow *row = &ROWS[0];

static QvTestDockerd *engine;

gboolean backend_select(int argc, char **argv)
{
  const char *missing = NULL;
  for (gsize i = 0; argc > 1 && i < G_N_ELEMENTS(ROWS); i++)
    if (strcmp(argv[1], ROWS[i].name) == 0)
      row = &ROWS[i];
  if (geteuid() != 0)
    missing = "sandboxes need root";
  else if (ON(ON_DOCKER))
    missing = qv_test_dockerd_missing();
  if (missing != NULL)
    g_print("1..0 # SKIP %s\n", missing);
  return missing == NULL;
}

QvTestDockerd *backend_dockerd(void)
{
  if (engine == NULL)
    engine = qv_test_dockerd_start(FALSE);
  return engine;
}

void backend_finish(void)
{
  g_clear_pointer(&engine, qv_test_dockerd_free);
}

/* ENTRY FOLDER */
static const char make_tree[] =
  "entry=$1 tree=$2\n"
  "for name in proc sys dev tmp workspace run etc bin opt/quavon; do mkdir -p $tree/$name; done\n"
  "install -m 755 $entry $tree/opt/quavon/entry\n"
  "printf 'sandbox:x:65532:65532::/workspace/home:/bin/sh\\n' >$tree/etc/passwd\n"
  "for name in sh cat cmp echo env false head kill ln mkdir mkfifo seq setsid sha256sum sleep tail test touch tr true yes; do\n"
  "  program=$(PATH=/usr/bin:/bin which $name)\n"
  "  cp -L $program $tree/bin/$name\n"
  "  ldd $program | grep -o '/[^ ]*' | while read -r library; do\n"
  "    mkdir -p $tree$(dirname $library); cp -L $library $tree$library\n"
  "  done\n"
  "done\n";

char *backend_image(const char *entry, const char *folder)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *err = NULL;
  const char *argv[] = {"sh", "-euc", make_tree, "sh", entry, folder, NULL};
  int status = -1;
  g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL, NULL, NULL, NULL, &err, &status,
               &error);
  g_assert_no_error(error);
  if (!g_spawn_check_wait_status(status, &error))
    g_error("the image's tree: %s %s", error->message, err);
  return qv_test_dockerd_image(backend_dockerd(), folder, NULL);
}

const char *backend_platform(void)
{
  struct utsname machine;
  uname(&machine);
  return strcmp(machine.machine, "aarch64") == 0 ? "linux/arm64" : "linux/amd64";
}
