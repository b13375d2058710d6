/* SPDX-License-Identifier: Apache-2.0 */
/* quavon-sandbox-runner: the command line, and the way into the roles. */
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/config.h"
#include "base/error.h"
#include "base/exit.h"
#include "base/fd.h"
#include "base/log.h"
#include "runner/check.h"
#include "runner/footprint.h"
#include "runner/job.h"
#include "runner/pulse.h"
#include "runner/smoke.h"
#include "runner/spawn.h"
#include "runner/starter.h"
#include "runner/supervisor.h"
#include "runner/sweep.h"
#include "runner/unpack.h"

static int help(void)
{
  printf("usage: quavon-sandbox-runner [--check | --smoke | --sweep | --healthcheck | --version | --help]\n\n"
         "Takes signed jobs from Valkey and runs each in a throwaway sandbox.\n\n"
         "  --check    verify configuration, keys, images, Valkey and the backend, and exit\n"
         "  --smoke    try the sandbox with every escape probe, a line each, and exit\n"
         "  --sweep    remove what an earlier run left behind, and exit\n"
         "  --healthcheck  is the runner of this state folder ready and alive?\n"
         "  --version  print the version\n"
         "  --help     print this text\n\n"
         "Configuration comes from the environment:\n\n");
  QvConfigRow row;
  for (guint i = 0; qv_config_row(i, &row); i++)
    printf("  %s%s\n      %s (%s%s%s)\n", row.name, row.secret ? " or the same with _FILE" : "", row.doc,
           row.form != NULL ? row.form : "any", row.standard != NULL ? "; default " : "",
           row.standard != NULL ? row.standard : "");
  return 0;
}

static int run_role(QvRole role, int argc, char **argv)
{
  /* /proc/self/exe was executed, so the name is "exe": that of a gVisor process, which the kill of a sandbox reaps. */
  prctl(PR_SET_NAME, "quavon-role");
  qv_log_init("quavon-sandbox-runner", g_getenv("QUAVON_LOG_LEVEL") ?: "info",
              g_getenv("QUAVON_LOG_FORMAT") ?: "auto");
  switch (role) {
  case QV_ROLE_JOB:
    return qv_job_main(NULL);
  case QV_ROLE_UNPACK:
    return qv_unpack_main(FALSE);
  case QV_ROLE_SWEEP:
    return qv_sweep_main(argc > 3 ? argv[3] : NULL);
  case QV_ROLE_SMOKE:
    return qv_smoke_main(argc > 3 ? argv[3] : NULL);
  case QV_ROLE_STARTER:
    return qv_starter_main(argc, argv);
  case QV_ROLE_NONE:
    break;
  }
  return QV_EXIT_USAGE;
}

int main(int argc, char **argv)
{
  qv_fd_open_standard();
  QvRole role = qv_role_of(argc, argv);
  qv_footprint_limit(role == QV_ROLE_SMOKE);
  if (role != QV_ROLE_NONE)
    return run_role(role, argc, argv);
  const char *option = argc > 1 ? argv[1] : "";
  gboolean known = *option == '\0' || strcmp(option, "--check") == 0 || strcmp(option, "--smoke") == 0 ||
                   strcmp(option, "--sweep") == 0 || strcmp(option, "--healthcheck") == 0;
  if (strcmp(option, "--help") == 0)
    return help();
  if (strcmp(option, "--version") == 0) {
    printf("quavon-sandbox-runner %s\n", QV_VERSION);
    return 0;
  }
  if (argc > 2 || !known) {
    fprintf(stderr, "quavon-sandbox-runner: unknown argument %s; see --help\n", argc > 2 ? argv[2] : option);
    return QV_EXIT_USAGE;
  }
  g_autoptr(GError) error = NULL;
  g_autoptr(QvConfig) config = qv_config_load((const char *const *)environ, &error);
  if (config == NULL) {
    fprintf(stderr, "quavon-sandbox-runner: %s\n", error->message);
    return QV_EXIT_CONFIG;
  }
  qv_log_init("quavon-sandbox-runner", config->log_level, config->log_format);
  if (strcmp(option, "--healthcheck") == 0)
    return qv_pulse_check_main(config->state_dir);
  if (strcmp(option, "--check") == 0)
    return qv_check_main(config);
  if (strcmp(option, "--smoke") == 0)
    return qv_smoke_print_main(config);
  if (strcmp(option, "--sweep") == 0)
    return qv_check_sweep_main(config);
  return qv_supervisor_main(config);
}
