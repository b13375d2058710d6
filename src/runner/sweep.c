/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the sweeper. */
#include "runner/sweep.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/exit.h"
#include "base/fd.h"
#include "base/log.h"
#include "runner/egress.h"
#include "runner/egress_trial.h"
#include "runner/setup.h"
#include "runner/spawn.h"
#include "sandbox/backend.h"

/* Another sweep that has a sandbox in its hands has given it up by then. */
enum { BUSY_MS = 45000, BUSY_POLL_MS = 100 };

static gboolean say(const QvSweepWord *word, GError **error)
{
  gsize n;
  g_autofree char *text = qv_sweep_word_format(word, &n);
  return qv_fd_write_all(QV_SPAWN_FD_FIRST, "supervisor", text, n, error);
}

/* The supervisor says it, for it alone knows how often it was said before. */
static void fail(QvSweepWord *word, const char *event, const GError *error)
{
  if (word->event != NULL)
    qv_log(QV_LOG_ERROR, word->event, "error", word->error, NULL);
  g_free(word->event);
  g_free(word->error);
  word->event = g_strdup(event);
  word->error = g_strdup(error != NULL ? error->message : NULL);
}

/* One sandbox's slot is free when this ends: while the gate's sweep has it in its hands, it is still there. Of all, those in use are
 * other jobs'. What an engine may still start is nothing yet: the minute's sweep removes it, as where the job process was through. */
static gboolean remove_left(QvBackend *backend, const char *sandbox_id, guint *removed, GError **error)
{
  gint64 until_ms = qv_clock_mono_ms() + BUSY_MS;
  for (;;) {
    QvSweepReport report = {0};
    gboolean clean = qv_backend_sweep(backend, sandbox_id, &report, error);
    *removed += report.removed;
    if (!clean || sandbox_id == NULL || report.busy == 0)
      return clean;
    if (qv_clock_mono_ms() >= until_ms) {
      g_set_error(error, QV_ERROR, QV_ERROR_TIMEOUT, "sandbox %s is in use by another process still", sandbox_id);
      return FALSE;
    }
    g_usleep(BUSY_POLL_MS * 1000);
  }
}

/* Asked anew, for what it says now is what the watch will see change. */
static gboolean say_engine(gpointer data)
{
  const QvSweepOrder *order = data;
  g_autoptr(GError) error = NULL;
  g_autoptr(QvBackend) backend = qv_place_open(&order->place, &error);
  g_autofree char *text = backend != NULL ? qv_backend_engine(backend) : NULL;
  return text != NULL && say(&(QvSweepWord){.engine = text}, &error);
}

static int sweep(const QvSweepOrder *order, QvSweepWord *word)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvBackend) backend = qv_place_open(&order->place, &error);
  if (backend == NULL) {
    fail(word, "backend cannot be used", error);
    return error->code == QV_ERROR_POLICY || error->code == QV_ERROR_LIMIT ? QV_EXIT_CONFIG : QV_SWEEP_UNUSABLE;
  }
  if (g_strcmp0(order->sandbox_id, QV_SWEEP_WATCH) == 0) {
    qv_backend_await_change(backend, say_engine, (gpointer)order);
    return QV_SWEEP_CLEAN;
  }
  /* Of all only at the start, which has a trial: later on jobs run that have theirs. */
  if (order->sandbox_id != NULL || (order->trial.digests != NULL && order->trial.digests[0] != NULL))
    qv_egress_socket_sweep(order->place.state_dir, order->sandbox_id);
  guint removed = 0;
  gboolean clean = remove_left(backend, order->sandbox_id, &removed, &error);
  if (removed > 0 && order->sandbox_id != NULL)
    qv_log(QV_LOG_INFO, "swept what a job process left", "sandbox", order->sandbox_id, NULL);
  else if (removed > 0)
    qv_logf(QV_LOG_INFO, "swept %u sandboxes that an earlier run left", removed);
  int status = clean ? QV_SWEEP_CLEAN : QV_SWEEP_LEFT;
  if (!clean)
    fail(word, "sweep failed", error);
  g_clear_error(&error);
  if (order->trial.digests == NULL || order->trial.digests[0] == NULL)
    return status;
  g_autofree char *version = NULL;
  QvBackendImages images = {.rootfs_file = order->trial.rootfs_file,
                            .digests = (const char *const *)order->trial.digests};
  if (!qv_backend_check(backend, &images, &version, &error) ||
      !qv_egress_trial(backend, &order->trial, order->place.egress_proxy, NULL, &error)) {
    fail(word, "backend fails its test", error);
    return QV_SWEEP_UNUSABLE;
  }
  word->facts = qv_backend_facts_copy(&(QvBackendFacts){
    .runtime_version = version, .platform = (char *)qv_backend_platform(backend), .cgroup = (char *)qv_backend_cgroup(backend)});
  qv_log(QV_LOG_INFO, "backend tried", "backend", order->place.backend, "runtime", version, "platform",
         qv_backend_platform(backend), "cgroup", qv_backend_cgroup(backend), NULL);
  return status;
}

int qv_sweep_main(const char *text)
{
  qv_role_enter(TRUE);
  g_autoptr(GError) error = NULL;
  g_autoptr(QvSweepWord) word = g_new0(QvSweepWord, 1);
  QvSweepOrder order = {0};
  int status = QV_SWEEP_UNUSABLE;
  if (text != NULL && qv_sweep_order_parse(text, &order, &error))
    status = sweep(&order, word);
  else
    fail(word, "no order to sweep", error);
  qv_sweep_order_clear(&order);
  if ((word->facts != NULL || word->event != NULL) && !say(word, &error)) {
    qv_log(QV_LOG_ERROR, "supervisor does not listen", "error", error->message, NULL);
    return QV_SWEEP_UNUSABLE;
  }
  return status;
}
