/* SPDX-License-Identifier: Apache-2.0 */
/* One job from the moment it was fetched until nothing of it is left, as a
 * step function: an event goes in, actions come out. No clock, no socket, no
 * process: the supervisor feeds it and carries out what it says, and a test
 * can put it through a million lives.
 *
 *   NEW ─FETCHED─> CLAIMING ─won─> ADMITTING ─ADMITTED─> ASKING ─NO_CANCEL─> RUNNING
 *    │ refused        │ lost           │ refused            │ │ cause     ^     │   │ cause
 *    │                │                │          NO_CANCEL,│ │   GRANTED │     │   v
 *    │                │                │              egress└─┼──> GRANTING    │ STOPPING
 *    │                │                │                      │     │ cause    v   │ REPORT
 *    │                │                │                      │     │   STORING    │
 *    v                v                v                      v     v     v STORED, wall
 *   ANSWERING <──────────────────────────── USAGE ── ACCOUNTING <─────────┴────────┘ egress
 *    │ ANSWERED, REFUSED_BY_QUEUE
 *    v
 *   CLEARING ─(input unlinked, token revoked, job process reaped, sandbox gone)─> DONE
 *
 * Five promises, held by tests/unit/runner/run_state_test.c on random lives:
 *   - at most one answer a job, and none after the lock was lost;
 *   - exactly one answer unless the lock was lost or the run was abandoned;
 *   - who won the guard (or answers `stalled` for a verified job) unlinks the
 *     input once, after the answer, however the job ends;
 *   - a started job process is always stopped, reaped, and its sandbox known to
 *     be gone or handed to the sweeper before DONE;
 *   - a token that was written is revoked once, as soon as setup is over and never later
 *     than the end of RUNNING; DONE waits for Valkey's word, unless the run was abandoned.
 *
 * Source: protocol.md 2.1, 2.3, 3 (UNLINK), 6, 7. */
#pragma once

#include <glib.h>

/* X(NAME): phases, in the order in which a job goes through them. */
#define QV_RUN_PHASES(X) \
  X(NEW) X(CLAIMING) X(ADMITTING) X(ASKING) X(GRANTING) X(RUNNING) X(STOPPING) X(STORING) X(ACCOUNTING) X(ANSWERING) \
  X(CLEARING) X(DONE)

typedef enum {
#define X(name) QV_RUN_##name,
  QV_RUN_PHASES(X)
#undef X
} QvRunPhase;

/* Why a run ended. REPORTED: by its own output; the verdict is in the report. */
#define QV_RUN_CAUSES(X) \
  X(NONE) X(REPORTED) X(CANCELLED) X(WALL) X(SHUTDOWN) X(BLOB_MISSING) X(BLOB_CORRUPT) X(IMAGE_FAILED) \
  X(SANDBOX_FAILED) X(SANDBOX_LOST) X(LOCK_LOST)

typedef enum {
#define X(name) QV_RUN_CAUSE_##name,
  QV_RUN_CAUSES(X)
#undef X
} QvRunCause;

/* X(NAME, who says it):
 * FETCHED          a job came from the queue; fields refusal, stalled, verified
 * CLAIM_WON/LOST   the replay guard's answer
 * ADMITTED         the checks behind the guard passed; field egress
 * REFUSED          they did not; field refusal
 * NO_CANCEL        the cancel key is absent, or says nothing
 * GRANTED          the egress token is in Valkey
 * SETUP_OVER       setup.json was read, or the token's time is over
 * REVOKED          the token is gone and the proxies were told
 * USAGE            the proxy's account came, or the wait for it is over
 * INTERRUPT        something outside ends the job; field cause
 * LOCK_LOST        the queue no longer counts the job as ours
 * REPORT           the job process told the outcome; nothing but payload follows
 * RECEIVED         the last payload chunk came from the job process
 * STORED           the last payload chunk is in Valkey
 * STORE_FAILED     Valkey refuses the payload
 * ANSWERED         the queue took the answer
 * ANSWER_REFUSED   the queue answered that the job is not ours to finish
 * UNLINKED         the input chunks are gone
 * GONE             the job process says that the sandbox and all of it is gone
 * EXITED           the job process was reaped
 * SWEPT            the sweeper removed what the sandbox left
 * SWEEP_FAILED     it could not
 * OVERDUE          the job process did not obey STOP in time
 * ABANDON          the supervisor leaves without waiting for Valkey */
#define QV_RUN_EVENTS(X) \
  X(FETCHED) X(CLAIM_WON) X(CLAIM_LOST) X(ADMITTED) X(REFUSED) X(NO_CANCEL) X(GRANTED) X(SETUP_OVER) \
  X(REVOKED) X(USAGE) X(INTERRUPT) X(LOCK_LOST) X(REPORT) \
  X(RECEIVED) X(STORED) X(STORE_FAILED) X(ANSWERED) X(ANSWER_REFUSED) X(UNLINKED) X(GONE) X(EXITED) X(SWEPT) \
  X(SWEEP_FAILED) X(OVERDUE) X(ABANDON)

typedef enum {
#define X(name) QV_RUN_EVENT_##name,
  QV_RUN_EVENTS(X)
#undef X
} QvRunEventType;

/* CLAIM        set the replay guard
 * ARM_WALL     start the wall clock
 * ADMIT        run the checks behind the guard, answer ADMITTED or REFUSED
 * ASK_CANCEL   read the cancel key, answer NO_CANCEL or INTERRUPT
 * GRANT        write the egress token, answer GRANTED or INTERRUPT
 * REVOKE       take the token back, answer REVOKED; USAGE follows
 * SPAWN        start the job process and stream the input
 * STOP         tell the job process to kill the sandbox and to report
 * DISCARD      tell it that no report is wanted any more
 * KILL         SIGKILL for the job process
 * SWEEP        start a sweeper for this job's sandbox
 * STORE        write the payload chunks
 * FAIL         answer `failed` with field refusal
 * FINISH       answer `completed` with the result that cause and report make
 * UNLINK       remove the input chunks
 * PROBLEM      something of the sandbox may be left: fetch nothing more
 * RELEASE      the job is done: forget it */
#define QV_RUN_ACTIONS(X) \
  X(CLAIM) X(ARM_WALL) X(ADMIT) X(ASK_CANCEL) X(GRANT) X(REVOKE) X(SPAWN) X(STOP) X(DISCARD) X(KILL) X(SWEEP) X(STORE) \
  X(FAIL) X(FINISH) X(UNLINK) X(PROBLEM) X(RELEASE)

typedef enum {
#define X(name) QV_RUN_DO_##name,
  QV_RUN_ACTIONS(X)
#undef X
} QvRunAction;

typedef struct {
  QvRunEventType type;
  const char *refusal;  /* FETCHED, REFUSED: the failedReason, a static string; NULL: none */
  gboolean stalled;     /* FETCHED: the job carries a deferred failure */
  gboolean verified;    /* FETCHED and stalled: signature and job id hold */
  gboolean egress;      /* ADMITTED: the job's setup gets a token */
  QvRunCause cause;     /* INTERRUPT */
} QvRunEvent;

enum { QV_RUN_ACTIONS_MAX = 6 };

typedef struct {
  unsigned n;
  QvRunAction item[QV_RUN_ACTIONS_MAX];
} QvRunActions;

/* All zero is a new run. Read freely, written by qv_run_step alone. */
typedef struct {
  QvRunPhase phase;
  QvRunCause cause;
  const char *refusal;    /* set when the answer is `failed` */
  gboolean stalled;
  gboolean voided;        /* no answer may be given any more */
  gboolean reported;      /* the report counts for the result */
  gboolean received;      /* every payload chunk came from the job process */
  gboolean egress;
  gboolean owes_revoke;   /* the token may be in Valkey */
  gboolean revoking;      /* REVOKE was said */
  gboolean accounted;     /* nothing is expected of the proxy any more */
  gboolean owes_unlink;
  gboolean unlinking;
  gboolean process;       /* a job process was started and not yet reaped */
  gboolean sandbox;       /* something of a sandbox may exist */
  gboolean sweeping;
  gboolean stopped;       /* STOP was sent */
} QvRun;

/* Never fails: an event that means nothing in this phase has no effect. */
QvRunActions qv_run_step(QvRun *run, const QvRunEvent *event);

const char *qv_run_phase_name(QvRunPhase phase);
const char *qv_run_cause_name(QvRunCause cause);
const char *qv_run_event_name(QvRunEventType type);
const char *qv_run_action_name(QvRunAction action);
