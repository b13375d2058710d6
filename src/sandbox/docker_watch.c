/* SPDX-License-Identifier: Apache-2.0 */
/* Owns what others are told of an engine, so that they need not ask it: each question makes the engine run `runc --version` and
 * `docker-init --version`, 14 ms of processor time and as long again of waiting for the two that a backend asks. And the watch that says
 * how long it holds:
 *
 *   stream of events is open ──> the engine is asked, and told of ──reload, or the end of the stream──> it holds no longer
 *
 * In that order no change goes by unseen: an engine's runtimes change with its process, whose streams end with it, or by SIGHUP, of
 * which it makes an event. The text travels between processes of one runner. */
#include <jansson.h>

#include "base/error.h"
#include "sandbox/docker_private.h"

/* {"type":["daemon"],"event":["reload"]} */
#define RELOADS "/events?filters=%7B%22type%22%3A%5B%22daemon%22%5D%2C%22event%22%3A%5B%22reload%22%5D%7D"

char *qv_docker_engine_format(const QvBackend *backend)
{
  const QvDockerBackend *docker = (const QvDockerBackend *)backend;
  json_t *json = json_pack("{s:s,s:s,s:s,s:s,s:s?,s:b}", "version", docker->version, "api", qv_engine_api(docker->engine), "runtime",
                           docker->runtime, "runtimeOffline", docker->runtime_offline, "program", docker->runtime_program,
                           "cgroupV2", docker->cgroup_v2);
  char *dumped = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL; /* NULL: a name that is no UTF-8 */
  char *text = g_strdup(dumped);
  free(dumped);
  json_decref(json);
  return text;
}

gboolean qv_docker_engine_parse(QvDockerBackend *docker, const char *text, GError **error)
{
  json_error_t why = {0};
  json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &why), *program = NULL;
  const char *version, *api, *runtime, *offline;
  int cgroup_v2;
  gboolean fine = json != NULL && json_unpack_ex(json, &why, 0, "{s:s,s:s,s:s,s:s,s:o,s:b !}", "version", &version, "api", &api,
                                                 "runtime", &runtime, "runtimeOffline", &offline, "program", &program, "cgroupV2",
                                                 &cgroup_v2) == 0;
  if (fine) {
    docker->version = g_strdup(version);
    qv_engine_set_api(docker->engine, api);
    docker->runtime = g_strdup(runtime);
    docker->runtime_offline = g_strdup(offline);
    docker->runtime_program = g_strdup(json_string_value(program));
    docker->cgroup_v2 = cgroup_v2;
  } else {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "docker: what is told of the engine: %s", why.text);
  }
  json_decref(json);
  return fine && qv_engine_load(error);
}

/* ---- the watch */

typedef struct {
  gboolean open, over;
} Watch;

static void on_head(QvEngineCall *call, long status, gpointer data)
{
  ((Watch *)data)->open = status == 200;
}

static void on_reload(QvEngineCall *call, const char *line, gsize n, gpointer data)
{
  ((Watch *)data)->over = TRUE;
}

static void on_end(QvEngineCall *call, const QvEngineAnswer *answer, const GError *error, gpointer data)
{
  ((Watch *)data)->over = TRUE;
}

void qv_docker_await_change(QvBackend *backend, gboolean (*watched)(gpointer data), gpointer user)
{
  static const QvEngineEvents events = {.head = on_head, .line = on_reload, .done = on_end};
  const QvDockerBackend *docker = (const QvDockerBackend *)backend;
  Watch watch = {0};
  gboolean told = FALSE;
  g_autoptr(GMainContext) context = g_main_context_new();
  g_main_context_push_thread_default(context);
  QvEngine *engine = qv_engine_new(qv_engine_socket(docker->engine));
  qv_engine_set_api(engine, qv_engine_api(docker->engine));
  qv_engine_begin(engine, &(QvEngineRequest){.method = "GET", .path = RELOADS}, &events, &watch);
  while (!watch.over) {
    g_main_context_iteration(context, TRUE);
    if (!watch.open || watch.over || told)
      continue;
    told = TRUE;
    if (!watched(user))
      break;
  }
  qv_engine_free(engine);
  g_main_context_pop_thread_default(context);
}
