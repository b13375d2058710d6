/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs of quavon with a Valkey and a runner that are there: detach, wait, result, cancel, Ctrl-C. */
#include <errno.h>
#include <fcntl.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../unit/client/tree.h"
#include "embedded_run.h"
#include "support/health.h"
#include "support/valkey.h"

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

typedef struct {
  QvTestValkey *valkey;
  Run *run;
  GPid runner;
} Fixture;

static void before_exec(gpointer data)
{
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int fd = open(data, O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(fd, STDERR_FILENO);
}

static void start_runner(Fixture *f)
{
  g_autofree char *program =
      g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "runner", "quavon-sandbox-runner", NULL);
  g_autofree char *log = tree_path(f->run->dir, "runner.log");
  char **env = run_environment(f->run);
  env = g_environ_setenv(env, "VALKEY_URL", qv_test_valkey_url(f->valkey, "sandbox"), TRUE);
  env = g_environ_setenv(env, "QUAVON_SANDBOX_BACKEND", "runsc", TRUE);
  env = g_environ_setenv(env, "QUAVON_SANDBOX_GRACE_MS", "0", TRUE);
  const char *argv[] = { program, NULL };
  g_autoptr(GError) error = NULL;
  g_spawn_async("/", (char **)argv, env, G_SPAWN_DO_NOT_REAP_CHILD, before_exec, log, &f->runner, &error);
  g_strfreev(env);
  g_assert_no_error(error);
}

static void set_up(Fixture *f, gconstpointer data)
{
  f->valkey = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  f->run = run_new();
  g_autofree char *key = tree_path(f->run->dir, "pool.key");
  g_autofree char *state = tree_path(f->run->dir, "s");
  tree_mkdir(f->run->dir, "s");
  g_assert_cmpint(run_all_verb(f->run, WORDS("keygen", key)), ==, 0);
  run_setenv(f->run, "VALKEY_URL", qv_test_valkey_url(f->valkey, "worker"));
  run_setenv(f->run, "QUAVON_SANDBOX_SIGNING_KEY_FILE", key);
  run_setenv(f->run, "QUAVON_SANDBOX_STATE_DIR", state);
  /* Somebody to submit to, also before the real one has come up. */
  g_autofree char *lock = g_build_filename(g_getenv("QUAVON_TEST_IMAGES"), "images.lock.json", NULL);
  qv_test_healthy_runner_of(f->valkey, key, lock);
}

static void tear_down(Fixture *f, gconstpointer data)
{
  if (f->runner != 0) {
    int status = 0;
    kill(f->runner, SIGTERM);
    g_assert_cmpint(waitpid(f->runner, &status, 0), ==, f->runner);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      g_autofree char *log = tree_path(f->run->dir, "runner.log");
      g_autofree char *text = NULL;
      g_file_get_contents(log, &text, NULL, NULL);
      g_error("the runner ended with %x:\n%s", (unsigned)status, text);
    }
  }
  run_free(f->run);
  qv_test_valkey_free(f->valkey);
}

static void expect(Fixture *f, int status, const char *const *words)
{
  int is = run_all_verb(f->run, words);
  if (is == status)
    return;
  g_autofree char *err = run_stderr(f->run);
  g_error("`quavon %s` ended with %d, not %d; it said:\n%s", words[0], is, status, err);
}

static char *detach(Fixture *f, const char *command)
{
  expect(f, 0, WORDS("run", "--detach", "--artefact", "out", "--", "sh", "-c", command));
  char *id = run_stdout(f->run);
  g_assert_cmpuint(strlen(g_strchomp(id)), ==, 36);
  return id;
}

static void test_detach(Fixture *f, gconstpointer data)
{
  if (!run_possible())
    return;
  g_autofree char *id = detach(f, "echo said; echo made > out; exit 5");
  expect(f, 75, WORDS("result", id)); /* there is no runner yet */
  start_runner(f);
  g_autofree char *out = tree_path(f->run->dir, "out");
  expect(f, 5, WORDS("wait", id));
  g_autofree char *log = run_stdout(f->run);
  g_assert_cmpstr(log, ==, "said\n");
  expect(f, 5, WORDS("result", "--json", id));
  g_autofree char *json = run_stdout(f->run);
  g_assert_nonnull(strstr(json, "\"code\":\"step_failed\""));
  expect(f, 5, WORDS("result", "--output", out, id)); /* the artefact was kept: wait had nowhere to put it */
  g_autofree char *path = tree_path(out, "out");
  g_autofree char *text = NULL;
  g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
  g_assert_cmpstr(text, ==, "made\n");
  g_autofree char *no_log = run_stdout(f->run);
  g_assert_cmpstr(no_log, ==, ""); /* artefacts were asked for, not logs */
  expect(f, 5, WORDS("result", "--logs", "--raw", "--quiet", id)); /* its payload has been fetched and removed */
  g_autofree char *err = run_stderr(f->run);
  g_assert_nonnull(strstr(err, "gone"));
  g_autofree char *left = qv_test_valkey_cli(f->valkey, "KEYS", "quavon-sandbox:blob:*", NULL);
  g_assert_cmpstr(left, ==, "");
}

static void test_cancel(Fixture *f, gconstpointer data)
{
  if (!run_possible())
    return;
  start_runner(f);
  g_autofree char *id = detach(f, "sleep 1000");
  expect(f, 0, WORDS("cancel", id));
  expect(f, 130, WORDS("wait", "--quiet", id));
  expect(f, 66, WORDS("cancel", "00000000-0000-4000-8000-000000000000"));
}

/* Seen while it runs, then whole; also of a job that left no logs. */
static void test_logs(Fixture *f, gconstpointer data)
{
  if (!run_possible())
    return;
  start_runner(f);
  g_autofree char *id = detach(f, "echo before; while [ ! -e go ]; do sleep 0.2; done");
  for (g_autofree char *text = NULL; text == NULL || strstr(text, "before\n") == NULL; g_usleep(50000)) {
    expect(f, 0, WORDS("logs", "--quiet", id));
    g_free(text);
    text = run_stdout(f->run);
  }
  run_start_verb(f->run, WORDS("logs", "-f", id));
  for (g_autofree char *text = NULL; text == NULL || strstr(text, "before\n") == NULL; g_usleep(50000)) {
    g_free(text);
    text = run_stdout(f->run);
  }
  Run *other = f->run;
  GPid following = other->pid;
  other->pid = 0;
  expect(f, 0, WORDS("cancel", id));
  int status = -1;
  g_assert_cmpint(waitpid(following, &status, 0), ==, following);
  g_assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  expect(f, 0, WORDS("logs", id));
  g_autofree char *kept = run_stdout(f->run);
  g_assert_cmpstr(kept, ==, "before\n");

  g_autofree char *whole = detach(f, "printf 'one\\n\\033[2Jtwo'; exit 3");
  expect(f, 0, WORDS("logs", whole, "-f"));
  g_autofree char *text = run_stdout(f->run);
  g_assert_cmpstr(text, ==, "one\n\\x1b[2Jtwo\n");
  expect(f, 0, WORDS("logs", "--raw", whole)); /* the payload stays */
  g_autofree char *raw = run_stdout(f->run);
  g_assert_cmpstr(raw, ==, "one\n\033[2Jtwo");
  expect(f, 66, WORDS("logs", "00000000-0000-4000-8000-000000000000"));
  expect(f, 64, WORDS("logs"));
}

/* A job that ends without logs: what was heard of it is shown, although nobody asked for a live view. */
static void test_heard(Fixture *f, gconstpointer data)
{
  if (!run_possible())
    return;
  start_runner(f);
  run_start_verb(f->run, WORDS("run", "--", "sh", "-c", "echo heard; sleep 1000"));
  for (g_autofree char *keys = NULL; keys == NULL || *keys == '\0'; g_usleep(50000)) {
    g_free(keys);
    keys = qv_test_valkey_cli(f->valkey, "KEYS", "quavon-sandbox:blob:*.live:n", NULL);
  }
  g_assert_cmpint(kill(f->run->pid, SIGINT), ==, 0);
  g_assert_cmpint(run_wait(f->run), ==, 130);
  g_autofree char *out = run_stdout(f->run);
  g_assert_cmpstr(out, ==, "heard\n");
  g_autofree char *err = run_stderr(f->run);
  g_assert_nonnull(strstr(err, "there is no complete log"));
}

static void test_interrupt(Fixture *f, gconstpointer data)
{
  if (!run_possible())
    return;
  start_runner(f);
  run_start_verb(f->run, WORDS("run", "--json", "--", "sleep", "1000"));
  run_await_words(f->run, "step 1 of 1");
  g_assert_cmpint(kill(f->run->pid, SIGINT), ==, 0);
  g_assert_cmpint(run_wait(f->run), ==, 130);
  g_autofree char *json = run_stdout(f->run);
  g_assert_nonnull(strstr(json, "\"status\":\"cancelled\""));
  /* The job ended so, not only our wait for it. */
  const char *label = strstr(json, "\"jobId\":\"");
  g_assert_nonnull(label);
  g_autofree char *id = g_strndup(label + strlen("\"jobId\":\""), 36);
  expect(f, 130, WORDS("result", "--json", id));
  g_autofree char *stored = run_stdout(f->run);
  g_assert_cmpstr(stored, ==, json);
}

static void test_no_valkey(Fixture *f, gconstpointer data)
{
  g_autofree char *id = detach(f, "true");
  qv_test_valkey_kill(f->valkey);
  expect(f, 69, WORDS("run", "true"));
  expect(f, 69, WORDS("wait", id));
}

/* The key is another user's: named, and no signing with anything else. */
static void test_unreadable_key(Fixture *f, gconstpointer data)
{
  if (!run_possible())
    return;
  char *dir = tree_new(); /* not in the run's own folder: nobody may read all of that */
  g_autofree char *key = tree_path(dir, "key");
  tree_run("/", "cp", "-p", g_environ_getenv(f->run->extra, "QUAVON_SANDBOX_SIGNING_KEY_FILE"), key, NULL);
  g_assert_cmpint(g_chmod(dir, 0755), ==, 0);
  run_setenv(f->run, "QUAVON_SANDBOX_SIGNING_KEY_FILE", key);
  run_start_as_nobody(f->run, WORDS("true"));
  int status = run_wait(f->run);
  g_autofree char *err = run_stderr(f->run);
  if (status != 78 || strstr(err, key) == NULL || strstr(err, g_strerror(EACCES)) == NULL)
    g_error("ended with %d, not 78; it said:\n%s", status, err);
  tree_free(dir);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add("/remote/detach", Fixture, NULL, set_up, test_detach, tear_down);
  g_test_add("/remote/cancel", Fixture, NULL, set_up, test_cancel, tear_down);
  g_test_add("/remote/logs", Fixture, NULL, set_up, test_logs, tear_down);
  g_test_add("/remote/heard", Fixture, NULL, set_up, test_heard, tear_down);
  g_test_add("/remote/interrupt", Fixture, NULL, set_up, test_interrupt, tear_down);
  g_test_add("/remote/no-valkey", Fixture, NULL, set_up, test_no_valkey, tear_down);
  g_test_add("/remote/unreadable-key", Fixture, NULL, set_up, test_unreadable_key, tear_down);
  return g_test_run();
}
