/* SPDX-License-Identifier: Apache-2.0 */
/* quavon run */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/error.h"
#include "base/limits.h"
#include "cli/embedded.h"
#include "client/image.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/run_options.h"
#include "cli/verb.h"
#include "cli/watch.h"
#include "protocol/registries.h"

/* Beside the command's own time: transfer, unpacking, setup, artefacts. */
enum { WALL_EXTRA_MS = 300000 };

static void set_limits(QuavonJob *job, QuavonStep *step, const QvRunOptions *options, const QvConfig *config)
{
  if (options->timeout_ms > 0) {
    gint64 wall_ms = MIN(options->timeout_ms + WALL_EXTRA_MS, config->max_wall_ms);
    quavon_job_set_limit(job, "wallMs", MAX(wall_ms, options->timeout_ms));
    quavon_step_set_timeout_ms(step, options->timeout_ms);
  }
  if (options->memory_mib > 0)
    quavon_job_set_limit(job, "memoryMiB", options->memory_mib);
  if (options->milli_cpus > 0)
    quavon_job_set_limit(job, "milliCpus", options->milli_cpus);
}

static QuavonJob *describe(const QvRunOptions *options, const QvConfig *config)
{
  QuavonJob *job = quavon_job_new();
  if (options->repo != NULL)
    quavon_job_set_folder(job, options->repo);
  quavon_job_set_revision(job, options->rev);
  quavon_job_set_all(job, options->all);
  if (options->tenant != NULL)
    quavon_job_set_tenant(job, options->tenant);
  if (options->image != NULL)
    quavon_job_set_image(job, options->image, NULL);
  if (options->setup != NULL)
    quavon_job_set_setup(job, (const char *const[]){ "/bin/sh", "-c", options->setup, NULL });
  QuavonStep *step = quavon_job_add_step(job, "run", (const char *const *)options->command);
  for (guint i = 0; options->env != NULL && options->env[i] != NULL; i++) {
    g_auto(GStrv) parts = g_strsplit(options->env[i], "=", 2);
    quavon_step_add_env(step, parts[0], parts[1]);
  }
  for (guint i = 0; options->artefacts != NULL && options->artefacts[i] != NULL; i++)
    quavon_job_add_artefact(job, options->artefacts[i]);
  for (guint i = 0; options->egress != NULL && options->egress[i] != NULL; i++)
    quavon_job_add_egress(job, options->egress[i]);
  set_limits(job, step, options, config);
  return job;
}

/* What ended the wait, when it was not the job. */
static int fail(QvProgress *progress, QuavonError *error)
{
  qv_progress_end_line(progress);
  const char *trouble = progress->embedded != NULL ? qv_embedded_trouble(progress->embedded) : NULL;
  if (trouble == NULL)
    return qv_fail(error);
  qv_complain("%s", trouble);
  quavon_error_free(error);
  return QV_CLI_SANDBOX;
}

static int run_job(QuavonClient *client, const QuavonJob *job, const QvRunOptions *options, QvProgress *progress)
{
  char job_id[QUAVON_JOB_ID_SIZE];
  QuavonError *error = NULL;
  if (quavon_submit(client, job, qv_progress_show, progress, job_id, &error) != 0)
    return fail(progress, error);
  if (options->detach) {
    qv_progress_end_line(progress);
    puts(job_id);
    return QV_CLI_OK;
  }
  g_auto(QvLiveView) live = { 0 };
  const QvWatchOptions watch = { .live = options->live, .no_live = options->no_live, .json = options->json,
                                 .raw = options->raw, .quiet = options->quiet };
  QuavonResult *result = qv_watch(client, job_id, &watch, progress, &live, &error);
  if (result == NULL)
    return fail(progress, error);
  QvReportOptions report = { .json = options->json, .raw = options->raw, .quiet = options->quiet,
                             .force = options->force, .output = options->output, .live = &live };
  int status = qv_report(client, result, &report);
  quavon_result_free(result);
  return status;
}

/* With Valkey as it is set, or with one of our own. */
static int run_with(const QvRunOptions *options, const QvConfig *config, QvEmbedded *embedded)
{
  QuavonError *error = NULL;
  QvProgress progress;
  qv_progress_init(&progress, options->quiet, embedded);
  QuavonClient *client = quavon_client_open(embedded != NULL ? qv_embedded_settings(embedded) : NULL, &error);
  if (client == NULL)
    return fail(&progress, error);
  /* A runner of our own comes up while the tree is packed, and what keeps it from that ends the run (fail). */
  quavon_client_set_need_runner(client, embedded == NULL);
  QuavonJob *job = describe(options, config);
  /* What does not isolate is asked for by name; whoever names it for a runner of their own has asked. */
  if (embedded != NULL && strcmp(config->backend, "docker-runc-insecure") == 0)
    quavon_job_add_backend(job, config->backend);
  int status = run_job(client, job, options, &progress);
  quavon_job_free(job);
  quavon_client_close(client);
  return status;
}

/* Here the caller is the operator too: said before anything is started. */
static gboolean registries_allow(const QvRunOptions *options, const QvConfig *config, GError **error)
{
  if (options->egress == NULL)
    return TRUE;
  g_autofree char *text = qv_config_registries(config, error);
  g_autoptr(QvRegistries) registries = text != NULL ? qv_registries_parse(text, error) : NULL;
  if (registries == NULL)
    return FALSE;
  for (guint i = 0; options->egress[i] != NULL; i++) {
    if (qv_registries_find(registries, options->egress[i]) != NULL)
      continue;
    g_set_error(error, QV_ERROR, QV_ERROR_POLICY,
                "--egress %s: QUAVON_SANDBOX_REGISTRIES does not list it; list what setup steps may ever reach, as in "
                "QUAVON_SANDBOX_REGISTRIES=%s", options->egress[i], options->egress[i]);
    return FALSE;
  }
  return TRUE;
}

static int run_embedded(const QvRunOptions *options, const QvConfig *config)
{
  g_autoptr(GError) error = NULL;
  const char *image = options->image != NULL ? options->image : "base";
  if (options->detach)
    return qv_usage("run", "--detach needs a runner that stays: set VALKEY_URL");
  if (!g_path_is_absolute(config->state_dir)) {
    qv_complain("QUAVON_SANDBOX_STATE_DIR: %s is not an absolute path", config->state_dir);
    return QV_CLI_CONFIG;
  }
  if (geteuid() != 0) {
    qv_complain("starting a sandbox of your own needs root: use `sudo quavon run …`, or set VALKEY_URL (and "
                "QUAVON_SANDBOX_SIGNING_KEY_FILE) to a runner that is there");
    return QV_CLI_NO_PERMISSION;
  }
  g_autofree char *digest = qv_image_current_digest(config, image, &error);
  if (digest == NULL || !registries_allow(options, config, &error)) {
    qv_complain("%s", error->message);
    return QV_CLI_CONFIG;
  }
  QvEmbedded *embedded = qv_embedded_start(options->egress != NULL, &error);
  if (embedded == NULL) {
    qv_complain("%s", error->message);
    return qv_interrupted() ? QV_CLI_CANCELLED : QV_CLI_SANDBOX;
  }
  int status = qv_interrupted() ? QV_CLI_CANCELLED : run_with(options, config, embedded);
  gboolean before = qv_interrupted();
  qv_embedded_stop(embedded);
  return !before && qv_interrupted() ? QV_CLI_CANCELLED : status;
}

int qv_verb_run(int argc, char **argv)
{
  g_auto(QvRunOptions) options = { 0 };
  int status = QV_CLI_OK;
  if (!qv_run_options_parse(argc, argv, &options, &status))
    return status;
  g_autoptr(QvConfig) config = qv_verb_config();
  if (config == NULL)
    return QV_CLI_CONFIG;
  if (options.output != NULL && !qv_output_check(options.output, options.force))
    return QV_CLI_USAGE;
  qv_interrupt_watch();
  return config->valkey_url != NULL ? run_with(&options, config, NULL) : run_embedded(&options, config);
}
