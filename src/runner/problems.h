/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with this runner right now: each problem has a kind, and an id within its kind. The texts are those
 * of the health record (section 8). A kind says whether jobs are fetched while a problem of it lasts. */
#pragma once

#include <glib.h>

/* X(NAME, word, stops fetching):
 * SWEEP   something of a sandbox could not be removed
 * ENGINE  the backend cannot start sandboxes any more
 * SMOKE   the smoke test did not pass, or could not be run
 * DRAIN   the runner ends, or was told to take no more
 * RELOAD  the files read at the last SIGHUP are no good: the old ones are in use
 * CLOCK   this host's clock and Valkey's are far apart
 * MEMORY  the host has not enough left for one more job
 * DISK    the state folder's file system is nearly full */
#define QV_PROBLEM_KINDS(X) \
  X(SWEEP, "sweep", TRUE) X(ENGINE, "engine", TRUE) X(SMOKE, "smoke", TRUE) X(DRAIN, "drain", TRUE) \
  X(RELOAD, "reload", FALSE) X(CLOCK, "clock", FALSE) X(MEMORY, "memory", FALSE) X(DISK, "disk", FALSE)

typedef enum {
#define X(name, word, stops) QV_PROBLEM_##name,
  QV_PROBLEM_KINDS(X)
#undef X
} QvProblemKind;

typedef struct QvProblems QvProblems;

/* CHANGED is called after every change of what the functions below answer. */
QvProblems *qv_problems_new(void (*changed)(gpointer data), gpointer data);
void qv_problems_free(QvProblems *problems);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvProblems, qv_problems_free)

/* Adds it, or renews it with another text. ID may be NULL: the only one of its kind. */
void qv_problems_set(QvProblems *problems, QvProblemKind kind, const char *id, const char *text);
void qv_problems_clear(QvProblems *problems, QvProblemKind kind, const char *id);

/* A moment in the life of the list: a sweep takes it as it begins, and may then speak only for what was set before. */
guint64 qv_problems_mark(const QvProblems *problems);
/* Clears those of KIND that were last set before MARK. TRUE: none of the kind is left. */
gboolean qv_problems_clear_until(QvProblems *problems, QvProblemKind kind, guint64 mark);

gboolean qv_problems_any(const QvProblems *problems, QvProblemKind kind);
/* Must fetching stop? */
gboolean qv_problems_stop(const QvProblems *problems);
/* Why it must: the oldest such problem's text, cleaned as below. NULL: it need not. Free with g_free. */
char *qv_problems_why(const QvProblems *problems);

/* "sweep: <text>" each, oldest first, as a health record may hold them: at most 32, of 512 bytes, one line. */
char **qv_problems_texts(const QvProblems *problems);
