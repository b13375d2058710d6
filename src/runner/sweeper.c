/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the life of a sweep process. What it says fits into its pipe, so that it is read when it has ended; a watch is heard before. */
#include "runner/sweeper.h"

#include <glib-unix.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "runner/spawn.h"
#include "runner/sweep.h"

enum { WORD_BYTES_MAX = 8192 };

typedef struct {
  QvSweeperDone done;
  gpointer data;
  int fd; /* what it says */
  char *backend;
  QvRepeat *said;
  QvSweeperHeard heard; /* NULL: no watch */
  guint ear;            /* source; 0: it has said it */
} Sweeper;

/* NULL: it has said nothing, or said it before. All of it at once: a pipe takes so little as a whole. */
static QvSweepWord *hear(Sweeper *sweeper)
{
  g_autoptr(GError) error = NULL;
  char text[WORD_BYTES_MAX];
  ssize_t n = read(sweeper->fd, text, sizeof text);
  QvSweepWord *word = n > 0 ? qv_sweep_word_parse(text, (gsize)n, &error) : NULL;
  if (error != NULL)
    qv_log(QV_LOG_ERROR, "sweeper says nothing that makes sense", "error", error->message, NULL);
  return word;
}

static gboolean on_word(gint fd, GIOCondition condition, gpointer data)
{
  Sweeper *sweeper = data;
  sweeper->ear = 0;
  g_autoptr(QvSweepWord) word = hear(sweeper);
  if (word != NULL && word->engine != NULL)
    sweeper->heard(word->engine, sweeper->data);
  return G_SOURCE_REMOVE;
}

/* What went wrong; of what does so again and again, once in a while. */
static void say(const char *backend, QvRepeat *said, const char *event, const char *error)
{
  guint unsaid = 0;
  g_autofree char *what = g_strdup_printf("%s: %s", event, error);
  if (said != NULL && !qv_repeat_due(said, what, qv_clock_mono_ms(), &unsaid))
    return;
  g_autofree char *not_said = unsaid > 0 ? g_strdup_printf("%u", unsaid) : NULL;
  qv_log(QV_LOG_ERROR, event, "backend", backend, "error", error, "notSaid", not_said, NULL);
}

static void on_end(GPid pid, int wait_status, gpointer data)
{
  Sweeper *sweeper = data;
  QvSweepEnd end = {.status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : QV_SWEEP_UNUSABLE};
  g_clear_handle_id(&sweeper->ear, g_source_remove);
  g_autoptr(QvSweepWord) word = hear(sweeper);
  end.facts = word != NULL && end.status != QV_SWEEP_UNUSABLE ? word->facts : NULL;
  if (end.status != QV_SWEEP_CLEAN) {
    g_autofree char *silent = g_strdup_printf("wait status %#x", (guint)wait_status);
    gboolean told = word != NULL && word->event != NULL;
    say(sweeper->backend, sweeper->said, told ? word->event : "sweeper ends without a word", told ? word->error : silent);
  }
  sweeper->done(&end, sweeper->data);
  close(sweeper->fd);
  g_free(sweeper->backend);
  g_free(sweeper);
}

static gboolean spawn(const char *order, int *fd, GPid *pid, GError **error)
{
  int ends[2];
  if (!qv_fd_pipe(ends, error))
    return FALSE;
  g_unix_set_fd_nonblocking(ends[0], TRUE, NULL); /* whatever holds the other end still, when it has ended */
  gboolean started = qv_spawn_role(QV_ROLE_SWEEP, order, &ends[1], 1, pid, error);
  close(ends[1]);
  if (started)
    *fd = ends[0];
  else
    close(ends[0]);
  return started;
}

/* NULL: DONE was called. */
static Sweeper *start(const QvPlace *place, const char *sandbox_id, const QvTrialImages *trial, QvRepeat *said, QvSweeperDone done,
                      gpointer data)
{
  QvSweepOrder order = {.place = *place, .sandbox_id = (char *)sandbox_id};
  order.place.engine = NULL; /* it asks for itself */
  if (trial != NULL)
    order.trial = *trial;
  g_autofree char *text = qv_sweep_order_format(&order);
  g_autoptr(GError) error = NULL;
  int fd = -1;
  GPid pid;
  if (!spawn(text, &fd, &pid, &error)) {
    say(place->backend, said, "sweeper cannot be started", error->message);
    done(&(QvSweepEnd){.status = QV_SWEEP_UNUSABLE}, data);
    return NULL;
  }
  Sweeper *sweeper = g_new0(Sweeper, 1);
  *sweeper = (Sweeper){.done = done, .data = data, .fd = fd, .backend = g_strdup(place->backend), .said = said};
  g_child_watch_add(pid, on_end, sweeper);
  return sweeper;
}

void qv_sweeper_start(const QvPlace *place, const char *sandbox_id, const QvTrialImages *trial, QvRepeat *said,
                      QvSweeperDone done, gpointer data)
{
  start(place, sandbox_id, trial, said, done, data);
}

void qv_sweeper_watch(const QvPlace *place, QvRepeat *said, QvSweeperHeard heard, QvSweeperDone done, gpointer data)
{
  Sweeper *sweeper = start(place, QV_SWEEP_WATCH, NULL, said, done, data);
  if (sweeper == NULL)
    return;
  sweeper->heard = heard;
  sweeper->ear = g_unix_fd_add(sweeper->fd, G_IO_IN | G_IO_HUP, on_word, sweeper);
}
