/* SPDX-License-Identifier: Apache-2.0 */
/* Theory of operation. A marker is popped by one worker alone, so whoever pops one owes the others a look. A look that takes
 * a job adds the marker again (take.lua), one that finds nothing shows that nobody has anything to find; but
 *   - a worker that is full, paused or at rest by the time its read is answered (a slot was filled or taken away beside the
 *     read) does not look: it gives the marker back as it was, unless one that is due earlier is there by now. Who is full or paused
 *     begins no read, so each gives back one;
 *   - a worker that may take none of what waits, for its tenants, gives back a marker named by the token of its look
 *     (pass of take.lua). The others that are blocked look one after the other, until somebody takes a job, or the
 *     marker comes to one that has passed it on: then all have looked;
 *   - an end that brings no job along while the queue has a limit of its own leaves a place that nobody knows of: finish.lua
 *     adds a marker.
 * What remains is a process or a connection that is gone in the moment in which it popped: every idle worker looks again
 * after 3 s anyway. A worker of bullmq's takes each of these markers as one that says "now". */
#include <string.h>

#include "base/error.h"
#include "queue/worker_private.h"

#define TEXT_MAX 128 /* "0", "1", a token, a moment */
#define GIVE_BACK_MS 3000 /* by then all have looked */

void qv_wake_init(QvWorker *w)
{
  w->wake.marker = g_strconcat(w->queue, "marker", NULL);
}

void qv_wake_clear(QvWorker *w)
{
  g_free(w->wake.marker);
  g_free(w->wake.member);
  g_free(w->wake.score);
  g_free(w->wake.pass);
  g_free(w->wake.passed);
}

gboolean qv_wake_is_no_answer(const GError *error)
{
  return g_error_matches(error, QV_ERROR, QV_ERROR_GONE) || g_error_matches(error, QV_ERROR, QV_ERROR_TIMEOUT);
}

static char *text_of(const QvReply *part)
{
  const char *text = qv_reply_text(part);
  return g_strdup(text && strlen(text) == part->len && part->len <= TEXT_MAX ? text : "0");
}

void qv_wake_note(QvWorker *w, const QvReply *reply, const GError *error)
{
  if (error ? !qv_wake_is_no_answer(error) : reply->type == QV_REPLY_NIL)
    return;
  w->wake.owed = TRUE;
  g_free(w->wake.member);
  g_free(w->wake.score);
  w->wake.member = text_of(qv_reply_at(reply, 1));
  w->wake.score = text_of(qv_reply_at(reply, 2));
}

/* A marker becomes the token of this look; a token stays what it is, and ends here where it was passed on before. The last one is
 * remembered: of several the least comes first, again and again, until it ends; the next one does then. */
static char *passing_on(QvWorker *w)
{
  const char *member = w->wake.member;
  if (!w->wake.owed || g_str_has_prefix(member, w->uuid) || g_strcmp0(member, w->wake.passed) == 0)
    return g_strdup("");
  if (!strchr(member, ':'))
    return g_strdup(w->fetch_token);
  g_free(w->wake.passed);
  w->wake.passed = g_strdup(member);
  return g_strdup(member);
}

void qv_wake_look(QvWorker *w)
{
  if (w->wake.owed || !w->wake.pass) {
    g_free(w->wake.pass);
    w->wake.pass = passing_on(w);
  }
  w->wake.owed = FALSE;
}

void qv_wake_refused(QvWorker *w)
{
  w->wake.owed = w->wake.owed || (w->wake.pass && *w->wake.pass);
  g_clear_pointer(&w->wake.pass, g_free);
}

void qv_wake_give_back(QvWorker *w)
{
  if (!w->wake.owed)
    return;
  w->wake.owed = FALSE;
  qv_conn_sendl(w->conn, QV_SEND_AGAIN, GIVE_BACK_MS, NULL, NULL, "ZADD", w->wake.marker, "LT", w->wake.score, w->wake.member, NULL);
}
