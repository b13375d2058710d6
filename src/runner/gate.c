/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the reasons not to fetch, and the sweeps that mend one of them. */
#include "runner/gate.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/exit.h"
#include "base/fd.h"
#include "base/log.h"
#include "runner/sweep.h"
#include "runner/sweeper.h"

enum {
  SWEEP_AGAIN_MS = 60000,
  ENGINE_AGAIN_MS = 2000, /* while the engine is away */
  CLOCK_APART_MS = 5000, /* the contract bears 30 s between a worker's clock and ours */
  DISK_LEFT_MIB = 256,
  PROC_BYTES_MAX = 65536,
};

#define ENGINE_ID "docker"

struct QvGate {
  QvPlace *place;
  gint64 one_job_mib;
  QvProblems *problems;
  QvWorker *worker; /* NULL: not there yet */
  gboolean open;
  gboolean shut; /* for good */
  guint again;   /* timer of the next sweep */
  gboolean sweeping;
  gboolean has_engine; /* its containers outlive us and it: swept every minute, and when it comes back */
  gboolean unfit;      /* when it answered last it was not any more what the backend needs */
  gboolean watching;   /* a process waits for its loss */
  gint64 watched_at;   /* since when, monotonic us */
  QvRepeat said, watch_said; /* of sweeps that failed since one was clean, and of watches */
  guint64 mark;  /* what the running sweep can speak for */
  void (*changed)(gpointer data);
  gpointer data;
};

static void apply(QvGate *gate)
{
  gboolean open = !gate->shut && !qv_problems_stop(gate->problems);
  if (gate->worker == NULL || open == gate->open)
    return;
  gate->open = open;
  if (open)
    qv_worker_resume(gate->worker);
  else if (!gate->shut)
    qv_worker_pause(gate->worker);
}

static void on_problems(gpointer data)
{
  QvGate *gate = data;
  apply(gate);
  gate->changed(gate->data);
}

QvGate *qv_gate_new(QvPlace *place, gint64 one_job_mib, void (*changed)(gpointer data), gpointer data)
{
  QvGate *gate = g_new0(QvGate, 1);
  gate->place = place;
  gate->has_engine = !qv_backend_takes_rootfs(place->backend);
  gate->one_job_mib = one_job_mib;
  gate->problems = qv_problems_new(on_problems, gate);
  gate->changed = changed;
  gate->data = data;
  return gate;
}

void qv_gate_free(QvGate *gate)
{
  if (gate == NULL)
    return;
  g_clear_handle_id(&gate->again, g_source_remove);
  qv_problems_free(gate->problems);
  qv_repeat_clear(&gate->said);
  qv_repeat_clear(&gate->watch_said);
  g_free(gate);
}

gboolean qv_gate_fits(const QvGate *gate)
{
  return !gate->unfit;
}

QvProblems *qv_gate_problems(const QvGate *gate)
{
  return gate->problems;
}

/* ---- sweeps */

static gboolean on_again(gpointer data);

static void plan_sweep(QvGate *gate)
{
  guint ms = gate->has_engine && qv_problems_any(gate->problems, QV_PROBLEM_ENGINE) ? ENGINE_AGAIN_MS : SWEEP_AGAIN_MS;
  if (gate->again == 0 && !gate->sweeping && !gate->shut)
    gate->again = g_timeout_add(ms, on_again, gate);
}

/* From here on it is watched: job processes need not ask it what it is. */
static void on_engine(const char *engine, gpointer data)
{
  QvGate *gate = data;
  g_free(gate->place->engine);
  gate->place->engine = g_strdup(engine);
}

static void forget_engine(QvGate *gate)
{
  g_clear_pointer(&gate->place->engine, g_free);
}

/* The engine, or our way to it, is gone, or it has read its settings anew: look whether it is back, and what it is, and sweep. */
static void on_watched(const QvSweepEnd *end, gpointer data)
{
  QvGate *gate = data;
  gate->watching = FALSE;
  forget_engine(gate);
  if (gate->shut || gate->sweeping)
    return;
  g_clear_handle_id(&gate->again, g_source_remove);
  /* One that ends as soon as it begins is no reason to run in circles. */
  gboolean lasted = g_get_monotonic_time() - gate->watched_at > (gint64)ENGINE_AGAIN_MS * 1000;
  gate->again = g_timeout_add(lasted ? 0 : ENGINE_AGAIN_MS, on_again, gate);
}

static void say_back(QvGate *gate)
{
  guint unsaid = qv_repeat_clear(&gate->said);
  g_autofree char *not_said = unsaid > 0 ? g_strdup_printf("%u", unsaid) : NULL;
  qv_log(QV_LOG_INFO, "the engine can be used again", "notSaid", not_said, NULL);
}

/* The sweeper could talk to the engine, or it could not; or it would not, since a runtime was registered otherwise or the engine
 * was replaced. */
static void judge_engine(QvGate *gate, int status)
{
  if (!gate->has_engine)
    return;
  if (status != QV_SWEEP_CLEAN && status != QV_SWEEP_LEFT) {
    gboolean refused = status == QV_EXIT_CONFIG;
    gate->unfit |= refused; /* away, it is no other */
    if (refused)
      forget_engine(gate);
    if (!qv_problems_any(gate->problems, QV_PROBLEM_ENGINE))
      qv_log(QV_LOG_ERROR, "problem: the engine cannot be used; no jobs are fetched until it can", NULL);
    qv_problems_set(gate->problems, QV_PROBLEM_ENGINE, ENGINE_ID,
                    refused ? "the engine is not what the backend needs" : "the engine does not answer, or not to us");
    return;
  }
  gate->unfit = FALSE;
  if (qv_problems_any(gate->problems, QV_PROBLEM_ENGINE))
    say_back(gate);
  qv_problems_clear(gate->problems, QV_PROBLEM_ENGINE, ENGINE_ID);
  if (!gate->watching) {
    gate->watching = TRUE;
    gate->watched_at = g_get_monotonic_time();
    qv_sweeper_watch(gate->place, &gate->watch_said, on_engine, on_watched, gate);
  }
}

static void on_swept(const QvSweepEnd *end, gpointer data)
{
  QvGate *gate = data;
  gate->sweeping = FALSE;
  if (gate->shut)
    return;
  /* What was told while it ran is left for the next one. */
  gboolean was_open = gate->open;
  judge_engine(gate, end->status);
  if (end->status == QV_SWEEP_CLEAN)
    qv_repeat_clear(&gate->said);
  if (end->status != QV_SWEEP_CLEAN || !qv_problems_clear_until(gate->problems, QV_PROBLEM_SWEEP, gate->mark))
    plan_sweep(gate);
  else if (gate->open && !was_open)
    qv_logf(QV_LOG_INFO, "the problem is gone: fetching jobs again");
  if (gate->has_engine)
    plan_sweep(gate);
}

static gboolean on_again(gpointer data)
{
  QvGate *gate = data;
  gate->again = 0;
  gate->sweeping = TRUE;
  gate->mark = qv_problems_mark(gate->problems);
  qv_sweeper_start(gate->place, NULL, NULL, &gate->said, on_swept, gate);
  return G_SOURCE_REMOVE;
}

void qv_gate_attach(QvGate *gate, QvWorker *worker)
{
  gate->worker = worker;
  apply(gate);
  judge_engine(gate, QV_SWEEP_CLEAN);
  if (gate->has_engine)
    plan_sweep(gate);
}

void qv_gate_leftover(QvGate *gate, const char *text)
{
  qv_log(QV_LOG_ERROR, "problem: something of a sandbox is left; no jobs are fetched until a sweep removes it", "sandbox",
         text, NULL);
  g_autofree char *line = g_strdup_printf("something of sandbox %s is left", text);
  qv_problems_set(gate->problems, QV_PROBLEM_SWEEP, text, line);
  plan_sweep(gate);
}

void qv_gate_hurry(QvGate *gate)
{
  if (gate->again == 0)
    return;
  g_source_remove(gate->again);
  on_again(gate);
}

void qv_gate_shut(QvGate *gate, const char *why)
{
  gate->shut = TRUE;
  g_clear_handle_id(&gate->again, g_source_remove);
  qv_problems_set(gate->problems, QV_PROBLEM_DRAIN, NULL, why);
}

/* ---- looks */

void qv_gate_clock(QvGate *gate, gint64 ahead_ms)
{
  if (ABS(ahead_ms) < CLOCK_APART_MS) {
    qv_problems_clear(gate->problems, QV_PROBLEM_CLOCK, NULL);
    return;
  }
  gboolean news = !qv_problems_any(gate->problems, QV_PROBLEM_CLOCK);
  g_autofree char *text = g_strdup_printf("Valkey's clock is %" G_GINT64_FORMAT " s %s this host's: set both by NTP",
                                          (ABS(ahead_ms) + 500) / 1000, ahead_ms > 0 ? "ahead of" : "behind");
  qv_problems_set(gate->problems, QV_PROBLEM_CLOCK, NULL, text);
  if (news)
    qv_log(QV_LOG_WARNING, "problem", "clock", text, NULL);
}

static void look(QvGate *gate, QvProblemKind kind, gint64 left_mib, gint64 need_mib, const char *what)
{
  if (left_mib < 0 || left_mib >= need_mib) {
    qv_problems_clear(gate->problems, kind, NULL);
    return;
  }
  gboolean news = !qv_problems_any(gate->problems, kind);
  g_autofree char *text = g_strdup_printf("less than %" G_GINT64_FORMAT " MiB %s", need_mib, what);
  qv_problems_set(gate->problems, kind, NULL, text);
  if (news)
    qv_log(QV_LOG_WARNING, "problem", "host", text, NULL);
}

/* MiB that new programs may take; -1 where the kernel does not say. */
static gint64 memory_left_mib(void)
{
  gsize n;
  g_autofree char *text = qv_fd_read_file("/proc/meminfo", PROC_BYTES_MAX, &n, NULL);
  const char *line = text != NULL ? strstr(text, "MemAvailable:") : NULL;
  return line != NULL ? strtoll(line + strlen("MemAvailable:"), NULL, 10) / 1024 : -1;
}

static gint64 disk_left_mib(const char *folder)
{
  struct statvfs st;
  if (statvfs(folder, &st) != 0)
    return -1;
  return (gint64)(st.f_bavail * (st.f_frsize / 1024) / 1024);
}

void qv_gate_look_at_host(QvGate *gate)
{
  look(gate, QV_PROBLEM_MEMORY, memory_left_mib(), gate->one_job_mib, "of memory left on this host: not enough for a job");
  look(gate, QV_PROBLEM_DISK, disk_left_mib(gate->place->state_dir), DISK_LEFT_MIB, "of disk left for the state folder");
}
