/* SPDX-License-Identifier: Apache-2.0 */
/* Owns what a runner must know of an engine before it takes jobs: its runtimes, its images,
 * and what its refusals mean. */
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/error.h"
#include "sandbox/docker_private.h"
#include "sandbox/process.h"

#define RUNTIME "runsc"
#define RUNTIME_OFFLINE "runsc-offline"
#define PLATFORM "systrap"
#define VERSION_BYTES_MAX 4096
#define VERSION_MS 10000

/* ---- runtimes */

/* Does LIST hold --NAME=VALUE, in any of the forms that runsc takes? */
static gboolean has_flag(const json_t *list, const char *name, const char *value)
{
  gsize i;
  json_t *item;
  json_array_foreach(list, i, item) {
    const char *text = json_string_value(item);
    if (text == NULL || text[0] != '-')
      continue;
    text += strspn(text, "-");
    gsize n = strlen(name);
    if (strncmp(text, name, n) != 0)
      continue;
    if (text[n] == '=' && strcmp(text + n + 1, value) == 0)
      return TRUE;
    if (text[n] == '\0' && g_strcmp0(json_string_value(json_array_get(list, i + 1)), value) == 0)
      return TRUE;
  }
  return FALSE;
}

static const json_t *arguments_of(const json_t *runtimes, const char *name)
{
  return json_object_get(json_object_get(runtimes, name), "runtimeArgs");
}

static gboolean require_runtime(const json_t *runtimes, const char *name, gboolean offline, GError **error)
{
  const char *more = offline ? " --network=none" : "";
  if (json_object_get(runtimes, name) == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_POLICY,
                "docker: the engine has no runtime %s; register it: runsc install --runtime=%s -- --platform=%s%s && "
                "systemctl restart docker (docs/DOCKER.md)", name, name, PLATFORM, more);
    return FALSE;
  }
  const json_t *arguments = arguments_of(runtimes, name);
  if (has_flag(arguments, "platform", PLATFORM) && (!offline || has_flag(arguments, "network", "none")))
    return TRUE;
  g_set_error(error, QV_ERROR, QV_ERROR_POLICY,
              "docker: the runtime %s of the engine has no --platform=%s%s in its runtimeArgs; register it anew: runsc install "
              "--runtime=%s -- --platform=%s%s && systemctl restart docker (docs/DOCKER.md)", name, PLATFORM,
              offline ? " and --network=none" : "", name, PLATFORM, more);
  return FALSE;
}

gboolean qv_docker_choose_runtimes(QvDockerBackend *docker, const json_t *info, const QvBackendOptions *options,
                                   GError **error)
{
  const json_t *runtimes = json_object_get(info, "Runtimes");
  if (!docker->gvisor) {
    docker->runtime = g_strdup("runc");
    docker->runtime_offline = g_strdup("runc");
  } else {
    docker->runtime = g_strdup(options->runtime != NULL ? options->runtime : RUNTIME);
    gboolean named = options->runtime_offline != NULL;
    gboolean offline = named || json_object_get(runtimes, RUNTIME_OFFLINE) != NULL;
    docker->runtime_offline = g_strdup(named ? options->runtime_offline : offline ? RUNTIME_OFFLINE : docker->runtime);
    if (!require_runtime(runtimes, docker->runtime_offline, offline, error))
      return FALSE;
    if (docker->egress_network != NULL && !require_runtime(runtimes, docker->runtime, FALSE, error))
      return FALSE;
  }
  const json_t *entry = json_object_get(runtimes, docker->runtime_offline);
  docker->runtime_program = g_strdup(json_string_value(json_object_get(entry, "path")));
  return TRUE;
}

/* ---- version */

/* The first line of `runsc --version`, where the engine's program is on this host too; NULL: it is not. */
static char *program_version(const QvDockerBackend *docker)
{
  g_autofree char *program = docker->runtime_program != NULL ? g_find_program_in_path(docker->runtime_program) : NULL;
  const char *argv[] = {"runtime", "--version", NULL};
  int status = -1;
  char *text = program != NULL && program[0] == '/'
                 ? qv_process_output(program, argv, VERSION_MS, VERSION_BYTES_MAX, &status, NULL) : NULL;
  if (text == NULL || status != 0) {
    g_free(text);
    return NULL;
  }
  text[strcspn(text, "\n")] = '\0';
  char *last = strrchr(text, ' ');
  char *version = g_strescape(last != NULL ? last + 1 : text, NULL);
  g_free(text);
  return version;
}

gboolean qv_docker_version(QvBackend *backend, char **version, GError **error)
{
  const QvDockerBackend *docker = (const QvDockerBackend *)backend;
  g_autofree char *program = program_version(docker);
  g_autofree char *engine = g_strescape(docker->version, NULL);
  *version = g_strdup_printf("%s%sDocker %s", program != NULL ? program : "", program != NULL ? " on " : "", engine);
  return TRUE;
}

/* ---- images */

static const char *architecture(void)
{
  static struct utsname machine;
  uname(&machine);
  return strcmp(machine.machine, "x86_64") == 0 ? "amd64" : strcmp(machine.machine, "aarch64") == 0 ? "arm64" : "another";
}

static gboolean check_image(QvDockerBackend *docker, const char *digest, GError **error)
{
  g_auto(QvEngineAnswer) answer = {0};
  g_autoptr(GError) problem = NULL;
  g_autofree char *path = g_strdup_printf("/images/%s/json", digest);
  QvEngineRequest request = {.method = "GET", .path = path, .deadline_ms = QV_DOCKER_CALL_MS};
  if (!qv_engine_do(docker->engine, &request, &answer, &problem)) {
    if (!g_error_matches(problem, QV_ERROR, QV_ERROR_NOT_FOUND)) {
      g_propagate_error(error, g_steal_pointer(&problem));
      return FALSE;
    }
    g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND,
                "docker: the engine has no image %s; load it: quavon images load (docs/DOCKER.md)", digest);
    return FALSE;
  }
  const char *id = json_string_value(json_object_get(answer.json, "Id"));
  const char *machine = json_string_value(json_object_get(answer.json, "Architecture"));
  if (g_strcmp0(id, digest) != 0) {
    g_set_error(error, QV_ERROR, QV_ERROR_AUTH, "docker: the engine has image %.80s under the name %s", id != NULL ? id : "(none)",
                digest);
    return FALSE;
  }
  if (g_strcmp0(machine, architecture()) != 0) {
    g_set_error(error, QV_ERROR, QV_ERROR_POLICY, "docker: image %s is for %.20s, this host is %s", digest,
                machine != NULL ? machine : "nothing", architecture());
    return FALSE;
  }
  return TRUE;
}

gboolean qv_docker_check_images(QvBackend *backend, const QvBackendImages *images, GError **error)
{
  QvDockerBackend *docker = (QvDockerBackend *)backend;
  if (images->digests == NULL || images->digests[0] == NULL) {
    g_set_error(error, QV_ERROR, QV_ERROR_NOT_FOUND, "docker: there is no image to try the engine with");
    return FALSE;
  }
  for (gsize i = 0; images->digests[i] != NULL; i++)
    if (!check_image(docker, images->digests[i], error))
      return FALSE;
  return TRUE;
}

/* ---- what the engine means */

char *qv_docker_explain(const QvDockerBackend *docker, const char *runtime, const char *said)
{
  g_autofree char *shown = g_strescape(said, NULL);
  if (strlen(shown) > 600)
    shown[600] = '\0';
  const char *remedy = "";
  g_autofree char *made = NULL;
  if (strstr(said, "network enabled in root network namespace") != NULL)
    remedy = "; this release of runsc takes every network namespace of this kernel for the host's (Linux 6.11 and newer): for "
             "jobs without egress register a second runtime, runsc install --runtime=runsc-offline -- --platform=systrap "
             "--network=none && systemctl restart docker; for jobs with egress install a newer runsc";
  else if (strstr(said, QV_CONTAINER_ENTRY) != NULL &&
           (strstr(said, "no such file") != NULL || strstr(said, "not found") != NULL || strstr(said, "error finding") != NULL ||
            strstr(said, "failed to load") != NULL || strstr(said, "exec format") != NULL))
    remedy = "; the image has no " QV_CONTAINER_ENTRY " that runs here: build it with `quavon images build`";
  else if (strstr(said, "nknown runtime") != NULL || strstr(said, "nvalid runtime") != NULL)
    remedy = made = g_strdup_printf("; register it: runsc install --runtime=%s -- --platform=systrap && systemctl restart docker", runtime);
  else if (strstr(said, "no space left") != NULL)
    remedy = "; the disk of the engine's data folder is full: docker system df shows what takes it";
  else if (strstr(said, "No such image") != NULL)
    remedy = "; load it: quavon images load";
  else if (strstr(said, "network") != NULL && strstr(said, "not found") != NULL)
    remedy = "; QUAVON_SANDBOX_EGRESS_NETWORK names a network that the engine does not have; quavon-egress-network up makes it";
  return g_strdup_printf("%s%s", shown, remedy);
}

/* ---- the trial */

/* The limits as the engine has them for a living container, and that it runs under the runtime that was asked for. */
gboolean qv_docker_verify(QvSandbox *sandbox, GError **error)
{
  QvDockerSandbox *s = (QvDockerSandbox *)sandbox;
  QvDockerBackend *docker = (QvDockerBackend *)sandbox->backend;
  g_auto(QvEngineAnswer) answer = {0};
  g_autofree char *path = g_strdup_printf("/containers/%s/json", s->container);
  QvEngineRequest request = {.method = "GET", .path = path, .deadline_ms = QV_DOCKER_CALL_MS};
  QvDockerPlan plan;
  qv_docker_plan(docker, s->spec, &plan);
  return qv_engine_do(docker->engine, &request, &answer, error) &&
         qv_container_docker_verify(s->spec, &plan, answer.json, (const char *const *)docker->allow, error);
}
