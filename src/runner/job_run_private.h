/* SPDX-License-Identifier: Apache-2.0 */
/* One job in progress, as its files share it: job_run.c feeds the step
 * function and carries out what it says; job_admit.c claims, admits and reads
 * the cancel key; job_watch.c has the job process and its clocks; job_egress.c has the token; job_answer.c
 * answers and tidies up. What may come back after a job is done (a reply of
 * Valkey, a sweeper) holds a reference; the step function makes nothing of it then. */
#pragma once

#include "protocol/crypto.h"
#include "protocol/egress_token.h"
#include "protocol/progress.h"
#include "runner/job_link.h"
#include "runner/job_run.h"

struct QvJobRun {
  gint refs;
  QvSupervisor *supervisor;
  QvFetchedJob *fetched;  /* NULL once the queue has it back */
  char *id;               /* as the queue names it: hostile until verified */
  QvAdmission admission;
  QvRun state;
  GQueue events;          /* of QvRunEvent, waiting while one is handled */
  gboolean feeding;
  gboolean counts;        /* among its tenant's jobs in progress */
  gboolean holds;         /* its slot, behind its answer: there is a sandbox still */
  gboolean answering;     /* the queue owes an answer to ours */
  gboolean unanswered;    /* no result tells of a payload */
  gboolean cancel_asked, cancel_again;
  char *rootfs_file;      /* NULL: the backend takes none */
  char *image_digest;
  guint8 result_salt[QV_SALT_BYTES];
  QvBoxKind box;          /* as the pool of warm ones counts it; no digest: it does not yet, or not any more */
  char *sandbox_id;       /* NULL: no sandbox yet */
  QvJobLink *link;
  QvHostReport host;
  GBytes *facts;
  gint64 added_at;        /* Unix ms, by the producer's clock; 0: not known */
  gint64 taken_at;        /* Unix ms */
  gint64 started_at;      /* Unix ms */
  gint64 started_mono;
  guint wall, overdue, beat; /* timer sources */
  char token[QV_TOKEN_LEN + 1];  /* wiped once it is taken back */
  char token_hash[65];    /* "": there was none */
  guint64 grant;          /* command under way, holds a reference; 0: none */
  guint token_timer, usage_timer; /* timer sources */
  GBytes *usage;          /* the proxy's account, valid; NULL: none */
  QvRunProgress progress; /* what was said last */
  gint64 stage_mono;      /* since when that stage lasts */
  guint unlinks;          /* blobs still to be unlinked */
};

QvJobRun *qv_run_ref(QvJobRun *run);
void qv_run_unref(QvJobRun *run);

/* Events that come while one is handled wait: an action may cause the next. */
void qv_run_feed(QvJobRun *run, QvRunEvent event);
void qv_run_feed_type(QvJobRun *run, QvRunEventType type);
void qv_run_interrupt(QvJobRun *run, QvRunCause cause);

QvConn *qv_run_conn(QvJobRun *run);

/* Actions of run_state.h. */
void qv_run_claim(QvJobRun *run);
void qv_run_arm_wall(QvJobRun *run);
void qv_run_admit(QvJobRun *run);
void qv_run_ask_cancel(QvJobRun *run);
void qv_run_grant(QvJobRun *run);
void qv_run_revoke(QvJobRun *run);
void qv_run_spawn(QvJobRun *run);
void qv_run_fail(QvJobRun *run);
void qv_run_finish(QvJobRun *run);
void qv_run_unlink(QvJobRun *run);

/* The job process has so long to obey. */
void qv_run_arm_overdue(QvJobRun *run);

/* The job has ended so: the audit line, and what is counted. */
void qv_run_account(QvJobRun *run, const char *status, const char *code);
