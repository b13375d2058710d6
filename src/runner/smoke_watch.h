/* SPDX-License-Identifier: Apache-2.0 */
/* When the escape smoke test runs (section 8), and what its outcome means: at the start, every 6 h, on a signed
 * request, and again ten minutes after one that did not pass; at most once a minute. Jobs that run are left alone.
 * Until a test has passed, and after one that did not, the problem `smoke` keeps the gate shut. */
#pragma once

#include "protocol/health.h"
#include "protocol/key.h"
#include "queue/conn.h"
#include "runner/problems.h"

typedef struct QvSmokeWatch QvSmokeWatch;

/* Takes the report; called once, from the main loop, never within the start. */
typedef void (*QvSmokeWatchDone)(QvSmokeReport *report, gpointer data);

typedef struct {
  void (*start)(QvSmokeWatchDone done, gpointer done_data, gpointer user);
  QvKeyring *(*ring)(gpointer user); /* borrowed */
  /* The outcome is another now. */
  void (*changed)(gpointer user);
  const char *pool, *runner_id, *prefix;
  gint64 interval_ms;
  gint64 apart_ms; /* between two starts: QV_SMOKE_APART_MS */
  gint64 again_ms; /* after one that did not pass: QV_SMOKE_AGAIN_MS */
} QvSmokeWatchOptions;

enum { QV_SMOKE_APART_MS = 60000, QV_SMOKE_AGAIN_MS = 600000 };

/* Texts of OPTIONS and PROBLEMS are borrowed. The gate's problem is there from here on. */
QvSmokeWatch *qv_smoke_watch_new(const QvSmokeWatchOptions *options, QvProblems *problems, gpointer user);
/* A test on its way still calls back; the watch lives until then. */
void qv_smoke_watch_free(QvSmokeWatch *watch);

/* The first test starts now; or REMEMBERED (taken, may be NULL) stands for it. */
void qv_smoke_watch_begin(QvSmokeWatch *watch, QvSmokeReport *remembered);
/* No more tests. */
void qv_smoke_watch_stop(QvSmokeWatch *watch);

/* Somebody may have asked: reads the request, and follows it where it holds. */
void qv_smoke_watch_look(QvSmokeWatch *watch, QvConn *conn);

/* The last outcome; NULL: none yet. Borrowed. */
const QvSmokeReport *qv_smoke_watch_report(const QvSmokeWatch *watch);
