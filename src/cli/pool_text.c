/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pool_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/text.h"
#include "protocol/progress.h"

enum { COLUMNS_MAX = 9, CELL_MAX = 60 };

static const char *const states[] = { "waiting", "active", "completed", "failed" };

char *qv_age_text(gint64 ms)
{
  gint64 s = ms / 1000;
  if (ms < 0)
    return g_strdup("-");
  if (s < 60)
    return g_strdup_printf("%" G_GINT64_FORMAT "s", s);
  if (s < 3600)
    return g_strdup_printf("%" G_GINT64_FORMAT "m%02" G_GINT64_FORMAT "s", s / 60, s % 60);
  if (s < 86400)
    return g_strdup_printf("%" G_GINT64_FORMAT "h%02" G_GINT64_FORMAT "m", s / 3600, s / 60 % 60);
  return g_strdup_printf("%" G_GINT64_FORMAT "d", s / 86400);
}

static gint64 age_ms(const QvPoolView *view, gint64 since)
{
  return since > 0 ? MAX(view->at - since, 0) : -1;
}

char *qv_job_step_text(const QvViewJob *job, const QvTicket *ticket)
{
  QvRunProgress said;
  if (job->state != QV_VIEW_ACTIVE || ticket == NULL || job->progress == NULL ||
      !qv_run_progress_parse(job->progress, strlen(job->progress), &said) || said.step > ticket->job->run_n)
    return g_strdup("-");
  if (said.stage == QV_RUN_STAGE_STEP) /* what is said is unsigned: the name is the job's own */
    return g_strdup_printf("step %u/%zu %s", said.step, ticket->job->run_n, ticket->job->run[said.step - 1].name);
  static const char *const texts[QV_RUN_STAGES_N] = { [QV_RUN_STAGE_PREPARING] = "preparing", [QV_RUN_STAGE_SETUP] = "setup",
                                                      [QV_RUN_STAGE_COLLECTING] = "finishing" };
  return g_strdup(texts[said.stage]);
}

/* ---- tables */

typedef struct {
  GPtrArray *rows; /* of char *[COLUMNS_MAX] */
  guint columns;
} Table;

static void row_free(gpointer data)
{
  char **row = data;
  for (guint i = 0; i < COLUMNS_MAX; i++)
    free(row[i]);
  g_free(row);
}

static void table_init(Table *table, guint columns)
{
  table->rows = g_ptr_array_new_with_free_func(row_free);
  table->columns = columns;
}

static void table_add(Table *table, const char *const *cells)
{
  char **row = g_new0(char *, COLUMNS_MAX);
  for (guint i = 0; i < table->columns; i++) {
    const char *cell = cells[i] != NULL && *cells[i] != '\0' ? cells[i] : "-";
    /* Escapes may make it longer than it was. */
    row[i] = qv_text_printable_line(cell, MIN(strlen(cell), CELL_MAX));
  }
  g_ptr_array_add(table->rows, row);
}

/* Ends the table: its lines go to OUT. */
static void table_print(Table *table, GString *out)
{
  glong width[COLUMNS_MAX] = { 0 };
  for (guint r = 0; r < table->rows->len; r++) {
    char **row = table->rows->pdata[r];
    for (guint i = 0; i < table->columns; i++)
      width[i] = MAX(width[i], g_utf8_strlen(row[i], -1));
  }
  for (guint r = 0; r < table->rows->len; r++) {
    char **row = table->rows->pdata[r];
    for (guint i = 0; i < table->columns; i++) {
      g_string_append(out, row[i]);
      for (glong n = g_utf8_strlen(row[i], -1); i + 1 < table->columns && n < width[i] + 2; n++)
        g_string_append_c(out, ' ');
    }
    g_string_append_c(out, '\n');
  }
  g_ptr_array_unref(table->rows);
}

static gint64 job_since(const QvViewJob *job)
{
  switch (job->state) {
  case QV_VIEW_WAITING:
    return job->timestamp;
  case QV_VIEW_ACTIVE:
    return job->processed_on;
  default:
    return job->finished_on;
  }
}

static const char *job_state(const QvViewJob *job, GHashTable *status)
{
  const char *ended = status != NULL ? g_hash_table_lookup(status, job->id) : NULL;
  return ended != NULL ? ended : states[job->state];
}

void qv_pool_jobs_text(const QvPoolView *view, GHashTable *status, gboolean bare, GString *out)
{
  static const char *const head[] = { "JOB", "STATE", "SINCE", "TENANT", "KIND", "IMAGE", "STEP", "RUNNER" };
  Table table;
  table_init(&table, G_N_ELEMENTS(head));
  if (!bare)
    table_add(&table, head);
  for (guint i = 0; i < view->queue->jobs->len; i++) {
    const QvViewJob *job = view->queue->jobs->pdata[i];
    const QvTicket *ticket = g_hash_table_lookup(view->tickets, job->id);
    g_autofree char *since = qv_age_text(age_ms(view, job_since(job)));
    g_autofree char *step = qv_job_step_text(job, ticket);
    const QvJob *signed_job = ticket != NULL ? ticket->job : NULL;
    const char *cells[] = { job->id,
                            job_state(job, status),
                            since,
                            signed_job != NULL ? signed_job->tenant_id : "(not ours)",
                            signed_job != NULL ? signed_job->kind : NULL,
                            signed_job != NULL ? signed_job->image.name : NULL,
                            step,
                            job->worker };
    table_add(&table, cells);
  }
  table_print(&table, out);
}

static char *runner_state(const QvPoolRunner *runner, gint64 now)
{
  const QvHealth *health = runner->health;
  if (health == NULL)
    return g_strdup("unknown");
  if (health->problems != NULL && health->problems[0] != NULL)
    return g_strdup("problem");
  if (health->smoke == NULL)
    return g_strdup("untested");
  if (!health->smoke->passed)
    return g_strdup("unsafe");
  return g_strdup(now - health->smoke->at > QV_SMOKE_AGE_MS_MAX ? "stale" : health->insecure ? "insecure" : "ready");
}

void qv_pool_runners_text(const QvPoolView *view, gboolean bare, GString *out)
{
  static const char *const head[] = { "RUNNER", "STATE", "BUSY", "BACKEND", "RUNTIME", "VERSION", "SEEN", "UP", "REMARK" };
  Table table;
  table_init(&table, G_N_ELEMENTS(head));
  if (!bare)
    table_add(&table, head);
  for (guint i = 0; i < view->runners->len; i++) {
    const QvPoolRunner *runner = view->runners->pdata[i];
    const QvHealth *health = runner->health;
    g_autofree char *state = runner_state(runner, view->at);
    if (health == NULL) {
      table_add(&table, (const char *[]){ runner->runner_id, state, NULL, NULL, NULL, NULL, NULL, NULL, runner->why });
      continue;
    }
    g_autofree char *busy = g_strdup_printf("%" G_GINT64_FORMAT "/%" G_GINT64_FORMAT, health->busy, health->concurrency);
    g_autofree char *runtime = g_strjoin(" ", health->runtime_name, health->runtime_version, NULL);
    g_autofree char *seen = qv_age_text(age_ms(view, health->at)), *up = qv_age_text(age_ms(view, health->started_at));
    g_autofree char *problems = g_strjoinv("; ", health->problems);
    g_autofree char *failed = health->smoke != NULL ? g_strjoinv(" ", health->smoke->failed) : g_strdup("");
    table_add(&table, (const char *[]){ runner->runner_id, state, busy, health->backend, runtime, health->version, seen, up,
                                        *problems != '\0' ? problems : failed });
  }
  table_print(&table, out);
}

void qv_pool_counts_text(const QvPoolView *view, GString *out)
{
  const QvQueueView *queue = view->queue;
  g_string_append_printf(out, "%" G_GINT64_FORMAT " waiting, %" G_GINT64_FORMAT " active, %" G_GINT64_FORMAT " completed, %"
                         G_GINT64_FORMAT " not run%s\n",
                         queue->waiting + queue->prioritised + queue->delayed, queue->active, queue->completed, queue->failed,
                         queue->paused ? "; PAUSED" : "");
}

/* ---- times */

static int compare(const void *a, const void *b)
{
  gint64 x = *(const gint64 *)a, y = *(const gint64 *)b;
  return (x > y) - (x < y);
}

gint64 qv_percentile(gint64 *values, gsize n, guint p)
{
  qsort(values, n, sizeof *values, compare);
  gsize rank = (n * p + 99) / 100;
  return values[MAX(rank, 1) - 1];
}

typedef struct {
  gsize n;
  gint64 *wait, *run;
} Times;

static void times_take(const QvPoolView *view, Times *times)
{
  *times = (Times){ 0, g_new(gint64, view->queue->jobs->len + 1), g_new(gint64, view->queue->jobs->len + 1) };
  for (guint i = 0; i < view->queue->jobs->len; i++) {
    const QvViewJob *job = view->queue->jobs->pdata[i];
    if (job->state != QV_VIEW_COMPLETED || job->timestamp <= 0 || job->processed_on <= 0 || job->finished_on <= 0)
      continue;
    times->wait[times->n] = MAX(job->processed_on - job->timestamp, 0);
    times->run[times->n++] = MAX(job->finished_on - job->processed_on, 0);
  }
}

static void times_clear(Times *times)
{
  g_free(times->wait);
  g_free(times->run);
}

void qv_pool_times_text(const QvPoolView *view, GString *out)
{
  Times times;
  times_take(view, &times);
  if (times.n > 0)
    g_string_append_printf(out, "of the last %zu: waited %.1f s (p50) %.1f s (p95), ran %.1f s (p50) %.1f s (p95)\n", times.n,
                           (double)qv_percentile(times.wait, times.n, 50) / 1000,
                           (double)qv_percentile(times.wait, times.n, 95) / 1000,
                           (double)qv_percentile(times.run, times.n, 50) / 1000,
                           (double)qv_percentile(times.run, times.n, 95) / 1000);
  times_clear(&times);
}

json_t *qv_pool_times_json(const QvPoolView *view)
{
  Times times;
  json_t *json = json_null();
  times_take(view, &times);
  if (times.n > 0)
    json = json_pack("{s:I,s:{s:I,s:I},s:{s:I,s:I}}", "jobs", (json_int_t)times.n, "waitMs", "p50",
                     (json_int_t)qv_percentile(times.wait, times.n, 50), "p95",
                     (json_int_t)qv_percentile(times.wait, times.n, 95), "runMs", "p50",
                     (json_int_t)qv_percentile(times.run, times.n, 50), "p95",
                     (json_int_t)qv_percentile(times.run, times.n, 95));
  times_clear(&times);
  return json;
}

/* ---- JSON */

/* JSON wants UTF-8. */
static json_t *text_json(const char *text)
{
  g_autofree char *valid = text != NULL ? g_utf8_make_valid(text, -1) : NULL;
  return valid != NULL ? json_string(valid) : json_null();
}

static json_t *time_json(gint64 ms)
{
  return ms > 0 ? json_integer(ms) : json_null();
}

json_t *qv_pool_counts_json(const QvPoolView *view)
{
  const QvQueueView *queue = view->queue;
  return json_pack("{s:I,s:I,s:I,s:I}", "waiting", (json_int_t)(queue->waiting + queue->prioritised + queue->delayed), "active",
                   (json_int_t)queue->active, "completed", (json_int_t)queue->completed, "failed", (json_int_t)queue->failed);
}

json_t *qv_pool_jobs_json(const QvPoolView *view, GHashTable *status)
{
  json_t *jobs = json_array();
  for (guint i = 0; i < view->queue->jobs->len; i++) {
    const QvViewJob *job = view->queue->jobs->pdata[i];
    const QvTicket *ticket = g_hash_table_lookup(view->tickets, job->id);
    const QvJob *of = ticket != NULL ? ticket->job : NULL;
    g_autofree char *step = qv_job_step_text(job, ticket);
    const char *ended = status != NULL ? g_hash_table_lookup(status, job->id) : NULL;
    json_array_append_new(
      jobs, json_pack("{s:o,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "jobId", text_json(job->id), "state",
                      states[job->state], "outcome", text_json(ended), "addedAt", time_json(job->timestamp), "startedAt",
                      time_json(job->processed_on), "finishedAt", time_json(job->finished_on), "tenantId",
                      text_json(of != NULL ? of->tenant_id : NULL), "kind", text_json(of != NULL ? of->kind : NULL), "image",
                      text_json(of != NULL ? of->image.name : NULL), "digest",
                      text_json(of != NULL ? of->image.digest : NULL), "step", text_json(strcmp(step, "-") != 0 ? step : NULL),
                      "runnerId", text_json(job->worker)));
  }
  return jobs;
}

static json_t *texts_json(char *const *texts)
{
  json_t *array = json_array();
  for (; texts != NULL && *texts != NULL; texts++)
    json_array_append_new(array, text_json(*texts));
  return array;
}

json_t *qv_pool_runners_json(const QvPoolView *view)
{
  json_t *runners = json_array();
  for (guint i = 0; i < view->runners->len; i++) {
    const QvPoolRunner *runner = view->runners->pdata[i];
    const QvHealth *h = runner->health;
    g_autofree char *state = runner_state(runner, view->at);
    json_t *json = json_pack("{s:o,s:s,s:o}", "runnerId", text_json(runner->runner_id), "state", state, "why",
                             text_json(runner->why));
    if (h != NULL) {
      json_object_update_new(json, json_pack("{s:o,s:o,s:o,s:o,s:I,s:I,s:I,s:I,s:o,s:b}", "version", text_json(h->version),
                                             "backend", text_json(h->backend), "runtime", text_json(h->runtime_name),
                                             "runtimeVersion", text_json(h->runtime_version), "busy", (json_int_t)h->busy,
                                             "concurrency", (json_int_t)h->concurrency, "startedAt", (json_int_t)h->started_at,
                                             "at", (json_int_t)h->at, "problems", texts_json(h->problems), "insecure",
                                             h->insecure));
      json_object_set_new(json, "smoke", h->smoke == NULL ? json_null()
                                                          : json_pack("{s:I,s:b,s:o}", "at", (json_int_t)h->smoke->at, "passed",
                                                                      h->smoke->passed, "failed", texts_json(h->smoke->failed)));
    }
    json_array_append_new(runners, json);
  }
  return runners;
}

void qv_json_print(json_t *json)
{
  char *text = json_dumps(json, JSON_COMPACT | JSON_PRESERVE_ORDER);
  puts(text != NULL ? text : "null");
  free(text);
  json_decref(json);
}
