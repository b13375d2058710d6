/* SPDX-License-Identifier: Apache-2.0 */
/* `quavon doctor`: each code produced by what it is about. A real Valkey and, where the runner itself is meant, a real
 * runner, in gVisor or on a private engine. The rows of the table in doctor_runner.c are gone through once more with records that
 * are signed with the pool's key: record-codes, and another host is meant there alone. cli/codes holds that no code is missing here.
 *
 *   code              what fails or warns                                      test
 *   QD950             Valkey away; an admin's URL; a key that others may read  worker-side
 *   QD951, QD957      a runtime that lacks one protection                      weak-runtime
 *   QD952             no runner; one that was stopped; one with runc under     no-runner, healthy, insecure
 *                     the name runsc, which refuses to start
 *   QD953             a runner of docker-runc-insecure                         insecure
 *   QD954             the engine's runtime is registered with another platform insecure
 *                     under a runner that lives
 *   QD955             the same host, in each edition; an unknown one           healthy, record-codes
 *   QD956             an altered digest, a missing image, a lock not readable  healthy, worker-side
 *   QD957             none yet; one that passed by a clock that was wrong      stale
 *   QD958             another key; an earlier one                              healthy, keys
 *   host-secrets, host-docker, host-disk, host-runsc, host-kvm, host-environment   host
 *   host-kernel, host-cgroup   are the machine's: ok here                      healthy
 *   valkey-*          the server so configured; its clock shifted              worker-side, clock */
#include <glib/gstdio.h>
#include <jansson.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../unit/client/tree.h"
#include "base/clock.h"
#include "embedded_run.h"
#include "schema.h"
#include "support/health.h"
#include "support/tiny.h"
#include "support/valkey.h"

#define DIGEST "sha256:1111111111111111111111111111111111111111111111111111111111111111"

enum { DEADLINE_MS = 180000 };

typedef struct {
  QvTestValkey *valkey;
  Run *run;
  GPid runner;
  const char *backend; /* NULL: runsc */
  char *key, *lock;
} Fixture;

static void set_up(Fixture *f, gconstpointer data)
{
  f->valkey = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  f->run = run_new();
  f->key = run_use_valkey(f->run, qv_test_valkey_url(f->valkey, "worker"));
  f->lock = g_build_filename(g_getenv("QUAVON_TEST_IMAGES"), "images.lock.json", NULL);
}

static void tear_down(Fixture *f, gconstpointer data)
{
  run_stop_runner(f->run, &f->runner);
  run_free(f->run);
  qv_test_valkey_free(f->valkey);
  g_free(f->key);
  g_free(f->lock);
}

/* RUNSC NULL: the real one. */
static void start_runner(Fixture *f, const char *runsc, gboolean remembers)
{
  g_autofree char *smoke = g_build_filename(g_getenv("QUAVON_TEST_IMAGES"), "smoke", NULL);
  f->runner = run_start_runner(f->run, qv_test_valkey_url(f->valkey, "sandbox"),
                               WORDS("QUAVON_SANDBOX_BACKEND", f->backend != NULL ? f->backend : "runsc",
                                     "QUAVON_SANDBOX_SMOKE_MEMORY", remembers ? smoke : "",
                                     runsc != NULL ? "QUAVON_SANDBOX_RUNSC" : NULL, runsc));
}

/* ── Running it ── */

static json_t *load_schema(void)
{
  g_autofree char *path = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "docs", "doctor.schema.json", NULL);
  json_t *schema = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
  g_assert_nonnull(schema);
  return schema;
}

/* The findings of one run; its exit status is the one that they mean. */
static json_t *doctor(Fixture *f, const char *const *words)
{
  int status = run_all_verb(f->run, words);
  g_autofree char *text = run_stdout(f->run);
  json_error_t why;
  json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &why);
  if (root == NULL) {
    g_autofree char *err = run_stderr(f->run);
    g_error("quavon doctor ended with %d and said no JSON (%s): %s%s", status, why.text, text, err);
  }
  json_t *schema = load_schema();
  g_assert_true(schema_holds(root, schema));
  json_object_set_new(root, "surprise", json_true());
  g_assert_false(schema_holds(root, schema));
  json_object_del(root, "surprise");
  json_decref(schema);
  gboolean fails = strcmp(json_string_value(json_object_get(root, "verdict")), "fail") == 0;
  g_assert_cmpint(status, ==, fails ? 1 : 0);
  g_assert_cmpint(json_integer_value(json_object_get(root, "exit")), ==, status);
  return root;
}

/* A finding of the code and verdict whose text has PART. */
static const json_t *find(const json_t *root, const char *code, const char *verdict, const char *part)
{
  const json_t *list = json_object_get(root, "findings");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *one = json_array_get(list, i);
    if (strcmp(json_string_value(json_object_get(one, "code")), code) == 0 &&
        strcmp(json_string_value(json_object_get(one, "verdict")), verdict) == 0 &&
        strstr(json_string_value(json_object_get(one, "found")), part) != NULL)
      return one;
  }
  return NULL;
}

static void expect_in(const json_t *root, const char *code, const char *verdict, const char *part)
{
  const json_t *one = find(root, code, verdict, part);
  if (one == NULL) {
    char *all = json_dumps(root, JSON_INDENT(1));
    g_error("no %s %s with `%s` in %s", code, verdict, part, all);
  }
  gboolean ok = strcmp(verdict, "ok") == 0;
  g_assert_cmpint(json_is_null(json_object_get(one, "remedy")), ==, ok);
}

static void expect(Fixture *f, const char *code, const char *verdict, const char *part)
{
  json_t *root = doctor(f, WORDS("doctor", "--json"));
  expect_in(root, code, verdict, part);
  json_decref(root);
}

/* Its remedy has REMEDY. */
static void expect_remedy(Fixture *f, const char *code, const char *part, const char *remedy)
{
  json_t *root = doctor(f, WORDS("doctor", "--json"));
  const json_t *one = find(root, code, "fail", part);
  g_assert_nonnull(one);
  run_says(g_strdup(json_string_value(json_object_get(one, "remedy"))), remedy);
  json_decref(root);
}

/* Until the runner's record says what it should. */
static json_t *await(Fixture *f, const char *code, const char *verdict, const char *part)
{
  for (gint64 end = qv_clock_mono_ms() + DEADLINE_MS;; g_usleep(300000)) {
    json_t *root = doctor(f, WORDS("doctor", "--json"));
    if (find(root, code, verdict, part) != NULL)
      return root;
    if (qv_clock_mono_ms() > end)
      expect_in(root, code, verdict, part);
    json_decref(root);
  }
}

static QvHealth *fake(void)
{
  return qv_test_health_new("r1", "base", DIGEST);
}

static void put(Fixture *f, QvHealth *health)
{
  qv_test_health_put(f->valkey, f->key, health);
  qv_health_free(health);
}

/* A copy of the lock in which the first letter behind each BEFORE is another one. */
static void alter_lock(const char *from, const char *to, const char *before)
{
  g_autofree char *text = NULL;
  g_assert_true(g_file_get_contents(from, &text, NULL, NULL));
  for (char *at = text; (at = strstr(at, before)) != NULL;) {
    at += strlen(before);
    *at = *at == '0' ? '1' : '0';
  }
  g_assert_true(g_file_set_contents(to, text, -1, NULL));
}

static void write_script(const char *path, const char *text)
{
  g_assert_true(g_file_set_contents_full(path, text, -1, G_FILE_SET_CONTENTS_NONE, 0755, NULL));
}

/* ── Tests ── */

static void test_healthy(Fixture *f, gconstpointer data)
{
  if (!run_possible())
    return;
  start_runner(f, NULL, TRUE);
  json_t *root = await(f, "QD957", "ok", "escape smoke test passed");
  expect_in(root, "QD950", "ok", "Valkey at");
  expect_in(root, "QD950", "ok", "may not read a foreign key");
  expect_in(root, "QD951", "ok", "backend runsc, runtime runsc");
  expect_in(root, "QD951", "ok", "platform systrap");
  expect_in(root, "QD952", "ok", "1 of 1 runners of pool default healthy");
  expect_in(root, "QD953", "ok", "runsc isolates");
  expect_in(root, "QD954", "ok", "runtime runsc, platform systrap");
  expect_in(root, "QD955", "warn", "on this host");
  expect_in(root, "QD956", "ok", "as in the lock file here");
  expect_in(root, "QD958", "ok", "current key");
  expect_in(root, "valkey-eviction", "ok", "noeviction");
  expect_in(root, "valkey-version", "ok", "");
  expect_in(root, "valkey-persistence", "ok", "");
  expect_in(root, "valkey-memory", "ok", "");
  expect_in(root, "host-secrets", "ok", "for their owner alone");
  expect_in(root, "host-cgroup", "ok", "control groups");
  /* The machine's other runners are not ours to judge. */
  g_assert_true(find(root, "host-environment", "ok", "no secret of others") != NULL ||
                find(root, "host-environment", "warn", "do not let us look") != NULL || find(root, "host-environment", "fail", "") != NULL);
  /* By kernel and release. */
  g_assert_true(find(root, "host-runsc", "ok", "runsc version") != NULL || find(root, "host-runsc", "warn", "runsc version") != NULL);
  json_decref(root);
  json_decref(await(f, "valkey-clock", "ok", "0 s")); /* an answer that takes its time is off by half of that */
  run_setenv(f->run, "QUAVON_EDITION", "enterprise");
  expect(f, "QD955", "fail", "on this host");
  run_setenv(f->run, "QUAVON_EDITION", "community");
  /* An image that is another one here, and another key, against the runner that lives. */
  g_autofree char *altered = tree_path(f->run->dir, "altered.lock.json"), *other = tree_path(f->run->dir, "other.key");
  run_setenv(f->run, "QUAVON_SANDBOX_IMAGES_FILE", altered);
  alter_lock(f->lock, altered, "\"sha256:");
  expect(f, "QD956", "fail", "in the lock file here");
  expect_remedy(f, "QD956", "in the lock file here", "systemctl reload quavon-sandbox-runner");
  expect_remedy(f, "QD956", "in the lock file here", "Compose: docker kill -s HUP quavon-sandbox-runner-1");
  alter_lock(f->lock, altered, "\"name\": \"");
  expect(f, "QD956", "fail", "is not there");
  run_setenv(f->run, "QUAVON_SANDBOX_IMAGES_FILE", f->lock);
  g_assert_cmpint(run_all_verb(f->run, WORDS("keygen", other)), ==, 0);
  run_setenv(f->run, "QUAVON_SANDBOX_SIGNING_KEY_FILE", other);
  expect(f, "QD958", "fail", "its record: ");
  run_setenv(f->run, "QUAVON_SANDBOX_SIGNING_KEY_PREVIOUS_FILES", f->key);
  expect(f, "QD958", "warn", "another of our keys");
  run_setenv(f->run, "QUAVON_SANDBOX_SIGNING_KEY_PREVIOUS_FILES", "");
  run_setenv(f->run, "QUAVON_SANDBOX_SIGNING_KEY_FILE", f->key);
  /* Asked for by us, and answered with our request. */
  root = doctor(f, WORDS("doctor", "--json", "--sandbox-smoke"));
  expect_in(root, "QD957", "ok", "escape smoke test passed");
  g_assert_null(find(root, "QD957", "fail", ""));
  json_decref(root);
  g_autofree char *log = tree_path(f->run->dir, "runner.log");
  g_autofree char *text = NULL;
  g_assert_true(g_file_get_contents(log, &text, NULL, NULL));
  g_assert_nonnull(strstr(text, "smoke test starts"));
  /* Stopped for good: its record expires. */
  run_stop_runner(f->run, &f->runner);
  g_autofree char *ids = qv_test_valkey_cli(f->valkey, "ZRANGE", "quavon-sandbox:runners", "0", "-1", NULL);
  g_autofree char *record = g_strconcat("quavon-sandbox:health:", g_strchomp(ids), NULL);
  g_free(qv_test_valkey_cli(f->valkey, "DEL", record, NULL));
  expect(f, "QD952", "fail", "has expired");
  expect(f, "QD952", "fail", "no healthy runner in pool default");
}

/* A runtime that says it is runsc and is weaker: found out by the test inside. */
static void test_weak_runtime(Fixture *f, gconstpointer data)
{
  if (!run_possible())
    return;
  g_autofree char *program =
      g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "tests", "integration", "runner", "weak_runsc.py", NULL);
  g_autofree char *weak = tree_path(f->run->dir, "host-folder");
  tree_run("/", "install", "-m", "755", program, weak, NULL);
  start_runner(f, weak, FALSE);
  json_t *root = await(f, "QD957", "fail", "escape smoke test failed: ");
  expect_in(root, "QD951", "warn", "problems: smoke: ");
  expect_in(root, "QD952", "fail", "no healthy runner");
  json_decref(root);
}

static json_t *engine_offline(QvTestDockerd *engine, json_t **root)
{
  g_autofree char *text = qv_test_dockerd_call(engine, "GET", "/info", NULL, NULL);
  *root = json_loads(text, 0, NULL);
  return json_object_get(json_object_get(json_object_get(*root, "Runtimes"), "runsc-offline"), "runtimeArgs");
}

/* As `runsc install` does it. */
static void write_platform(QvTestDockerd *engine, const char *flag)
{
  g_autofree char *path = g_build_filename(qv_test_dockerd_dir(engine), "daemon.json", NULL);
  json_t *settings = json_load_file(path, 0, NULL);
  json_t *arguments = json_object_get(json_object_get(json_object_get(settings, "runtimes"), "runsc-offline"), "runtimeArgs");
  g_assert_cmpint(json_array_set_new(arguments, 0, json_string(flag)), ==, 0);
  g_assert_cmpint(json_dump_file(settings, path, 0), ==, 0);
  json_decref(settings);
}

/* The engine has it; nobody tells the runner. */
static void register_platform(QvTestDockerd *engine, const char *flag)
{
  write_platform(engine, flag);
  kill(qv_test_dockerd_pid(engine), SIGHUP);
  for (gint64 end = qv_clock_mono_ms() + DEADLINE_MS;; g_usleep(50000)) {
    json_t *root, *now = engine_offline(engine, &root);
    gboolean there = g_strcmp0(json_string_value(json_array_get(now, 0)), flag) == 0;
    json_decref(root);
    if (there)
      break;
    g_assert_cmpint(qv_clock_mono_ms(), <, end);
  }
}

/* The engine's runtime becomes another one under a runner that lives, and what it was. */
static void change_runtime(Fixture *f, QvTestDockerd *engine)
{
  f->backend = "docker-runsc";
  start_runner(f, NULL, FALSE);
  json_decref(await(f, "QD954", "ok", "runtime runsc, platform systrap"));
  register_platform(engine, "--platform=ptrace");
  json_t *root = await(f, "QD954", "fail", "platform unknown; backend docker-runsc needs runsc with systrap");
  expect_in(root, "QD951", "warn", "the engine is not what the backend needs");
  expect_in(root, "QD952", "fail", "no healthy runner");
  json_decref(root);
  /* Then it is away: said as such, and nobody knows that it is another one. */
  qv_test_dockerd_kill(engine);
  root = await(f, "QD951", "warn", "the engine does not answer");
  expect_in(root, "QD954", "fail", "platform unknown");
  json_decref(root);
  write_platform(engine, "--platform=systrap");
  qv_test_dockerd_restart(engine);
  json_decref(await(f, "QD954", "ok", "runtime runsc, platform systrap"));
  run_stop_runner(f->run, &f->runner);
}

/* On an engine: what is no gVisor at all, and the backend that does not isolate: allowed to the runner, never good enough for a worker in production. */
static void test_insecure(Fixture *f, gconstpointer data)
{
  const char *missing = qv_test_dockerd_missing();
  if (missing != NULL || !run_possible()) {
    g_test_skip(missing != NULL ? missing : "sandboxes need root");
    return;
  }
  g_autoptr(QvTestDockerd) engine = qv_test_dockerd_start(FALSE);
  g_autofree char *lock = tree_path(f->run->dir, "tiny.lock.json");
  g_free(qv_test_tiny_image(engine, "base", lock));
  run_setenv(f->run, "QUAVON_SANDBOX_IMAGES_FILE", lock);
  run_setenv(f->run, "QUAVON_SANDBOX_DOCKER_SOCKET", qv_test_dockerd_socket(engine));
  run_setenv(f->run, "QUAVON_ENV", "development");
  /* runc under the name of a runtime that is to be gVisor: that runner does not even start. */
  int status = 0;
  f->backend = "docker-runsc";
  run_setenv(f->run, "QUAVON_SANDBOX_RUNTIME_OFFLINE", "runsc-false");
  start_runner(f, NULL, FALSE);
  g_assert_cmpint(waitpid(f->runner, &status, 0), ==, f->runner);
  g_assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
  f->runner = 0;
  expect(f, "QD952", "fail", "no healthy runner");

  run_setenv(f->run, "QUAVON_SANDBOX_RUNTIME_OFFLINE", "runsc-offline");
  f->backend = "docker-runc-insecure";
  start_runner(f, NULL, FALSE);
  json_t *root = await(f, "QD957", "ok", "escape smoke test passed");
  expect_in(root, "QD951", "ok", "backend docker-runc-insecure, runtime runc");
  expect_in(root, "QD952", "ok", "1 of 1 runners");
  expect_in(root, "QD953", "warn", "for development alone");
  expect_in(root, "QD954", "ok", "runtime runc");
  expect_in(root, "host-docker", "ok", "Docker Engine 2");
  json_decref(root);
  run_setenv(f->run, "QUAVON_ENV", "production");
  expect(f, "QD953", "fail", "never in production");
  expect(f, "QD952", "fail", "no healthy runner");
  /* One that is there and says nothing. */
  kill(qv_test_dockerd_pid(engine), SIGSTOP);
  expect(f, "host-docker", "warn", "does not answer");
  kill(qv_test_dockerd_pid(engine), SIGCONT);
  run_stop_runner(f->run, &f->runner);
  change_runtime(f, engine);
}

static void await_log(const Fixture *f, const char *words)
{
  g_autofree char *path = tree_path(f->run->dir, "runner.log");
  for (gint64 end = qv_clock_mono_ms() + DEADLINE_MS;; g_usleep(100000)) {
    g_autofree char *text = NULL;
    if (g_file_get_contents(path, &text, NULL, NULL) && strstr(text, words) != NULL)
      return;
    if (qv_clock_mono_ms() > end)
      g_error("no \"%s\" in the runner's log:\n%s", words, text);
  }
}

/* A clock that was wrong when the smoke test passed and is right again makes it old; the runner, whose own interval has not passed,
 * runs none by itself. And before its first one has ended there is none. */
static void test_stale(Fixture *f, gconstpointer data)
{
  if (!run_possible())
    return;
  g_autofree char *runsc = tree_path(f->run->dir, "runsc"), *shifted = tree_path(f->run->dir, "shifted");
  g_autofree char *hold = tree_path(f->run->dir, "hold");
  g_autofree char *asan = g_strconcat(g_getenv("ASAN_OPTIONS"), ":verify_asan_link_order=0", NULL);
  /* The first start is the trial's. */
  g_autofree char *script =
    g_strdup_printf("#!/bin/sh\ncase \" $* \" in *' run '*)\n  mkdir %s/tried 2>/dev/null || while [ -e %s ]; do sleep 0.1; done ;;\nesac\n"
                    "exec runsc \"$@\"\n", f->run->dir, hold);
  write_script(runsc, script);
  tree_write(f->run->dir, "hold", "", 0644);
  f->runner = run_start_runner(f->run, qv_test_valkey_url(f->valkey, "sandbox"),
                               WORDS("QUAVON_SANDBOX_RUNSC", runsc, "QUAVON_SANDBOX_SMOKE_MEMORY", "", "ASAN_OPTIONS", asan, "LD_PRELOAD",
                                     g_getenv("QUAVON_TEST_SHIFT_CLOCK"), "QV_SHIFT_CLOCK_S", "-22600", "QV_SHIFT_CLOCK_WHILE", shifted));
  json_t *root = await(f, "QD957", "fail", "no escape smoke test has ended yet");
  expect_in(root, "QD952", "fail", "no healthy runner");
  json_decref(root);
  tree_write(f->run->dir, "shifted", "", 0644);
  g_assert_cmpint(g_unlink(hold), ==, 0);
  await_log(f, "smoke test passed");
  g_assert_cmpint(g_unlink(shifted), ==, 0);
  kill(f->runner, SIGHUP); /* the record is written at once */
  root = await(f, "QD957", "fail", "older than 6 h 15 min (6 h 1");
  expect_in(root, "QD952", "fail", "no healthy runner");
  json_decref(root);
}

static void test_no_runner(Fixture *f, gconstpointer data)
{
  expect(f, "QD952", "fail", "none has reported in the last 90 s");
}

static void test_record_codes(Fixture *f, gconstpointer data)
{
  QvHealth *health = fake();
  health->insecure = TRUE;
  g_free(health->backend);
  health->backend = g_strdup("docker-runc-insecure");
  g_free(health->runtime_name);
  health->runtime_name = g_strdup("runc");
  put(f, health);
  expect(f, "QD953", "fail", "never in production");
  run_setenv(f->run, "QUAVON_ENV", "development");
  expect(f, "QD953", "warn", "for development alone");
  run_setenv(f->run, "QUAVON_EDITION", "enterprise");
  expect(f, "QD953", "fail", "never in the enterprise edition");
  run_setenv(f->run, "QUAVON_ENV", "production");
  run_setenv(f->run, "QUAVON_EDITION", "community");

  health = fake();
  g_free(health->platform);
  health->platform = g_strdup("ptrace");
  put(f, health);
  expect(f, "QD954", "fail", "backend runsc needs runsc with systrap");

  health = fake();
  put(f, health);
  expect(f, "QD955", "ok", "another host");
  expect(f, "QD956", "fail", "in the lock file here");
  health = fake();
  g_clear_pointer(&health->host_id, g_free);
  g_free(health->images[0].name);
  health->images[0].name = g_strdup("other");
  put(f, health);
  expect(f, "QD955", "warn", "cannot be known");
  expect(f, "QD956", "fail", "is not there");

  health = fake();
  health->smoke->at -= QV_SMOKE_AGE_MS_MAX + 60000;
  put(f, health);
  expect(f, "QD957", "fail", "older than 6 h 15 min");
  expect(f, "QD952", "fail", "no healthy runner");
  health = fake();
  qv_smoke_report_free(g_steal_pointer(&health->smoke));
  put(f, health);
  expect(f, "QD957", "fail", "no escape smoke test has ended yet");
}

static void test_keys(Fixture *f, gconstpointer data)
{
  g_autofree char *other = tree_path(f->run->dir, "other.key");
  g_assert_cmpint(run_all_verb(f->run, WORDS("keygen", other)), ==, 0);
  g_autoptr(QvHealth) health = fake();
  qv_test_health_put(f->valkey, other, health);
  expect(f, "QD958", "fail", "its record: ");
  run_setenv(f->run, "QUAVON_SANDBOX_SIGNING_KEY_PREVIOUS_FILES", other);
  expect(f, "QD958", "warn", "another of our keys");
}

static void test_worker_side(Fixture *f, gconstpointer data)
{
  const char *url = qv_test_valkey_url(f->valkey, "worker");
  run_setenv(f->run, "VALKEY_URL", qv_test_valkey_url(f->valkey, "admin"));
  expect(f, "QD950", "fail", "may read keys that are not the sandbox's");
  run_setenv(f->run, "VALKEY_URL", url);
  g_free(qv_test_valkey_cli(f->valkey, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru", NULL));
  expect(f, "valkey-eviction", "fail", "allkeys-lru");
  g_free(qv_test_valkey_cli(f->valkey, "CONFIG", "SET", "maxmemory-policy", "noeviction", NULL));
  g_free(qv_test_valkey_cli(f->valkey, "CONFIG", "SET", "maxmemory", "64mb", NULL));
  expect(f, "valkey-memory", "warn", "MiB left");
  g_assert_cmpint(g_chmod(f->key, 0644), ==, 0);
  expect(f, "QD950", "fail", f->key);
  expect(f, "host-secrets", "fail", "has mode 0644");
  g_assert_cmpint(g_chmod(f->key, 0600), ==, 0);
  qv_test_valkey_kill(f->valkey);
  expect(f, "QD950", "fail", "Valkey at");
  run_setenv(f->run, "QUAVON_SANDBOX_CONCURRENCY", "many");
  g_assert_cmpint(run_all_verb(f->run, WORDS("doctor")), ==, 2);
  g_assert_cmpint(run_all_verb(f->run, WORDS("doctor", "--what")), ==, 2);
}

static void die_with_us(gpointer data)
{
  prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* What is wrong with this host: programs, files and folders that say so. */
static void test_host(Fixture *f, gconstpointer data)
{
  g_autofree char *runsc = tree_path(f->run->dir, "runsc");
  g_autofree char *nowhere = tree_path(f->run->dir, "nowhere/images.lock.json");
  run_setenv(f->run, "QUAVON_SANDBOX_RUNSC", runsc);
  expect(f, "host-runsc", "ok", "no runsc here");
  write_script(runsc, "#!/bin/sh\nexit 3\n");
  expect(f, "host-runsc", "fail", "--version fails");
  write_script(runsc, "#!/bin/sh\necho runsc version 0.0~20221219.0\n");
  expect(f, "host-runsc", "warn", "the oldest release that is tested");
  write_script(runsc, "#!/bin/sh\necho runsc version release-20991231.0\n");
  expect(f, "host-runsc", "ok", "20991231");
  run_setenv(f->run, "QUAVON_SANDBOX_DOCKER_SOCKET", nowhere);
  expect(f, "host-docker", "ok", "no Docker engine here");
  expect(f, "host-kvm", "ok", "for the backend firecracker alone");
  run_setenv(f->run, "QUAVON_SANDBOX_IMAGES_FILE", nowhere);
  expect(f, "host-disk", "ok", "no images here");
  expect(f, "host-kernel", "ok", "Linux");
  expect(f, "host-cgroup", "ok", "control groups");
  /* A runner by its name, with what it must not have. */
  g_autofree char *copy = tree_path(f->run->dir, "quavon-sandbox-runner");
  tree_run("/", "cp", "/bin/sleep", copy, NULL);
  char *argv[] = { copy, (char *)"1000", NULL }, *env[] = { (char *)"SOME_API_KEY=x", NULL };
  GPid pid;
  g_autoptr(GError) error = NULL;
  g_spawn_async("/", argv, env, G_SPAWN_DO_NOT_REAP_CHILD, die_with_us, NULL, &pid, &error);
  g_assert_no_error(error);
#define FOUND "SOME_API_KEY is in the environment of the runner with pid "
  expect_remedy(f, "host-environment", FOUND, "systemctl edit quavon-sandbox-runner: UnsetEnvironment=SOME_API_KEY");
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  /* The same in a container. */
  char *contained[] = { (char *)"unshare", (char *)"--pid", (char *)"--fork", (char *)"--kill-child", copy, (char *)"1000", NULL };
#define CONTAINED "SOME_OTHER_API_KEY is in the environment of the runner with pid "
  env[0] = (char *)"SOME_OTHER_API_KEY=x";
  g_spawn_async("/", contained, env, G_SPAWN_DO_NOT_REAP_CHILD | G_SPAWN_SEARCH_PATH, die_with_us, NULL, &pid, &error);
  g_assert_no_error(error);
  json_t *root = await(f, "host-environment", "fail", CONTAINED);
  run_says(g_strdup(json_string_value(json_object_get(find(root, "host-environment", "fail", CONTAINED), "remedy"))),
           "docker compose up -d");
  json_decref(root);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
}

/* For people: a line a check, a remedy below what is not ok, nothing that a pipe would not want, and no runner's escapes. */
static void test_text(Fixture *f, gconstpointer data)
{
  QvHealth *health = fake();
  g_strfreev(health->problems);
  health->problems = g_strsplit("sweep: \xe2\x80\xae reversed", "|", -1);
  put(f, health);
  g_assert_cmpint(run_all_verb(f->run, WORDS("doctor")), ==, 1);
  g_autofree char *text = run_stdout(f->run);
  g_assert_nonnull(strstr(text, "QD951              warn  runner r1: backend runsc"));
  g_assert_nonnull(strstr(text, "\n                   > on the runner: quavon images build base"));
  g_assert_null(strchr(text, '\033'));
  g_assert_null(strstr(text, "\xe2\x80\xae"));
  g_assert_nonnull(strstr(text, " failures\n"));
  /* Colours are for a terminal alone, and not for one whose owner wants none. */
  g_autofree char *coloured = run_on_terminal(f->run, TRUE, 1, WORDS("doctor"));
  g_assert_nonnull(strstr(coloured, "QD951              \033[33mwarn\033[0m  runner r1: "));
  g_assert_nonnull(strstr(coloured, "\033[31;1mfail\033[0m"));
  run_setenv(f->run, "NO_COLOR", "1");
  g_autofree char *plain = run_on_terminal(f->run, TRUE, 1, WORDS("doctor"));
  g_assert_nonnull(strstr(plain, "QD951              warn  runner r1: "));
  g_assert_null(strchr(plain, '\033'));
}

/* A server with another clock. */
static void test_clock(void)
{
  Fixture f = { 0 };
  g_setenv("LD_PRELOAD", g_getenv("QUAVON_TEST_SHIFT_CLOCK"), TRUE);
  g_setenv("QV_SHIFT_CLOCK_S", "3600", TRUE);
  set_up(&f, NULL);
  g_unsetenv("LD_PRELOAD");
  g_unsetenv("QV_SHIFT_CLOCK_S");
  expect(&f, "valkey-clock", "warn", "ahead of this host's");
  tear_down(&f, NULL);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
#define ADD(name, function) g_test_add("/doctor/" name, Fixture, NULL, set_up, function, tear_down)
  ADD("healthy", test_healthy);
  ADD("weak-runtime", test_weak_runtime);
  ADD("insecure", test_insecure);
  ADD("stale", test_stale);
  ADD("host", test_host);
  ADD("no-runner", test_no_runner);
  ADD("record-codes", test_record_codes);
  ADD("keys", test_keys);
  ADD("worker-side", test_worker_side);
  ADD("text", test_text);
  g_test_add_func("/doctor/clock", test_clock);
  return g_test_run();
}
