/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the smoke test's times and its requests. */
#include "runner/smoke_watch.h"

#include "base/clock.h"
#include "base/log.h"
#include "queue/stores.h"
#include "queue/timer.h"

enum { READ_MS = 20000 };

struct QvSmokeWatch {
  QvSmokeWatchOptions options;
  QvProblems *problems;
  gpointer user;
  QvTimer *timer;
  QvSmokeReport *report;
  gint64 started_ms;  /* monotonic, of the last start; 0: none */
  gboolean running, stopped, freed;
  guint reading;
  char *asked;        /* the request that the next start answers; NULL: none */
  char *answering;    /* the request that the running test answers */
  char *seen;         /* the last request that was followed */
};

static void on_timer(gpointer user);

QvSmokeWatch *qv_smoke_watch_new(const QvSmokeWatchOptions *options, QvProblems *problems, gpointer user)
{
  QvSmokeWatch *watch = g_new0(QvSmokeWatch, 1);
  watch->options = *options;
  watch->problems = problems;
  watch->user = user;
  watch->timer = qv_timer_new(on_timer, watch);
  qv_problems_set(problems, QV_PROBLEM_SMOKE, NULL, "the first smoke test has not ended yet");
  return watch;
}

static void watch_unref(QvSmokeWatch *watch)
{
  if (!watch->freed || watch->running || watch->reading > 0)
    return;
  qv_smoke_report_free(watch->report);
  g_free(watch->asked);
  g_free(watch->answering);
  g_free(watch->seen);
  g_free(watch);
}

void qv_smoke_watch_stop(QvSmokeWatch *watch)
{
  watch->stopped = TRUE;
  qv_timer_disarm(watch->timer);
}

void qv_smoke_watch_free(QvSmokeWatch *watch)
{
  if (watch == NULL)
    return;
  g_clear_pointer(&watch->timer, qv_timer_free);
  watch->stopped = watch->freed = TRUE;
  watch_unref(watch);
}

const QvSmokeReport *qv_smoke_watch_report(const QvSmokeWatch *watch)
{
  return watch != NULL ? watch->report : NULL;
}

/* The next one: when its time has come, or a minute after the last start where somebody waits for it. */
static void plan(QvSmokeWatch *watch)
{
  if (watch->stopped || watch->running)
    return;
  gint64 now_ms = qv_clock_mono_ms();
  gint64 wait_ms = watch->options.interval_ms;
  if (watch->report != NULL && !watch->report->passed)
    wait_ms = MIN(watch->options.again_ms, wait_ms);
  else if (watch->report != NULL)
    wait_ms = CLAMP(watch->report->at + wait_ms - qv_clock_unix_ms(), 0, wait_ms);
  if (watch->asked != NULL)
    wait_ms = 0;
  if (watch->started_ms != 0)
    wait_ms = MAX(wait_ms, watch->started_ms + watch->options.apart_ms - now_ms);
  qv_timer_arm_ms(watch->timer, wait_ms);
}

static void take_report(QvSmokeWatch *watch, QvSmokeReport *report)
{
  qv_smoke_report_free(watch->report);
  watch->report = report;
  if (report->passed) {
    qv_problems_clear(watch->problems, QV_PROBLEM_SMOKE, NULL);
  } else {
    g_autofree char *names = g_strjoinv(", ", report->failed);
    g_autofree char *text = g_strdup_printf("the smoke test did not pass: %s", names);
    qv_problems_set(watch->problems, QV_PROBLEM_SMOKE, NULL, text);
  }
  watch->options.changed(watch->user);
}

static void on_done(QvSmokeReport *report, gpointer data)
{
  QvSmokeWatch *watch = data;
  watch->running = FALSE;
  g_free(report->request_id);
  report->request_id = g_steal_pointer(&watch->answering);
  if (watch->freed) {
    qv_smoke_report_free(report);
    watch_unref(watch);
    return;
  }
  g_autofree char *names = g_strjoinv(", ", report->failed);
  g_autofree char *probes = g_strdup_printf("%" G_GINT64_FORMAT, report->probes);
  if (report->passed)
    qv_log(QV_LOG_INFO, "smoke test passed", "probes", probes, "requestId", report->request_id, NULL);
  else
    qv_log(QV_LOG_ERROR, "smoke test did not pass: no jobs are fetched", "failed", names, "requestId", report->request_id,
           NULL);
  take_report(watch, report);
  plan(watch);
}

static void on_timer(gpointer user)
{
  QvSmokeWatch *watch = user;
  watch->running = TRUE;
  watch->started_ms = qv_clock_mono_ms();
  watch->answering = g_steal_pointer(&watch->asked);
  qv_log(QV_LOG_INFO, "smoke test starts", "requestId", watch->answering, NULL);
  watch->options.start(on_done, watch, watch->user);
}

void qv_smoke_watch_begin(QvSmokeWatch *watch, QvSmokeReport *remembered)
{
  if (remembered != NULL) {
    qv_log(QV_LOG_INFO, "smoke test: one that passed is remembered", NULL);
    take_report(watch, remembered);
    plan(watch);
  } else {
    qv_timer_arm_ms(watch->timer, 0);
  }
}

static void on_request(GBytes *bytes, const GError *error, gpointer user)
{
  QvSmokeWatch *watch = user;
  watch->reading--;
  if (watch->freed || bytes == NULL || watch->stopped) {
    watch_unref(watch);
    return;
  }
  gsize n;
  g_autoptr(GError) why = NULL;
  const char *text = g_bytes_get_data(bytes, &n);
  g_autofree char *request_id =
    qv_smoke_request_verify(text, n, watch->options.ring(watch->user), watch->options.pool, watch->options.runner_id,
                            qv_clock_unix_ms(), &why);
  if (request_id == NULL) {
    qv_log(QV_LOG_WARNING, "request for a smoke test is refused", "error", why->message, NULL);
    return;
  }
  if (g_strcmp0(request_id, watch->seen) == 0)
    return;
  g_free(watch->seen);
  watch->seen = g_strdup(request_id);
  g_free(watch->asked);
  watch->asked = g_steal_pointer(&request_id);
  plan(watch);
}

void qv_smoke_watch_look(QvSmokeWatch *watch, QvConn *conn)
{
  watch->reading++;
  qv_smoke_request_get(conn, watch->options.prefix, watch->options.runner_id, READ_MS, on_request, watch);
}
