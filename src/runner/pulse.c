/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the beat, and what the manager is told.
 *
 *   new ──up──> waits for the smoke test ──ready──> takes jobs, or says why not ──stopping──> lets jobs end
 *
 * The file's modification time is the kernel's, so both sides read one clock. */
#include "runner/pulse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/notify.h"

enum {
  BEAT_MS = 5000,
  /* A machine under load may be late by much; a loop that stands still is late for ever. */
  FRESH_S = 60,
};

/* Twelve beats; counts only where the unit's own time is over (sd_notify(3)). */
#define EXTEND "EXTEND_TIMEOUT_USEC=60000000"

struct QvPulse {
  char *path;
  gboolean up, ready, stopping;
  char *status; /* as last told */
  guint timer;
};

static char *path_below(const char *state_dir)
{
  return g_build_filename(state_dir, "alive", NULL);
}

/* The file as of now. A failure is seen by who looks at the file, and a full disk must not end the runner. */
static void touch(const QvPulse *pulse)
{
  QV_AUTOFD int fd = open(pulse->path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0 || futimens(fd, NULL) < 0)
    qv_log(QV_LOG_DEBUG, "the sign of life could not be written", "path", pulse->path, NULL);
}

static gboolean on_beat(gpointer data)
{
  QvPulse *pulse = data;
  qv_notify(pulse->ready && !pulse->stopping ? "WATCHDOG=1" : "WATCHDOG=1\n" EXTEND);
  if (pulse->up)
    touch(pulse);
  return G_SOURCE_CONTINUE;
}

QvPulse *qv_pulse_new(const char *state_dir)
{
  QvPulse *pulse = g_new0(QvPulse, 1);
  pulse->path = path_below(state_dir);
  unlink(pulse->path);
  guint watchdog = qv_notify_watchdog_ms();
  guint beat = watchdog > 0 ? CLAMP(watchdog / 3, 1, BEAT_MS) : BEAT_MS;
  pulse->timer = g_timeout_add_full(G_PRIORITY_DEFAULT, beat, on_beat, pulse, NULL);
  return pulse;
}

void qv_pulse_free(QvPulse *pulse)
{
  if (pulse == NULL)
    return;
  g_source_remove(pulse->timer);
  unlink(pulse->path);
  g_free(pulse->status);
  g_free(pulse->path);
  g_free(pulse);
}

void qv_pulse_up(QvPulse *pulse)
{
  pulse->up = TRUE;
  touch(pulse);
  if (!pulse->ready)
    qv_notify("STATUS=waits for its smoke test\n" EXTEND);
}

void qv_pulse_ready(QvPulse *pulse, const char *why)
{
  if (pulse->stopping)
    return;
  g_autofree char *status = g_strconcat(why != NULL ? "takes no jobs: " : "takes jobs", why, NULL);
  if (pulse->ready && g_strcmp0(status, pulse->status) == 0)
    return;
  g_autofree char *state = g_strconcat(pulse->ready ? "" : "READY=1\n", "STATUS=", status, NULL);
  pulse->ready = TRUE;
  g_free(pulse->status);
  pulse->status = g_steal_pointer(&status);
  qv_notify(state);
}

void qv_pulse_reloading(QvPulse *pulse)
{
  qv_notify_reloading();
}

void qv_pulse_reloaded(QvPulse *pulse)
{
  /* A reload before the start is complete must not look like its completion. */
  if (pulse->ready)
    qv_notify("READY=1");
}

void qv_pulse_stopping(QvPulse *pulse)
{
  pulse->stopping = TRUE;
  qv_notify("STOPPING=1\nSTATUS=lets jobs end");
}

int qv_pulse_check_main(const char *state_dir)
{
  g_autofree char *path = path_below(state_dir);
  struct stat info;
  struct timespec now;
  if (stat(path, &info) < 0) {
    fprintf(stderr, "quavon-sandbox-runner: %s: %s: no runner of this state folder is up\n", path, g_strerror(errno));
    return 1;
  }
  clock_gettime(CLOCK_REALTIME, &now);
  gint64 age_s = (gint64)now.tv_sec - (gint64)info.st_mtim.tv_sec;
  if (ABS(age_s) > FRESH_S) {
    fprintf(stderr, "quavon-sandbox-runner: the runner's last sign of life is %" G_GINT64_FORMAT " s old\n", age_s);
    return 1;
  }
  return 0;
}
