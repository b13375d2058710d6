/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the sweeper. */
#include "runner/sweep.h"

#include "base/error.h"
#include "base/exit.h"
#include "base/fd.h"
#include "base/log.h"
#include "runner/egress.h"
#include "runner/egress_trial.h"
#include "runner/setup.h"
#include "runner/spawn.h"
#include "sandbox/backend.h"

static gboolean say_facts(const QvBackend *backend, char *version, GError **error)
{
  QvBackendFacts facts = {.runtime_version = version,
                          .platform = (char *)qv_backend_platform(backend),
                          .cgroup = (char *)qv_backend_cgroup(backend)};
  gsize n;
  g_autofree char *text = qv_backend_facts_format(&facts, &n);
  return qv_fd_write_all(QV_SPAWN_FD_FIRST, "supervisor", text, n, error);
}

static int sweep(const QvSweepOrder *order)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvBackend) backend = qv_place_open(&order->place, &error);
  if (backend == NULL) {
    qv_log(QV_LOG_ERROR, "backend cannot be used", "backend", order->place.backend, "error", error->message, NULL);
    return error->code == QV_ERROR_POLICY || error->code == QV_ERROR_LIMIT ? QV_EXIT_CONFIG : QV_SWEEP_UNUSABLE;
  }
  if (g_strcmp0(order->sandbox_id, QV_SWEEP_WATCH) == 0) {
    qv_backend_await_loss(backend);
    return QV_SWEEP_CLEAN;
  }
  /* Of all only at the start, which has a trial: later on jobs run that have theirs. */
  if (order->sandbox_id != NULL || (order->trial.digests != NULL && order->trial.digests[0] != NULL))
    qv_egress_socket_sweep(order->place.state_dir, order->sandbox_id);
  QvSweepReport report = {0};
  gboolean clean = qv_backend_sweep(backend, order->sandbox_id, &report, &error);
  if (report.removed > 0)
    qv_logf(QV_LOG_INFO, "swept %u sandboxes that an earlier run left", report.removed);
  int status = clean ? QV_SWEEP_CLEAN : QV_SWEEP_LEFT;
  if (!clean)
    qv_log(QV_LOG_ERROR, "sweep failed", "error", error->message, NULL);
  g_clear_error(&error);
  if (order->trial.digests == NULL || order->trial.digests[0] == NULL)
    return status;
  g_autofree char *version = NULL;
  QvBackendImages images = {.rootfs_file = order->trial.rootfs_file,
                            .digests = (const char *const *)order->trial.digests};
  if (!qv_backend_check(backend, &images, &version, &error) ||
      !qv_egress_trial(backend, &order->trial, order->place.egress_proxy, NULL, &error)) {
    qv_log(QV_LOG_ERROR, "backend fails its test", "backend", order->place.backend, "error", error->message, NULL);
    return QV_SWEEP_UNUSABLE;
  }
  if (!say_facts(backend, version, &error)) {
    qv_log(QV_LOG_ERROR, "supervisor does not listen", "error", error->message, NULL);
    return QV_SWEEP_UNUSABLE;
  }
  qv_log(QV_LOG_INFO, "backend tried", "backend", order->place.backend, "runtime", version, "platform",
         qv_backend_platform(backend), "cgroup", qv_backend_cgroup(backend), NULL);
  return status;
}

int qv_sweep_main(const char *text)
{
  qv_role_enter(TRUE);
  g_autoptr(GError) error = NULL;
  QvSweepOrder order = {0};
  if (text == NULL || !qv_sweep_order_parse(text, &order, &error)) {
    qv_log(QV_LOG_ERROR, "no order to sweep", "error", error != NULL ? error->message : NULL, NULL);
    return QV_SWEEP_UNUSABLE;
  }
  int status = sweep(&order);
  qv_sweep_order_clear(&order);
  return status;
}
