/* SPDX-License-Identifier: Apache-2.0 */
/* Judges the answers of the probes (probes.def): each probe once, nothing else,
 * and the answer that this backend must give. Pure but for qv_probe_host_read. What it judges was
 * written inside a sandbox: it is text from a stranger. */
#pragma once

#include <glib.h>

typedef struct {
  const char *name;
  const char *tries;
  const char *expected; /* on the backend that was asked for */
  gboolean host;        /* answered by the host, not inside */
} QvProbeRow;

guint qv_probe_count(void);
/* Row I of the table for BACKEND; FALSE behind the last one, and for a backend without a column. */
gboolean qv_probe_row(guint i, const char *backend, QvProbeRow *row);

/* Name to answer: what this host itself says where the table wants HOST! or HOST=. */
GHashTable *qv_probe_host_read(void);

typedef struct QvProbeJudge QvProbeJudge;

/* NULL for a backend that has no column. HOST is borrowed. */
QvProbeJudge *qv_probe_judge_new(const char *backend, GHashTable *host);
void qv_probe_judge_free(QvProbeJudge *judge);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvProbeJudge, qv_probe_judge_free)

/* Takes the whole text that the program printed: lines "probe NAME ANSWER". AGE_S: seconds since the sandbox was asked for.
 * A line that is none, or a name that is not asked inside, fails the probe `report`. */
void qv_probe_judge_text(QvProbeJudge *judge, const char *text, gsize n, gint64 age_s);
/* One answer of the host. */
void qv_probe_judge_answer(QvProbeJudge *judge, const char *name, const char *answer);

/* The answer of row I: NULL where there is none. *OK: it is the right one, and the only one. Borrowed. */
const char *qv_probe_judge_row(const QvProbeJudge *judge, guint i, gboolean *ok);
/* Names of the failed probes in table order; empty where all are passed. Free with g_strfreev. */
char **qv_probe_judge_failed(const QvProbeJudge *judge);
