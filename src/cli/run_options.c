/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the options of `quavon run`. */
#include "cli/run_options.h"

#include <string.h>

#include "cli/verb.h"
#include "protocol/fields.h"

/* Digits at the start, at most ten of them: -1 where there is none. */
static gint64 take_digits(const char **text)
{
  gint64 value = 0;
  gsize n = 0;
  for (; g_ascii_isdigit((*text)[n]) && n < 10; n++)
    value = value * 10 + ((*text)[n] - '0');
  *text += n;
  return n > 0 ? value : -1;
}

static gint64 within(gint64 value, gint64 most)
{
  return value >= 1 && value <= most ? value : -1;
}

gint64 qv_parse_duration_ms(const char *text)
{
  static const struct {
    const char *unit;
    gint64 ms;
  } units[] = { { "", 1000 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "ms", 1 } };
  gint64 value = take_digits(&text);
  for (guint i = 0; value > 0 && i < G_N_ELEMENTS(units); i++) {
    if (strcmp(text, units[i].unit) == 0)
      return within(value * units[i].ms, 86400000);
  }
  return -1;
}

gint64 qv_parse_mib(const char *text)
{
  gint64 value = take_digits(&text);
  if (value > 0 && (*text == '\0' || strcmp(text, "M") == 0))
    return within(value, 1048576);
  return value > 0 && strcmp(text, "G") == 0 ? within(value * 1024, 1048576) : -1;
}

gint64 qv_parse_milli_cpus(const char *text)
{
  gint64 whole = take_digits(&text);
  if (whole < 0 || (*text != '\0' && *text != '.'))
    return -1;
  gint64 milli = 0;
  if (*text == '.') {
    text++;
    for (gint64 unit = 100; g_ascii_isdigit(*text) && unit > 0; unit /= 10)
      milli += (*text++ - '0') * unit;
    if (*text != '\0' || text[-1] == '.')
      return -1;
  }
  return within(whole * 1000 + milli, 1024000);
}

void qv_run_options_clear(QvRunOptions *options)
{
  g_free(options->repo);
  g_free(options->rev);
  g_free(options->image);
  g_free(options->setup);
  g_free(options->output);
  g_free(options->tenant);
  g_strfreev(options->artefacts);
  g_strfreev(options->env);
  g_strfreev(options->egress);
  g_strfreev(options->command);
  memset(options, 0, sizeof *options);
}

static gboolean check_env(char **env)
{
  for (guint i = 0; env != NULL && env[i] != NULL; i++) {
    const char *equals = strchr(env[i], '=');
    if (equals == NULL || equals == env[i])
      return FALSE;
  }
  return TRUE;
}

/* "name" or "name:port", to the form of a job: port 443 where none is named, lower-case. */
static gboolean take_egress(char **egress)
{
  for (guint i = 0; egress != NULL && egress[i] != NULL; i++) {
    char *lower = g_ascii_strdown(egress[i], -1);
    g_free(egress[i]);
    egress[i] = strchr(lower, ':') != NULL ? g_steal_pointer(&lower) : g_strconcat(lower, ":443", NULL);
    g_free(lower);
    if (!qv_host_port_valid(egress[i]))
      return FALSE;
  }
  return TRUE;
}

/* FALSE: said, in *status. */
static gboolean take_number(const char *option, char *text, gint64 (*parse)(const char *), const char *form,
                            gint64 *value, int *status)
{
  g_autofree char *owned = text;
  if (owned == NULL)
    return TRUE;
  *value = parse(owned);
  if (*value < 0)
    *status = qv_usage("run", "--%s=%s: the form is %s", option, owned, form);
  return *value > 0;
}

static gboolean check(QvRunOptions *options, int argc, char **argv, int *status)
{
  if (argc < 2)
    *status = qv_usage("run", "what is to be run? A command is missing");
  else if (options->rev != NULL && options->all)
    *status = qv_usage("run", "--all is about a folder, --rev about a commit: not both");
  else if (options->artefacts != NULL && options->output == NULL && !options->detach)
    *status = qv_usage("run", "--artefact needs --output, the folder that they are written to");
  else if (options->detach && options->output != NULL)
    *status = qv_usage("run", "--detach does not wait, so there is nothing for --output (`quavon wait` has it)");
  else if (options->live && (options->no_live || options->detach))
    *status = qv_usage("run", "--live contradicts %s", options->detach ? "--detach" : "--no-live");
  else if (!check_env(options->env))
    *status = qv_usage("run", "--env: the form is NAME=VALUE");
  else if (!take_egress(options->egress))
    *status = qv_usage("run", "--egress: the form is HOST or HOST:PORT, a name and no address");
  else if (options->egress != NULL && options->setup == NULL)
    *status = qv_usage("run", "--egress is for --setup: the command itself never has a network");
  else {
    options->command = g_strdupv(argv + 1);
    return TRUE;
  }
  return FALSE;
}

gboolean qv_run_options_parse(int argc, char **argv, QvRunOptions *options, int *status)
{
  char *timeout = NULL, *memory = NULL, *cpus = NULL;
  const GOptionEntry entries[] = {
    { "repo", 0, 0, G_OPTION_ARG_FILENAME, &options->repo, "Folder to copy (default: this one)", "DIR" },
    { "rev", 0, 0, G_OPTION_ARG_FILENAME, &options->rev, "The files of this commit", "REV" },
    { "all", 0, 0, G_OPTION_ARG_NONE, &options->all, "All files, also those that git ignores", NULL },
    { "image", 0, 0, G_OPTION_ARG_FILENAME, &options->image, "Sandbox image (default: base)", "NAME" },
    { "setup", 0, 0, G_OPTION_ARG_FILENAME, &options->setup, "Shell command to run before", "CMD" },
    { "egress", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &options->egress, "Registry that --setup may reach (again for more)", "HOST[:PORT]" },
    { "artefact", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &options->artefacts, "Files to bring back (again for more)", "GLOB" },
    { "timeout", 0, 0, G_OPTION_ARG_FILENAME, &timeout, "Time for the command: 90, 10m, 1h", "TIME" },
    { "env", 0, 0, G_OPTION_ARG_FILENAME_ARRAY, &options->env, "Variable of the command; no secrets", "NAME=VALUE" },
    { "memory", 0, 0, G_OPTION_ARG_FILENAME, &memory, "Memory: 512M, 2G", "SIZE" },
    { "cpus", 0, 0, G_OPTION_ARG_FILENAME, &cpus, "Cores: 2, 1.5", "N" },
    { "tenant", 0, 0, G_OPTION_ARG_FILENAME, &options->tenant, "Tenant id (default: local)", "ID" },
    { "output", 0, 0, G_OPTION_ARG_FILENAME, &options->output, "Where artefacts are written", "DIR" },
    { "force", 0, 0, G_OPTION_ARG_NONE, &options->force, "Replace files that exist below --output", NULL },
    { "detach", 0, 0, G_OPTION_ARG_NONE, &options->detach, "Print the job's id and do not wait", NULL },
    { "json", 0, 0, G_OPTION_ARG_NONE, &options->json, "Print the verified result, logs to stderr", NULL },
    { "raw", 0, 0, G_OPTION_ARG_NONE, &options->raw, "Print logs byte by byte, unescaped", NULL },
    { "live", 0, 0, G_OPTION_ARG_NONE, &options->live, "Print logs as they come, also where standard output is no terminal", NULL },
    { "no-live", 0, 0, G_OPTION_ARG_NONE, &options->no_live, "Print logs at the end only", NULL },
    { "quiet", 'q', 0, G_OPTION_ARG_NONE, &options->quiet, "No progress, no live logs, no summary", NULL },
    { NULL },
  };
  gboolean parsed = qv_options_parse("run", entries, &argc, &argv, status);
  gboolean numbers =
      take_number("timeout", timeout, qv_parse_duration_ms, "90, 90s, 10m or 1h", &options->timeout_ms, status);
  numbers = take_number("memory", memory, qv_parse_mib, "512M or 2G", &options->memory_mib, status) && numbers;
  numbers = take_number("cpus", cpus, qv_parse_milli_cpus, "2 or 1.5", &options->milli_cpus, status) && numbers;
  return parsed && numbers && check(options, argc, argv, status);
}
