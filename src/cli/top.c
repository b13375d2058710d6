/* SPDX-License-Identifier: Apache-2.0 */
/* quavon top: a pool, looked at again and again. On a terminal: the alternate screen, redrawn from its upper left corner, each
 * line cut to the width; q, Ctrl-C or a signal ends it, and the terminal is as it was. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cli/pool_text.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/run_options.h"
#include "cli/verb.h"

enum { WAITING_MAX = 50, ENDED_MAX = 100, LINES_MAX = 500 };

#define ENTER "\033[?1049h\033[?25l"
#define LEAVE "\033[?25h\033[?1049l"

typedef struct {
  gboolean once, json;
  gint64 interval_ms;
} Options;

/* Those of the view that have not ended: the ended ones are there for their times. */
static void drop_ended(QvPoolView *view)
{
  for (guint i = view->queue->jobs->len; i > 0; i--) {
    const QvViewJob *job = view->queue->jobs->pdata[i - 1];
    if (job->state != QV_VIEW_WAITING && job->state != QV_VIEW_ACTIVE)
      g_ptr_array_remove_index(view->queue->jobs, i - 1);
  }
}

static void compose(QuavonClient *client, QvPoolView *view, GString *out)
{
  g_autoptr(GDateTime) now = g_date_time_new_now_local();
  g_autofree char *time = g_date_time_format(now, "%H:%M:%S");
  g_string_append_printf(out, "pool %s  %s  ", qv_pool_name(client), time);
  qv_pool_counts_text(view, out);
  qv_pool_times_text(view, out);
  drop_ended(view);
  g_string_append_c(out, '\n');
  if (view->runners->len > 0)
    qv_pool_runners_text(view, FALSE, out);
  else
    g_string_append(out, "no runner has reported in the last 90 s\n");
  g_string_append_c(out, '\n');
  qv_pool_jobs_text(view, NULL, FALSE, out);
}

static json_t *compose_json(QuavonClient *client, QvPoolView *view)
{
  json_t *times = qv_pool_times_json(view);
  drop_ended(view);
  return json_pack("{s:s,s:I,s:b,s:o,s:o,s:o,s:o}", "pool", qv_pool_name(client), "at", (json_int_t)view->at, "paused",
                   view->queue->paused, "counts", qv_pool_counts_json(view), "times", times, "runners",
                   qv_pool_runners_json(view), "jobs", qv_pool_jobs_json(view, NULL));
}

/* As much of the text as the terminal has room for. */
static void draw(const GString *text)
{
  struct winsize size = { 0 };
  gboolean known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1 && size.ws_col > 1;
  guint rows = known ? size.ws_row : LINES_MAX;
  glong columns = known ? size.ws_col : 1000;
  g_autoptr(GString) out = g_string_new("\033[H");
  g_auto(GStrv) lines = g_strsplit(text->str, "\n", -1);
  for (guint i = 0; lines[i] != NULL && i < rows; i++) {
    const char *end = g_utf8_strlen(lines[i], -1) > columns ? g_utf8_offset_to_pointer(lines[i], columns) : NULL;
    g_string_append_len(out, lines[i], end != NULL ? end - lines[i] : (gssize)strlen(lines[i]));
    g_string_append(out, i + 1 < rows && lines[i + 1] != NULL ? "\033[K\r\n" : "\033[K");
  }
  g_string_append(out, "\033[J");
  fwrite(out->str, 1, out->len, stdout);
  fflush(stdout);
}

/* Waits; TRUE: it is to end. */
static gboolean wait_for_key(gint64 ms)
{
  struct pollfd fd = { .fd = STDIN_FILENO, .events = POLLIN };
  gint64 until = g_get_monotonic_time() + ms * 1000;
  for (gint64 left; (left = until - g_get_monotonic_time()) > 0 && !qv_interrupted();) {
    char key = 0;
    if (poll(&fd, 1, (int)(left / 1000) + 1) <= 0)
      continue; /* a signal: a resize draws again at once, an interrupt ends */
    if (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q' || key == 3)
      return TRUE;
  }
  return qv_interrupted();
}

static int watch(QuavonClient *client, const Options *options)
{
  struct termios before, raw;
  gboolean keyboard = tcgetattr(STDIN_FILENO, &before) == 0;
  g_autoptr(QvPoolView) view = NULL;
  qv_interrupt_watch();
  qv_pool_hurry(client);
  if (keyboard) {
    raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }
  fputs(ENTER, stdout);
  do {
    QuavonError *error = NULL;
    g_autoptr(GString) text = g_string_new(NULL);
    QvPoolView *now = qv_pool_view(client, WAITING_MAX, ENDED_MAX, FALSE, view, &error);
    if (now != NULL) {
      qv_pool_view_free(view);
      view = now;
      compose(client, view, text);
    } else {
      g_string_append_printf(text, "%s\ntrying again; q ends\n", quavon_error_message(error));
      quavon_error_free(error);
    }
    draw(text);
  } while (keyboard ? !wait_for_key(options->interval_ms) : (g_usleep((gulong)options->interval_ms * 1000), !qv_interrupted()));
  fputs(LEAVE, stdout);
  fflush(stdout);
  if (keyboard)
    tcsetattr(STDIN_FILENO, TCSANOW, &before);
  return QV_CLI_OK;
}

static int show_once(QuavonClient *client, const Options *options)
{
  QuavonError *error = NULL;
  g_autoptr(QvPoolView) view = qv_pool_view(client, WAITING_MAX, ENDED_MAX, FALSE, NULL, &error);
  if (view == NULL)
    return qv_fail(error);
  if (options->json) {
    qv_json_print(compose_json(client, view));
    return QV_CLI_OK;
  }
  g_autoptr(GString) text = g_string_new(NULL);
  compose(client, view, text);
  fwrite(text->str, 1, text->len, stdout);
  return QV_CLI_OK;
}

int qv_verb_top(int argc, char **argv)
{
  Options options = { .interval_ms = 2000 };
  char *interval = NULL;
  const GOptionEntry entries[] = {
    { "once", 0, 0, G_OPTION_ARG_NONE, &options.once, "Print it once; also where standard output is no terminal", NULL },
    { "json", 0, 0, G_OPTION_ARG_NONE, &options.json, "Print JSON, once", NULL },
    { "interval", 0, 0, G_OPTION_ARG_FILENAME, &interval, "Between two looks (default: 2s)", "TIME" },
    { NULL },
  };
  int status = QV_CLI_OK;
  gboolean parsed = qv_options_parse("top", entries, &argc, &argv, &status);
  g_autofree char *owned = interval;
  if (!parsed)
    return status;
  if (argc != 1)
    return qv_usage("top", "it takes no arguments");
  if (owned != NULL && (options.interval_ms = qv_parse_duration_ms(owned)) < 0)
    return qv_usage("top", "--interval: the form is 2, 2s or 500ms");
  options.interval_ms = MAX(options.interval_ms, 200);
  QuavonError *error = NULL;
  QuavonClient *client = quavon_client_open(NULL, &error);
  if (client == NULL)
    return qv_fail(error);
  gboolean once = options.once || options.json || isatty(STDOUT_FILENO) != 1;
  status = once ? show_once(client, &options) : watch(client, &options);
  quavon_client_close(client);
  return status;
}
