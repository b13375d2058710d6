/* SPDX-License-Identifier: Apache-2.0 */
/* quavon wait, quavon result, quavon cancel */
#include <stdio.h>
#include <string.h>

#include "cli/progress.h"
#include "cli/report.h"
#include "cli/verb.h"
#include "cli/watch.h"

typedef struct {
  QvReportOptions report;
  char *output; /* report's */
  gboolean logs, live, no_live;
} Options;

static void options_clear(Options *options)
{
  g_free(options->output);
}

G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(Options, options_clear)

/* FALSE: *status is the exit status. */
static gboolean parse(const char *verb, int *argc, char ***argv, Options *options, int *status)
{
  QvReportOptions *report = &options->report;
  gboolean waits = strcmp(verb, "wait") == 0;
  const GOptionEntry entries[] = {
    { "output", 0, 0, G_OPTION_ARG_FILENAME, &options->output, "Where artefacts are written", "DIR" },
    { "force", 0, 0, G_OPTION_ARG_NONE, &report->force, "Replace files that exist below --output", NULL },
    { "json", 0, 0, G_OPTION_ARG_NONE, &report->json, "Print the verified result, logs to stderr", NULL },
    { "raw", 0, 0, G_OPTION_ARG_NONE, &report->raw, "Print logs byte by byte, unescaped", NULL },
    { "quiet", 'q', 0, G_OPTION_ARG_NONE, &report->quiet, "No progress and no summary", NULL },
    { waits ? "live" : "logs", 0, 0, G_OPTION_ARG_NONE, waits ? &options->live : &options->logs,
      waits ? "Print logs as they come, also where standard output is no terminal" : "Print the logs too", NULL },
    { waits ? "no-live" : NULL, 0, 0, G_OPTION_ARG_NONE, &options->no_live, "Print logs at the end only", NULL },
    { NULL },
  };
  if (!qv_options_parse(verb, entries, argc, argv, status))
    return FALSE;
  report->output = options->output;
  if (*argc != 2) {
    *status = qv_usage(verb, "the id of one job is wanted");
    return FALSE;
  }
  if (report->output != NULL && !qv_output_check(report->output, report->force)) {
    *status = QV_CLI_USAGE;
    return FALSE;
  }
  return TRUE;
}

static int report_and_close(QuavonClient *client, QuavonResult *result, const Options *options)
{
  int status = qv_report(client, result, &options->report);
  quavon_result_free(result);
  quavon_client_close(client);
  return status;
}

int qv_verb_wait(int argc, char **argv)
{
  g_auto(Options) options = { 0 };
  int status = QV_CLI_OK;
  if (!parse("wait", &argc, &argv, &options, &status))
    return status;
  QuavonError *error = NULL;
  QuavonClient *client = quavon_client_open(NULL, &error);
  if (client == NULL)
    return qv_fail(error);
  QvProgress progress;
  qv_progress_init(&progress, options.report.quiet, NULL);
  /* Ctrl-C ends the wait, not the job: `quavon cancel` does that. */
  g_auto(QvLiveView) live = { 0 };
  const QvReportOptions *report = &options.report;
  const QvWatchOptions watch = { .live = options.live, .no_live = options.no_live, .json = report->json, .raw = report->raw,
                                 .quiet = report->quiet };
  QuavonResult *result = qv_watch(client, argv[1], &watch, &progress, &live, &error);
  options.report.live = &live;
  if (result != NULL)
    return report_and_close(client, result, &options);
  quavon_client_close(client);
  return qv_fail(error);
}

int qv_verb_result(int argc, char **argv)
{
  g_auto(Options) options = { 0 };
  int status = QV_CLI_OK;
  if (!parse("result", &argc, &argv, &options, &status))
    return status;
  QuavonError *error = NULL;
  QuavonClient *client = quavon_client_open(NULL, &error);
  if (client == NULL)
    return qv_fail(error);
  QuavonResult *result = quavon_result_get(client, argv[1], &error);
  options.report.no_payload = !options.logs && options.report.output == NULL;
  options.report.no_logs = !options.logs;
  if (result != NULL)
    return report_and_close(client, result, &options);
  quavon_client_close(client);
  if (error != NULL)
    return qv_fail(error);
  qv_complain("job %s has not ended", argv[1]);
  return QV_CLI_NOT_YET;
}

int qv_verb_cancel(int argc, char **argv)
{
  int status = QV_CLI_OK;
  if (!qv_options_parse("cancel", NULL, &argc, &argv, &status))
    return status;
  if (argc != 2)
    return qv_usage("cancel", "the id of one job is wanted");
  QuavonError *error = NULL;
  QuavonClient *client = quavon_client_open(NULL, &error);
  if (client == NULL)
    return qv_fail(error);
  status = quavon_cancel(client, argv[1], &error) == 0 ? QV_CLI_OK : qv_fail(error);
  quavon_client_close(client);
  return status;
}
