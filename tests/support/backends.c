/* SPDX-License-Identifier: Apache-2.0 */
#include "support/backends.h"

#include <string.h>
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
    engine = qv_test_dockerd_start(QV_TEST_DOCKERD_USUAL);
  return engine;
}

void backend_finish(void)
{
  g_clear_pointer(&engine, qv_test_dockerd_free);
}
