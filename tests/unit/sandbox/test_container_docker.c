/* SPDX-License-Identifier: Apache-2.0 */
/* Whole texts against golden/ (GOLDEN_WRITE=1 writes them anew), and what the engine made of them: every setting that is
 * asked for, altered or dropped one at a time, is noticed. */
#include <jansson.h>
#include <locale.h>
#include <string.h>

#include "base/error.h"
#include "sandbox/container_docker.h"

#define ID "0f0e0d0c-0b0a-4908-8706-050403020100"
#define DIGEST "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static const QvSandboxRequest PLAIN = {
  .sandbox_id = ID,
  .image_digest = DIGEST,
  .limits = {.memory_mib = 2048, .work_mib = 1024, .milli_cpus = 2000, .pids = 512},
};

static const QvDockerPlan PLAN = {.runtime = "runsc-offline", .gvisor = TRUE, .pool = "default", .runner_id = "runner-1",
                                  .owner = "r0123456789ab", .boot_id = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"};

static QvContainerSpec *plan(const QvSandboxRequest *request)
{
  g_autoptr(GError) error = NULL;
  QvContainerSpec *spec = qv_container_spec_plan(request, &error);
  g_assert_no_error(error);
  return spec;
}

static void compare(const char *name, const QvSandboxRequest *request, const QvDockerPlan *docker)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvContainerSpec) spec = plan(request);
  g_autofree char *text = qv_container_docker_format(spec, docker);
  g_autofree char *path = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "tests/unit/sandbox/golden", name, NULL);
  g_autofree char *golden = NULL;
  if (g_getenv("GOLDEN_WRITE") != NULL)
    g_assert_true(g_file_set_contents(path, text, -1, NULL));
  g_file_get_contents(path, &golden, NULL, &error);
  g_assert_no_error(error);
  g_assert_cmpstr(text, ==, golden);
}

static void test_golden(void)
{
  compare("docker-runsc.json", &PLAIN, &PLAN);
  QvSandboxRequest egress = PLAIN;
  egress.egress_network = "quavon-egress";
  QvDockerPlan networked = PLAN;
  networked.runtime = "runsc";
  compare("docker-egress.json", &egress, &networked);
  QvDockerPlan runc = PLAN;
  runc.runtime = "runc";
  runc.gvisor = FALSE;
  compare("docker-runc.json", &PLAIN, &runc);
}

/* The engine's answer as it is where it took everything: the same members, moved to where it shows them. */
static json_t *inspect_of(const QvContainerSpec *spec)
{
  g_autofree char *text = qv_container_docker_format(spec, &PLAN);
  json_t *asked = json_loads(text, 0, NULL);
  json_t *host = json_incref(json_object_get(asked, "HostConfig"));
  json_object_del(asked, "HostConfig");
  json_object_del(asked, "Image");
  json_array_append_new(json_object_get(asked, "Env"), json_string("OF_THE_IMAGE=1"));
  return json_pack("{s:s, s:o, s:o, s:[], s:s}", "Image", DIGEST, "Config", asked, "HostConfig", host, "Mounts", "Id", "x");
}

static void require(const QvContainerSpec *spec, const json_t *inspect, const char *const *allow, int code, const char *words)
{
  g_autoptr(GError) error = NULL;
  gboolean ok = qv_container_docker_verify(spec, &PLAN, inspect, allow, &error);
  if (words == NULL) {
    g_assert_no_error(error);
    g_assert_true(ok);
    return;
  }
  g_assert_false(ok);
  g_assert_error(error, QV_ERROR, code);
  if (strstr(error->message, words) == NULL)
    g_error("%s: not in: %s", words, error->message);
}

static void test_every_member(void)
{
  g_autoptr(QvContainerSpec) spec = plan(&PLAIN);
  json_t *good = inspect_of(spec);
  require(spec, good, NULL, 0, NULL);
  static const char *const PARTS[] = {"HostConfig", "Config"};
  guint seen = 0;
  for (gsize i = 0; i < G_N_ELEMENTS(PARTS); i++) {
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(good, PARTS[i]), name, value) {
      json_t *altered = json_deep_copy(good), *dropped = json_deep_copy(good);
      json_object_set_new(json_object_get(altered, PARTS[i]), name, json_string("something else"));
      require(spec, altered, NULL, QV_ERROR_POLICY, name);
      json_object_del(json_object_get(dropped, PARTS[i]), name);
      gboolean nothing = json_is_false(value) || (json_is_array(value) && json_array_size(value) == 0);
      require(spec, dropped, NULL, QV_ERROR_POLICY, nothing ? NULL : name);
      json_decref(altered);
      json_decref(dropped);
      seen++;
    }
  }
  g_assert_cmpuint(seen, >, 30);
  json_decref(good);
}

/* What nobody asked for, and a default of the daemon or of the image brought. */
static void test_additions(void)
{
  static const struct {
    const char *part, *name, *value, *words;
  } CASES[] = {
    {"HostConfig", "Binds", "[\"/:/host\"]", "Binds"},
    {"HostConfig", "Devices", "[{\"PathOnHost\":\"/dev/kvm\"}]", "Devices"},
    {"HostConfig", "CapAdd", "[\"SYS_ADMIN\"]", "CapAdd"},
    {"HostConfig", "PidMode", "\"host\"", "PidMode"},
    {"HostConfig", "UTSMode", "\"host\"", "UTSMode"},
    {"HostConfig", "UsernsMode", "\"host\"", "UsernsMode"},
    {"HostConfig", "Init", "true", "Init"},
    {"HostConfig", "GroupAdd", "[\"docker\"]", "GroupAdd"},
    {"HostConfig", "OomKillDisable", "true", "OomKillDisable"},
    {"HostConfig", "SecurityOpt", "[\"no-new-privileges\",\"seccomp=unconfined\"]", "SecurityOpt"},
    {"Config", "Volumes", "{\"/data\":{}}", "volumes"},
    {NULL, "Mounts", "[{\"Type\":\"volume\"}]", "Mounts"},
  };
  g_autoptr(QvContainerSpec) spec = plan(&PLAIN);
  for (gsize i = 0; i < G_N_ELEMENTS(CASES); i++) {
    json_t *inspect = inspect_of(spec);
    json_t *part = CASES[i].part != NULL ? json_object_get(inspect, CASES[i].part) : inspect;
    json_object_set_new(part, CASES[i].name, json_loads(CASES[i].value, JSON_DECODE_ANY, NULL));
    require(spec, inspect, NULL, QV_ERROR_POLICY, CASES[i].words);
    json_decref(inspect);
  }
  json_t *other = inspect_of(spec);
  json_object_set_new(other, "Image", json_string("sha256:ff"));
  require(spec, other, NULL, QV_ERROR_AUTH, "in place of");
  json_decref(other);
}

static void test_allow(void)
{
  static const char *const SWAP[] = {"MemorySwap", NULL};
  static const char *const BAD[] = {"MemorySwap", "ReadonlyRootfs", NULL};
  g_autoptr(GError) error = NULL;
  g_autoptr(QvContainerSpec) spec = plan(&PLAIN);
  json_t *inspect = inspect_of(spec);
  json_object_set_new(json_object_get(inspect, "HostConfig"), "MemorySwap", json_integer(-1));
  require(spec, inspect, NULL, QV_ERROR_POLICY, "QUAVON_SANDBOX_DOCKER_ALLOW: MemorySwap");
  require(spec, inspect, SWAP, 0, NULL);
  json_decref(inspect);
  g_assert_true(qv_container_docker_allow_check(NULL, &error));
  g_assert_true(qv_container_docker_allow_check(SWAP, &error));
  g_assert_false(qv_container_docker_allow_check(BAD, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_POLICY);
  g_assert_nonnull(strstr(error->message, "ReadonlyRootfs"));
}

static void test_digest(void)
{
  static const char *const BAD[] = {"base:latest", "sha256:00", "sha512:" DIGEST, DIGEST "0",
                                    "sha256:00112233445566778899AABBCCDDEEFF00112233445566778899aabbccddeeff", ""};
  for (gsize i = 0; i < G_N_ELEMENTS(BAD); i++) {
    g_autoptr(GError) error = NULL;
    QvSandboxRequest request = PLAIN;
    request.image_digest = BAD[i];
    g_assert_null(qv_container_spec_plan(&request, &error));
    g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
  }
}

int main(int argc, char **argv)
{
  setlocale(LC_ALL, "");
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/sandbox/container_docker/golden", test_golden);
  g_test_add_func("/sandbox/container_docker/every-member", test_every_member);
  g_test_add_func("/sandbox/container_docker/additions", test_additions);
  g_test_add_func("/sandbox/container_docker/allow", test_allow);
  g_test_add_func("/sandbox/container_docker/digest", test_digest);
  return g_test_run();
}
