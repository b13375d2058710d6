/* SPDX-License-Identifier: Apache-2.0 */
/* Owns QuavonRunners: the public view of health records. */
#include "client/health.h"

struct QuavonRunners {
  GPtrArray *seen;    /* of QvRunnerSeen */
  QuavonRunner *view; /* parallel; borrows from it */
};

static void view_images(QuavonRunner *view, const QvHealth *health)
{
  const char **names = g_new0(const char *, health->images_n + 1);
  const char **digests = g_new0(const char *, health->images_n + 1);
  for (gsize i = 0; i < health->images_n; i++) {
    names[i] = health->images[i].name;
    digests[i] = health->images[i].digest;
  }
  view->image_names = names;
  view->image_digests = digests;
  view->images_n = health->images_n;
}

static void view_runner(QuavonRunner *view, const QvRunnerSeen *seen)
{
  static const char *const none[] = { NULL };
  const QvHealth *health = seen->health;
  *view = (QuavonRunner){ .runner_id = seen->runner_id, .trouble = seen->error != NULL ? seen->error->message : NULL,
                          .smoke_passed = -1, .smoke_failed = none, .problems = none };
  if (health == NULL)
    return;
  view->previous_key = !seen->current;
  view->version = health->version;
  view->backend = health->backend;
  view->runtime_name = health->runtime_name;
  view->runtime_version = health->runtime_version;
  view->platform = health->platform;
  view->host_id = health->host_id;
  view->kernel = health->kernel;
  view->cgroup = health->cgroup;
  view->concurrency = health->concurrency;
  view->busy = health->busy;
  view->started_at_ms = health->started_at;
  view->at_ms = health->at;
  view->insecure = health->insecure;
  view->problems = (const char *const *)health->problems;
  if (health->smoke != NULL) {
    view->smoke_passed = health->smoke->passed;
    view->smoke_at_ms = health->smoke->at;
    view->smoke_probes = health->smoke->probes;
    view->smoke_failed = (const char *const *)health->smoke->failed;
  }
  view_images(view, health);
}

QuavonRunners *quavon_runners_read(QuavonClient *client, QuavonError **error)
{
  g_autoptr(QvSessionScope) scope G_GNUC_UNUSED = qv_session_enter(client);
  GError *cause = NULL;
  GPtrArray *seen = qv_session_runners(client, &cause);
  if (seen == NULL) {
    qv_api_error_take_as(error, QUAVON_ERROR_UNAVAILABLE, cause);
    return NULL;
  }
  QuavonRunners *runners = g_new0(QuavonRunners, 1);
  runners->seen = seen;
  runners->view = g_new0(QuavonRunner, seen->len + 1);
  for (guint i = 0; i < seen->len; i++)
    view_runner(&runners->view[i], seen->pdata[i]);
  return runners;
}

size_t quavon_runners_n(const QuavonRunners *runners)
{
  return runners->seen->len;
}

const QuavonRunner *quavon_runners_get(const QuavonRunners *runners, size_t i)
{
  return i < runners->seen->len ? &runners->view[i] : NULL;
}

void quavon_runners_free(QuavonRunners *runners)
{
  if (runners == NULL)
    return;
  for (guint i = 0; i < runners->seen->len; i++) {
    g_free((gpointer)runners->view[i].image_names);
    g_free((gpointer)runners->view[i].image_digests);
  }
  g_free(runners->view);
  g_ptr_array_unref(runners->seen);
  g_free(runners);
}

void quavon_client_set_need_runner(QuavonClient *client, int need)
{
  client->unattended = need == 0;
}
