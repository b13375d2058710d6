/* SPDX-License-Identifier: Apache-2.0 */
/* quavon ps, runners, top and pool on a real Valkey: what is ours is told from what is not, and nothing that others wrote
 * reaches a terminal as it is. */
#include <fcntl.h>
#include <jansson.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../unit/client/tree.h"
#include "base/clock.h"
#include "client/key_file.h"
#include "embedded_run.h"
#include "protocol/health.h"
#include "queue/stores.h"
#include "support/loop.h"
#include "support/health.h"
#include "support/proxy.h"
#include "support/valkey.h"

#define P "quavon-sandbox:sandbox:"

typedef struct {
  QvTestValkey *valkey;
  Run *run;
  QvKeyring *ring;
  QvConn *conn; /* as a runner */
} Fixture;

static void set_up(Fixture *f, gconstpointer data)
{
  f->valkey = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  f->run = run_new();
  g_autofree char *key = run_use_valkey(f->run, qv_test_valkey_url(f->valkey, "worker"));
  f->ring = qv_key_files_read(key, NULL, NULL);
  g_autoptr(QvAddress) address = qv_address_parse(qv_test_valkey_url(f->valkey, "sandbox"), NULL);
  f->conn = qv_conn_new(address, NULL);
}

static void tear_down(Fixture *f, gconstpointer data)
{
  qv_conn_free(f->conn);
  qv_keyring_unref(f->ring);
  run_free(f->run);
  qv_test_valkey_free(f->valkey);
}

static char *quavon(Fixture *f, int status, const char *const *words)
{
  run_expect(f->run, status, words);
  return run_stdout(f->run);
}

/* A value of what a verb prints as JSON, by a path of names and indices ("jobs/0/state"). Texts alone. */
static void expect_json(const char *text, const char *path, const char *want)
{
  json_error_t why;
  json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &why);
  if (root == NULL)
    g_error("no JSON (%s): %s", why.text, text);
  g_auto(GStrv) names = g_strsplit(path, "/", -1);
  const json_t *at = root;
  for (guint i = 0; names[i] != NULL; i++)
    at = json_is_array(at) ? json_array_get(at, (size_t)atoi(names[i])) : json_object_get(at, names[i]);
  char *is = at != NULL ? json_dumps(at, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
  if (g_strcmp0(is, want) != 0)
    g_error("%s is %s, not %s, in %s", path, is, want, text);
  free(is);
  json_decref(root);
}

/* There is a runner for as long as this takes. */
static char *submit(Fixture *f)
{
  g_autofree char *lock = g_build_filename(g_getenv("QUAVON_TEST_IMAGES"), "images.lock.json", NULL);
  g_autofree char *key = tree_path(f->run->dir, "pool.key");
  qv_test_healthy_runner_of(f->valkey, key, lock);
  char *id = quavon(f, 0, WORDS("run", "--detach", "--tenant", "acme", "--", "true"));
  g_free(qv_test_valkey_cli(f->valkey, "DEL", "quavon-sandbox:health:peer", "quavon-sandbox:runners", NULL));
  return g_strchomp(id);
}

static void test_ps(Fixture *f, gconstpointer data)
{
  g_autofree char *id = submit(f);
  /* An active job with progress; one that nobody signed, whose names are hostile; one that was refused. */
  g_autofree char *hash = g_strconcat(P, id, NULL);
  g_free(qv_test_valkey_cli(f->valkey, "LREM", P "wait", "0", id, NULL));
  g_free(qv_test_valkey_cli(f->valkey, "LPUSH", P "active", id, NULL));
  g_autofree char *now = g_strdup_printf("%" G_GINT64_FORMAT, qv_clock_unix_ms());
  g_free(qv_test_valkey_cli(f->valkey, "HSET", hash, "processedOn", now, "pb", "runner-7", "progress",
                            "{\"stage\":\"step\",\"step\":1,\"steps\":1,\"elapsedMs\":5}", NULL));
  g_free(qv_test_valkey_cli(f->valkey, "HSET", P "\033[2Jx", "data", "{}", "timestamp", now, NULL));
  g_free(qv_test_valkey_cli(f->valkey, "LPUSH", P "wait", "\033[2Jx", NULL));
  g_free(qv_test_valkey_cli(f->valkey, "HSET", P "gone", "failedReason", "rejected: bad\033]0;x\007", "finishedOn", now, NULL));
  g_free(qv_test_valkey_cli(f->valkey, "ZADD", P "failed", now, "gone", NULL));
  g_autofree char *text = quavon(f, 0, WORDS("ps", "-a"));
  g_assert_null(strpbrk(text, "\033\007"));
  static const char *const parts[] = { "JOB ", "\\x1b[2Jx", "waiting", "(not ours)", "active", "acme", "check", "base",
                                       "step 1/1 run", "runner-7", "rejected: bad\\x1b]0;x\\x07" };
  for (gsize i = 0; i < G_N_ELEMENTS(parts); i++) {
    if (strstr(text, parts[i]) == NULL)
      g_error("no \"%s\" in:\n%s", parts[i], text);
  }
  g_autofree char *json = quavon(f, 0, WORDS("ps", "--json"));
  expect_json(json, "counts/active", "1");
  expect_json(json, "jobs/0/tenantId", "null");
  expect_json(json, "jobs/1/state", "\"active\"");
  expect_json(json, "jobs/1/step", "\"step 1/1 run\"");
  expect_json(json, "jobs/1/runnerId", "\"runner-7\"");
  expect_json(json, "jobs/2", NULL);
  g_free(quavon(f, 64, WORDS("ps", "more")));
  /* Data that no job may have is not even read. */
  g_free(qv_test_valkey_cli(f->valkey, "EVAL", "return redis.call('HSET', KEYS[1], 'data', string.rep('x', 4000000))", "1", hash, NULL));
  g_autofree char *after = quavon(f, 0, WORDS("ps"));
  g_assert_null(strstr(after, "acme"));
}

static void on_put(const GError *error, gpointer user)
{
  g_assert_no_error(error);
  (*(guint *)user)++;
}

static void put_health(Fixture *f, const char *runner_id, QvKey *key, const char *problem)
{
  g_autoptr(QvHealth) health = qv_health_new();
  QvSmokeReport *smoke = g_new0(QvSmokeReport, 1);
  guint done = 0;
  gsize n = 0;
  health->runner_id = g_strdup(runner_id);
  health->pool = g_strdup("default");
  health->version = g_strdup("0.1.0");
  health->backend = g_strdup("runsc");
  health->runtime_name = g_strdup("runsc");
  health->platform = g_strdup("systrap");
  health->kernel = g_strdup("6.1");
  health->cgroup = g_strdup("v1");
  health->concurrency = 4;
  health->busy = 3;
  health->at = health->started_at = qv_clock_unix_ms();
  g_strfreev(health->problems);
  health->problems = g_strdupv(problem != NULL ? (char *[]){ (char *)problem, NULL } : (char *[]){ NULL });
  smoke->at = health->at;
  smoke->passed = TRUE;
  smoke->probes = 40;
  smoke->failed = g_new0(char *, 1);
  health->smoke = smoke;
  g_autoptr(GError) error = NULL;
  g_autofree char *text = qv_health_sign(health, key, &n, &error);
  g_assert_no_error(error);
  qv_health_put(f->conn, "quavon-sandbox", runner_id, health->at, text, n, 0, on_put, &done);
  QV_TEST_WAIT(done == 1);
}

static void test_runners(Fixture *f, gconstpointer data)
{
  g_autofree char *none = quavon(f, 0, WORDS("runners", "--bare"));
  g_assert_cmpstr(none, ==, "");
  guint8 other_bytes[32] = { 9 };
  g_autoptr(QvKey) other = qv_key_new(other_bytes, sizeof other_bytes);
  put_health(f, "alpha", qv_keyring_current(f->ring), NULL);
  put_health(f, "beta", qv_keyring_current(f->ring), "something is left of a sandbox");
  put_health(f, "gamma", other, NULL);
  g_autofree char *text = quavon(f, 0, WORDS("runners"));
  g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
  g_assert_true(g_str_has_prefix(lines[1], "alpha") && strstr(lines[1], "ready") && strstr(lines[1], "3/4"));
  g_assert_true(g_str_has_prefix(lines[2], "beta") && strstr(lines[2], "problem") && strstr(lines[2], "something is left"));
  g_assert_true(g_str_has_prefix(lines[3], "gamma") && strstr(lines[3], "unknown"));
  g_autofree char *json = quavon(f, 0, WORDS("runners", "--json"));
  expect_json(json, "runners/0/state", "\"ready\"");
  expect_json(json, "runners/0/smoke/passed", "true");
  expect_json(json, "runners/1/problems/0", "\"something is left of a sandbox\"");
  expect_json(json, "runners/2/state", "\"unknown\"");
}

static void test_pool(Fixture *f, gconstpointer data)
{
  g_autofree char *id = submit(f);
  g_autofree char *paused = quavon(f, 0, WORDS("pool", "pause"));
  g_assert_cmpstr(paused, ==, "pool default: 1 waiting, 0 active, 0 completed, 0 not run; PAUSED\n");
  g_free(qv_test_valkey_cli(f->valkey, "LPUSH", P "active", "someone", NULL));
  g_free(quavon(f, 124, WORDS("pool", "drain", "--timeout", "1s")));
  run_start_verb(f->run, WORDS("pool", "drain"));
  run_await_words(f->run, "1 job is still active");
  g_free(qv_test_valkey_cli(f->valkey, "LREM", P "active", "0", "someone", NULL));
  g_assert_cmpint(run_wait(f->run), ==, 0);
  run_start_verb(f->run, WORDS("pool", "resume", "--json"));
  g_assert_cmpint(run_wait(f->run), ==, 0);
  g_autofree char *json = run_stdout(f->run);
  expect_json(json, "paused", "false");
  expect_json(json, "counts/waiting", "1");
  g_free(quavon(f, 64, WORDS("pool")));
  g_free(quavon(f, 64, WORDS("pool", "explode")));
  g_free(quavon(f, 64, WORDS("pool", "pause", "--timeout", "1s")));
}

/* Reads the terminal until it has the words. */
static void read_until(int terminal, GString *text, const char *words)
{
  char buffer[1024];
  while (strstr(text->str, words) == NULL) {
    ssize_t n = read(terminal, buffer, sizeof buffer);
    if (n <= 0)
      g_error("the terminal ended without \"%s\":\n%s", words, text->str);
    g_string_append_len(text, buffer, n);
  }
}

/* `quavon top` on a terminal of that many columns. */
static pid_t start_top(Fixture *f, unsigned short columns, int *terminal)
{
  g_autofree char *program = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "cli", "quavon", NULL);
  g_auto(GStrv) env = g_environ_setenv(run_environment(f->run), "TERM", "xterm", TRUE);
  struct winsize size = { .ws_row = 24, .ws_col = columns };
  pid_t pid = forkpty(terminal, NULL, NULL, &size);
  if (pid == 0) {
    const char *argv[] = { program, "top", "--interval", "300ms", NULL };
    execve(program, (char *const *)argv, env);
    _exit(99);
  }
  return pid;
}

static void test_top(Fixture *f, gconstpointer data)
{
  g_autofree char *id = submit(f);
  put_health(f, "alpha", qv_keyring_current(f->ring), NULL);
  g_autofree char *once = quavon(f, 0, WORDS("top", "--once"));
  g_assert_true(strstr(once, "1 waiting") != NULL && strstr(once, "alpha") != NULL && strstr(once, id) != NULL);
  g_assert_null(strchr(once, '\033'));
  g_autofree char *json = quavon(f, 0, WORDS("top", "--json"));
  expect_json(json, "runners/0/runnerId", "\"alpha\"");
  expect_json(json, "counts/waiting", "1");
  expect_json(json, "times", "null");

  int terminal = -1;
  pid_t pid = start_top(f, 40, &terminal);
  g_autoptr(GString) text = g_string_new(NULL);
  read_until(terminal, text, "\033[?1049h");
  read_until(terminal, text, "1 waiting");
  read_until(terminal, text, "alpha");
  g_free(qv_test_valkey_cli(f->valkey, "LPUSH", P "wait", "another", NULL));
  read_until(terminal, text, "2 waiting"); /* it looks again */
  g_auto(GStrv) lines = g_strsplit(text->str, "\r\n", -1);
  for (guint i = 0; lines[i + 1] != NULL; i++) {
    const char *end = strstr(lines[i], "\033[K"), *start = g_strrstr(lines[i], "\033[H");
    start = start != NULL ? start + 3 : lines[i];
    if (end != NULL && end > start && end - start > 40)
      g_error("wider than the terminal: %s", lines[i]);
  }
  g_assert_cmpint(write(terminal, "q", 1), ==, 1);
  read_until(terminal, text, "\033[?1049l");
  int status = -1;
  g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
  g_assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  close(terminal);
}

/* Valkey goes away and comes back while somebody looks. */
static void test_top_away(Fixture *f, gconstpointer data)
{
  int terminal = -1;
  pid_t pid = start_top(f, 100, &terminal);
  g_autoptr(GString) text = g_string_new(NULL);
  read_until(terminal, text, "0 waiting");
  qv_test_valkey_kill(f->valkey);
  read_until(terminal, text, "trying again");
  qv_test_valkey_restart(f->valkey);
  g_string_truncate(text, 0);
  read_until(terminal, text, "0 waiting");
  kill(pid, SIGTERM);
  read_until(terminal, text, "\033[?1049l");
  int status = -1;
  g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
  close(terminal);
}

/* A Valkey that lies costs the verb its answer and nothing else: a status, a line that says why, no control characters. */
static void test_lies(Fixture *f, gconstpointer data)
{
  static const QvTestAnswer lies[] = {
    { .bytes = "$536870912\r\n", .again = "x", .again_n = 1 << 30, .said = "is announced" },
    { .bytes = "*1048576\r\n", .again = "*1\r\n:1\r\n", .again_n = 1048576, .said = "too much memory" },
    { .bytes = ">2\r\n+invalidate\r\n*0\r\n", .said = "not the Valkey protocol" },
    { .bytes = "+QUEUED\r\n", .said = "wrong shape" },
    { .bytes = "-ERR \x1b]0;mine\x07 \xff\r\n", .said = "\\x1b]0;mine\\x07" },
    { .bytes = "-ERR ", .again = "0123456789abcdef", .again_n = 262144, .said = "a line" },
  };
  g_autoptr(QvTestProxy) relay = qv_test_proxy_start(qv_test_valkey_dir(f->valkey), qv_test_valkey_socket(f->valkey));
  g_autofree char *url = g_strdup_printf("unix://worker:%s@%s", qv_test_valkey_password(f->valkey), qv_test_proxy_socket(relay));
  run_setenv(f->run, "VALKEY_URL", url);
  for (gsize i = 0; i < G_N_ELEMENTS(lies); i++) {
    qv_test_proxy_answer(relay, "EVALSHA", &lies[i], 1);
    g_assert_cmpint(run_all_verb(f->run, (const char *const[]){ "ps", NULL }), !=, 0);
    g_autofree char *said = run_stderr(f->run);
    if (strstr(said, lies[i].said) == NULL || strpbrk(said, "\x1b\x07") != NULL || strlen(said) > 2048)
      g_error("\"%s\" was said, not \"%s\"", said, lies[i].said);
  }
  g_free(quavon(f, 0, (const char *const[]){ "ps", NULL }));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add("/pool/ps", Fixture, NULL, set_up, test_ps, tear_down);
  g_test_add("/pool/runners", Fixture, NULL, set_up, test_runners, tear_down);
  g_test_add("/pool/pool", Fixture, NULL, set_up, test_pool, tear_down);
  g_test_add("/pool/top", Fixture, NULL, set_up, test_top, tear_down);
  g_test_add("/pool/lies", Fixture, NULL, set_up, test_lies, tear_down);
  g_test_add("/pool/top-away", Fixture, NULL, set_up, test_top_away, tear_down);
  return g_test_run();
}
