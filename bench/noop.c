/* SPDX-License-Identifier: Apache-2.0 */
/* noop URL CONCURRENCY JOBS WARM ROUNDS: our worker on the queue `sandbox` of prefix `bench`, answering each job at once with a
 * short text. Somebody queues WARM and JOBS jobs, ROUNDS times, the next ones when the last have gone. Of each round only
 * what lies between the answer of its last warm job and the answer of its last job is counted: that begins and ends at
 * the same place of a round trip, so it is whole ones. Ends after ROUNDS; with JOBS 0 it says "ready" when it can be
 * given jobs, counts from the first of them on, and ends at the end of its input (of several workers none knows its
 * share). Prints CPU and wall seconds, the number of jobs, and what 99 of 100 waited at most, from their producer's
 * clock to the fetch. */
#include <glib-unix.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "queue/worker.h"

static GMainLoop *loop;
static long jobs, warm, rounds; /* jobs 0: as many as come */
static long seen_n, done_n;
static gboolean counting;
static gint64 started_us, wall_us;
static double cpu_start, cpu_s;
static gint64 last_us; /* the last answer */
static GArray *waits_ms;

/* Of all threads, in ns: getrusage's parts are cut off at us. */
static double cpu_seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void begin_count(void)
{
  counting = TRUE;
  started_us = last_us = qv_clock_mono_us();
  cpu_start = cpu_seconds();
}

static void end_count(void)
{
  if (!counting)
    return;
  counting = FALSE;
  cpu_s += cpu_seconds() - cpu_start;
  wall_us += last_us - started_us;
}

static void on_finish(QvFinish finish, const GError *error, gpointer user)
{
  if (error != NULL || finish != QV_FINISH_DONE)
    g_error("not answered");
  done_n++;
  last_us = qv_clock_mono_us();
  if (jobs == 0)
    return;
  long n = done_n % (warm + jobs);
  if (n == 0)
    end_count();
  else if (n == warm)
    begin_count();
  if (done_n == rounds * (warm + jobs))
    g_main_loop_quit(loop);
}

static void on_job(QvWorker *worker, QvFetchedJob *job, gpointer user)
{
  gint64 wait_ms = job->processed_on_ms - job->timestamp_ms;
  if (jobs == 0 && seen_n++ == 0)
    begin_count();
  if (counting)
    g_array_append_val(waits_ms, wait_ms);
  qv_worker_complete(worker, job, "\"done\"", 6, on_finish, NULL);
}

static gboolean on_input(gint fd, GIOCondition condition, gpointer user)
{
  char byte;
  if (read(fd, &byte, 1) > 0)
    return G_SOURCE_CONTINUE;
  g_main_loop_quit(loop);
  return G_SOURCE_REMOVE;
}

static int by_value(gconstpointer a, gconstpointer b)
{
  gint64 x = *(const gint64 *)a, y = *(const gint64 *)b;
  return x < y ? -1 : x > y;
}

static void report(void)
{
  g_array_sort(waits_ms, by_value);
  gint64 p99_ms = waits_ms->len == 0 ? 0 : g_array_index(waits_ms, gint64, (waits_ms->len - 1) * 99 / 100);
  printf("cpu_s %.9f\nwall_s %.6f\njobs %ld\nwait_p99_ms %" G_GINT64_FORMAT "\n", cpu_s, (double)wall_us / 1e6,
         done_n - rounds * warm, p99_ms);
}

int main(int argc, char **argv)
{
  static const QvWorkerEvents EVENTS = {.job = on_job};
  if (argc != 6)
    return 2;
  g_autoptr(GError) error = NULL;
  QvAddress *address = qv_address_parse(argv[1], &error);
  if (address == NULL)
    g_error("%s", error->message);
  jobs = atol(argv[3]);
  warm = atol(argv[4]);
  rounds = atol(argv[5]);
  waits_ms = g_array_new(FALSE, FALSE, sizeof(gint64));
  loop = g_main_loop_new(NULL, FALSE);
  QvWorkerOptions options = {.address = address, .prefix = "bench", .concurrency = (guint)atoi(argv[2]),
                             .lock_ms = 30000, .stalled_ms = 30000, .data_max_bytes = 1048576};
  QvWorker *worker = qv_worker_new(&options, &EVENTS, NULL);
  qv_worker_resume(worker);
  if (jobs == 0) {
    g_unix_fd_add(STDIN_FILENO, G_IO_IN | G_IO_HUP, on_input, NULL);
    printf("ready\n");
    fflush(stdout);
  }
  g_main_loop_run(loop);
  end_count();
  report();
  qv_worker_free(worker);
  qv_address_unref(address);
  g_main_loop_unref(loop);
  g_array_unref(waits_ms);
  return 0;
}
