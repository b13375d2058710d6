/* SPDX-License-Identifier: Apache-2.0 */
/* noop URL CONCURRENCY JOBS: our worker on the queue `sandbox` of prefix `bench`, answering each job at once with a
 * short text. Ends after JOBS, or with JOBS 0 when none came for 1.5 s (of several workers none knows its share). Prints CPU and
 * wall seconds between the first job and the last answer, and the number of jobs. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "queue/worker.h"

static GMainLoop *loop;
static long left;
static gint64 started_us;
static double cpu_start, cpu_end;
static long done_n;
static gint64 ended_us;

static double cpu_seconds(void)
{
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void on_finish(QvFinish finish, const GError *error, gpointer user)
{
  if (error != NULL || finish != QV_FINISH_DONE)
    g_error("not answered");
  done_n++;
  cpu_end = cpu_seconds();
  ended_us = qv_clock_mono_us();
  if (--left == 0)
    g_main_loop_quit(loop);
}

static void on_job(QvWorker *worker, QvFetchedJob *job, gpointer user)
{
  if (started_us == 0) {
    started_us = qv_clock_mono_us();
    cpu_start = cpu_seconds();
  }
  qv_worker_complete(worker, job, "\"done\"", 6, on_finish, NULL);
}

static gboolean on_look(gpointer data)
{
  static long before = -1;
  if (before == done_n)
    g_main_loop_quit(loop);
  before = done_n;
  return G_SOURCE_CONTINUE;
}

int main(int argc, char **argv)
{
  static const QvWorkerEvents EVENTS = {.job = on_job};
  if (argc != 4)
    return 2;
  g_autoptr(GError) error = NULL;
  QvAddress *address = qv_address_parse(argv[1], &error);
  if (address == NULL)
    g_error("%s", error->message);
  left = atol(argv[3]);
  loop = g_main_loop_new(NULL, FALSE);
  QvWorkerOptions options = {.address = address, .prefix = "bench", .concurrency = (guint)atoi(argv[2]),
                             .lock_ms = 30000, .stalled_ms = 30000, .data_max_bytes = 1048576};
  QvWorker *worker = qv_worker_new(&options, &EVENTS, NULL);
  qv_worker_resume(worker);
  if (left == 0)
    g_timeout_add(1500, on_look, NULL);
  g_main_loop_run(loop);
  printf("cpu_s %.6f\nwall_s %.6f\njobs %ld\n", cpu_end - cpu_start, (double)(ended_us - started_us) / 1e6, done_n);
  qv_worker_free(worker);
  qv_address_unref(address);
  g_main_loop_unref(loop);
  return 0;
}
