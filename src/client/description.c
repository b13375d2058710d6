/* SPDX-License-Identifier: Apache-2.0 */
/* Owns QuavonJob and QuavonStep. Values are judged by protocol/job when the job is signed. */
#include "client/description.h"

#include <string.h>

#include "base/error.h"
#include "base/limits.h"

struct QuavonStep {
  QvStep step;
  GArray *env; /* of QvStepEnv */
};

/* Those that isolate; docker-runc-insecure must be asked for by name. */
static const char *const isolating[] = { "runsc", "docker-runsc", "firecracker", "kubernetes-runsc" };

static void env_clear(gpointer data)
{
  QvStepEnv *env = data;
  g_free(env->name);
  g_free(env->value);
}

static void step_free(gpointer data)
{
  QuavonStep *step = data;
  if (step == NULL)
    return;
  g_free(step->step.name);
  g_strfreev(step->step.argv);
  g_free(step->step.cwd);
  g_array_unref(step->env);
  g_free(step);
}

static QuavonStep *step_new(const char *name, const char *const *argv)
{
  QuavonStep *step = g_new0(QuavonStep, 1);
  step->step.name = g_strdup(name);
  step->step.argv = g_strdupv((char **)argv);
  step->env = g_array_new(FALSE, TRUE, sizeof(QvStepEnv));
  g_array_set_clear_func(step->env, env_clear);
  return step;
}

QuavonJob *quavon_job_new(void)
{
  QuavonJob *job = g_new0(QuavonJob, 1);
  job->job = qv_job_new();
  job->backends = g_ptr_array_new_with_free_func(g_free);
  job->egress = g_ptr_array_new_with_free_func(g_free);
  job->artefacts = g_ptr_array_new_with_free_func(g_free);
  job->steps = g_ptr_array_new_with_free_func(step_free);
  job->folder = g_strdup(".");
  job->admission_ms = QV_VALIDITY_MS_MAX;
  quavon_job_set_tenant(job, "local");
  quavon_job_set_kind(job, "check");
  quavon_job_set_image(job, "base", NULL);
  return job;
}

void quavon_job_free(QuavonJob *job)
{
  if (job == NULL)
    return;
  qv_job_free(job->job);
  g_ptr_array_unref(job->backends);
  g_ptr_array_unref(job->egress);
  g_ptr_array_unref(job->artefacts);
  g_ptr_array_unref(job->steps);
  step_free(job->setup);
  g_free(job->folder);
  g_free(job->revision);
  g_free(job->unknown_limit);
  g_free(job);
}

static void replace(char **text, const char *by)
{
  char *old = *text;
  *text = g_strdup(by);
  g_free(old);
}

void quavon_job_set_tenant(QuavonJob *job, const char *tenant_id)
{
  replace(&job->job->tenant_id, tenant_id);
}

void quavon_job_set_kind(QuavonJob *job, const char *kind)
{
  replace(&job->job->kind, kind);
}

void quavon_job_set_image(QuavonJob *job, const char *name, const char *digest_or_null)
{
  replace(&job->job->image.name, name);
  replace(&job->job->image.digest, digest_or_null);
}

void quavon_job_add_backend(QuavonJob *job, const char *backend)
{
  g_ptr_array_add(job->backends, g_strdup(backend));
}

void quavon_job_set_folder(QuavonJob *job, const char *folder)
{
  replace(&job->folder, folder);
}

void quavon_job_set_revision(QuavonJob *job, const char *revision)
{
  replace(&job->revision, revision);
}

void quavon_job_set_all(QuavonJob *job, int all)
{
  job->all = all != 0;
}

QuavonStep *quavon_job_set_setup(QuavonJob *job, const char *const *argv)
{
  step_free(job->setup);
  job->setup = step_new("setup", argv);
  return job->setup;
}

QuavonStep *quavon_job_add_step(QuavonJob *job, const char *name, const char *const *argv)
{
  QuavonStep *step = step_new(name, argv);
  g_ptr_array_add(job->steps, step);
  return step;
}

void quavon_step_set_cwd(QuavonStep *step, const char *cwd)
{
  replace(&step->step.cwd, cwd);
}

void quavon_step_set_timeout_ms(QuavonStep *step, int64_t timeout_ms)
{
  step->step.timeout_ms = timeout_ms;
}

void quavon_step_add_env(QuavonStep *step, const char *name, const char *value)
{
  for (guint i = 0; i < step->env->len; i++) {
    QvStepEnv *env = &g_array_index(step->env, QvStepEnv, i);
    if (strcmp(env->name, name) == 0) { /* as in a shell, the last one holds */
      replace(&env->value, value);
      return;
    }
  }
  QvStepEnv env = { .name = g_strdup(name), .value = g_strdup(value) };
  g_array_append_val(step->env, env);
}

void quavon_step_set_continue_on_failure(QuavonStep *step, int go_on)
{
  step->step.continue_on_failure = go_on != 0;
}

void quavon_job_add_egress(QuavonJob *job, const char *host_and_port)
{
  g_ptr_array_add(job->egress, g_strdup(host_and_port));
}

void quavon_job_add_artefact(QuavonJob *job, const char *glob)
{
  g_ptr_array_add(job->artefacts, g_strdup(glob));
}

void quavon_job_set_limit(QuavonJob *job, const char *name, int64_t value)
{
#define SET_LIMIT(field, text) \
  if (strcmp(name, text) == 0) { \
    job->job->given.field = value; \
    return; \
  }
  QV_LIMITS_TABLE(SET_LIMIT)
#undef SET_LIMIT
  if (job->unknown_limit == NULL)
    job->unknown_limit = g_strdup(name);
}

void quavon_job_set_admission_ms(QuavonJob *job, int64_t admission_ms)
{
  job->admission_ms = admission_ms;
}

void qv_description_snapshot(const QuavonJob *description, QvSnapshotOptions *options)
{
  *options = (QvSnapshotOptions){
    .dir = description->folder,
    .rev = description->revision,
    .all = description->all,
  };
}

static char **copy_texts(const GPtrArray *texts)
{
  char **copy = g_new0(char *, texts->len + 1);
  for (guint i = 0; i < texts->len; i++)
    copy[i] = g_strdup(g_ptr_array_index(texts, i));
  return copy;
}

static gint compare_env(gconstpointer a, gconstpointer b)
{
  return strcmp(((const QvStepEnv *)a)->name, ((const QvStepEnv *)b)->name);
}

static void copy_step(const QuavonStep *from, QvStep *to)
{
  to->name = g_strdup(from->step.name);
  to->argv = g_strdupv(from->step.argv);
  to->cwd = g_strdup(from->step.cwd);
  to->timeout_ms = from->step.timeout_ms;
  to->continue_on_failure = from->step.continue_on_failure;
  to->env_n = from->env->len;
  to->env = g_new0(QvStepEnv, to->env_n + 1);
  for (guint i = 0; i < from->env->len; i++) {
    const QvStepEnv *env = &g_array_index(from->env, QvStepEnv, i);
    to->env[i] = (QvStepEnv){ .name = g_strdup(env->name), .value = g_strdup(env->value) };
  }
  qsort(to->env, to->env_n, sizeof *to->env, compare_env);
}

QvJob *qv_description_build(const QuavonJob *description, GError **error)
{
  const QvJob *said = description->job;
  if (description->unknown_limit != NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "limits: there is no limit `%s`", description->unknown_limit);
    return NULL;
  }
  g_autoptr(QvJob) job = qv_job_new();
  replace(&job->tenant_id, said->tenant_id);
  replace(&job->kind, said->kind);
  replace(&job->image.name, said->image.name);
  replace(&job->image.digest, said->image.digest);
  g_strfreev(job->backends);
  job->backends = description->backends->len > 0 ? copy_texts(description->backends) : NULL;
  if (job->backends == NULL) {
    job->backends = g_new0(char *, G_N_ELEMENTS(isolating) + 1);
    for (guint i = 0; i < G_N_ELEMENTS(isolating); i++)
      job->backends[i] = g_strdup(isolating[i]);
  }
  g_strfreev(job->deletes);
  job->deletes = g_new0(char *, 1);
  g_strfreev(job->egress);
  job->egress = copy_texts(description->egress);
  g_strfreev(job->artefacts);
  job->artefacts = copy_texts(description->artefacts);
  job->given = said->given;
  if (description->setup != NULL) {
    job->setup = g_new0(QvStep, 1);
    copy_step(description->setup, job->setup);
  }
  job->run_n = description->steps->len;
  job->run = g_new0(QvStep, job->run_n + 1);
  for (guint i = 0; i < description->steps->len; i++)
    copy_step(g_ptr_array_index(description->steps, i), &job->run[i]);
  return g_steal_pointer(&job);
}
