/* SPDX-License-Identifier: Apache-2.0 */
/* quavon ps, quavon runners, quavon pool: what an operator asks of a pool once. (quavon top is top.c.) */
#include <stdio.h>
#include <string.h>

#include "cli/pool_text.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/run_options.h"
#include "cli/verb.h"

enum { WAITING_MAX = 200, ENDED_MAX = 20, DRAIN_POLL_MS = 500 };

static void print_text(GString *text)
{
  fwrite(text->str, 1, text->len, stdout);
  g_string_free(text, TRUE);
}

/* How each ended job of the view ended: its verified result says, or the queue's unsigned reason. */
static GHashTable *outcomes(QuavonClient *client, const QvPoolView *view)
{
  GHashTable *status = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
  for (guint i = 0; i < view->queue->jobs->len; i++) {
    const QvViewJob *job = view->queue->jobs->pdata[i];
    char *text = NULL;
    if (job->state == QV_VIEW_FAILED) {
      text = g_strdup(job->failed_reason != NULL ? job->failed_reason : "failed");
    } else if (job->state == QV_VIEW_COMPLETED) {
      QuavonResult *result = quavon_result_get(client, job->id, NULL);
      const char *code = result != NULL ? quavon_result_code(result) : NULL;
      text = result == NULL ? g_strdup("bad_result") : g_strdup(code != NULL ? code : quavon_result_status(result));
      quavon_result_free(result);
    }
    if (text != NULL)
      g_hash_table_replace(status, g_strdup(job->id), text);
  }
  return status;
}

int qv_verb_ps(int argc, char **argv)
{
  gboolean all = FALSE, json = FALSE, bare = FALSE;
  const GOptionEntry entries[] = {
    { "all", 'a', 0, G_OPTION_ARG_NONE, &all, "The newest of those that have ended too", NULL },
    { "json", 0, 0, G_OPTION_ARG_NONE, &json, "Print JSON", NULL },
    { "bare", 0, 0, G_OPTION_ARG_NONE, &bare, "No head line", NULL },
    { NULL },
  };
  int status = QV_CLI_OK;
  if (!qv_options_parse("ps", entries, &argc, &argv, &status))
    return status;
  if (argc != 1)
    return qv_usage("ps", "it takes no arguments");
  QuavonError *error = NULL;
  QuavonClient *client = quavon_client_open(NULL, &error);
  if (client == NULL)
    return qv_fail(error);
  g_autoptr(QvPoolView) view = qv_pool_view(client, WAITING_MAX, all ? ENDED_MAX : 0, all, NULL, &error);
  if (view != NULL) {
    g_autoptr(GHashTable) ended = outcomes(client, view);
    if (json) {
      qv_json_print(json_pack("{s:s,s:I,s:b,s:o,s:o}", "pool", qv_pool_name(client), "at", (json_int_t)view->at, "paused",
                              view->queue->paused, "counts", qv_pool_counts_json(view), "jobs", qv_pool_jobs_json(view, ended)));
    } else {
      GString *text = g_string_new(NULL);
      qv_pool_jobs_text(view, ended, bare, text);
      print_text(text);
      if (view->queue->waiting + view->queue->prioritised + view->queue->delayed > WAITING_MAX)
        qv_complain("%" G_GINT64_FORMAT " more jobs wait",
                    view->queue->waiting + view->queue->prioritised + view->queue->delayed - WAITING_MAX);
    }
  } else {
    status = qv_fail(error);
  }
  quavon_client_close(client);
  return status;
}

int qv_verb_runners(int argc, char **argv)
{
  gboolean json = FALSE, bare = FALSE;
  const GOptionEntry entries[] = {
    { "json", 0, 0, G_OPTION_ARG_NONE, &json, "Print JSON", NULL },
    { "bare", 0, 0, G_OPTION_ARG_NONE, &bare, "No head line", NULL },
    { NULL },
  };
  int status = QV_CLI_OK;
  if (!qv_options_parse("runners", entries, &argc, &argv, &status))
    return status;
  if (argc != 1)
    return qv_usage("runners", "it takes no arguments");
  QuavonError *error = NULL;
  QuavonClient *client = quavon_client_open(NULL, &error);
  if (client == NULL)
    return qv_fail(error);
  g_autoptr(QvPoolView) view = qv_pool_view(client, 0, 0, FALSE, NULL, &error);
  if (view == NULL) {
    status = qv_fail(error);
  } else if (json) {
    qv_json_print(json_pack("{s:s,s:I,s:o}", "pool", qv_pool_name(client), "at", (json_int_t)view->at, "runners",
                            qv_pool_runners_json(view)));
  } else {
    GString *text = g_string_new(NULL);
    qv_pool_runners_text(view, bare, text);
    print_text(text);
    if (view->runners->len == 0)
      qv_complain("no runner of pool %s has reported in the last 90 s", qv_pool_name(client));
  }
  quavon_client_close(client);
  return status;
}

/* ---- quavon pool */

typedef struct {
  gboolean json;
  gint64 timeout_ms; /* 0: none */
} PoolOptions;

static int show_pool(QuavonClient *client, const PoolOptions *options)
{
  QuavonError *error = NULL;
  g_autoptr(QvPoolView) view = qv_pool_view(client, 0, 0, FALSE, NULL, &error);
  if (view == NULL)
    return qv_fail(error);
  if (options->json) {
    qv_json_print(json_pack("{s:s,s:I,s:b,s:o}", "pool", qv_pool_name(client), "at", (json_int_t)view->at, "paused",
                            view->queue->paused, "counts", qv_pool_counts_json(view)));
    return QV_CLI_OK;
  }
  GString *text = g_string_new(NULL);
  g_string_append_printf(text, "pool %s: ", qv_pool_name(client));
  qv_pool_counts_text(view, text);
  print_text(text);
  return QV_CLI_OK;
}

/* Until nothing is active: QV_CLI_OK, or why not. */
static int await_idle(QuavonClient *client, const PoolOptions *options)
{
  gint64 began = g_get_monotonic_time(), said = -1;
  qv_interrupt_watch();
  for (;;) {
    QuavonError *error = NULL;
    g_autoptr(QvPoolView) view = qv_pool_view(client, 0, 0, FALSE, NULL, &error);
    if (view == NULL)
      return qv_fail(error);
    gint64 active = view->queue->active;
    if (active == 0)
      return QV_CLI_OK;
    if (active != said && !options->json)
      qv_complain("%" G_GINT64_FORMAT " job%s still active", active, active == 1 ? " is" : "s are");
    said = active;
    if (qv_interrupted()) {
      qv_complain("the pool stays paused; `quavon pool resume` ends that");
      return QV_CLI_CANCELLED;
    }
    if (options->timeout_ms > 0 && g_get_monotonic_time() - began > options->timeout_ms * 1000) {
      qv_complain("jobs are still active; the pool stays paused");
      return QV_CLI_TIMED_OUT;
    }
    g_usleep(DRAIN_POLL_MS * 1000);
  }
}

static int act(QuavonClient *client, const char *what, const PoolOptions *options)
{
  QuavonError *error = NULL;
  gboolean pauses = strcmp(what, "pause") == 0 || strcmp(what, "drain") == 0;
  if ((pauses || strcmp(what, "resume") == 0) && qv_pool_pause(client, pauses, &error) != 0)
    return qv_fail(error);
  int status = strcmp(what, "drain") == 0 ? await_idle(client, options) : QV_CLI_OK;
  return status == QV_CLI_OK ? show_pool(client, options) : status;
}

int qv_verb_pool(int argc, char **argv)
{
  static const char *const acts[] = { "pause", "resume", "drain", "status", NULL };
  PoolOptions options = { 0 };
  char *timeout = NULL;
  const GOptionEntry entries[] = {
    { "json", 0, 0, G_OPTION_ARG_NONE, &options.json, "Print JSON", NULL },
    { "timeout", 0, 0, G_OPTION_ARG_FILENAME, &timeout, "drain: give up after so long (90, 10m, 1h); the pause stays", "TIME" },
    { NULL },
  };
  int status = QV_CLI_OK;
  const char *what = argc > 1 && g_strv_contains(acts, argv[1]) ? argv[1] : NULL;
  if (what != NULL) {
    argv[1] = argv[0];
    argv++;
    argc--;
  }
  gboolean parsed = qv_options_parse("pool", entries, &argc, &argv, &status);
  g_autofree char *owned = timeout;
  if (!parsed)
    return status;
  options.timeout_ms = owned != NULL ? qv_parse_duration_ms(owned) : 0;
  if (what == NULL && argc == 2 && g_strv_contains(acts, argv[1]))
    what = argv[1];
  else if (what == NULL || argc != 1)
    return qv_usage("pool", "one of pause, resume, drain, status is wanted");
  if (options.timeout_ms < 0 || (owned != NULL && strcmp(what, "drain") != 0))
    return qv_usage("pool", options.timeout_ms < 0 ? "--timeout: the form is 90, 90s, 10m or 1h" : "--timeout is drain's");
  QuavonError *error = NULL;
  QuavonClient *client = quavon_client_open(NULL, &error);
  if (client == NULL)
    return qv_fail(error);
  status = act(client, what, &options);
  quavon_client_close(client);
  return status;
}
