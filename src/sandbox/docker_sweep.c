/* SPDX-License-Identifier: Apache-2.0 */
/* Owns what an earlier process left, and the leak check. Both look at the engine's containers with our labels (runner
 * id and owner: never another runner's, never an unlabelled one) and at our run folders, and at nothing else. Of a start that was
 * cut off what there is goes at once, and the run folder when what may still come has come (docker_mark.c). */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/hex.h"
#include "sandbox/docker_private.h"
#include "sandbox/run_folder.h"

#define SWEEP_DEADLINE_MS 30000 /* a sandbox */
#define NOTE_BYTES_MAX 128

gboolean qv_docker_container_id_valid(const char *id)
{
  return id != NULL && strlen(id) == QV_DOCKER_ID_HEX && qv_hex_valid(id, QV_DOCKER_ID_HEX);
}

char *qv_docker_note_path(const QvDockerBackend *docker, const char *sandbox_id)
{
  return g_build_filename(docker->runs_dir, sandbox_id, "container", NULL);
}

char *qv_docker_read_note(const QvDockerBackend *docker, const char *sandbox_id)
{
  gsize n;
  g_autofree char *path = qv_docker_note_path(docker, sandbox_id);
  g_autofree char *text = qv_fd_read_file(path, NOTE_BYTES_MAX, &n, NULL);
  return qv_docker_container_id_valid(text) ? g_steal_pointer(&text) : NULL;
}

static gboolean is_ours(const QvDockerBackend *docker, const json_t *container)
{
  const json_t *labels = json_object_get(container, "Labels");
  return g_strcmp0(json_string_value(json_object_get(labels, QV_LABEL_RUNNER)), docker->runner_id) == 0 &&
         g_strcmp0(json_string_value(json_object_get(labels, QV_LABEL_OWNER)), docker->owner) == 0 &&
         qv_sandbox_id_is_valid(json_string_value(json_object_get(labels, QV_LABEL_JOB))) &&
         qv_docker_container_id_valid(json_string_value(json_object_get(container, "Id")));
}

static const char *job_of(const json_t *container)
{
  return json_string_value(json_object_get(json_object_get(container, "Labels"), QV_LABEL_JOB));
}

json_t *qv_docker_list(QvDockerBackend *docker, const char *sandbox_id, GError **error)
{
  g_autofree char *owner = g_strconcat(QV_LABEL_OWNER "=", docker->owner, NULL);
  json_t *filters = json_pack("{s:[s]}", "label", owner);
  char *text = json_dumps(filters, JSON_COMPACT);
  g_autofree char *escaped = qv_engine_escape(text);
  g_autofree char *path = g_strdup_printf("/containers/json?all=1&filters=%s", escaped);
  free(text);
  json_decref(filters);
  g_auto(QvEngineAnswer) answer = {0};
  QvEngineRequest request = {.method = "GET", .path = path, .deadline_ms = QV_DOCKER_CALL_MS};
  if (!qv_engine_do(docker->engine, &request, &answer, error))
    return NULL;
  if (!json_is_array(answer.json)) {
    g_set_error(error, QV_ERROR, QV_ERROR_PEER, "docker: the list of containers is none");
    return NULL;
  }
  /* The engine's filter is believed only where it says no. */
  json_t *ours = json_array();
  for (gsize i = 0; i < json_array_size(answer.json); i++) {
    json_t *container = json_array_get(answer.json, i);
    if (is_ours(docker, container) && (sandbox_id == NULL || strcmp(job_of(container), sandbox_id) == 0))
      json_array_append(ours, container);
  }
  return ours;
}

/* ---- sweep */

/* A run folder with a bundle is the other backend's. */
static gboolean is_foreign(const QvDockerBackend *docker, const char *id)
{
  g_autofree char *bundle = g_build_filename(docker->runs_dir, id, "bundle", NULL);
  return access(bundle, F_OK) == 0;
}

static GHashTable *find_ids(QvDockerBackend *docker, const json_t *list, GError **error)
{
  g_autoptr(GHashTable) ids = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  if (!qv_run_folder_ids(docker->runs_dir, ids, error))
    return NULL;
  GHashTableIter iter;
  gpointer id;
  g_hash_table_iter_init(&iter, ids);
  while (g_hash_table_iter_next(&iter, &id, NULL))
    if (is_foreign(docker, id))
      g_hash_table_iter_remove(&iter);
  for (gsize i = 0; i < json_array_size(list); i++)
    g_hash_table_add(ids, g_strdup(job_of(json_array_get(list, i))));
  return g_steal_pointer(&ids);
}

/* Whoever had it was cut off at some moment: nothing of it is taken for granted. */
static gboolean remove_one(QvDockerBackend *docker, const char *container, gint64 until_ms, GError **error)
{
  if (!qv_docker_remove_container(docker, container, NULL, until_ms, error))
    return FALSE;
  qv_docker_remove_groups(container);
  return TRUE;
}

static gboolean remove_all(QvDockerBackend *docker, const json_t *list, const char *id, GError **error)
{
  gint64 until_ms = qv_clock_mono_ms() + SWEEP_DEADLINE_MS;
  g_autofree char *noted = qv_docker_read_note(docker, id);
  for (gsize i = 0; i < json_array_size(list); i++) {
    const json_t *container = json_array_get(list, i);
    if (strcmp(job_of(container), id) == 0 &&
        !remove_one(docker, json_string_value(json_object_get(container, "Id")), until_ms, error))
      return FALSE;
  }
  /* The engine may have forgotten it, and the host not. */
  return noted == NULL || remove_one(docker, noted, until_ms, error);
}

/* What may still come keeps its run folder. */
static gboolean close_folder(QvDockerBackend *docker, const char *id, QvDockerMark mark, QvSweepReport *report, GError **error)
{
  g_autofree char *noted = mark == QV_DOCKER_MARK_STARTING ? qv_docker_read_note(docker, id) : NULL;
  gboolean cut = mark == QV_DOCKER_MARK_STARTING && (noted == NULL || !qv_docker_made_it(docker, noted));
  gboolean later = cut || mark == QV_DOCKER_MARK_CUT;
  if (later ? cut && !qv_docker_mark_cut(docker, id, error) : !qv_run_folder_remove(docker->runs_dir, id, error))
    return FALSE;
  *(later ? &report->later : &report->removed) += 1;
  return TRUE;
}

static void sweep_one(QvDockerBackend *docker, const json_t *list, const char *id, QvSweepReport *report, GError **error)
{
  gboolean busy;
  g_autoptr(GError) problem = NULL;
  G_GNUC_UNUSED QV_AUTOFD int lock = qv_run_folder_lock(docker->runs_dir, id, &busy, &problem);
  if (busy) {
    report->busy++;
    return;
  }
  /* Read before the removal: an old mark is one that this look is behind. */
  QvDockerMark mark = qv_docker_mark_read(docker, id);
  if (problem == NULL && remove_all(docker, list, id, &problem) && close_folder(docker, id, mark, report, &problem))
    return;
  report->failed++;
  if (error != NULL && *error == NULL)
    g_propagate_prefixed_error(error, g_steal_pointer(&problem), "sweep of %s: ", id);
}

gboolean qv_docker_sweep(QvBackend *backend, const char *sandbox_id, QvSweepReport *report, GError **error)
{
  QvDockerBackend *docker = (QvDockerBackend *)backend;
  g_autoptr(GError) first = NULL;
  json_t *list = qv_docker_list(docker, sandbox_id, error);
  g_autoptr(GHashTable) ids = list != NULL ? find_ids(docker, list, error) : NULL;
  if (ids == NULL) {
    json_decref(list);
    report->failed++;
    return FALSE;
  }
  GHashTableIter iter;
  gpointer id;
  g_hash_table_iter_init(&iter, ids);
  while (g_hash_table_iter_next(&iter, &id, NULL))
    if (sandbox_id == NULL || strcmp(sandbox_id, id) == 0)
      sweep_one(docker, list, id, report, &first);
  json_decref(list);
  if (report->failed == 0)
    return TRUE;
  g_propagate_error(error, g_steal_pointer(&first));
  return FALSE;
}

/* ---- leak check */

static void list_processes(const char *container, const char *id, GPtrArray *lines)
{
  g_autoptr(GArray) pids = qv_docker_processes(container, NULL);
  for (guint i = 0; i < pids->len; i++) {
    gint pid = g_array_index(pids, gint, i);
    gsize n;
    g_autofree char *path = g_strdup_printf("/proc/%d/comm", pid);
    g_autofree char *comm = qv_fd_read_file(path, 64, &n, NULL);
    g_ptr_array_add(lines, g_strdup_printf("process %d (%s) of %s in container %.12s", pid,
                                           comm != NULL ? g_strchomp(comm) : "?", id, container));
  }
}

char **qv_docker_leftovers(QvBackend *backend, const char *sandbox_id)
{
  QvDockerBackend *docker = (QvDockerBackend *)backend;
  GPtrArray *lines = g_ptr_array_new();
  g_autoptr(GError) problem = NULL;
  json_t *list = qv_docker_list(docker, sandbox_id, &problem);
  if (list == NULL)
    g_ptr_array_add(lines, g_strdup(problem->message));
  for (gsize i = 0; i < json_array_size(list); i++) {
    const json_t *container = json_array_get(list, i);
    const char *id = json_string_value(json_object_get(container, "Id"));
    const char *state = json_string_value(json_object_get(container, "State"));
    g_ptr_array_add(lines, g_strdup_printf("container %.12s (%s) of %s", id, state != NULL ? state : "?", job_of(container)));
    list_processes(id, job_of(container), lines);
  }
  g_autoptr(GHashTable) ids = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
  qv_run_folder_ids(docker->runs_dir, ids, NULL);
  GHashTableIter iter;
  gpointer id;
  g_hash_table_iter_init(&iter, ids);
  while (g_hash_table_iter_next(&iter, &id, NULL)) {
    if (sandbox_id != NULL && strcmp(sandbox_id, id) != 0)
      continue;
    g_ptr_array_add(lines, g_strdup_printf("run folder %s/%s", docker->runs_dir, (char *)id));
    g_autofree char *noted = qv_docker_read_note(docker, id);
    gboolean listed = FALSE;
    for (gsize i = 0; noted != NULL && i < json_array_size(list); i++)
      listed |= g_strcmp0(noted, json_string_value(json_object_get(json_array_get(list, i), "Id"))) == 0;
    if (noted != NULL && !listed)
      list_processes(noted, id, lines);
  }
  json_decref(list);
  g_ptr_array_add(lines, NULL);
  return (char **)g_ptr_array_free(lines, FALSE);
}
