/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator sees when something is not as it must be: the text names
 * the variable or file, the exit status is 78; and --check, --sweep, --version, --help. */
#include <errno.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <linux/capability.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "world.h"

enum { NOBODY = 65534 };

static World *world;

static char *program_path(void)
{
  return g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "runner", "quavon-sandbox-runner", NULL);
}

/* Runs PROGRAM to its end with the world's settings, changed by EXTRA; its words on both streams. */
static int run_prepared(const char *program, GSpawnChildSetupFunc prepare, const char *option,
                        const char *const *extra, char **words)
{
  char *argv[] = {(char *)program, (char *)option, NULL};
  g_auto(GStrv) env = world_environment(world, extra);
  g_autofree char *out = NULL, *err = NULL;
  int status;
  g_autoptr(GError) error = NULL;
  g_spawn_sync(NULL, argv, env, 0, prepare, NULL, &out, &err, &status, &error);
  g_assert_no_error(error);
  g_assert_true(WIFEXITED(status));
  *words = g_strconcat(out, err, NULL);
  return WEXITSTATUS(status);
}

static int run(const char *option, const char *const *extra, char **words)
{
  g_autofree char *program = program_path();
  return run_prepared(program, NULL, option, extra, words);
}

static void expect(const char *option, const char *extra, int status, const char *part)
{
  g_autofree char *words = NULL;
  const char *extras[] = {extra, NULL};
  int got = run(option, extras, &words);
  if (got != status || strstr(words, part) == NULL)
    g_error("%s: exit %d, expected %d and '%s': %s", extra != NULL ? extra : "", got, status, part, words);
}

static void test_words(void)
{
  expect("--version", NULL, 0, "quavon-sandbox-runner 0.");
  expect("--help", NULL, 0, "QUAVON_SANDBOX_SIGNING_KEY_FILE");
  expect("--nonsense", NULL, 64, "--help");
}

static void test_variables(void)
{
  expect(NULL, "QUAVON_SANDBOX_CONCURENCY=1", 78, "QUAVON_SANDBOX_CONCURRENCY");
  expect(NULL, "QUAVON_SANDBOX_CONCURRENCY=many", 78, "QUAVON_SANDBOX_CONCURRENCY");
  expect(NULL, "VALKEY_URL=", 78, "VALKEY_URL is not set");
  expect(NULL, "VALKEY_URL=nonsense", 78, "VALKEY_URL");
  expect(NULL, "QUAVON_SANDBOX_SIGNING_KEY_FILE=", 78, "QUAVON_SANDBOX_SIGNING_KEY_FILE is not set");
  expect(NULL, "QUAVON_SANDBOX_BACKEND=firecracker", 78, "firecracker");
  expect(NULL, "QUAVON_SANDBOX_BACKEND=docker-runc-insecure", 78, "QUAVON_ENV=development");
  const char *const enterprise[] = {"QUAVON_SANDBOX_BACKEND=docker-runc-insecure", "QUAVON_ENV=development",
                                    "QUAVON_EDITION=enterprise", NULL};
  g_autofree char *words = NULL;
  g_assert_cmpint(run(NULL, enterprise, &words), ==, 78);
  g_assert_nonnull(strstr(words, "QUAVON_EDITION=community"));
  const char *const absent[] = {"QUAVON_SANDBOX_BACKEND=docker-runsc", "QUAVON_SANDBOX_DOCKER_SOCKET=/no/such.sock", NULL};
  g_autofree char *no_engine = NULL;
  g_assert_cmpint(run(NULL, absent, &no_engine), ==, 1);
  g_assert_nonnull(strstr(no_engine, "no engine answers at /no/such.sock"));
  expect(NULL, "QUAVON_SANDBOX_STATE_DIR=relative", 78, "QUAVON_SANDBOX_STATE_DIR");
  expect(NULL, "QUAVON_SANDBOX_MEMORY_BUDGET_MIB=100", 78, "QUAVON_SANDBOX_MEMORY_BUDGET_MIB");
  expect(NULL, "QUAVON_SANDBOX_RUNSC=/no/such/runsc", 1, "/no/such/runsc");
}

static void test_keys(void)
{
  g_autofree char *file = g_build_filename(world->dir, "other-key", NULL);
  g_autofree char *extra = g_strconcat("QUAVON_SANDBOX_SIGNING_KEY_FILE=", file, NULL);
  expect(NULL, extra, 78, file);
  g_autofree char *good = NULL;
  gsize n;
  g_assert_true(g_file_get_contents(world->key_file, &good, &n, NULL));
  g_assert_true(qv_fd_write_file(file, good, n, 0644, NULL));
  expect(NULL, extra, 78, file);
  g_assert_true(qv_fd_write_file(file, "c2hvcnQ=\n", 9, 0600, NULL));
  expect(NULL, extra, 78, file);
  g_assert_true(qv_fd_write_file(file, "not base64 at all!!\n", 20, 0600, NULL));
  expect(NULL, extra, 78, file);
  g_unlink(file);
  /* One that would hold the start up for ever. */
  g_assert_cmpint(mkfifo(file, 0600), ==, 0);
  expect(NULL, extra, 78, file);
  g_unlink(file);
}

/* Root as in a container without these capabilities: permissions count for it as for anybody. */
static void drop_override(gpointer data)
{
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];
  if (syscall(SYS_capget, &header, caps) != 0)
    _exit(99);
  caps[0].inheritable = caps[1].inheritable = 0;
  if (syscall(SYS_capset, &header, caps) != 0 || prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE) != 0 ||
      prctl(PR_CAPBSET_DROP, CAP_DAC_READ_SEARCH) != 0)
    _exit(99);
}

static void test_unreadable_key(void)
{
  g_autofree char *file = g_build_filename(world->dir, "foreign-key", NULL);
  g_autofree char *extra = g_strconcat("QUAVON_SANDBOX_SIGNING_KEY_FILE=", file, NULL);
  g_autofree char *good = NULL;
  gsize n;
  g_assert_true(g_file_get_contents(world->key_file, &good, &n, NULL));
  g_assert_true(qv_fd_write_file(file, good, n, 0600, NULL));
  g_assert_cmpint(chown(file, NOBODY, NOBODY), ==, 0);
  /* The build may lie where such a root has no access. */
  g_autofree char *program = program_path();
  g_autofree char *copy = g_build_filename(world->dir, "runner", NULL);
  g_autofree char *bytes = NULL;
  gsize bytes_n;
  g_assert_true(g_file_get_contents(program, &bytes, &bytes_n, NULL));
  g_assert_true(qv_fd_write_file(copy, bytes, bytes_n, 0755, NULL));
  const char *extras[] = {extra, NULL};
  g_autofree char *words = NULL;
  int status = run_prepared(copy, drop_override, NULL, extras, &words);
  if (status != 78 || strstr(words, file) == NULL || strstr(words, g_strerror(EACCES)) == NULL)
    g_error("exit %d, expected 78 and '%s': %s", status, file, words);
  g_unlink(file);
}

static void test_images(void)
{
  g_autofree char *file = g_build_filename(world->dir, "images.json", NULL);
  g_autofree char *extra = g_strconcat("QUAVON_SANDBOX_IMAGES_FILE=", file, NULL);
  expect(NULL, extra, 78, "images.json");
  g_assert_true(qv_fd_write_file(file, "{\"v\":2}", 7, 0644, NULL));
  expect(NULL, extra, 78, "images.json");
  /* The lock is right, the file it names is not there. */
  g_autofree char *good = NULL;
  gsize n;
  g_assert_true(g_file_get_contents(world->images_file, &good, &n, NULL));
  g_assert_true(qv_fd_write_file(file, good, n, 0644, NULL));
  expect(NULL, extra, 78, world->image.name);
  g_assert_true(qv_fd_write_file(file, "{\"v\":1,\"images\":[]}", 19, 0644, NULL));
  expect(NULL, extra, 78, "quavon images build");
}

static void test_state_dir(void)
{
  g_autofree char *dir = g_build_filename(world->dir, "state", NULL);
  g_autofree char *extra = g_strconcat("QUAVON_SANDBOX_STATE_DIR=", dir, NULL);
  g_assert_cmpint(g_mkdir(dir, 0755), ==, 0);
  g_assert_cmpint(chmod(dir, 0777), ==, 0);
  expect(NULL, extra, 78, "nobody else may write");
  g_assert_cmpint(chmod(dir, 0755), ==, 0);
  g_autofree char *id = g_build_filename(dir, "runner-id", NULL);
  g_assert_true(qv_fd_write_file(id, "../escape\n", 10, 0644, NULL));
  expect(NULL, extra, 78, "runner-id");
}

static void test_check(void)
{
  g_autofree char *words = NULL;
  int status = run("--check", NULL, &words);
  if (status != 0)
    g_error("--check: %s", words);
  static const char *const parts[] = {"ok    key", "ok    images", "ok    memory", "ok    valkey", "ok    backend"};
  for (gsize i = 0; i < G_N_ELEMENTS(parts); i++)
    g_assert_nonnull(strstr(words, parts[i]));
  expect("--sweep", NULL, 0, "removed 0 sandboxes; 0 are in use; 0 may come\n");
  world_expect_clean(world);
  expect("--check", "VALKEY_URL=unix:///tmp/qv-no-such-socket", 1, "fail  valkey");
  expect("--check", ON(ON_DOCKER) ? "QUAVON_SANDBOX_DOCKER_SOCKET=/no/such/engine" : "QUAVON_SANDBOX_RUNSC=/no/such/runsc", 1,
         "fail  backend");
  if (ON(ON_DOCKER)) {
    expect("--check", "QUAVON_SANDBOX_ENGINE_MIN=99", 1, "99 is the oldest that is tested");
    expect("--check", "QUAVON_SANDBOX_DOCKER_ALLOW=Privileged", 1, "Privileged cannot be done without");
  }
}

int main(int argc, char **argv)
{
  if (!backend_select(argc, argv))
    return 0;
  g_test_init(&argc, &argv, NULL);
  world = world_new(QV_TEST_VALKEY_PLAIN);
  if (world == NULL)
    return 77;
  if (ON(ON_RUNSC)) { /* what depends on no backend */
    g_test_add_func("/runner/config/words", test_words);
    g_test_add_func("/runner/config/variables", test_variables);
    g_test_add_func("/runner/config/keys", test_keys);
    g_test_add_func("/runner/config/unreadable-key", test_unreadable_key);
    g_test_add_func("/runner/config/images", test_images);
    g_test_add_func("/runner/config/state-dir", test_state_dir);
  }
  g_test_add_func("/runner/config/check", test_check);
  int status = g_test_run();
  world_free(world);
  backend_finish();
  return status;
}
