/* SPDX-License-Identifier: Apache-2.0 */
/* `quavon run` with a Valkey and a runner of its own, in real gVisor: what it prints, how it ends, and that nothing of it
 * stays whatever part is killed. */
#include <glib/gstdio.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "../../unit/client/tree.h"
#include "embedded_run.h"

static void ends_with(Run *run, int status, const char *const *words)
{
  int is = run_all(run, words);
  if (is == status)
    return;
  g_autofree char *err = run_stderr(run);
  g_autofree char *line = g_strjoinv(" ", (char **)words);
  g_error("`%s` ended with %d, not %d; it said:\n%s", line, is, status, err);
}

static void test_statuses(void)
{
  if (!run_possible())
    return;
  Run *run = run_new();
  ends_with(run, 0, WORDS("--", "grep", "-q", "hello", "hello.txt"));
  ends_with(run, 7, WORDS("sh", "-c", "exit 7"));
  ends_with(run, 127, WORDS("no-such-program"));
  ends_with(run, 128 + SIGTERM, WORDS("sh", "-c", "kill -TERM $$"));
  ends_with(run, 9, WORDS("--setup", "exit 9", "true"));
  ends_with(run, 0, WORDS("--setup", "touch made", "--env", "A=b c", "sh", "-c", "test -f made && test \"$A\" = 'b c'"));
  ends_with(run, 124, WORDS("--timeout", "1s", "sleep", "1000"));
  run_says(run_stderr(run), "timed_out: timeout");
  ends_with(run, 137, WORDS("--memory", "64M", "python3", "-c", "x = bytearray(1 << 30)"));
  run_says(run_stderr(run), "failed: memory");
  run_free(run);
}

static void test_output(void)
{
  if (!run_possible())
    return;
  Run *run = run_new();
  g_autofree char *out = tree_path(run->dir, "out");
  g_autofree char *link = tree_path(run->dir, "repo/link");
  g_assert_cmpint(symlink("hello.txt", link), ==, 0);
  ends_with(run, 3, WORDS("--artefact", "made/**", "--output", out, "sh", "-c",
                          "mkdir -p made/d; echo a >made/d/a; cp /bin/true made/b; ln -s d/a made/link;"
                          "printf '\\033[31mred\\033[0m\\033[2J\\n::error::x\\n'; exit 3"));
  run_says(run_stderr(run), "1 symbolic link");
  run_says(run_stderr(run), "signature of runner");
  run_says(run_stderr(run), "failed: step_failed (exit status 3)");
  g_autofree char *log = run_stdout(run);
  g_assert_cmpstr(log, ==, "\x1b[31mred\x1b[0m\\x1b[2J\n\\x3a:error::x\n\x1b[0m");
  g_autofree char *a = tree_path(out, "made/d/a");
  g_autofree char *text = NULL;
  g_assert_true(g_file_get_contents(a, &text, NULL, NULL));
  g_assert_cmpstr(text, ==, "a\n");
  g_autofree char *b = tree_path(out, "made/b");
  g_assert_true(g_file_test(b, G_FILE_TEST_IS_EXECUTABLE));
  g_autofree char *made_link = tree_path(out, "made/link");
  g_assert_false(g_file_test(made_link, G_FILE_TEST_IS_SYMLINK));

  /* There is something already: refused before anything runs. */
  ends_with(run, 64, WORDS("--artefact", "made/**", "--output", out, "true"));
  run_says(run_stderr(run), "not empty");
  ends_with(run, 0, WORDS("--artefact", "made/d/a", "--output", out, "--force", "sh", "-c",
                          "mkdir -p made/d; echo new >made/d/a"));
  g_free(text);
  g_assert_true(g_file_get_contents(a, &text, NULL, NULL));
  g_assert_cmpstr(text, ==, "new\n");

  ends_with(run, 0, WORDS("--raw", "printf", "a\\033[2Jb"));
  g_autofree char *raw = run_stdout(run);
  g_assert_cmpstr(raw, ==, "a\x1b[2Jb");
  ends_with(run, 0, WORDS("--json", "--quiet", "echo", "logged"));
  g_autofree char *json = run_stdout(run);
  g_assert_true(g_str_has_prefix(json, "{\"artefacts\":[],"));
  g_assert_nonnull(strstr(json, "\"status\":\"succeeded\""));
  run_says(run_stderr(run), "logged");
  run_free(run);
}

/* Through a proxy of its own, which lets setup out to what is listed and nowhere else; nothing listens there. */
static void test_egress(void)
{
  if (!run_possible())
    return;
  Run *run = run_new();
#define SETUP(host) "NO_PROXY= no_proxy= python3 -c \"import urllib.request as u; u.urlopen('https://" host "/')\" >/dev/null 2>&1; echo set up"
  ends_with(run, 78, WORDS("--setup", "true", "--egress", "localhost:1", "true"));
  run_says(run_stderr(run), "QUAVON_SANDBOX_REGISTRIES=localhost:1");
  run_setenv(run, "QUAVON_SANDBOX_REGISTRIES", "localhost:1@127.0.0.0/8,localhost:1@::1");
  ends_with(run, 78, WORDS("--setup", "true", "--egress", "localhost:2", "true"));
  ends_with(run, 0, WORDS("--setup", SETUP("localhost:1") "; " SETUP("other.example"), "--egress", "localhost:1", "true"));
  g_autofree char *out = run_stdout(run), *err = run_stderr(run);
  run_says(g_strconcat(out, err, NULL), "quavon: localhost:1 refused: connect_failed: ");
  run_says(g_strconcat(out, err, NULL), "quavon: other.example:443 refused: host_not_listed: ");
  /* Registries alone, without a job that asks for them, need no proxy. */
  ends_with(run, 0, WORDS("--setup", "test -z \"$HTTPS_PROXY\"", "true"));
  run_free(run);
}

static void test_tree(void)
{
  if (!run_possible())
    return;
  Run *run = run_new();
  tree_git_init(run->repo);
  tree_write(run->repo, ".gitignore", "ignored\n", 0644);
  tree_write(run->repo, "ignored", "not for git\n", 0644);
  tree_git_commit(run->repo);
  tree_write(run->repo, "hello.txt", "new\n", 0644);
  tree_git_commit(run->repo);
  ends_with(run, 0, WORDS("--rev", "HEAD~1", "--", "cat", "hello.txt"));
  g_autofree char *before = run_stdout(run);
  g_assert_cmpstr(before, ==, "hello\n");
  ends_with(run, 0, WORDS("--", "sh", "-c", "test ! -e ignored && cat hello.txt"));
  g_autofree char *now = run_stdout(run);
  g_assert_cmpstr(now, ==, "new\n");
  ends_with(run, 0, WORDS("--all", "--", "cat", "ignored"));
  g_autofree char *all = run_stdout(run);
  g_assert_cmpstr(all, ==, "not for git\n");
  run_free(run);
}

static char *on_terminal(gboolean out, const char *const *words)
{
  Run *run = run_new();
  char *text = run_on_terminal(run, out, 0, words);
  run_free(run);
  return text;
}

/* Preparing can be over before the line is written again: see the unit test. */
static void test_progress(void)
{
  if (!run_possible())
    return;
  static const char *const words[] = { "run", "--", "sleep", "2", NULL };
  g_autofree char *moving = on_terminal(FALSE, words);
  static const char *const lines[] = { "packing", "\r\033[Kwaiting for a runner, ", "\r\033[Kstep 1 of 1, " };
  for (guint i = 0; i < G_N_ELEMENTS(lines); i++)
    run_says(g_strdup(moving), lines[i]);

  Run *run = run_new();
  run_setenv(run, "TERM", "xterm"); /* of a terminal that is not there */
  ends_with(run, 0, words + 1);
  g_autofree char *plain = run_stderr(run);
  static const char *const plain_lines[] = { "quavon: packing (", "quavon: waiting for a runner (",
                                             "quavon: step 1 of 1 (" };
  for (guint i = 0; i < G_N_ELEMENTS(plain_lines); i++)
    run_says(g_strdup(plain), plain_lines[i]);
  g_assert_null(strpbrk(plain, "\r\033"));
  run_free(run);
}

/* With the output on a terminal too, the log comes as it is printed, once, and no progress gets between a line and its end. */
static void test_live(void)
{
  if (!run_possible())
    return;
  static const char *const words[] = { "run", "--", "sh", "-c", "echo 'fir''st'; sleep 2; printf mid; sleep 2; echo 'dle'; echo end", NULL };
  g_autofree char *text = on_terminal(TRUE, words);
  const char *first = strstr(text, "first\r\n"), *middle = strstr(text, "middle\r\nend\r\n");
  if (first == NULL || middle == NULL || middle < first || strstr(first + 1, "first") != NULL ||
      strstr(middle + strlen("middle\r\nend"), "end\r\n") != NULL)
    g_error("not once and in order:\n%s", text);
  run_says(g_strdup(middle), "succeeded");

  Run *run = run_new();
  ends_with(run, 0, WORDS("--live", "--", "sh", "-c", "echo a; sleep 2; echo b"));
  g_autofree char *both = run_stdout(run);
  g_assert_cmpstr(both, ==, "a\nb\n");
  run_free(run);
}

static void test_refusals(void)
{
  Run *run = run_new();
  run_start_as_nobody(run, WORDS("true"));
  g_assert_cmpint(run_wait(run), ==, 77);
  run_says(run_stderr(run), "sudo");
  if (geteuid() == 0) {
    ends_with(run, 78, WORDS("--image", "no-such-image", "true"));
    run_says(run_stderr(run), "quavon images build no-such-image");
    ends_with(run, 64, WORDS("--detach", "true"));
    ends_with(run, 64, WORDS("--artefact", "out", "true"));
    run_says(run_stderr(run), "--output");
    ends_with(run, 66, WORDS("--repo", "/no/such/folder", "true"));
    ends_with(run, 66, WORDS("--rev", "HEAD", "true"));
    run_setenv(run, "QUAVON_SANDBOX_RUNSC", "/nonexistent/runsc");
    ends_with(run, 125, WORDS("true"));
    run_says(run_stderr(run), "install gVisor");
    g_autofree char *err = run_stderr(run);
    g_assert_null(strstr(err, "could not be removed"));
  }
  run_free(run);
}

/* A runtime that does not isolate: the run ends with the reason, it does not wait for a runner that takes no jobs. */
static void test_smoke_failed(void)
{
  if (!run_possible())
    return;
  Run *run = run_new();
  g_autofree char *source = g_build_filename(g_getenv("QUAVON_SOURCE_ROOT"), "tests/integration/runner/weak_runsc.py", NULL);
  g_autofree char *runsc = g_build_filename(run->dir, "host-folder", NULL);
  g_autofree char *text = NULL;
  gsize n;
  g_assert_true(g_file_get_contents(source, &text, &n, NULL));
  g_assert_true(g_file_set_contents_full(runsc, text, n, G_FILE_SET_CONTENTS_NONE, 0755, NULL));
  run_setenv(run, "QUAVON_SANDBOX_RUNSC", runsc);
  ends_with(run, 125, WORDS("true"));
  run_says(run_stderr(run), "the smoke test did not pass");
  run_free(run);
}

/* A job that runs until it is ended, with grandchildren. */
static Run *run_long(void)
{
  Run *run = run_new();
  run_start(run, WORDS("sh", "-c", "sleep 1000 & setsid sleep 1000 & trap '' TERM INT; sleep 1000; sleep 1000"));
  run_await_step(run);
  return run;
}

static void test_interrupt(void)
{
  if (!run_possible())
    return;
  static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
  for (guint i = 0; i < G_N_ELEMENTS(signals); i++) {
    Run *run = run_long();
    g_assert_cmpint(kill(run->pid, signals[i]), ==, 0);
    g_assert_cmpint(run_wait(run), ==, 130);
    run_says(run_stderr(run), "cancelled");
    run_expect_nothing_left(run);
    run_free(run);
  }
}

/* The impatient: the second signal ends quavon at once, the rest is the keeper's. */
static void test_interrupt_twice(void)
{
  if (!run_possible())
    return;
  Run *run = run_long();
  kill(run->pid, SIGSTOP); /* so that both are there when it goes on */
  kill(run->pid, SIGINT);
  kill(run->pid, SIGTERM);
  kill(run->pid, SIGCONT);
  g_assert_cmpint(run_wait(run), ==, 130);
  run_expect_nothing_left(run);
  run_free(run);
}

static void test_kill_quavon(void)
{
  if (!run_possible())
    return;
  Run *run = run_long();
  kill(run->pid, SIGKILL);
  g_assert_cmpint(run_wait(run), ==, 128 + SIGKILL);
  run_expect_nothing_left(run);
  run_free(run);
}

static void kill_part(GPid (*part)(const Run *run), const char *text)
{
  if (!run_possible())
    return;
  Run *run = run_long();
  kill(part(run), SIGKILL);
  g_assert_cmpint(run_wait(run), ==, 125);
  run_says(run_stderr(run), text);
  run_expect_nothing_left(run);
  run_free(run);
}

static GPid keeper_of(const Run *run)
{
  return run->keeper;
}

static GPid runner_of(const Run *run)
{
  return run->runner;
}

static GPid valkey_of(const Run *run)
{
  return run->valkey;
}

static void test_kill_keeper(void)
{
  kill_part(keeper_of, "keeper");
}

static void test_kill_runner(void)
{
  kill_part(runner_of, "the runner");
}

static void test_kill_valkey(void)
{
  kill_part(valkey_of, "valkey");
}

/* Both that could clean up: the next run does. */
static void test_kill_both(void)
{
  if (!run_possible())
    return;
  Run *run = run_long();
  kill(run->keeper, SIGSTOP); /* it must not see quavon's end */
  kill(run->pid, SIGKILL);
  g_assert_cmpint(run_wait(run), ==, 128 + SIGKILL);
  g_assert_true(g_file_test(run->folder, G_FILE_TEST_IS_DIR)); /* behind the keeper's end any run on this machine may take it away */
  kill(run->keeper, SIGKILL);
  Run *next = run_new();
  ends_with(next, 0, WORDS("true"));
  run_expect_nothing_left(run);
  run_free(next);
  run_free(run);
}

/* Two at once do not touch each other. */
static void test_two(void)
{
  if (!run_possible())
    return;
  Run *first = run_long();
  Run *second = run_new();
  ends_with(second, 0, WORDS("true"));
  g_assert_true(g_file_test(first->folder, G_FILE_TEST_IS_DIR));
  g_assert_cmpint(kill(first->pid, SIGINT), ==, 0);
  g_assert_cmpint(run_wait(first), ==, 130);
  run_expect_nothing_left(first);
  run_free(second);
  run_free(first);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/embedded/statuses", test_statuses);
  g_test_add_func("/embedded/output", test_output);
  g_test_add_func("/embedded/egress", test_egress);
  g_test_add_func("/embedded/tree", test_tree);
  g_test_add_func("/embedded/progress", test_progress);
  g_test_add_func("/embedded/live", test_live);
  g_test_add_func("/embedded/refusals", test_refusals);
  g_test_add_func("/embedded/smoke-failed", test_smoke_failed);
  g_test_add_func("/embedded/interrupt", test_interrupt);
  g_test_add_func("/embedded/interrupt-twice", test_interrupt_twice);
  g_test_add_func("/embedded/kill-quavon", test_kill_quavon);
  g_test_add_func("/embedded/kill-keeper", test_kill_keeper);
  g_test_add_func("/embedded/kill-runner", test_kill_runner);
  g_test_add_func("/embedded/kill-valkey", test_kill_valkey);
  g_test_add_func("/embedded/kill-both", test_kill_both);
  g_test_add_func("/embedded/two", test_two);
  return g_test_run();
}
