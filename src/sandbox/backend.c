/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the list of backends, what is the same for all of them, and the check,
 * which goes through the same doors as a job. */
#include "sandbox/backend.h"

#include <string.h>

#include "base/error.h"
#include "base/io.h"
#include "base/random.h"
#include "sandbox/backend_private.h"

static const QvBackendOps *const BACKENDS[] = {&qv_runsc_ops, &qv_docker_runsc_ops, &qv_docker_runc_ops};

/* Small, yet enough for the entry to start. */
static const QvSandboxLimits TRIAL_LIMITS = {.memory_mib = 64, .work_mib = 16, .milli_cpus = 1000, .pids = 32};

static const QvBackendOps *find(const char *name)
{
  for (gsize i = 0; i < G_N_ELEMENTS(BACKENDS); i++)
    if (strcmp(BACKENDS[i]->name, name) == 0)
      return BACKENDS[i];
  return NULL;
}

gboolean qv_backend_takes_rootfs(const char *name)
{
  const QvBackendOps *ops = find(name);
  return ops == NULL || ops->takes_rootfs;
}

QvBackend *qv_backend_open(const char *name, const QvBackendOptions *options, GError **error)
{
  const QvBackendOps *ops = find(name);
  if (ops != NULL)
    return ops->open(options, error);
  g_set_error(error, QV_ERROR, QV_ERROR_POLICY, "backend %s is not in this build; set QUAVON_SANDBOX_BACKEND=%s", name,
              BACKENDS[0]->name);
  return NULL;
}

void qv_backend_free(QvBackend *backend)
{
  if (backend != NULL)
    backend->ops->free(backend);
}

const char *qv_backend_name(const QvBackend *backend)
{
  return backend->ops->name;
}

const char *qv_backend_platform(const QvBackend *backend)
{
  return backend->ops->platform;
}

const char *qv_backend_cgroup(const QvBackend *backend)
{
  return backend->ops->cgroup(backend);
}

const char *qv_backend_network(const QvBackend *backend)
{
  return backend->ops->network != NULL ? backend->ops->network(backend) : NULL;
}

gboolean qv_backend_look_network(QvBackend *backend, QvSandboxNetwork *network, GError **error)
{
  *network = (QvSandboxNetwork){0};
  return qv_backend_network(backend) != NULL && backend->ops->look_network(backend, network, error);
}

void qv_sandbox_network_clear(QvSandboxNetwork *network)
{
  g_strfreev(network->peers);
  *network = (QvSandboxNetwork){0};
}

QvSandbox *qv_backend_start(QvBackend *backend, const QvSandboxRequest *request, QvSandboxFunc func, gpointer data,
                            GError **error)
{
  return backend->ops->start(backend, request, func, data, error);
}

gboolean qv_backend_sweep(QvBackend *backend, const char *sandbox_id, QvSweepReport *report, GError **error)
{
  QvSweepReport own;
  if (report == NULL)
    report = &own;
  memset(report, 0, sizeof *report);
  return backend->ops->sweep(backend, sandbox_id, report, error);
}

void qv_backend_tidy(const char *name, const QvBackendOptions *options)
{
  const QvBackendOps *ops = find(name);
  if (ops != NULL && ops->tidy != NULL)
    ops->tidy(options);
}

char *qv_backend_engine(const QvBackend *backend)
{
  return backend->ops->engine != NULL ? backend->ops->engine(backend) : NULL;
}

void qv_backend_await_change(QvBackend *backend, gboolean (*watched)(gpointer data), gpointer data)
{
  if (backend->ops->await_change != NULL)
    backend->ops->await_change(backend, watched, data);
}

char **qv_backend_leftovers(QvBackend *backend)
{
  return backend->ops->leftovers(backend, NULL);
}

/* --- check --- */

static void note_trial(QvSandbox *sandbox, QvSandboxEvent event, gpointer data)
{
  gboolean *done = data;
  if (event == QV_SANDBOX_STARTED || event == QV_SANDBOX_EXITED)
    *done = TRUE;
}

static gboolean try_start(QvBackend *backend, const QvBackendImages *images, const char *id, const char *network,
                          GMainContext *context, GError **error)
{
  gboolean done = FALSE;
  QvSandboxRequest request = {.sandbox_id = id,
                              .rootfs_file = images->rootfs_file,
                              .image_digest = images->digests != NULL ? images->digests[0] : NULL,
                              .egress_network = network,
                              .limits = TRIAL_LIMITS};
  g_autoptr(QvSandbox) sandbox = qv_backend_start(backend, &request, note_trial, &done, error);
  if (sandbox == NULL)
    return FALSE;
  while (!done)
    g_main_context_iteration(context, TRUE);
  if (!sandbox->started) {
    g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "%s", sandbox->failure);
    return FALSE;
  }
  return backend->ops->verify(sandbox, error) && qv_sandbox_kill(sandbox, error);
}

/* NETWORK NULL: without one, as most jobs. */
static gboolean try_one(QvBackend *backend, const QvBackendImages *images, const char *network, GError **error)
{
  char id[QV_UUID_LEN + 1];
  qv_random_uuid(id);
  GMainContext *context = g_main_context_new();
  g_main_context_push_thread_default(context);
  gboolean ok = try_start(backend, images, id, network, context, error);
  g_main_context_pop_thread_default(context);
  g_main_context_unref(context);
  if (!ok) {
    g_prefix_error(error, "%s: the trial start of a container%s%s failed: ", backend->ops->name,
                   network != NULL ? " on the network " : "", network != NULL ? network : "");
    return FALSE;
  }
  g_auto(GStrv) leftovers = backend->ops->leftovers(backend, id);
  if (leftovers[0] == NULL)
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_SYSTEM, "%s: the trial container left something behind: %s", backend->ops->name,
              leftovers[0]);
  return FALSE;
}

gboolean qv_backend_check(QvBackend *backend, const QvBackendImages *images, char **version, GError **error)
{
  const QvBackendOps *ops = backend->ops;
  g_autofree char *found = NULL;
  if (!ops->version(backend, &found, error) ||
      (ops->check_images != NULL && !ops->check_images(backend, images, error)) ||
      !try_one(backend, images, NULL, error))
    return FALSE;
  const char *network = qv_backend_network(backend);
  if (network != NULL && !try_one(backend, images, network, error))
    return FALSE;
  if (version != NULL)
    *version = g_steal_pointer(&found);
  return TRUE;
}

/* --- sandboxes --- */

int qv_sandbox_take_stdin(QvSandbox *sandbox)
{
  return qv_io_steal(&sandbox->stdin_fd);
}

int qv_sandbox_take_stdout(QvSandbox *sandbox)
{
  return qv_io_steal(&sandbox->stdout_fd);
}

const char *qv_sandbox_id(const QvSandbox *sandbox)
{
  return sandbox->id;
}

gboolean qv_sandbox_has_started(const QvSandbox *sandbox)
{
  return sandbox->started;
}

int qv_sandbox_wait_status(const QvSandbox *sandbox)
{
  return sandbox->wait_status;
}

const char *qv_sandbox_failure(const QvSandbox *sandbox)
{
  return sandbox->failure;
}

const char *qv_sandbox_stderr(const QvSandbox *sandbox)
{
  return sandbox->diagnostics->str;
}

void qv_sandbox_usage(QvSandbox *sandbox, QvSandboxUsage *usage)
{
  sandbox->backend->ops->usage(sandbox, usage);
}

gboolean qv_sandbox_cut_network(QvSandbox *sandbox, GError **error)
{
  return sandbox->backend->ops->cut_network == NULL || sandbox->backend->ops->cut_network(sandbox, error);
}

void qv_sandbox_end(QvSandbox *sandbox)
{
  sandbox->backend->ops->end(sandbox);
}

gboolean qv_sandbox_kill(QvSandbox *sandbox, GError **error)
{
  return sandbox->backend->ops->kill(sandbox, error);
}

void qv_sandbox_free(QvSandbox *sandbox)
{
  if (sandbox != NULL)
    sandbox->backend->ops->free_sandbox(sandbox);
}
