/* SPDX-License-Identifier: Apache-2.0 */
/* Whole texts against golden/; run with GOLDEN_WRITE=1 to write them anew, then read the diff. */
#include <jansson.h>
#include <locale.h>
#include <string.h>

#include "base/error.h"
#include "sandbox/container_spec.h"

#define ID "0f0e0d0c-0b0a-4908-8706-050403020100"
#define MIB ((guint64)1024 * 1024)

static const QvSandboxRequest PLAIN = {
  .sandbox_id = ID,
  .rootfs_file = "/var/lib/quavon/images/0123.erofs",
  .limits = {.memory_mib = 2048, .work_mib = 1024, .milli_cpus = 2000, .pids = 512},
};

static const char *const IMAGE_ENV[] = {"PATH=/opt/tool/bin:/usr/bin", "JAVA_HOME=/opt/java", "NAME=a\"b\\c \xc3\xa4",
                                        "QUAVON_CPUS=99", NULL};
static const char *const ARGV[] = {"/bin/true", "--flag", "", NULL};

static QvContainerSpec *plan(const QvSandboxRequest *request)
{
  g_autoptr(GError) error = NULL;
  QvContainerSpec *spec = qv_container_spec_plan(request, &error);
  g_assert_no_error(error);
  return spec;
}

static void compare(const char *name, const QvSandboxRequest *request)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvContainerSpec) spec = plan(request);
  g_autofree char *text = qv_container_spec_format(spec);
  g_autofree char *again = qv_container_spec_format(spec);
  g_autofree char *path = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "tests/unit/sandbox/golden", name, NULL);
  g_autofree char *golden = NULL;
  g_assert_cmpstr(text, ==, again);
  if (g_getenv("GOLDEN_WRITE") != NULL)
    g_assert_true(g_file_set_contents(path, text, -1, NULL));
  g_file_get_contents(path, &golden, NULL, &error);
  g_assert_no_error(error);
  g_assert_cmpstr(text, ==, golden);
}

static void test_plain(void)
{
  compare("plain.json", &PLAIN);
}

static void test_egress(void)
{
  QvSandboxRequest request = PLAIN;
  request.egress_socket = "/var/lib/quavon/runs/x/egress.sock";
  compare("egress.json", &request);
}

static void test_everything(void)
{
  QvSandboxRequest request = PLAIN;
  request.image_env = IMAGE_ENV;
  request.argv = ARGV;
  request.limits = (QvSandboxLimits){.memory_mib = 1, .work_mib = 1, .milli_cpus = 1, .pids = 1};
  compare("everything.json", &request);
}

static void test_numbers(void)
{
  g_autoptr(QvContainerSpec) spec = plan(&PLAIN);
  g_assert_cmpuint(spec->memory_bytes, ==, (2048 + 1024 + 256 + 128) * MIB);
  g_assert_cmpuint(spec->work_bytes, ==, 1024 * MIB);
  g_assert_cmpuint(spec->tmp_bytes, ==, 256 * MIB);
  g_assert_cmpuint(spec->cgroup_pids, ==, 4 * 512 + 1024);
  g_assert_cmpuint(spec->nproc, ==, 512);
  g_assert_cmpuint(spec->cpu_quota_us, ==, 200000);
  /* The largest that a caller could write does not wrap. */
  QvSandboxRequest request = PLAIN;
  request.limits = (QvSandboxLimits){G_MAXUINT, G_MAXUINT, G_MAXUINT, G_MAXUINT};
  g_autoptr(QvContainerSpec) large = plan(&request);
  g_assert_cmpuint(large->memory_bytes, ==, ((guint64)G_MAXUINT * 2 + 384) * MIB);
  g_assert_cmpuint(large->cgroup_pids, ==, (guint64)G_MAXUINT * 4 + 1024);
  g_assert_cmpuint(large->cpu_quota_us, ==, (guint64)G_MAXUINT * 100);
}

static void test_cpus(void)
{
  static const struct {
    guint milli_cpus;
    const char *cpus;
    guint64 quota_us;
  } ROWS[] = {{1, "1", 1000}, {10, "1", 1000}, {11, "1", 1100}, {999, "1", 99900}, {1000, "1", 100000},
              {1001, "2", 100100}, {2500, "3", 250000}, {G_MAXUINT, "4294968", 429496729500}};
  for (gsize i = 0; i < G_N_ELEMENTS(ROWS); i++) {
    QvSandboxRequest request = PLAIN;
    request.limits.milli_cpus = ROWS[i].milli_cpus;
    g_autoptr(QvContainerSpec) spec = plan(&request);
    g_assert_cmpstr(g_environ_getenv(spec->env, "QUAVON_CPUS"), ==, ROWS[i].cpus);
    g_assert_cmpuint(spec->cpu_quota_us, ==, ROWS[i].quota_us);
  }
}

static json_t *find_mount(json_t *root, const char *destination)
{
  json_t *mounts = json_object_get(root, "mounts"), *found = NULL;
  for (gsize i = 0; i < json_array_size(mounts); i++) {
    json_t *mount = json_array_get(mounts, i);
    if (strcmp(json_string_value(json_object_get(mount, "destination")), destination) == 0) {
      g_assert_null(found);
      found = mount;
    }
  }
  return found;
}

static gboolean has_option(json_t *mount, const char *option)
{
  json_t *options = json_object_get(mount, "options");
  for (gsize i = 0; i < json_array_size(options); i++)
    if (strcmp(json_string_value(json_array_get(options, i)), option) == 0)
      return TRUE;
  return FALSE;
}

static void require_identity(json_t *root)
{
  static const char *const SETS[] = {"bounding", "effective", "inheritable", "permitted", "ambient"};
  json_t *process = json_object_get(root, "process"), *user = json_object_get(process, "user");
  g_assert_true(json_is_true(json_object_get(json_object_get(root, "root"), "readonly")));
  g_assert_true(json_is_true(json_object_get(process, "noNewPrivileges")));
  g_assert_true(json_is_false(json_object_get(process, "terminal")));
  g_assert_cmpint(json_integer_value(json_object_get(user, "uid")), ==, 65532);
  g_assert_cmpint(json_integer_value(json_object_get(user, "gid")), ==, 65532);
  g_assert_cmpuint(json_array_size(json_object_get(user, "additionalGids")), ==, 0);
  for (gsize i = 0; i < G_N_ELEMENTS(SETS); i++) {
    json_t *set = json_object_get(json_object_get(process, "capabilities"), SETS[i]);
    g_assert_true(json_is_array(set));
    g_assert_cmpuint(json_array_size(set), ==, 0);
  }
}

static void require_mounts(json_t *root, gboolean egress)
{
  static const char *const OPTIONS[] = {"rw", "exec", "nosuid", "nodev", "uid=65532", "gid=65532", "mode=0700"};
  for (gsize i = 0; i < G_N_ELEMENTS(OPTIONS); i++) {
    g_assert_true(has_option(find_mount(root, "/workspace"), OPTIONS[i]));
    g_assert_true(has_option(find_mount(root, "/tmp"), OPTIONS[i]));
  }
  g_assert_true(has_option(find_mount(root, "/workspace"), "size=1073741824"));
  g_assert_true(has_option(find_mount(root, "/tmp"), "size=268435456"));
  json_t *socket = find_mount(root, "/run/quavon/egress.sock");
  g_assert_cmpint(socket != NULL, ==, egress);
  g_assert_null(json_object_get(json_object_get(root, "linux"), "devices"));
  /* Nothing of the host but the socket. */
  for (gsize i = 0; i < json_array_size(json_object_get(root, "mounts")); i++) {
    json_t *mount = json_array_get(json_object_get(root, "mounts"), i);
    gboolean bind = strcmp(json_string_value(json_object_get(mount, "type")), "bind") == 0;
    g_assert_cmpint(bind, ==, mount == socket);
  }
}

/* What must hold whatever the golden text says: operations.md "Containers". */
static void test_contract(void)
{
  QvSandboxRequest request = PLAIN;
  for (guint egress = 0; egress < 2; egress++) {
    request.egress_socket = egress ? "/run/x.sock" : NULL;
    g_autoptr(QvContainerSpec) spec = plan(&request);
    g_autofree char *text = qv_container_spec_format(spec);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    g_assert_nonnull(root);
    require_identity(root);
    require_mounts(root, egress == 1);
    json_decref(root);
  }
}

static void refuse(const QvSandboxRequest *request, const char *words)
{
  g_autoptr(GError) error = NULL;
  g_assert_null(qv_container_spec_plan(request, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
  g_assert_nonnull(strstr(error->message, words));
}

static void test_refused(void)
{
  static const char *const IDS[] = {"", "..", "0F0E0D0C-0b0a-4908-8706-050403020100", ID "0", "0f0e0d0c-0b0a-4908-8706",
                                    "0f0e0d0c/0b0a-4908-8706-050403020100", "0f0e0d0cx0b0a-4908-8706-050403020100", NULL};
  static const char *const NO_ARGS[] = {NULL}, *const BAD_TEXT[] = {"\xff=1", NULL};
  static const char *const NO_NAME[] = {"=1", NULL}, *const NO_VALUE[] = {"NAME", NULL};
  QvSandboxRequest request = PLAIN;
  for (gsize i = 0; i < G_N_ELEMENTS(IDS); i++) {
    request.sandbox_id = IDS[i];
    refuse(&request, "UUID");
  }
  request = PLAIN;
  request.rootfs_file = "images/x.erofs";
  refuse(&request, "root file system");
  request.rootfs_file = NULL;
  refuse(&request, "root file system");
  request = PLAIN;
  request.egress_socket = "egress.sock";
  refuse(&request, "egress socket");
  request = PLAIN;
  request.argv = NO_ARGS;
  refuse(&request, "argv");
  request.argv = BAD_TEXT;
  refuse(&request, "argv");
  request = PLAIN;
  request.image_env = BAD_TEXT;
  refuse(&request, "environment");
  request.image_env = NO_NAME;
  refuse(&request, "environment");
  request.image_env = NO_VALUE;
  refuse(&request, "environment");
  for (guint i = 0; i < 4; i++) {
    request = PLAIN;
    guint *const LIMITS[] = {&request.limits.memory_mib, &request.limits.work_mib, &request.limits.milli_cpus,
                             &request.limits.pids};
    *LIMITS[i] = 0;
    refuse(&request, "limit");
  }
}

static void test_free_nothing(void)
{
  qv_container_spec_free(NULL);
  qv_container_spec_free(g_new0(QvContainerSpec, 1));
}

int main(int argc, char **argv)
{
  setlocale(LC_ALL, "");
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/sandbox/container-spec/plain", test_plain);
  g_test_add_func("/sandbox/container-spec/egress", test_egress);
  g_test_add_func("/sandbox/container-spec/everything", test_everything);
  g_test_add_func("/sandbox/container-spec/numbers", test_numbers);
  g_test_add_func("/sandbox/container-spec/cpus", test_cpus);
  g_test_add_func("/sandbox/container-spec/contract", test_contract);
  g_test_add_func("/sandbox/container-spec/refused", test_refused);
  g_test_add_func("/sandbox/container-spec/free-nothing", test_free_nothing);
  return g_test_run();
}
