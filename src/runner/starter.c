/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the supervisor's side of the starter. Each question is answered before the next one is asked, and the answer waited for:
 * a fork takes less than a millisecond, and the wait has an end. Nothing else is waited for: only one that is ready is asked, and
 * one that was killed is reaped by the main loop. */
#include "runner/starter.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "runner/reap.h"
#include "runner/spawn.h"

struct QvStarter {
  gboolean engine, ready;
  QvStarterPatience patience;
  gint64 begun;
  GPid pid;    /* 0: none */
  guint child; /* source */
  int fd;
  int note;    /* QV_STARTER_NOTE_FD of this process */
  guint jobs;  /* of this process */
};

static void close_fds(QvStarter *starter)
{
  qv_io_close_cleanup(&starter->fd);
  qv_io_close_cleanup(&starter->note);
  starter->fd = starter->note = -1;
}

static gboolean clear_note(int note)
{
  const gint32 none = 0;
  return pwrite(note, &none, sizeof none, 0) == sizeof none;
}

/* Of a starter that is reaped: what it forked and did not answer. Nothing else knows of that, so that it is no other's to reap. */
static void end_unanswered(int note)
{
  siginfo_t info;
  gint32 pid = 0;
  if (pread(note, &pid, sizeof pid, 0) != sizeof pid || pid <= 0 ||
      waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0)
    return;
  qv_log(QV_LOG_INFO, "a job process that the starter did not tell of is ended", NULL);
  qv_reap_child(pid, NULL, 0, NULL);
}

static void on_child(GPid pid, int status, gpointer data)
{
  QvStarter *starter = data;
  qv_logf(QV_LOG_WARNING, "the starter of job processes is gone (wait status %d): there will be a new one", status);
  starter->child = 0;
  starter->pid = 0;
  end_unanswered(starter->note);
  close_fds(starter);
}

static gboolean make_note(int *note, GError **error)
{
  *note = memfd_create("starter", MFD_CLOEXEC);
  return (*note >= 0 && clear_note(*note)) || qv_error_set_errno(error, errno, "cannot make a file in memory");
}

static void begin(QvStarter *starter)
{
  g_autoptr(GError) error = NULL;
  int pair[2];
  starter->jobs = 0;
  starter->ready = FALSE;
  starter->begun = g_get_monotonic_time();
  QV_AUTOFD int note = -1;
  if (!make_note(&note, &error) || !qv_fd_socketpair(pair, &error)) {
    qv_log(QV_LOG_WARNING, "no starter of job processes", "error", error->message, NULL);
    return;
  }
  QV_AUTOFD int near = pair[0];
  QV_AUTOFD int far = pair[1];
  guint ms = starter->patience.answer_ms;
  struct timeval patience = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
  const int fds[] = {far, note};
  setsockopt(near, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (!qv_spawn_role(QV_ROLE_STARTER, starter->engine ? "engine" : NULL, fds, G_N_ELEMENTS(fds), &starter->pid, &error)) {
    qv_log(QV_LOG_WARNING, "no starter of job processes", "error", error->message, NULL);
    starter->pid = 0;
    return;
  }
  starter->fd = qv_io_steal(&near);
  starter->note = qv_io_steal(&note);
  starter->child = g_child_watch_add(starter->pid, on_child, starter);
}

static void on_ended(gpointer data)
{
  QV_AUTOFD int note = GPOINTER_TO_INT(data);
  end_unanswered(note);
}

static void end(QvStarter *starter, guint patience_ms)
{
  if (starter->pid == 0)
    return;
  g_clear_handle_id(&starter->child, g_source_remove);
  qv_reap_child_then(starter->pid, patience_ms, on_ended, GINT_TO_POINTER(qv_io_steal(&starter->note)));
  starter->pid = 0;
  close_fds(starter);
}

QvStarter *qv_starter_new(gboolean engine, QvStarterPatience patience)
{
  QvStarter *starter = g_new0(QvStarter, 1);
  starter->engine = engine;
  starter->patience = patience;
  starter->fd = starter->note = -1;
  begin(starter);
  return starter;
}

void qv_starter_free(QvStarter *starter)
{
  if (starter == NULL)
    return;
  end(starter, QV_REAP_MS);
  g_free(starter);
}

static gboolean ask(QvStarter *starter, int channel, int lock, gint32 *answer)
{
  g_autoptr(GError) error = NULL;
  if (!qv_fd_send(starter->fd, channel, &error) || !qv_fd_send(starter->fd, lock, &error)) {
    qv_log(QV_LOG_WARNING, "the starter takes no job", "error", error->message, NULL);
    return FALSE;
  }
  ssize_t n = qv_io_read_full(starter->fd, answer, sizeof *answer);
  if (n == sizeof *answer && *answer > 0)
    return TRUE;
  int why = n == sizeof *answer ? -*answer : n < 0 ? errno : ECONNRESET;
  qv_log(QV_LOG_WARNING, "the starter starts no job", "error", g_strerror(why), NULL);
  return FALSE;
}

/* FALSE where it still may be, in its time. */
static gboolean is_lost(QvStarter *starter)
{
  char word;
  if (starter->ready)
    return FALSE;
  ssize_t n = recv(starter->fd, &word, sizeof word, MSG_DONTWAIT);
  starter->ready = n == sizeof word;
  if (starter->ready)
    return FALSE;
  gboolean late = g_get_monotonic_time() - starter->begun > (gint64)starter->patience.ready_ms * 1000;
  if (n < 0 && (errno == EAGAIN || errno == EINTR) && !late)
    return FALSE;
  qv_log(QV_LOG_WARNING, "the starter of job processes does not get ready", NULL);
  return TRUE;
}

gboolean qv_starter_is_ready(QvStarter *starter)
{
  return starter->pid != 0 && !is_lost(starter) && starter->ready;
}

gboolean qv_starter_job(QvStarter *starter, int channel, int lock, GPid *pid)
{
  gint32 answer;
  if (starter->pid == 0) { /* it died: this job does not wait for the next one */
    begin(starter);
    return FALSE;
  }
  gboolean lost = is_lost(starter);
  if (!lost && !starter->ready)
    return FALSE;
  if (lost || !ask(starter, channel, lock, &answer)) {
    qv_starter_renew(starter);
    return FALSE;
  }
  *pid = answer;
  clear_note(starter->note); /* it is the caller's from now on */
  if (++starter->jobs >= QV_STARTER_JOBS_MAX)
    qv_starter_renew(starter);
  return TRUE;
}

void qv_starter_renew(QvStarter *starter)
{
  if (starter == NULL)
    return;
  end(starter, 0);
  begin(starter);
}

GPid qv_starter_pid(const QvStarter *starter)
{
  return starter->pid;
}
