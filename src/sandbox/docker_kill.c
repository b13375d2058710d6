/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the end: the container gone from the engine, and nothing of it running on the host. Every
 * call of the engine has a deadline; one that cannot be reached is asked again until the time is up,
 * and the processes are ended meanwhile, where this host shows them. So is what the engine itself waits for in
 * vain: a shim that stands still answers nobody, and the removal waits for it.
 *
 * A creation that is under way when the kill comes is waited for: its answer says what is to be removed. One whose answer is lost may
 * make its container after the kill has looked: it never starts, and the next sweep finds it by its label. A start that is under
 * way is cut off (docker_mark.c). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "sandbox/docker_private.h"
#include "sandbox/run_folder.h"

#define PAUSE_MIN_US 20000
#define PAUSE_MAX_US 1000000
#define CUT_MS 10000 /* both calls: the token is being taken back meanwhile */
#define CUT_END_MS 1000
#define ASK_MS 10000 /* for one removal, of the time that there is for all tries */
#define DONE_MS 1000 /* for a sandbox that has done its work to end by itself */

static void pause_longer(gulong *pause_us)
{
  g_usleep(*pause_us);
  *pause_us = MIN(*pause_us * 2, PAUSE_MAX_US);
}

static guint left_ms(gint64 until_ms)
{
  return (guint)CLAMP(until_ms - qv_clock_mono_ms(), 100, ASK_MS);
}

gboolean qv_docker_remove_container(QvDockerBackend *docker, const char *container, const QvDockerGroup *group, gint64 until_ms,
                                    GError **error)
{
  gulong pause_us = PAUSE_MIN_US;
  g_autofree char *path = g_strdup_printf("/containers/%s?force=1&v=1", container);
  for (;;) {
    g_autoptr(GError) problem = NULL;
    QvEngineRequest request = {.method = "DELETE", .path = path, .deadline_ms = left_ms(until_ms)};
    /* 409: somebody else is removing it: asked again, until it is not found. */
    if (qv_engine_do(docker->engine, &request, NULL, &problem) || g_error_matches(problem, QV_ERROR, QV_ERROR_NOT_FOUND))
      break;
    /* The engine cannot, or is not there: what runs is ended without it. */
    qv_docker_end_processes(container, group, qv_clock_mono_ms(), NULL);
    if (qv_clock_mono_ms() >= until_ms || g_error_matches(problem, QV_ERROR, QV_ERROR_AUTH)) {
      g_propagate_prefixed_error(error, g_steal_pointer(&problem), "container %.12s is not removed: ", container);
      return FALSE;
    }
    pause_longer(&pause_us);
  }
  return qv_docker_end_processes(container, group, until_ms, error);
}

/* A creation whose answer never came may have made one. */
static gboolean remove_unknown(QvDockerSandbox *s, gint64 until_ms, GError **error)
{
  QvDockerBackend *docker = (QvDockerBackend *)s->head.backend;
  gulong pause_us = PAUSE_MIN_US;
  for (;;) {
    g_autoptr(GError) problem = NULL;
    json_t *list = qv_docker_list(docker, s->head.id, &problem);
    gboolean ok = list != NULL;
    for (gsize i = 0; ok && i < json_array_size(list); i++)
      ok = qv_docker_remove_container(docker, json_string_value(json_object_get(json_array_get(list, i), "Id")), NULL, until_ms,
                                      &problem);
    json_decref(list);
    if (ok)
      return TRUE;
    if (qv_clock_mono_ms() >= until_ms) {
      g_propagate_error(error, g_steal_pointer(&problem));
      return FALSE;
    }
    pause_longer(&pause_us);
  }
}

/* Looked for where the start was cut off; of one that ran the folder is known. */
static gboolean groups_may_be_left(const QvDockerSandbox *s)
{
  return !s->head.started || s->group.memory == NULL || access(s->group.memory, F_OK) == 0;
}

/* The container is gone. Where its start was cut off, by us or by the engine's end, and another engine has removed it, more may
 * come: the run folder stays, marked. */
static gboolean leave_folder(QvDockerSandbox *s, GError **error)
{
  QvDockerBackend *docker = (QvDockerBackend *)s->head.backend;
  return s->start_open && !qv_docker_made_it(docker, s->container) ? qv_docker_mark_cut(docker, s->head.id, error)
                                                                   : qv_run_folder_remove(docker->runs_dir, s->head.id, error);
}

void qv_docker_end(QvSandbox *sandbox)
{
  ((QvDockerSandbox *)sandbox)->done = TRUE;
}

/* Its entry ends behind the end marker. To remove it a moment earlier the engine would start a program of the runtime for the kill, one
 * more than for the sandbox's own end, and no sooner be done. */
static void await_own_end(QvDockerSandbox *s, gint64 until_ms)
{
  if (s->done && s->waiting != NULL)
    qv_engine_finish(((QvDockerBackend *)s->head.backend)->engine, s->waiting, MIN(until_ms, qv_clock_mono_ms() + DONE_MS));
}

gboolean qv_docker_kill(QvSandbox *sandbox, GError **error)
{
  QvDockerSandbox *s = (QvDockerSandbox *)sandbox;
  QvDockerBackend *docker = (QvDockerBackend *)sandbox->backend;
  gint64 until_ms = qv_clock_mono_ms() + QV_DOCKER_KILL_MS;
  if (!s->killed && s->head.started && !s->has_exit)
    qv_docker_group_read(&s->group, &s->usage);
  s->killed = TRUE;
  await_own_end(s, until_ms);
  qv_docker_quiet(s);
  if (s->clean)
    return TRUE;
  /* One that is under way would make its container behind our back (runner/warm-docker-runsc). */
  if (s->making != NULL)
    qv_engine_finish(s->maker, NULL, until_ms);
  if (s->making != NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_TIMEOUT, "docker: the engine has not answered the creation of %s", s->head.id);
    return FALSE;
  }
  if (s->container != NULL) {
    if (!qv_docker_remove_container(docker, s->container, &s->group, until_ms, error))
      return FALSE;
    if (groups_may_be_left(s))
      qv_docker_remove_groups(s->container);
  } else if (s->create_sent && !remove_unknown(s, until_ms, error)) {
    return FALSE;
  }
  if (s->lock_fd >= 0 && !leave_folder(s, error))
    return FALSE;
  s->clean = TRUE;
  qv_io_close_cleanup(&s->lock_fd);
  return TRUE;
}

/* ---- network */

static gboolean is_off(QvDockerBackend *docker, const char *container, gint64 until_ms, GError **error)
{
  g_auto(QvEngineAnswer) answer = {0};
  g_autofree char *path = g_strdup_printf("/containers/%s/json", container);
  QvEngineRequest request = {.method = "GET", .path = path, .deadline_ms = left_ms(until_ms)};
  if (!qv_engine_do(docker->engine, &request, &answer, error))
    return FALSE;
  const json_t *networks = json_object_get(json_object_get(answer.json, "NetworkSettings"), "Networks");
  if (json_object_size(networks) == 0)
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_PEER, "docker: container %.12s is still on a network", container);
  return FALSE;
}

/* Asked of the engine, and seen. */
static gboolean take_off(QvDockerSandbox *s, gint64 until_ms, GError **error)
{
  QvDockerBackend *docker = (QvDockerBackend *)s->head.backend;
  g_autofree char *name = qv_engine_escape(s->spec->egress_network);
  g_autofree char *path = g_strdup_printf("/networks/%s/disconnect", name);
  g_autofree char *body = g_strdup_printf("{\"Container\":\"%s\",\"Force\":true}", s->container);
  QvEngineRequest request = {.method = "POST", .path = path, .body = body, .deadline_ms = left_ms(until_ms)};
  return qv_engine_do(docker->engine, &request, NULL, error) && is_off(docker, s->container, until_ms, error);
}

gboolean qv_docker_cut_network(QvSandbox *sandbox, GError **error)
{
  QvDockerSandbox *s = (QvDockerSandbox *)sandbox;
  gint64 now_ms = qv_clock_mono_ms();
  if (s->spec->egress_network == NULL || s->clean || s->container == NULL || take_off(s, now_ms + CUT_MS, error))
    return TRUE;
  /* A removal would ask the same engine first. */
  if (s->head.started && !s->has_exit)
    qv_docker_group_read(&s->group, &s->usage);
  qv_docker_end_processes(s->container, &s->group, qv_clock_mono_ms() + CUT_END_MS, NULL);
  return FALSE;
}
