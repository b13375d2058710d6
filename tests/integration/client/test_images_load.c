/* SPDX-License-Identifier: Apache-2.0 */
/* `quavon images load` on a private engine: a small image that somebody else made, by digest; what it refuses; what doctor says
 * without it; and `quavon run` in it, on both backends of an engine. */
#include <glib/gstdio.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "../../unit/client/tree.h"
#include "embedded_run.h"
#include "support/dockerd.h"
#include "support/proxy.h"

static Run *run;
static QvTestDockerd *engine;
static char *digest, *layer, *config;

static void load(int status, const char *word)
{
  run_expect(run, status, WORDS("images", "load", word));
}

static gboolean has(void)
{
  int status = 0;
  g_autofree char *path = g_strdup_printf("/images/%s/json", digest);
  g_free(qv_test_dockerd_call(engine, "GET", path, NULL, &status));
  return status == 200;
}

static void forget(void)
{
  int status = 0;
  g_autofree char *path = g_strdup_printf("/images/%s", digest);
  g_free(qv_test_dockerd_call(engine, "DELETE", path, NULL, &status));
  g_assert_cmpint(status, ==, 200);
  g_assert_false(has());
}

static void test_no_engine(void)
{
  g_autofree char *nowhere = tree_path(run->dir, "docker.sock");
  run_setenv(run, "QUAVON_SANDBOX_DOCKER_SOCKET", nowhere);
  load(69, "tiny");
  run_says(run_stderr(run), "no engine answers at");
  run_setenv(run, "QUAVON_SANDBOX_DOCKER_SOCKET", qv_test_dockerd_socket(engine));
}

/* A socket where somebody else answers, whose 404 is not about an image; and one that speaks no HTTP. */
static void test_no_engines_socket(void)
{
  static const char *const ANSWERS[] = {"HTTP/1.0 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found",
                                        "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", "-ERR unknown command\r\n"};
  QvTestProxy *proxy = qv_test_proxy_start(run->dir, qv_test_dockerd_socket(engine));
  run_setenv(run, "QUAVON_SANDBOX_DOCKER_SOCKET", qv_test_proxy_socket(proxy));
  for (gsize i = 0; i < G_N_ELEMENTS(ANSWERS); i++) {
    const QvTestAnswer answer = {.name = "stranger", .bytes = ANSWERS[i], .after = QV_TEST_AFTER_HANG_UP};
    qv_test_proxy_answer(proxy, "GET /version", &answer, 1);
    load(69, "tiny");
    g_autofree char *words = g_strdup_printf("what answers at %s is no Docker Engine", qv_test_proxy_socket(proxy));
    run_says(run_stderr(run), words);
  }
  /* An engine in trouble has its own words. */
  const QvTestAnswer ill = {.name = "ill", .bytes = "HTTP/1.0 503 x\r\nContent-Length: 22\r\n\r\n{\"message\":\"I am ill\"}",
                            .after = QV_TEST_AFTER_HANG_UP};
  qv_test_proxy_answer(proxy, "GET /version", &ill, 1);
  load(1, "tiny");
  run_says(run_stderr(run), "GET /version: 503: I am ill");
  qv_test_proxy_free(proxy);
  run_setenv(run, "QUAVON_SANDBOX_DOCKER_SOCKET", qv_test_dockerd_socket(engine));
}

/* A state folder that is full says so at once; with room in TMPDIR it is loaded all the same. In a mount namespace of our own, which
 * takes the mount along however this ends. */
static void test_full(void)
{
  g_assert_cmpint(unshare(CLONE_NEWNS), ==, 0);
  g_assert_cmpint(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), ==, 0);
  g_autofree char *images = tree_path(run->dir, "images"), *full = tree_path(run->dir, "full");
  g_autofree char *lock = tree_path(full, "images.lock.json"), *old = tree_path(images, "images.lock.json");
  g_assert_cmpint(g_mkdir(full, 0755), ==, 0);
  g_assert_cmpint(mount("tmpfs", full, "tmpfs", 0, "size=16m"), ==, 0);
  tree_run(run->dir, "sh", "-euc", "cp images/* full/; head -c 15728640 /dev/zero >full/rest || :", NULL);
  run_setenv(run, "QUAVON_SANDBOX_IMAGES_FILE", lock);
  run_setenv(run, "TMPDIR", full);
  load(1, "tiny");
  run_says(run_stderr(run), "No space left on device");
  run_says(run_stderr(run), "TMPDIR");
  run_says(run_stderr(run), full);
  g_assert_false(has());
  run_setenv(run, "TMPDIR", run->dir);
  load(0, "tiny");
  forget();
  run_setenv(run, "QUAVON_SANDBOX_IMAGES_FILE", old);
  g_assert_cmpint(umount2(full, MNT_DETACH), ==, 0);
  g_assert_cmpint(g_rmdir(full), ==, 0);
}

/* Doctor names the image and the remedy; behind the load it does not. */
static void test_doctor(void)
{
  run_setenv(run, "QUAVON_SANDBOX_BACKEND", "docker-runsc");
  run_all_verb(run, WORDS("doctor"));
  run_says(run_stdout(run), "the engine does not have image tiny");
  run_says(run_stdout(run), "quavon images load");
  load(0, NULL);
  run_all_verb(run, WORDS("doctor"));
  g_autofree char *out = run_stdout(run);
  g_assert_null(strstr(out, "does not have image"));
  g_assert_nonnull(strstr(out, "Docker Engine "));
  forget();
}

static void test_load(void)
{
  g_autofree char *loaded = g_strdup_printf("tiny %s loaded\n", digest);
  g_autofree char *was_there = g_strdup_printf("tiny %s was there\n", digest);
  g_autofree char *exact = g_strconcat("tiny@", digest, NULL);
  load(0, NULL);
  g_autofree char *first = run_stdout(run);
  g_assert_cmpstr(first, ==, loaded);
  run_says(run_stderr(run), "quavon: tiny: sending\n");
  run_says(run_stderr(run), "quavon: tiny: unpacking\n");
  g_assert_true(has());
  load(0, exact);
  g_autofree char *second = run_stdout(run);
  g_assert_cmpstr(second, ==, was_there);
  g_autofree char *quiet = run_stderr(run);
  g_assert_cmpstr(quiet, ==, "");
  load(66, "huge");
  run_says(run_stderr(run), "no image huge for this machine");
  forget();
}

/* Bytes of PATH replaced by TEXT while load is tried, which ends with 1 and WORDS. */
static void altered(const char *path, const char *text, gsize n, const char *words)
{
  g_autofree char *before = NULL;
  gsize before_n;
  g_assert_true(g_file_get_contents(path, &before, &before_n, NULL));
  g_assert_true(g_file_set_contents(path, text, (gssize)n, NULL));
  load(1, "tiny");
  run_says(run_stderr(run), words);
  g_assert_false(has());
  g_assert_true(g_file_set_contents(path, before, (gssize)before_n, NULL));
}

static void test_altered(void)
{
  static const char nothing[10240];
  altered(config, "{}", 2, "is not what its digest says");
  altered(layer, nothing, sizeof nothing, "the engine refuses the archive");
  altered(layer, "no tar at all, and short", 24, "docker: ");
  g_autofree char *kept = g_strconcat(layer, ".kept", NULL);
  g_assert_cmpint(g_rename(layer, kept), ==, 0);
  load(66, "tiny");
  run_says(run_stderr(run), "build the image again");
  g_assert_cmpint(g_rename(kept, layer), ==, 0);
}

static void run_in(const char *backend)
{
  run_setenv(run, "QUAVON_SANDBOX_BACKEND", backend);
  run_setenv(run, "QUAVON_ENV", strcmp(backend, "docker-runsc") == 0 ? "production" : "development");
  int status = run_all(run, WORDS("--image", "tiny", "--", "sh", "-c", "read -r line <hello.txt; echo $line, and $GREETING; exit 7"));
  g_autofree char *out = run_stdout(run);
  g_autofree char *err = run_stderr(run);
  if (status != 7 || strcmp(out, "hello, and hello there\n") != 0)
    g_error("%s: ended with %d, said %s\n%s", backend, status, out, err);
}

/* Without the image the private runner says what to do; with it the command runs. */
static void test_run(void)
{
  run_setenv(run, "QUAVON_SANDBOX_BACKEND", "docker-runsc");
  g_assert_cmpint(run_all(run, WORDS("--image", "tiny", "--", "true")), !=, 0);
  run_says(run_stderr(run), "quavon images load");
  load(0, "tiny");
  run_in("docker-runsc");
  run_in("docker-runc-insecure");
}

static void build(void)
{
  run = run_new();
  g_autofree char *lock = tree_path(run->dir, "images/images.lock.json");
  run_setenv(run, "QUAVON_SANDBOX_IMAGES_FILE", lock);
  g_autofree char *reference = run_foreign_image(run);
  g_assert_cmpint(run_all_verb(run, WORDS("images", "build", "--from", reference, "tiny")), ==, 0);
  digest = g_strchomp(run_stdout(run));
  g_assert_true(g_str_has_prefix(digest, "sha256:"));
  layer = g_strdup_printf("%s/images/%s.tar.gz", run->dir, digest + strlen("sha256:"));
  config = g_strdup_printf("%s/images/%s.json", run->dir, digest + strlen("sha256:"));
}

int main(int argc, char **argv)
{
  const char *missing = qv_test_dockerd_missing();
  g_test_init(&argc, &argv, NULL);
  if (missing != NULL) {
    g_print("1..0 # SKIP %s\n", missing);
    return 0;
  }
  build();
  engine = qv_test_dockerd_start(QV_TEST_DOCKERD_USUAL);
  run_setenv(run, "QUAVON_SANDBOX_DOCKER_SOCKET", qv_test_dockerd_socket(engine));
  g_test_add_func("/images-load/no-engine", test_no_engine);
  g_test_add_func("/images-load/no-engines-socket", test_no_engines_socket);
  g_test_add_func("/images-load/full", test_full);
  g_test_add_func("/images-load/doctor", test_doctor);
  g_test_add_func("/images-load/load", test_load);
  g_test_add_func("/images-load/altered", test_altered);
  g_test_add_func("/images-load/run", test_run);
  int status = g_test_run();
  qv_test_dockerd_free(engine);
  run_free(run);
  g_free(digest);
  g_free(layer);
  g_free(config);
  return status;
}
