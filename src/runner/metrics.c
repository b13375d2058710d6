/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/metrics.h"

#include <string.h>

enum { BUCKETS_MAX = 10 };

/* Seconds: upper bounds. */
static const double wait_bounds[] = {0.1, 0.5, 1, 5, 15, 60, 300, 900};
static const double run_bounds[] = {1, 5, 15, 60, 300, 900, 1800};

typedef struct {
  const double *bounds;
  gsize n;
  guint64 counts[BUCKETS_MAX]; /* of each bucket alone; the last one has no bound */
  guint64 total;
  gint64 sum_ms;
} Histogram;

struct QvMetrics {
  char *version, *pool, *runner_id, *backend;
  gint64 started_at_ms;
  GHashTable *jobs; /* labels → guint64 *: how many */
  Histogram wait, run;
  gint64 cpu_ms, bytes_in, bytes_out, egress_up, egress_down, egress_refused, oom;
};

static guint64 *counter(QvMetrics *metrics, const char *status, const char *code)
{
  g_autofree char *labels = g_strdup_printf("status=\"%s\",code=\"%s\"", status, code != NULL ? code : "none");
  guint64 *value = g_hash_table_lookup(metrics->jobs, labels);
  if (value == NULL) {
    value = g_new0(guint64, 1);
    g_hash_table_insert(metrics->jobs, g_steal_pointer(&labels), value);
  }
  return value;
}

/* All that can be are there from the start: a rate needs a zero to begin with. */
static void make_counters(QvMetrics *metrics)
{
  counter(metrics, "succeeded", NULL);
#define X(name, text, status) counter(metrics, qv_status_text(QV_STATUS_##status), text);
  QV_CODE_TABLE(X)
#undef X
#define X(name, code) counter(metrics, QV_REJECT_##name == QV_REJECT_STALLED ? "stalled" : "rejected", code);
  QV_REJECT_TABLE(X)
#undef X
  counter(metrics, "lost", "lock_lost");
}

QvMetrics *qv_metrics_new(const char *version, const char *pool, const char *runner_id, const char *backend,
                          gint64 started_at_ms)
{
  QvMetrics *metrics = g_new0(QvMetrics, 1);
  metrics->version = g_strdup(version);
  metrics->pool = g_strdup(pool);
  metrics->runner_id = g_strdup(runner_id);
  metrics->backend = g_strdup(backend);
  metrics->started_at_ms = started_at_ms;
  metrics->jobs = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
  metrics->wait = (Histogram){.bounds = wait_bounds, .n = G_N_ELEMENTS(wait_bounds)};
  metrics->run = (Histogram){.bounds = run_bounds, .n = G_N_ELEMENTS(run_bounds)};
  make_counters(metrics);
  return metrics;
}

void qv_metrics_free(QvMetrics *metrics)
{
  if (metrics == NULL)
    return;
  g_free(metrics->version);
  g_free(metrics->pool);
  g_free(metrics->runner_id);
  g_free(metrics->backend);
  g_hash_table_unref(metrics->jobs);
  g_free(metrics);
}

static void observe(Histogram *histogram, gint64 ms)
{
  gsize i = 0;
  while (i < histogram->n && (double)ms > histogram->bounds[i] * 1000)
    i++;
  histogram->counts[i]++;
  histogram->total++;
  histogram->sum_ms += ms;
}

void qv_metrics_job(QvMetrics *metrics, const QvAudit *audit)
{
  ++*counter(metrics, audit->status, audit->code);
  gint64 wait_ms = qv_audit_wait_ms(audit);
  if (wait_ms >= 0)
    observe(&metrics->wait, wait_ms);
  if (audit->wall_ms >= 0)
    observe(&metrics->run, audit->wall_ms);
  const QvJob *job = audit->admission->job;
  if (job != NULL && audit->wall_ms >= 0)
    metrics->bytes_in += job->base.size + (job->overlay != NULL ? job->overlay->size : 0);
  if (audit->host != NULL) {
    metrics->cpu_ms += audit->host->user_ms + audit->host->sys_ms;
    metrics->bytes_out += audit->host->payload_bytes;
    metrics->oom += audit->host->oom;
  }
  for (gsize i = 0; i < audit->egress_n; i++) {
    metrics->egress_up += audit->egress[i].bytes_up;
    metrics->egress_down += audit->egress[i].bytes_down;
    metrics->egress_refused += audit->egress[i].refused;
  }
}

/* ---- text */

static void head(GString *out, const char *name, const char *type, const char *help)
{
  g_string_append_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Whatever the locale: a point, no more digits than needed. */
static void append_number(GString *out, double value)
{
  char text[G_ASCII_DTOSTR_BUF_SIZE];
  g_string_append(out, g_ascii_formatd(text, sizeof text, "%.15g", value));
}

static void sample(GString *out, const char *name, const char *labels, double value)
{
  g_string_append(out, name);
  if (labels != NULL)
    g_string_append_printf(out, "{%s}", labels);
  g_string_append_c(out, ' ');
  append_number(out, value);
  g_string_append_c(out, '\n');
}

static void gauge(GString *out, const char *name, const char *help, double value)
{
  head(out, name, "gauge", help);
  sample(out, name, NULL, value);
}

static void count(GString *out, const char *name, const char *help, double value)
{
  head(out, name, "counter", help);
  sample(out, name, NULL, value);
}

static void histogram(GString *out, const char *name, const char *help, const Histogram *h)
{
  guint64 below = 0;
  head(out, name, "histogram", help);
  for (gsize i = 0; i <= h->n; i++) {
    below += h->counts[i];
    g_string_append_printf(out, "%s_bucket{le=\"", name);
    if (i < h->n)
      append_number(out, h->bounds[i]);
    else
      g_string_append(out, "+Inf");
    g_string_append_printf(out, "\"} %" G_GUINT64_FORMAT "\n", below);
  }
  g_string_append_printf(out, "%s_sum ", name);
  append_number(out, (double)h->sum_ms / 1000);
  g_string_append_printf(out, "\n%s_count %" G_GUINT64_FORMAT "\n", name, h->total);
}

static int by_text(gconstpointer a, gconstpointer b)
{
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void jobs(GString *out, const QvMetrics *metrics)
{
  guint n = 0;
  g_autofree gpointer *labels = g_hash_table_get_keys_as_array(metrics->jobs, &n);
  qsort(labels, n, sizeof *labels, by_text);
  head(out, "quavon_jobs_total", "counter", "Jobs that ended, by status and code.");
  for (guint i = 0; i < n; i++)
    sample(out, "quavon_jobs_total", labels[i], (double)*(guint64 *)g_hash_table_lookup(metrics->jobs, labels[i]));
}

static void problems(GString *out, const QvProblems *list)
{
  head(out, "quavon_problem", "gauge", "1 while there is a problem of this kind.");
#define X(name, word, stops) \
  sample(out, "quavon_problem", "kind=\"" word "\"", list != NULL && qv_problems_any(list, QV_PROBLEM_##name));
  QV_PROBLEM_KINDS(X)
#undef X
}

char *qv_metrics_format(const QvMetrics *metrics, const QvMetricsNow *now)
{
  GString *out = g_string_new(NULL);
  /* Identifiers and versions hold nothing that a label would have to escape. */
  g_autofree char *info = g_strdup_printf("version=\"%s\",pool=\"%s\",runner_id=\"%s\",backend=\"%s\"", metrics->version,
                                          metrics->pool, metrics->runner_id, metrics->backend);
  head(out, "quavon_runner_info", "gauge", "Always 1.");
  sample(out, "quavon_runner_info", info, 1);
  gauge(out, "quavon_start_time_seconds", "When the runner started, Unix time.", (double)metrics->started_at_ms / 1000);
  gauge(out, "quavon_written_time_seconds", "When this file was written, Unix time.", (double)now->at_ms / 1000);
  gauge(out, "quavon_jobs_running", "Jobs in progress.", (double)now->running);
  gauge(out, "quavon_jobs_running_max", "Jobs at once.", (double)now->concurrency);
  if (now->waiting >= 0)
    gauge(out, "quavon_queue_waiting", "Jobs that wait in the pool's queue.", (double)now->waiting);
  gauge(out, "quavon_valkey_up", "1 while Valkey answers.", now->valkey);
  gauge(out, "quavon_fetching", "1 while jobs are taken from the queue.", now->fetching);
  problems(out, now->problems);
  gauge(out, "quavon_smoke_passed", "1 where the last smoke test passed.", now->smoke != NULL && now->smoke->passed);
  if (now->smoke != NULL)
    gauge(out, "quavon_smoke_age_seconds", "Since the last smoke test.",
          (double)MAX(now->at_ms - now->smoke->at, 0) / 1000);
  jobs(out, metrics);
  histogram(out, "quavon_job_wait_seconds", "From the queue to the runner.", &metrics->wait);
  histogram(out, "quavon_job_duration_seconds", "From admission to the end.", &metrics->run);
  count(out, "quavon_job_cpu_seconds_total", "Processor time of sandboxes.", (double)metrics->cpu_ms / 1000);
  count(out, "quavon_job_oom_total", "Jobs to which the OOM killer came.", (double)metrics->oom);
  count(out, "quavon_job_bytes_in_total", "Gzip of snapshots that were run.", (double)metrics->bytes_in);
  count(out, "quavon_job_bytes_out_total", "Gzip of logs and artefacts.", (double)metrics->bytes_out);
  count(out, "quavon_egress_bytes_up_total", "To registries, by the proxy's account.", (double)metrics->egress_up);
  count(out, "quavon_egress_bytes_down_total", "From registries, by the proxy's account.", (double)metrics->egress_down);
  count(out, "quavon_egress_refused_total", "Connections that the proxy refused.", (double)metrics->egress_refused);
  return g_string_free(out, FALSE);
}
