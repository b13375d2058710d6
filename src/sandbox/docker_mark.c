/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the marks that a start leaves in its run folder, for whoever finds the folder later:
 *
 *   (none) ──start is sent──> starting ──answered, with whatever──> (none)
 *                                │
 *                                │ what there is was removed, and the engine does not remember making it
 *                                v
 *                               cut ──CUT_S later, a sweep looks once more──> (the folder goes)
 *
 * An engine that was asked to start ends that before it removes: behind its removal nothing comes. One that dies before may have
 * asked containerd for it, which goes on by itself, behind the look of the removal that the next one answers. Which of the two it
 * was is asked behind the removal: an engine remembers its last 256 events as long as it lives, and the creation is one. One that
 * has forgotten it counts as another. Empty files, without fsync: what they are about does not outlive the host's boot either. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "sandbox/docker_private.h"

/* What the engine had begun when it went has ended by then. */
#define CUT_S 30

static char *mark_path(const QvDockerBackend *docker, const char *sandbox_id, const char *name)
{
  return g_build_filename(docker->runs_dir, sandbox_id, name, NULL);
}

/* One that is there gets the time of now. */
static gboolean put(const QvDockerBackend *docker, const char *sandbox_id, const char *name, GError **error)
{
  g_autofree char *path = mark_path(docker, sandbox_id, name);
  QV_AUTOFD int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  return (fd >= 0 && futimens(fd, NULL) == 0) || qv_error_set_errno(error, errno, "run folder: marking %s", path);
}

gboolean qv_docker_mark_starting(const QvDockerBackend *docker, const char *sandbox_id, GError **error)
{
  return put(docker, sandbox_id, "starting", error);
}

void qv_docker_mark_answered(const QvDockerBackend *docker, const char *sandbox_id)
{
  g_autofree char *path = mark_path(docker, sandbox_id, "starting");
  unlink(path);
}

gboolean qv_docker_mark_cut(const QvDockerBackend *docker, const char *sandbox_id, GError **error)
{
  if (!put(docker, sandbox_id, "cut", error))
    return FALSE;
  qv_docker_mark_answered(docker, sandbox_id); /* the later mark stands for it */
  return TRUE;
}

QvDockerMark qv_docker_mark_read(const QvDockerBackend *docker, const char *sandbox_id)
{
  struct stat st;
  g_autofree char *starting = mark_path(docker, sandbox_id, "starting");
  g_autofree char *cut = mark_path(docker, sandbox_id, "cut");
  if (stat(starting, &st) == 0)
    return QV_DOCKER_MARK_STARTING;
  if (stat(cut, &st) != 0)
    return QV_DOCKER_MARK_NONE;
  gint64 age_s = qv_clock_unix_ms() / 1000 - (gint64)st.st_mtime;
  if (age_s < 0) /* The clock was set back: nobody knows how old it is. */
    put(docker, sandbox_id, "cut", NULL);
  return age_s < CUT_S ? QV_DOCKER_MARK_CUT : QV_DOCKER_MARK_NONE;
}

gboolean qv_docker_made_it(QvDockerBackend *docker, const char *container)
{
  g_auto(QvEngineAnswer) answer = {0};
  gint64 now_us = g_get_real_time();
  g_autofree char *filters = g_strdup_printf("{\"container\":[\"%s\"],\"event\":[\"create\"]}", container);
  g_autofree char *escaped = qv_engine_escape(filters);
  g_autofree char *path = g_strdup_printf("/events?since=1&until=%" G_GINT64_FORMAT ".%09" G_GINT64_FORMAT "&filters=%s",
                                          now_us / G_USEC_PER_SEC, now_us % G_USEC_PER_SEC * 1000, escaped);
  QvEngineRequest request = {.method = "GET", .path = path, .deadline_ms = QV_DOCKER_CALL_MS};
  return qv_engine_do(docker->engine, &request, &answer, NULL) && strstr(answer.text, container) != NULL;
}
