/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the table of verbs and what they share. */
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/codes.h"
#include "cli/verb.h"

const QvVerb qv_verbs[] = {
  { "run", "run [OPTION…] [--] COMMAND [ARGUMENT…]", "run a command on a copy of a folder, in a sandbox", qv_verb_run },
  { "wait", "wait [OPTION…] JOB", "wait for a job and show its result", qv_verb_wait },
  { "result", "result [OPTION…] JOB", "show the result of a job that has ended", qv_verb_result },
  { "logs", "logs [OPTION…] JOB", "show what a job prints, or has printed", qv_verb_logs },
  { "cancel", "cancel JOB", "ask for a job's end", qv_verb_cancel },
  { "ps", "ps [OPTION…]", "list the jobs of the pool", qv_verb_ps },
  { "runners", "runners [OPTION…]", "list the runners of the pool", qv_verb_runners },
  { "top", "top [OPTION…]", "watch the pool", qv_verb_top },
  { "pool", "pool pause|resume|drain|status [OPTION…]", "stop and start the taking of jobs", qv_verb_pool },
  { "keygen", "keygen FILE", "make a pool key", qv_verb_keygen },
  { "keys", "keys rotate prepare|switch|finish [--now] [--timeout=TIME]", "replace the pool's key while jobs run", qv_verb_keys },
  { "snapshot", "snapshot [OPTION…] DIR", "pack a folder as `run` does, and name its digest", qv_verb_snapshot },
  { "images", "images build [OPTION…] [NAME]|export [OPTION…] NAME|load [NAME…]|list|verify [NAME]|prune [--previous]",
    "the sandbox images of this machine", qv_verb_images },
  { "doctor", "doctor [--json] [--sandbox-smoke]", "what is wrong with worker, Valkey, runners and this host", qv_verb_doctor },
  { "help", "help [VERB | codes [CODE]]", "this text, a verb's, or what a code means and what to do", qv_verb_help },
  { "version", "version", "the version", qv_verb_version },
  { NULL },
};

static const QvVerb *find_verb(const char *name)
{
  for (const QvVerb *verb = qv_verbs; verb->name != NULL; verb++) {
    if (strcmp(verb->name, name) == 0)
      return verb;
  }
  return NULL;
}

char *qv_size_text(guint64 bytes)
{
  static const char *const units[] = { "KiB", "MiB", "GiB", "TiB" };
  double size = (double)bytes / 1024;
  guint unit = 0;
  if (bytes < 1024)
    return g_strdup_printf("%u bytes", (guint)bytes);
  for (; size >= 1024 && unit + 1 < G_N_ELEMENTS(units); unit++)
    size /= 1024;
  return g_strdup_printf("%.1f %s", size, units[unit]);
}

void qv_complain(const char *format, ...)
{
  va_list args;
  va_start(args, format);
  g_autofree char *text = g_strdup_vprintf(format, args);
  va_end(args);
  fprintf(stderr, "quavon: %s\n", text);
}

QvConfig *qv_verb_config(void)
{
  g_autoptr(GError) error = NULL;
  g_auto(GStrv) environment = g_get_environ();
  QvConfig *config = qv_config_load((const char *const *)environment, &error);
  if (config == NULL)
    qv_complain("%s", error->message);
  return config;
}

int qv_usage(const char *verb, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  g_autofree char *text = g_strdup_vprintf(format, args);
  va_end(args);
  const QvVerb *found = find_verb(verb);
  fprintf(stderr, "quavon %s: %s\nUsage: quavon %s\nTry `quavon help %s`.\n", verb, text,
          found != NULL ? found->synopsis : verb, verb);
  return QV_CLI_USAGE;
}

gboolean qv_options_parse(const char *verb, const GOptionEntry *entries, int *argc, char ***argv, int *status)
{
  const QvVerb *found = find_verb(verb);
  g_autoptr(GOptionContext) context = g_option_context_new(NULL);
  g_autoptr(GError) error = NULL;
  g_option_context_set_strict_posix(context, TRUE);
  g_option_context_set_help_enabled(context, FALSE);
  gboolean help = FALSE;
  const GOptionEntry help_entry[] = {
    { "help", 'h', 0, G_OPTION_ARG_NONE, &help, "Show this text", NULL },
    { NULL },
  };
  if (entries != NULL)
    g_option_context_add_main_entries(context, entries, NULL);
  g_option_context_add_main_entries(context, help_entry, NULL);
  if (found != NULL)
    g_option_context_set_summary(context, found->summary);
  if (!g_option_context_parse(context, argc, argv, &error)) {
    *status = qv_usage(verb, "%s", error->message);
    return FALSE;
  }
  if (help) {
    g_autofree char *text = g_option_context_get_help(context, TRUE, NULL);
    const char *rest = strstr(text, "\n\n"); /* GLib's own usage would have the options before an action */
    printf("Usage:\n  quavon %s%s", found != NULL ? found->synopsis : verb, rest);
    *status = QV_CLI_OK;
    return FALSE;
  }
  if (*argc > 1 && strcmp((*argv)[1], "--") == 0) {
    (*argv)[1] = (*argv)[0];
    (*argv)++;
    (*argc)--;
  }
  return TRUE;
}

static void list_verbs(FILE *out)
{
  fputs("Usage: quavon VERB [OPTION…] [ARGUMENT…]\n\nVerbs:\n", out);
  for (const QvVerb *verb = qv_verbs; verb->name != NULL; verb++)
    fprintf(out, "  %-9s %s\n", verb->name, verb->summary);
  fputs("\n`quavon help VERB` tells its options; `quavon help codes` what each code means; settings come from the environment, see quavon(1).\n", out);
}

int qv_verb_help(int argc, char **argv)
{
  if (argc < 2) {
    list_verbs(stdout);
    return QV_CLI_OK;
  }
  if (strcmp(argv[1], "codes") == 0)
    return qv_help_codes(argc > 2 ? argv[2] : NULL);
  const QvVerb *verb = find_verb(argv[1]);
  if (verb == NULL)
    return qv_usage("help", "there is no verb `%s`", argv[1]);
  if (verb->run == qv_verb_help || verb->run == qv_verb_version) {
    printf("Usage:\n  quavon %s\n\n%s\n", verb->synopsis, verb->summary);
    return QV_CLI_OK;
  }
  char *asked[] = { argv[1], (char *)"--help", NULL };
  return verb->run(2, asked);
}

int qv_verb_version(int argc, char **argv)
{
  puts("quavon " QV_VERSION);
  return QV_CLI_OK;
}

int qv_main(int argc, char **argv)
{
  setlocale(LC_CTYPE, "");
  signal(SIGPIPE, SIG_IGN);
  if (argc < 2) {
    list_verbs(stderr);
    return QV_CLI_USAGE;
  }
  const char *name = argv[1];
  if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
    name = "help";
  if (strcmp(name, "--version") == 0)
    name = "version";
  if (strcmp(name, "_keeper") == 0)
    return qv_verb_keeper(argc - 1, argv + 1);
  const QvVerb *verb = find_verb(name);
  if (verb == NULL) {
    fprintf(stderr, "quavon: there is no verb `%s`; `quavon help` lists them\n", name);
    return QV_CLI_USAGE;
  }
  int status = verb->run(argc - 1, argv + 1);
  if (status == QV_CLI_OK && (fflush(stdout) != 0 || ferror(stdout))) {
    qv_complain("standard output cannot be written");
    return QV_CLI_FAILED;
  }
  return status;
}
