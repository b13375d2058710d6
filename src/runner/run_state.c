/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the life of one job; see the picture in run_state.h. One function a
 * event, each a few lines: the order of actions is the order in which the
 * supervisor carries them out. */
#include "runner/run_state.h"

#define NAME_FUNCTION(function, list, type) \
  const char *function(type value) \
  { \
    static const char *const names[] = {list(NAME)}; \
    return (guint)value < G_N_ELEMENTS(names) ? names[value] : "?"; \
  }
#define NAME(name) #name,
NAME_FUNCTION(qv_run_phase_name, QV_RUN_PHASES, QvRunPhase)
NAME_FUNCTION(qv_run_cause_name, QV_RUN_CAUSES, QvRunCause)
NAME_FUNCTION(qv_run_event_name, QV_RUN_EVENTS, QvRunEventType)
NAME_FUNCTION(qv_run_action_name, QV_RUN_ACTIONS, QvRunAction)

static void add(QvRunActions *out, QvRunAction action)
{
  g_assert(out->n < QV_RUN_ACTIONS_MAX);
  out->item[out->n++] = action;
}

static void settle(QvRun *run, QvRunActions *out)
{
  if (run->phase != QV_RUN_CLEARING || run->owes_unlink || run->owes_revoke || run->process ||
      run->sandbox)
    return;
  run->phase = QV_RUN_DONE;
  add(out, QV_RUN_DO_RELEASE);
}

static void take_back(QvRun *run, QvRunActions *out)
{
  if (!run->owes_revoke || run->revoking)
    return;
  run->revoking = TRUE;
  add(out, QV_RUN_DO_REVOKE);
}

/* The answer is given, or never will be: what is left is to tidy up. */
static void clear(QvRun *run, QvRunActions *out)
{
  run->phase = QV_RUN_CLEARING;
  if (run->owes_unlink && !run->unlinking) {
    run->unlinking = TRUE;
    add(out, QV_RUN_DO_UNLINK);
  }
  settle(run, out);
}

static void fail(QvRun *run, QvRunActions *out, const char *refusal)
{
  if (run->voided) {
    clear(run, out);
    return;
  }
  run->refusal = refusal;
  run->phase = QV_RUN_ANSWERING;
  add(out, QV_RUN_DO_FAIL);
}

static void finish(QvRun *run, QvRunActions *out)
{
  if (run->voided) {
    clear(run, out);
    return;
  }
  if (run->egress && !run->accounted) {
    run->phase = QV_RUN_ACCOUNTING;
    return;
  }
  run->phase = QV_RUN_ANSWERING;
  add(out, QV_RUN_DO_FINISH);
}

static void stop(QvRun *run, QvRunActions *out)
{
  if (!run->process || run->stopped)
    return;
  run->stopped = TRUE;
  add(out, QV_RUN_DO_STOP);
}

/* No payload is wanted any more. */
static void discard(QvRun *run, QvRunActions *out)
{
  if (run->process)
    add(out, QV_RUN_DO_DISCARD);
}

static void on_fetched(QvRun *run, const QvRunEvent *event, QvRunActions *out)
{
  if (run->phase != QV_RUN_NEW)
    return;
  run->stalled = event->stalled;
  if (event->stalled && !event->verified) {
    fail(run, out, "stalled");
    return;
  }
  if (!event->stalled && event->refusal != NULL) {
    fail(run, out, event->refusal);
    return;
  }
  run->phase = QV_RUN_CLAIMING;
  add(out, QV_RUN_DO_CLAIM);
}

static void on_claim(QvRun *run, gboolean won, QvRunActions *out)
{
  if (run->phase != QV_RUN_CLAIMING)
    return;
  /* Who answers `stalled` removes the input although the guard was another's:
   * that other one has lost its lock (protocol.md 3). */
  run->owes_unlink = won || (run->stalled && !run->voided);
  if (run->stalled) {
    fail(run, out, "stalled");
    return;
  }
  if (!won) {
    fail(run, out, "rejected: replayed");
    return;
  }
  if (run->voided) {
    clear(run, out);
    return;
  }
  run->phase = QV_RUN_ADMITTING;
  add(out, QV_RUN_DO_ARM_WALL);
  add(out, QV_RUN_DO_ADMIT);
}

static void on_admitted(QvRun *run, gboolean egress, QvRunActions *out)
{
  if (run->phase != QV_RUN_ADMITTING)
    return;
  if (run->voided || run->cause != QV_RUN_CAUSE_NONE) {
    finish(run, out);
    return;
  }
  run->phase = QV_RUN_ASKING;
  run->egress = egress;
  run->accounted = !egress;
  add(out, QV_RUN_DO_ASK_CANCEL);
}

static void spawn(QvRun *run, QvRunActions *out)
{
  run->phase = QV_RUN_RUNNING;
  run->process = TRUE;
  run->sandbox = TRUE;
  add(out, QV_RUN_DO_SPAWN);
}

static void on_no_cancel(QvRun *run, QvRunActions *out)
{
  if (run->phase != QV_RUN_ASKING)
    return;
  if (!run->egress) {
    spawn(run, out);
    return;
  }
  /* Owed from here on: that no answer came does not say that it was not written. */
  run->phase = QV_RUN_GRANTING;
  run->owes_revoke = TRUE;
  add(out, QV_RUN_DO_GRANT);
}

static void on_revoked(QvRun *run, QvRunActions *out)
{
  if (!run->revoking)
    return;
  run->revoking = run->owes_revoke = FALSE;
  settle(run, out);
}

static void on_usage(QvRun *run, QvRunActions *out)
{
  run->accounted = TRUE;
  if (run->phase == QV_RUN_ACCOUNTING)
    finish(run, out);
}

static void on_interrupt(QvRun *run, QvRunCause cause, QvRunActions *out)
{
  switch (run->phase) {
  case QV_RUN_CLAIMING:
  case QV_RUN_ADMITTING:
    if (run->cause == QV_RUN_CAUSE_NONE)
      run->cause = cause;
    break;
  case QV_RUN_ASKING:
  case QV_RUN_GRANTING:
    run->cause = cause;
    run->accounted = TRUE; /* nobody has had the token */
    take_back(run, out);
    finish(run, out);
    break;
  case QV_RUN_RUNNING:
    run->cause = cause;
    run->phase = QV_RUN_STOPPING;
    take_back(run, out);
    stop(run, out);
    break;
  case QV_RUN_STORING: /* transfers are within wallMs: a server that takes no payload must not hold the slot for ever */
    if (cause != QV_RUN_CAUSE_WALL)
      break;
    run->cause = cause;
    discard(run, out);
    finish(run, out);
    break;
  default: /* the first cause decides; after the report none does */
    break;
  }
}

static void on_lock_lost(QvRun *run, QvRunActions *out)
{
  switch (run->phase) {
  case QV_RUN_CLAIMING:
  case QV_RUN_ADMITTING:
    run->voided = TRUE;
    break;
  case QV_RUN_NEW: /* held back before it began */
  case QV_RUN_ASKING:
    run->voided = TRUE;
    run->cause = QV_RUN_CAUSE_LOCK_LOST;
    clear(run, out);
    break;
  case QV_RUN_GRANTING:
  case QV_RUN_RUNNING:
  case QV_RUN_STOPPING:
  case QV_RUN_STORING:
  case QV_RUN_ACCOUNTING:
    run->voided = TRUE;
    run->cause = QV_RUN_CAUSE_LOCK_LOST;
    take_back(run, out);
    stop(run, out);
    discard(run, out);
    clear(run, out);
    break;
  default: /* the answer is on its way: the queue decides */
    break;
  }
}

static void on_report(QvRun *run, QvRunActions *out)
{
  if (run->phase == QV_RUN_STOPPING) { /* the cause decides, and a result with it has no payload */
    run->reported = TRUE;
    discard(run, out);
    finish(run, out);
    return;
  }
  if (run->phase != QV_RUN_RUNNING)
    return;
  run->cause = QV_RUN_CAUSE_REPORTED;
  run->reported = TRUE;
  run->phase = QV_RUN_STORING;
  take_back(run, out);
  add(out, QV_RUN_DO_STORE);
}

/* A result must not promise a payload that nobody will ever read. */
static void drop_report(QvRun *run)
{
  run->reported = FALSE;
  if (run->cause == QV_RUN_CAUSE_REPORTED || run->cause == QV_RUN_CAUSE_NONE)
    run->cause = QV_RUN_CAUSE_SANDBOX_LOST;
}

static void on_stored(QvRun *run, gboolean stored, QvRunActions *out)
{
  if (run->phase != QV_RUN_STORING)
    return;
  if (!stored)
    drop_report(run);
  finish(run, out);
}

static void on_exited(QvRun *run, QvRunActions *out)
{
  if (!run->process)
    return;
  run->process = FALSE;
  take_back(run, out);
  if (run->sandbox && !run->sweeping) {
    run->sweeping = TRUE;
    add(out, QV_RUN_DO_SWEEP);
  }
  if (run->phase == QV_RUN_RUNNING || run->phase == QV_RUN_STOPPING ||
      (run->phase == QV_RUN_STORING && !run->received)) {
    drop_report(run);
    finish(run, out);
    return;
  }
  settle(run, out);
}

static void on_answered(QvRun *run, gboolean taken, QvRunActions *out)
{
  if (run->phase != QV_RUN_ANSWERING)
    return;
  if (!taken)
    run->voided = TRUE;
  stop(run, out);
  clear(run, out);
}

static void on_swept(QvRun *run, gboolean clean, QvRunActions *out)
{
  if (!run->sandbox || !run->sweeping)
    return;
  run->sandbox = FALSE;
  run->sweeping = FALSE;
  if (!clean)
    add(out, QV_RUN_DO_PROBLEM);
  settle(run, out);
}

static void on_abandon(QvRun *run, QvRunActions *out)
{
  if (run->phase == QV_RUN_DONE)
    return;
  if (run->phase != QV_RUN_CLEARING)
    run->voided = TRUE;
  take_back(run, out);
  stop(run, out);
  discard(run, out);
  run->owes_unlink = run->owes_revoke = FALSE; /* chunks and token have a TTL */
  clear(run, out);
}

static void on_unlinked(QvRun *run, QvRunActions *out)
{
  if (!run->unlinking)
    return;
  run->unlinking = run->owes_unlink = FALSE;
  settle(run, out);
}

static void on_gone(QvRun *run, QvRunActions *out)
{
  if (!run->process)
    return;
  run->sandbox = FALSE;
  settle(run, out);
}

static void on_egress(QvRun *run, QvRunEventType type, QvRunActions *out)
{
  if (type == QV_RUN_EVENT_GRANTED && run->phase == QV_RUN_GRANTING)
    spawn(run, out);
  else if (type == QV_RUN_EVENT_SETUP_OVER && run->phase == QV_RUN_RUNNING)
    take_back(run, out);
  else if (type == QV_RUN_EVENT_REVOKED)
    on_revoked(run, out);
  else if (type == QV_RUN_EVENT_USAGE)
    on_usage(run, out);
}

QvRunActions qv_run_step(QvRun *run, const QvRunEvent *event)
{
  QvRunActions out = {0};
  switch (event->type) {
  case QV_RUN_EVENT_FETCHED:
    on_fetched(run, event, &out);
    break;
  case QV_RUN_EVENT_CLAIM_WON:
  case QV_RUN_EVENT_CLAIM_LOST:
    on_claim(run, event->type == QV_RUN_EVENT_CLAIM_WON, &out);
    break;
  case QV_RUN_EVENT_ADMITTED:
    on_admitted(run, event->egress, &out);
    break;
  case QV_RUN_EVENT_REFUSED:
    if (run->phase == QV_RUN_ADMITTING)
      fail(run, &out, event->refusal);
    break;
  case QV_RUN_EVENT_NO_CANCEL:
    on_no_cancel(run, &out);
    break;
  case QV_RUN_EVENT_GRANTED:
  case QV_RUN_EVENT_SETUP_OVER:
  case QV_RUN_EVENT_REVOKED:
  case QV_RUN_EVENT_USAGE:
    on_egress(run, event->type, &out);
    break;
  case QV_RUN_EVENT_INTERRUPT:
    on_interrupt(run, event->cause, &out);
    break;
  case QV_RUN_EVENT_LOCK_LOST:
    on_lock_lost(run, &out);
    break;
  case QV_RUN_EVENT_REPORT:
    on_report(run, &out);
    break;
  case QV_RUN_EVENT_RECEIVED:
    if (run->phase == QV_RUN_STORING)
      run->received = TRUE;
    break;
  case QV_RUN_EVENT_STORED:
  case QV_RUN_EVENT_STORE_FAILED:
    on_stored(run, event->type == QV_RUN_EVENT_STORED, &out);
    break;
  case QV_RUN_EVENT_ANSWERED:
  case QV_RUN_EVENT_ANSWER_REFUSED:
    on_answered(run, event->type == QV_RUN_EVENT_ANSWERED, &out);
    break;
  case QV_RUN_EVENT_UNLINKED:
    on_unlinked(run, &out);
    break;
  case QV_RUN_EVENT_GONE:
    on_gone(run, &out);
    break;
  case QV_RUN_EVENT_EXITED:
    on_exited(run, &out);
    break;
  case QV_RUN_EVENT_SWEPT:
  case QV_RUN_EVENT_SWEEP_FAILED:
    on_swept(run, event->type == QV_RUN_EVENT_SWEPT, &out);
    break;
  case QV_RUN_EVENT_OVERDUE:
    if (run->process)
      add(&out, QV_RUN_DO_KILL);
    break;
  case QV_RUN_EVENT_ABANDON:
    on_abandon(run, &out);
    break;
  }
  return out;
}
