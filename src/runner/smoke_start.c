/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the supervisor's side of the smoke test: starts the role, reads its answer under a cap, and waits for both the
 * answer's end and the role's. */
#include <glib-unix.h>
#include <jansson.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "runner/smoke.h"
#include "runner/spawn.h"
#include "runner/sweeper.h"
#include "sandbox/probe_judge.h"

enum {
  ANSWER_MAX = 256 * 1024,
  ROLE_MS = 600000, /* three sandboxes, each with its own clock, and their removal */
};

typedef struct {
  QvPlace place; /* borrowed texts: a place lives as long as its runner */
  QvSmokeDone done;
  gpointer data;
  GPid pid;
  int fd;
  guint answer_source; /* 0: read to the end */
  guint late;          /* timer */
  gboolean exited;
  GByteArray *answer;
} Start;

static QvSmokeReport *failed_report(void)
{
  QvSmokeReport *report = g_new0(QvSmokeReport, 1);
  report->at = qv_clock_unix_ms();
  report->probes = qv_probe_count();
  report->failed = g_strsplit("started", " ", -1);
  return report;
}

/* What the role says is the host's own word; still, it is held against its form. */
static QvSmokeReport *parse(GByteArray *answer)
{
  json_t *root = json_loadb((const char *)answer->data, answer->len, JSON_REJECT_DUPLICATES, NULL), *failed = NULL,
         *answers = NULL;
  int passed = 0, probes = 0;
  QvSmokeReport *report = NULL;
  if (root != NULL && json_unpack(root, "{s:b,s:i,s:o,s:o !}", "passed", &passed, "probes", &probes, "failed", &failed,
                                  "answers", &answers) == 0 &&
      probes == (int)qv_probe_count() && passed == (json_array_size(failed) == 0)) {
    report = g_new0(QvSmokeReport, 1);
    report->at = qv_clock_unix_ms();
    report->passed = passed;
    report->probes = probes;
    report->failed = g_new0(char *, json_array_size(failed) + 1);
    for (gsize i = 0; i < json_array_size(failed); i++)
      report->failed[i] = g_strdup(json_string_value(json_array_get(failed, i)));
  }
  for (gsize i = 0; report != NULL && i < json_array_size(answers); i++) {
    json_t *row = json_array_get(answers, i);
    qv_log(QV_LOG_ERROR, "probe failed", "probe", json_string_value(json_object_get(row, "probe")), "answer",
           json_string_value(json_object_get(row, "answer")), "expected",
           json_string_value(json_object_get(row, "expected")), NULL);
  }
  json_decref(root);
  return report;
}

static void start_free(Start *start)
{
  g_clear_handle_id(&start->late, g_source_remove);
  g_clear_handle_id(&start->answer_source, g_source_remove);
  qv_io_close_cleanup(&start->fd);
  g_byte_array_unref(start->answer);
  g_free(start);
}

static void on_swept(const QvSweepEnd *end, gpointer data)
{
  Start *start = data;
  start->done(failed_report(), start->data);
  start_free(start);
}

static void maybe_done(Start *start)
{
  if (!start->exited || start->answer_source != 0)
    return;
  QvSmokeReport *report = parse(start->answer);
  if (report == NULL) {
    qv_log(QV_LOG_ERROR, "the smoke test gave no answer", NULL);
    qv_sweeper_start(&start->place, NULL, NULL, NULL, on_swept, start);
    return;
  }
  start->done(report, start->data);
  start_free(start);
}

static gboolean on_answer(gint fd, GIOCondition condition, gpointer data)
{
  Start *start = data;
  guint8 bytes[4096];
  ssize_t n = read(fd, bytes, sizeof bytes);
  if (n > 0 && start->answer->len + (gsize)n <= ANSWER_MAX) {
    g_byte_array_append(start->answer, bytes, (guint)n);
    return G_SOURCE_CONTINUE;
  }
  if (n != 0) /* an error, or an answer without an end: it is none */
    g_byte_array_set_size(start->answer, 0);
  start->answer_source = 0;
  maybe_done(start);
  return G_SOURCE_REMOVE;
}

static void on_role_end(GPid pid, int status, gpointer data)
{
  Start *start = data;
  start->exited = TRUE;
  maybe_done(start);
}

static gboolean on_late(gpointer data)
{
  Start *start = data;
  start->late = 0;
  qv_log(QV_LOG_ERROR, "the smoke test hangs: its process is killed", NULL);
  kill(start->pid, SIGKILL);
  return G_SOURCE_REMOVE;
}

static gboolean on_not_started(gpointer data)
{
  on_swept(NULL, data);
  return G_SOURCE_REMOVE;
}

static gboolean spawn(Start *start, const QvTrialImages *image, GError **error)
{
  QvSmokeOrder order = {.place = start->place, .image = *image};
  g_autofree char *text = qv_smoke_order_format(&order);
  int ends[2];
  if (!qv_fd_pipe(ends, error))
    return FALSE;
  QV_AUTOFD int out = ends[1];
  start->fd = ends[0];
  return qv_spawn_role(QV_ROLE_SMOKE, text, &out, 1, &start->pid, error);
}

void qv_smoke_start(const QvPlace *place, const QvTrialImages *image, QvSmokeDone done, gpointer data)
{
  Start *start = g_new0(Start, 1);
  *start = (Start){.place = *place, .done = done, .data = data, .fd = -1, .answer = g_byte_array_new()};
  start->place.engine = NULL; /* a test asks for itself */
  g_autoptr(GError) error = NULL;
  if (!spawn(start, image, &error)) {
    qv_log(QV_LOG_ERROR, "the smoke test cannot be started", "error", error->message, NULL);
    g_idle_add(on_not_started, start);
    return;
  }
  start->answer_source = g_unix_fd_add(start->fd, G_IO_IN | G_IO_HUP | G_IO_ERR, on_answer, start);
  g_child_watch_add(start->pid, on_role_end, start);
  start->late = g_timeout_add(ROLE_MS, on_late, start);
}
