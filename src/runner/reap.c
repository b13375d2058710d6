/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the bounded wait. After the end of the main loop what is left is init's. */
#include "runner/reap.h"

#include <signal.h>
#include <sys/wait.h>

#include "base/log.h"

typedef struct {
  void (*call)(gpointer data);
  gpointer data;
} Then;

/* As waitpid(2): 0 where it does not end. */
static pid_t reap(GPid pid, guint patience_ms, int *status)
{
  /* Asked before the kill: what GLib has reaped and not told yet may be another's number by now. */
  pid_t got = waitpid(pid, status, WNOHANG);
  if (got == 0)
    kill(pid, SIGKILL);
  for (guint ms = 0; got == 0 && (got = waitpid(pid, status, WNOHANG)) == 0 && ms < patience_ms; ms++)
    g_usleep(1000);
  return got;
}

static void on_end(GPid pid, int status, gpointer data) {}

gboolean qv_reap_child(GPid pid, const char *what, guint patience_ms, int *status)
{
  pid_t got = reap(pid, patience_ms, status);
  if (got != 0)
    return got == pid;
  if (what != NULL)
    qv_logf(QV_LOG_WARNING, "the %s process %d was killed and does not end: it is not waited for", what, pid);
  g_child_watch_add(pid, on_end, NULL);
  return FALSE;
}

static void on_end_then(GPid pid, int status, gpointer user)
{
  Then *then = user;
  then->call(then->data);
}

void qv_reap_child_then(GPid pid, guint patience_ms, void (*call)(gpointer data), gpointer data)
{
  if (reap(pid, patience_ms, NULL) != 0) {
    call(data);
    return;
  }
  Then *then = g_new(Then, 1);
  *then = (Then){.call = call, .data = data};
  g_child_watch_add_full(G_PRIORITY_DEFAULT, pid, on_end_then, then, g_free);
}
