/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "format/text.h"

int qv_exit_status(const char *status, const char *code, const QuavonStepRecord *record)
{
  if (strcmp(status, "succeeded") == 0)
    return QV_CLI_OK;
  if (strcmp(status, "timed_out") == 0)
    return QV_CLI_TIMED_OUT;
  if (strcmp(status, "cancelled") == 0)
    return QV_CLI_CANCELLED;
  if (strcmp(status, "failed") != 0)
    return QV_CLI_SANDBOX;
  if (g_strcmp0(code, "memory") == 0)
    return QV_CLI_MEMORY;
  if (record != NULL && record->signal > 0)
    return 128 + record->signal;
  /* disk, processes, output may come with a command that ended well; the run did not. */
  return record != NULL && record->exit_code > 0 ? record->exit_code : QV_CLI_SANDBOX;
}

int qv_error_status(QuavonErrorCode code)
{
  switch (code) {
  case QUAVON_ERROR_CONFIG:
    return QV_CLI_CONFIG;
  case QUAVON_ERROR_FORMAT:
  case QUAVON_ERROR_LIMIT:
    return QV_CLI_DATA;
  case QUAVON_ERROR_UNAVAILABLE:
  case QUAVON_ERROR_QUEUE_FULL:
  case QUAVON_ERROR_NO_RUNNER:
    return QV_CLI_UNAVAILABLE;
  case QUAVON_ERROR_NOT_FOUND:
    return QV_CLI_NO_INPUT;
  case QUAVON_ERROR_CANCELLED:
    return QV_CLI_CANCELLED;
  case QUAVON_ERROR_SYSTEM:
  case QUAVON_ERROR_AUTH:
  case QUAVON_ERROR_REJECTED:
  case QUAVON_ERROR_LOST:
  case QUAVON_ERROR_BUG:
    break;
  }
  return QV_CLI_SANDBOX;
}

int qv_fail(QuavonError *error)
{
  int status = qv_error_status(quavon_error_code(error));
  qv_complain("%s", quavon_error_message(error));
  quavon_error_free(error);
  return status;
}

gboolean qv_output_check(const char *folder, gboolean force)
{
  if (force)
    return TRUE;
  g_autoptr(GError) error = NULL;
  g_autoptr(GDir) dir = g_dir_open(folder, 0, &error);
  if (dir == NULL && g_error_matches(error, G_FILE_ERROR, G_FILE_ERROR_NOENT))
    return TRUE;
  if (dir == NULL)
    qv_complain("--output: %s", error->message);
  else if (g_dir_read_name(dir) != NULL)
    qv_complain("--output: %s is not empty (--force writes into it and replaces files)", folder);
  else
    return TRUE;
  return FALSE;
}

static void to_stream(void *stream, const char *text, size_t n)
{
  fwrite(text, 1, n, stream);
}

static void print_bytes(FILE *out, const char *bytes, size_t n, gboolean raw)
{
  if (n == 0)
    return;
  fflush(stderr);
  if (raw) {
    fwrite(bytes, 1, n, out);
  } else {
    QvTextPrinter printer;
    qv_text_printer_init(&printer, TRUE, to_stream, out);
    qv_text_printer_add(&printer, bytes, n);
    qv_text_printer_finish(&printer);
    if (bytes[n - 1] != '\n')
      fputc('\n', out);
  }
  fflush(out);
}

enum { LOGS_MAX = QV_JOB_STEPS_MAX + 1 };

typedef struct {
  QvLogTail tail[LOGS_MAX];
  QuavonStepRecord record[LOGS_MAX];
  gsize n;
} Logs;

static void take_log(Logs *logs, const QuavonStepRecord *record, const char *bytes, size_t n)
{
  if (bytes == NULL || logs->n == LOGS_MAX)
    return;
  logs->record[logs->n] = *record;
  logs->tail[logs->n++] = (QvLogTail){ .bytes = bytes, .n = n, .total_bytes = record->log_total_bytes };
}

static void collect_logs(const QuavonResult *result, const QuavonPayload *payload, Logs *logs)
{
  QuavonStepRecord record;
  size_t n = 0;
  *logs = (Logs){ 0 };
  if (quavon_result_setup(result, &record) == 0) {
    const char *bytes = quavon_payload_setup_log(payload, &n);
    take_log(logs, &record, bytes, n);
  }
  for (size_t i = 0; quavon_result_step(result, i, &record) == 0; i++) {
    const char *bytes = quavon_payload_log(payload, i, &n);
    take_log(logs, &record, bytes, n);
  }
}

static void print_log(FILE *out, const Logs *logs, gsize i, const QvReportOptions *options)
{
  const QvLogTail *tail = &logs->tail[i];
  const QuavonStepRecord *record = &logs->record[i];
  gsize left = tail->n - tail->seen;
  if (left == 0)
    return;
  g_autofree char *name = qv_text_printable_line(record->name, strlen(record->name));
  gboolean shown = options->live != NULL && options->live->show && !qv_live_view_empty(options->live);
  if (record->log_truncated && !options->quiet && !shown)
    qv_complain("log of %s: the last %zu of %" G_GINT64_FORMAT " bytes", name != NULL ? name : "a step", tail->n,
                record->log_total_bytes);
  else if (tail->seen > 0 && i + 1 < logs->n && !options->quiet)
    qv_complain("the end of %s's log, too late for the live view:", name != NULL ? name : "a step");
  print_bytes(out, tail->bytes + tail->seen, left, options->raw);
}

/* All that is known of a job without records: what was heard while it ran. */
static gboolean print_heard(FILE *out, const QvReportOptions *options)
{
  QvLiveView *live = options->live;
  if (live == NULL || qv_live_view_empty(live))
    return FALSE;
  if (live->show) {
    qv_live_view_break(live);
    return TRUE;
  }
  if (!options->quiet)
    qv_complain("there is no complete log; what was heard while it ran:");
  g_autoptr(GByteArray) all = g_byte_array_new();
  for (guint i = 0; i < live->chunks->len; i++) {
    gsize n = 0;
    const guint8 *bytes = g_bytes_get_data(live->chunks->pdata[i], &n);
    g_byte_array_append(all, bytes, (guint)n);
  }
  print_bytes(out, (const char *)all->data, all->len, options->raw);
  return TRUE;
}

/* Does what is still to be printed begin where the live view ended? */
static gboolean goes_on(const Logs *logs)
{
  for (gsize i = 0; i + 1 < logs->n; i++) {
    if (logs->tail[i].seen < logs->tail[i].n)
      return FALSE;
  }
  const QvLogTail *last = &logs->tail[logs->n - 1];
  return last->seen > 0 && last->seen < last->n;
}

gboolean qv_report_logs(const QuavonResult *result, const QuavonPayload *payload, const QvReportOptions *options)
{
  FILE *out = options->json ? stderr : stdout;
  QvLiveView *live = options->live;
  Logs logs;
  collect_logs(result, payload, &logs);
  if (logs.n == 0)
    return print_heard(out, options);
  if (live != NULL && live->show && !qv_live_view_empty(live)) {
    gboolean fits = qv_live_view_rest(live, logs.tail, logs.n);
    if (!fits || !goes_on(&logs))
      qv_live_view_break(live);
    if (!fits && !options->quiet)
      qv_complain("the live view had gaps; the logs as they were kept:");
  }
  for (gsize i = 0; i < logs.n; i++)
    print_log(out, &logs, i, options);
  return TRUE;
}

/* The step that a failed run ended with. */
static const QuavonStepRecord *deciding_record(const QuavonResult *result, QuavonStepRecord *record)
{
  if (g_strcmp0(quavon_result_code(result), "setup_failed") == 0)
    return quavon_result_setup(result, record) == 0 ? record : NULL;
  size_t n = quavon_result_steps_n(result);
  return n > 0 && quavon_result_step(result, n - 1, record) == 0 ? record : NULL;
}

static void print_summary(const QuavonResult *result)
{
  QuavonUsage usage;
  QuavonStepRecord record;
  quavon_result_usage(result, &usage);
  g_autofree char *memory = qv_size_text((guint64)usage.max_memory_bytes);
  g_autoptr(GString) text = g_string_new(quavon_result_status(result));
  if (quavon_result_code(result) != NULL)
    g_string_append_printf(text, ": %s", quavon_result_code(result));
  if (strcmp(quavon_result_status(result), "failed") == 0 && deciding_record(result, &record) != NULL) {
    if (record.signal > 0)
      g_string_append_printf(text, " (signal %d)", record.signal);
    else if (record.exit_code > 0)
      g_string_append_printf(text, " (exit status %d)", record.exit_code);
  }
  g_string_append_printf(text, "; %.1f s, processor %.1f s, memory %s; signature of runner %s checked",
                         (double)usage.wall_ms / 1000, (double)(usage.user_ms + usage.sys_ms) / 1000, memory,
                         quavon_result_runner_id(result));
  qv_complain("%s", text->str);
}

/* FALSE: said. */
static gboolean write_artefacts(const QuavonResult *result, const QuavonPayload *payload,
                                const QvReportOptions *options)
{
  QuavonError *error = NULL;
  if (quavon_payload_save(payload, options->output, options->force, &error) != 0) {
    qv_fail(error);
    return FALSE;
  }
  if (!options->quiet) {
    size_t n = quavon_result_artefacts_n(result);
    qv_complain("%zu artefact%s in %s", n, n == 1 ? "" : "s", options->output);
    if (quavon_result_artefacts_dropped(result) > 0)
      qv_complain("%" G_GINT64_FORMAT " artefacts were over the limits and dropped",
                  quavon_result_artefacts_dropped(result));
  }
  return TRUE;
}

/* Logs and artefacts; FALSE: said. */
static gboolean deliver(QuavonClient *client, const QuavonResult *result, const QvReportOptions *options)
{
  QuavonError *error = NULL;
  QuavonPayload *payload = quavon_payload_fetch(client, result, &error);
  if (payload == NULL) {
    qv_fail(error);
    return FALSE;
  }
  if (!options->no_logs)
    qv_report_logs(result, payload, options);
  gboolean ok = options->output == NULL || write_artefacts(result, payload, options);
  /* What could not be written stays for `quavon result --output`. */
  if (ok && !options->keep && (options->output != NULL || quavon_result_artefacts_n(result) == 0))
    quavon_payload_unlink(client, result, NULL);
  quavon_payload_free(payload);
  return ok;
}

int qv_report(QuavonClient *client, const QuavonResult *result, const QvReportOptions *options)
{
  gboolean delivered = options->no_payload || deliver(client, result, options);
  if (options->json)
    puts(quavon_result_json(result));
  if (!options->quiet)
    print_summary(result);
  QuavonStepRecord record;
  int status = qv_exit_status(quavon_result_status(result), quavon_result_code(result),
                              deciding_record(result, &record));
  if (fflush(stdout) != 0 || ferror(stdout)) { /* a failed write before left its mark only */
    qv_complain("standard output cannot be written");
    delivered = FALSE;
  }
  return status == QV_CLI_OK && !delivered ? QV_CLI_SANDBOX : status;
}
