/* SPDX-License-Identifier: Apache-2.0 */
/* The depth of the queue is asked for before each write; where Valkey does not answer in time, the file is written
 * without it. */
#include "runner/metrics_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "queue/producer.h"

enum { EVERY_MS = 15000, SOON_MS = 1000, ANSWER_MS = 3000 };

struct QvMetricsFile {
  char *path;
  const QvMetrics *metrics;
  QvProducer *producer;
  QvMetricsFill fill;
  gpointer user;
  guint timer;      /* source of the next write */
  gboolean soon;    /* which is because of a change */
  gboolean asking;  /* for the depth: the answer writes */
  gboolean failing; /* the last write did, and it was said */
  gboolean freed;
};

gboolean qv_metrics_file_write(const char *path, const char *text, GError **error)
{
  g_autofree char *temporary = g_strdup_printf("%s.%d.new", path, (int)getpid());
  unlink(temporary);
  QV_AUTOFD int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0)
    return qv_error_set_errno(error, errno, "%s", temporary);
  /* For whoever reads it, whatever the umask: a service's is 0077. */
  gboolean fine = fchmod(fd, 0644) == 0 || qv_error_set_errno(error, errno, "%s", temporary);
  fine = fine && qv_fd_write_all(fd, temporary, text, strlen(text), error);
  if (fine && rename(temporary, path) != 0)
    fine = qv_error_set_errno(error, errno, "%s", path);
  if (!fine)
    unlink(temporary);
  return fine;
}

static void write_now(QvMetricsFile *file, gint64 waiting)
{
  QvMetricsNow now = {0};
  file->fill(&now, file->user);
  now.at_ms = qv_clock_unix_ms();
  now.waiting = waiting;
  g_autofree char *text = qv_metrics_format(file->metrics, &now);
  g_autoptr(GError) error = NULL;
  gboolean fine = qv_metrics_file_write(file->path, text, &error);
  if (!fine && !file->failing)
    qv_log(QV_LOG_ERROR, "QUAVON_METRICS_FILE cannot be written; trying again", "error", error->message, NULL);
  else if (fine && file->failing)
    qv_logf(QV_LOG_INFO, "QUAVON_METRICS_FILE is written again");
  file->failing = !fine;
}

static void file_free(QvMetricsFile *file)
{
  g_clear_handle_id(&file->timer, g_source_remove);
  g_free(file->path);
  g_free(file);
}

static gboolean on_timer(gpointer data);

static void arm(QvMetricsFile *file, guint ms)
{
  g_clear_handle_id(&file->timer, g_source_remove);
  file->soon = ms == SOON_MS;
  file->timer = g_timeout_add(ms, on_timer, file);
}

static void on_count(gint64 count, const GError *error, gpointer user)
{
  QvMetricsFile *file = user;
  file->asking = FALSE;
  if (file->freed) {
    file_free(file);
    return;
  }
  write_now(file, error == NULL ? count : -1);
  if (file->timer == 0)
    arm(file, EVERY_MS);
}

static gboolean on_timer(gpointer data)
{
  QvMetricsFile *file = data;
  file->timer = 0;
  file->soon = FALSE;
  if (!file->asking) {
    file->asking = TRUE;
    qv_producer_count(file->producer, on_count, file);
  }
  return G_SOURCE_REMOVE;
}

QvMetricsFile *qv_metrics_file_new(const char *path, const QvMetrics *metrics, QvConn *conn, const char *prefix,
                                   QvMetricsFill fill, gpointer user)
{
  QvMetricsFile *file = g_new0(QvMetricsFile, 1);
  file->path = g_strdup(path);
  file->metrics = metrics;
  file->producer = qv_producer_new(conn, prefix, ANSWER_MS);
  file->fill = fill;
  file->user = user;
  write_now(file, -1);
  arm(file, SOON_MS);
  return file;
}

void qv_metrics_file_free(QvMetricsFile *file)
{
  if (file == NULL)
    return;
  g_clear_handle_id(&file->timer, g_source_remove);
  g_clear_pointer(&file->producer, qv_producer_free);
  unlink(file->path);
  file->freed = TRUE;
  if (!file->asking) /* else the answer frees it, or the connection's end does */
    file_free(file);
}

void qv_metrics_file_touch(QvMetricsFile *file)
{
  if (file != NULL && !file->soon)
    arm(file, SOON_MS);
}
