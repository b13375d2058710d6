/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs of quavon with a Valkey and a runner that are there: detach, wait, result, cancel, Ctrl-C. */
#include <errno.h>
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../unit/client/tree.h"
#include "embedded_run.h"
#include "support/health.h"
#include "support/valkey.h"

typedef struct {
  QvTestValkey *valkey;
  Run *run;
  GPid runner;
} Fixture;

static void start_runner(Fixture *f)
{
  f->runner = run_start_runner(f->run, qv_test_valkey_url(f->valkey, "sandbox"), NULL);
}

static void set_up(Fixture *f, gconstpointer data)
{
  f->valkey = qv_test_valkey_start(QV_TEST_VALKEY_PLAIN);
  f->run = run_new();
  g_autofree char *key = run_use_valkey(f->run, qv_test_valkey_url(f->valkey, "worker"));
  /* Somebody to submit to, also before the real one has come up. */
  g_autofree char *lock = g_build_filename(g_getenv("QUAVON_TEST_IMAGES"), "images.lock.json", NULL);
  qv_test_healthy_runner_of(f->valkey, key, lock);
}

static void tear_down(Fixture *f, gconstpointer data)
{
  run_stop_runner(f->run, &f->runner);
  run_free(f->run);
  qv_test_valkey_free(f->valkey);
}

static char *detach(Fixture *f, const char *command)
{
  run_expect(f->run, 0, WORDS("run", "--detach", "--artefact", "out", "--", "sh", "-c", command));
  char *id = run_stdout(f->run);
  g_assert_cmpuint(strlen(g_strchomp(id)), ==, 36);
  return id;
}

static void test_detach(Fixture *f, gconstpointer data)
{
  if (!run_possible())
    return;
  g_autofree char *id = detach(f, "echo said; echo made > out; exit 5");
  run_expect(f->run, 75, WORDS("result", id)); /* there is no runner yet */
  start_runner(f);
  g_autofree char *out = tree_path(f->run->dir, "out");
  run_expect(f->run, 5, WORDS("wait", id));
  g_autofree char *log = run_stdout(f->run);
  g_assert_cmpstr(log, ==, "said\n");
  run_expect(f->run, 5, WORDS("result", "--json", id));
  g_autofree char *json = run_stdout(f->run);
  g_assert_nonnull(strstr(json, "\"code\":\"step_failed\""));
  run_expect(f->run, 5, WORDS("result", "--output", out, id)); /* the artefact was kept: wait had nowhere to put it */
  g_autofree char *path = tree_path(out, "out");
  g_autofree char *text = NULL;
  g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
  g_assert_cmpstr(text, ==, "made\n");
  g_autofree char *no_log = run_stdout(f->run);
  g_assert_cmpstr(no_log, ==, ""); /* artefacts were asked for, not logs */
  run_expect(f->run, 5, WORDS("result", "--logs", "--raw", "--quiet", id)); /* its payload has been fetched and removed */
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
  run_expect(f->run, 0, WORDS("cancel", id));
  run_expect(f->run, 130, WORDS("wait", "--quiet", id));
  run_expect(f->run, 66, WORDS("cancel", "00000000-0000-4000-8000-000000000000"));
}

/* Seen while it runs, then whole; also of a job that left no logs. */
static void test_logs(Fixture *f, gconstpointer data)
{
  if (!run_possible())
    return;
  start_runner(f);
  g_autofree char *id = detach(f, "echo before; while [ ! -e go ]; do sleep 0.2; done");
  for (g_autofree char *text = NULL; text == NULL || strstr(text, "before\n") == NULL; g_usleep(50000)) {
    run_expect(f->run, 0, WORDS("logs", "--quiet", id));
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
  run_expect(f->run, 0, WORDS("cancel", id));
  int status = -1;
  g_assert_cmpint(waitpid(following, &status, 0), ==, following);
  g_assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  run_expect(f->run, 0, WORDS("logs", id));
  g_autofree char *kept = run_stdout(f->run);
  g_assert_cmpstr(kept, ==, "before\n");

  g_autofree char *whole = detach(f, "printf 'one\\n\\033[2Jtwo'; exit 3");
  run_expect(f->run, 0, WORDS("logs", whole, "-f"));
  g_autofree char *text = run_stdout(f->run);
  g_assert_cmpstr(text, ==, "one\n\\x1b[2Jtwo\n");
  run_expect(f->run, 0, WORDS("logs", "--raw", whole)); /* the payload stays */
  g_autofree char *raw = run_stdout(f->run);
  g_assert_cmpstr(raw, ==, "one\n\033[2Jtwo");
  run_expect(f->run, 66, WORDS("logs", "00000000-0000-4000-8000-000000000000"));
  run_expect(f->run, 64, WORDS("logs"));
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
  run_expect(f->run, 130, WORDS("result", "--json", id));
  g_autofree char *stored = run_stdout(f->run);
  g_assert_cmpstr(stored, ==, json);
}

static void test_no_valkey(Fixture *f, gconstpointer data)
{
  g_autofree char *id = detach(f, "true");
  qv_test_valkey_kill(f->valkey);
  run_expect(f->run, 69, WORDS("run", "true"));
  run_expect(f->run, 69, WORDS("wait", id));
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
