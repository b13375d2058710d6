/* SPDX-License-Identifier: Apache-2.0 */
/* quavon logs */
#include <stdio.h>

#include "cli/progress.h"
#include "cli/report.h"
#include "cli/verb.h"

typedef struct {
  gboolean follow, raw, quiet;
} Options;

/* Of a job that has ended: those in its payload, else those that were heard while it ran and are still there. */
static int print_ended(QuavonClient *client, const QuavonResult *result, QvLiveView *live, const Options *options)
{
  QuavonError *error = NULL;
  QvReportOptions report = { .raw = options->raw, .quiet = options->quiet, .live = live };
  QuavonPayload *payload = quavon_payload_fetch(client, result, &error);
  if (payload == NULL)
    return qv_fail(error);
  size_t n = 0;
  if (qv_live_view_empty(live) && quavon_payload_setup_log(payload, &n) == NULL && quavon_payload_log(payload, 0, &n) == NULL)
    quavon_logs_read(client, quavon_result_job_id(result), qv_live_view_add, live, NULL);
  if (!qv_report_logs(result, payload, &report) && !options->quiet)
    qv_complain("job %s left no logs", quavon_result_job_id(result));
  quavon_payload_free(payload);
  return QV_CLI_OK;
}

static int print_running(QuavonClient *client, const char *job_id, QvLiveView *live, const Options *options)
{
  QuavonError *error = NULL;
  int status = quavon_logs_read(client, job_id, qv_live_view_add, live, &error) == 0 ? QV_CLI_OK : qv_fail(error);
  if (status == QV_CLI_OK && qv_live_view_empty(live) && !options->quiet)
    qv_complain("job %s has printed nothing so far", job_id);
  qv_live_view_end(live);
  qv_live_view_break(live);
  return status;
}

static int follow(QuavonClient *client, const char *job_id, QvLiveView *live, const Options *options)
{
  QuavonError *error = NULL;
  quavon_client_follow_logs(client, qv_live_view_add, live);
  /* Ctrl-C ends the view, not the job. */
  QuavonResult *result = quavon_wait(client, job_id, NULL, NULL, &error);
  qv_live_view_end(live);
  if (result == NULL) {
    qv_live_view_break(live);
    return qv_fail(error);
  }
  int status = print_ended(client, result, live, options);
  quavon_result_free(result);
  return status;
}

static int show(QuavonClient *client, const char *job_id, const Options *options)
{
  QuavonError *error = NULL;
  QuavonResult *result = quavon_result_get(client, job_id, &error);
  if (error != NULL)
    return qv_fail(error);
  g_auto(QvLiveView) live;
  qv_live_view_init(&live, stdout, result == NULL, options->raw);
  int status;
  if (result != NULL)
    status = print_ended(client, result, &live, options);
  else
    status = options->follow ? follow(client, job_id, &live, options) : print_running(client, job_id, &live, options);
  quavon_result_free(result);
  return status;
}

int qv_verb_logs(int argc, char **argv)
{
  Options options = { 0 };
  const GOptionEntry entries[] = {
    { "follow", 'f', 0, G_OPTION_ARG_NONE, &options.follow, "Go on until the job ends", NULL },
    { "raw", 0, 0, G_OPTION_ARG_NONE, &options.raw, "Print logs byte by byte, unescaped", NULL },
    { "quiet", 'q', 0, G_OPTION_ARG_NONE, &options.quiet, "Nothing but the logs", NULL },
    { NULL },
  };
  int status = QV_CLI_OK;
  /* `quavon logs JOB -f` as well as `quavon logs -f JOB`. */
  if (argc > 2 && argv[1][0] != '-') {
    char *job_id = argv[1];
    for (int i = 1; i + 1 < argc; i++)
      argv[i] = argv[i + 1];
    argv[argc - 1] = job_id;
  }
  if (!qv_options_parse("logs", entries, &argc, &argv, &status))
    return status;
  if (argc != 2)
    return qv_usage("logs", "the id of one job is wanted");
  QuavonError *error = NULL;
  QuavonClient *client = quavon_client_open(NULL, &error);
  if (client == NULL)
    return qv_fail(error);
  status = show(client, argv[1], &options);
  quavon_client_close(client);
  return status;
}
