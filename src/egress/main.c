/* SPDX-License-Identifier: Apache-2.0 */
/* quavon-sandbox-egress: the command line. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/log.h"
#include "egress/resolver.h"
#include "egress/service.h"

/* Only this program calls itself by it. */
static const char resolver_role[] = "--role=resolver";

static int help(void)
{
  printf("usage: quavon-sandbox-egress [--check | --version | --help]\n\n"
         "The way out of setup steps: an HTTP CONNECT proxy that lets a job's token reach the registries that the operator lists.\n\n"
         "  --check    verify configuration, registries and Valkey, and exit\n"
         "  --version  print the version\n"
         "  --help     print this text\n\n"
         "Configuration comes from the environment; these are read:\n\n");
  QvConfigRow row;
  for (guint i = 0; qv_config_row(i, &row); i++) {
    static const char *const ours[] = {"VALKEY_",         "QUAVON_EGRESS_", "QUAVON_SANDBOX_REGISTRIES", "QUAVON_SANDBOX_POOL",
                                       "QUAVON_SANDBOX_GRACE_MS", "QUAVON_LOG_"};
    gboolean read = FALSE;
    for (gsize j = 0; j < G_N_ELEMENTS(ours); j++)
      read |= g_str_has_prefix(row.name, ours[j]);
    if (read)
      printf("  %s%s\n      %s (%s%s%s)\n", row.name, row.secret ? " or the same with _FILE" : "", row.doc, row.form,
             row.standard != NULL ? "; default " : "", row.standard != NULL ? row.standard : "");
  }
  return 0;
}

int main(int argc, char **argv)
{
  const char *option = argc > 1 ? argv[1] : "";
  if (strcmp(option, resolver_role) == 0)
    return qv_resolver_role_main();
  if (strcmp(option, "--help") == 0)
    return help();
  if (strcmp(option, "--version") == 0) {
    printf("quavon-sandbox-egress %s\n", QV_VERSION);
    return 0;
  }
  if (argc > 2 || (*option != '\0' && strcmp(option, "--check") != 0)) {
    fprintf(stderr, "quavon-sandbox-egress: unknown argument %s; see --help\n", argc > 2 ? argv[2] : option);
    return QV_EXIT_USAGE;
  }
  g_autoptr(GError) error = NULL;
  g_autoptr(QvConfig) config = qv_config_load((const char *const *)environ, &error);
  if (config == NULL) {
    fprintf(stderr, "quavon-sandbox-egress: %s\n", error->message);
    return QV_EXIT_CONFIG;
  }
  qv_log_init("quavon-sandbox-egress", config->log_level, config->log_format);
  return *option != '\0' ? qv_egress_check(config) : qv_egress_serve(config, resolver_role);
}
