/* SPDX-License-Identifier: Apache-2.0 */
/* Steps: order, records, environment, ends, time-outs, and everything that a
 * step can leave behind. */
#include <signal.h>
#include <string.h>

#include "harness.h"
#include "scenarios.h"

enum { SHORT_MS = 1500 };

/* Processes other than PID 1 and the reader itself, by their numbers in /proc. */
#define COUNT_OTHERS "n=0; for p in /proc/[0-9]*; do n=$((n+1)); done; echo others $((n-2))"

static void test_plain(void)
{
  HARNESS_OR_SKIP();
  static const File files[] = {{"a.txt", "alpha\n"}, {"dir/run.sh", "#!/bin/sh\necho ran $1\n", TRUE}, {NULL}};
  g_autoptr(GByteArray) base = snapshot_new(files, FALSE);
  json_t *steps = json_pack(
    "[o o o]", step_argv("cat", "cat", "a.txt", NULL), step_argv("script", "dir/run.sh", "it", NULL),
    step_sh("env", "echo $HOME $TMPDIR $LANG $CI $QUAVON_CPUS $PATH $EXTRA; pwd; id -u; cat; umask", 0));
  json_object_set_new(json_array_get(steps, 2), "env", json_pack("{ss ss}", "EXTRA", "more", "CI", "mine"));
  g_autoptr(Outcome) outcome = harness_run(NULL, request_new(base->len, steps), base);
  outcome_assert_complete(outcome);
  g_assert_cmpuint(outcome->members->len, ==, 7);
  static const char *const order[] = {"steps/0.json", "logs/0.log", "steps/1.json", "logs/1.log",
                                      "steps/2.json", "logs/2.log", "exit.json"};
  for (guint i = 0; i < 7; i++)
    g_assert_cmpstr(((Member *)g_ptr_array_index(outcome->members, i))->path, ==, order[i]);
  g_assert_cmpstr(outcome_log(outcome, 0), ==, "alpha\n");
  g_assert_cmpint(outcome_int(outcome, 0, "exitCode"), ==, 0);
  g_assert_true(outcome_null(outcome, 0, "signal"));
  g_assert_false(outcome_true(outcome, 0, "timedOut"));
  g_assert_false(outcome_true(outcome, 0, "logTruncated"));
  g_assert_cmpint(outcome_int(outcome, 0, "logTotalBytes"), ==, 6);
  g_assert_cmpint(outcome_int(outcome, 1, "startedMs"), >=, outcome_int(outcome, 0, "startedMs"));
  g_assert_cmpstr(outcome_log(outcome, 1), ==, "ran it\n");
  g_assert_cmpstr(outcome_log(outcome, 2), ==,
                  "/workspace/home /tmp C.UTF-8 mine 2 /usr/local/bin:/usr/bin:/bin more\n/workspace/repo\n65532\n0022\n");
  g_assert_cmpstr(outcome_code(outcome), ==, "");
  g_assert_cmpstr(json_string_value(json_object_get(outcome->exit, "status")), ==, "done");
  g_assert_true(json_is_false(json_object_get(outcome->exit, "forkFailed")));
}

static void test_order(void)
{
  HARNESS_OR_SKIP();
  g_autoptr(GByteArray) base = snapshot_new(NULL, TRUE);
  json_t *steps = json_pack("[o o o o]", step_sh("first", "exit 3", 0), step_sh("second", "kill -SEGV $$", 0),
                            step_sh("third", "exit 0", 0), step_sh("never", "exit 0", 0));
  json_object_set_new(json_array_get(steps, 0), "continueOnFailure", json_true());
  json_t *request = request_new(base->len, steps);
  g_autoptr(Outcome) outcome = harness_run(NULL, request, base);
  outcome_assert_complete(outcome);
  g_assert_cmpint(outcome_int(outcome, 0, "exitCode"), ==, 3);
  g_assert_true(outcome_null(outcome, 1, "exitCode"));
  g_assert_cmpint(outcome_int(outcome, 1, "signal"), ==, SIGSEGV);
  g_assert_null(outcome_member(outcome, "steps/2.json"));
}

static void test_setup(void)
{
  HARNESS_OR_SKIP();
  g_autoptr(GByteArray) base = snapshot_new(NULL, TRUE);
  for (int good = 0; good < 2; good++) {
    json_t *request = request_new(base->len, json_pack("[o]", step_sh("run", "cat made; env | grep -ci proxy", 0)));
    json_object_set_new(request, "setup",
                        step_sh("prepare", good ? "echo made > made" : "echo made > made; exit 9", 0));
    json_object_set_new(request, "artefacts", json_pack("[s]", "made"));
    g_autoptr(Outcome) outcome = harness_run(NULL, request, base);
    outcome_assert_complete(outcome);
    g_assert_cmpstr(((Member *)g_ptr_array_index(outcome->members, 0))->path, ==, "setup.json");
    g_assert_cmpint(outcome_int(outcome, -1, "exitCode"), ==, good ? 0 : 9);
    g_assert_cmpint(outcome_member(outcome, "steps/0.json") != NULL, ==, good);
    if (good)
      g_assert_cmpstr(outcome_log(outcome, 0), ==, "made\n0\n");
    g_assert_cmpstr(outcome_text(outcome, "artefacts/made"), ==, "made\n");
  }
}

static void test_not_startable(void)
{
  HARNESS_OR_SKIP();
  static const File files[] = {{"plain.txt", "no program\n"},
                               {"bad.sh", "#!/no/such/interpreter\n", TRUE},
                               {"noise", "no program either", TRUE},
                               {NULL}};
  static const struct {
    const char *program, *cwd;
    int code;
    const char *log;
  } rows[] = {
    {"no-such-program", NULL, 127, "entry: cannot start no-such-program: No such file or directory\n"},
    {"./absent", NULL, 127, "entry: cannot start ./absent: No such file or directory\n"},
    {"", NULL, 127, "entry: cannot start : No such file or directory\n"},
    {"./bad.sh", NULL, 127, "entry: cannot start ./bad.sh: No such file or directory\n"},
    {"./plain.txt", NULL, 126, "entry: cannot start ./plain.txt: Permission denied\n"},
    {"/tmp", NULL, 126, "entry: cannot start /tmp: Permission denied\n"},
    {"./noise", NULL, 126, "entry: cannot start ./noise: Exec format error\n"},
    {"true", "absent", 126, "entry: cannot start absent: No such file or directory\n"},
    {"true", "plain.txt", 126, "entry: cannot start plain.txt: Not a directory\n"},
  };
  g_autoptr(GByteArray) base = snapshot_new(files, FALSE);
  json_t *steps = json_array();
  for (gsize i = 0; i < G_N_ELEMENTS(rows); i++) {
    g_autofree char *name = g_strdup_printf("step-%zu", i);
    json_t *step = step_argv(name, rows[i].program, NULL, NULL);
    if (rows[i].cwd)
      json_object_set_new(step, "cwd", json_string(rows[i].cwd));
    json_object_set_new(step, "continueOnFailure", json_true());
    json_array_append_new(steps, step);
  }
  g_autoptr(Outcome) outcome = harness_run(NULL, request_new(base->len, steps), base);
  outcome_assert_complete(outcome);
  for (int i = 0; i < (int)G_N_ELEMENTS(rows); i++) {
    g_test_message("%s in %s", rows[i].program, rows[i].cwd ? rows[i].cwd : ".");
    g_assert_cmpint(outcome_int(outcome, i, "exitCode"), ==, rows[i].code);
    g_assert_cmpstr(outcome_log(outcome, i), ==, rows[i].log);
  }
  g_assert_true(json_is_false(json_object_get(outcome->exit, "forkFailed")));
}

/* Shapes of a step that hangs: the first process, or what it waits for, holds the pipe. */
static void test_hanging(gconstpointer script)
{
  HARNESS_OR_SKIP();
  g_autoptr(GByteArray) base = snapshot_new(NULL, TRUE);
  json_t *steps = json_pack("[o o]", step_sh("hangs", script, SHORT_MS), step_sh("after", COUNT_OTHERS, 0));
  json_object_set_new(json_array_get(steps, 0), "continueOnFailure", json_true());
  g_autoptr(Outcome) outcome = harness_run(NULL, request_new(base->len, steps), base);
  outcome_assert_complete(outcome);
  g_assert_true(outcome_true(outcome, 0, "timedOut"));
  g_assert_true(outcome_null(outcome, 0, "exitCode"));
  g_assert_cmpint(outcome_int(outcome, 0, "signal"), ==, SIGKILL);
  g_assert_cmpint(outcome_int(outcome, 0, "durationMs"), >=, SHORT_MS);
  g_assert_cmpstr(outcome_log(outcome, 1), ==, "others 0\n");
}

/* Shapes of a step that ends and leaves something behind that holds the pipe
 * for ever: the step ends with its first process all the same. */
static void test_leaving(gconstpointer script)
{
  HARNESS_OR_SKIP();
  g_autoptr(GByteArray) base = snapshot_new(NULL, TRUE);
  json_t *steps = json_pack("[o o]", step_sh("leaves", script, 0), step_sh("after", COUNT_OTHERS, 0));
  g_autoptr(Outcome) outcome = harness_run(NULL, request_new(base->len, steps), base);
  outcome_assert_complete(outcome);
  g_assert_cmpint(outcome_int(outcome, 0, "exitCode"), ==, 0);
  g_assert_false(outcome_true(outcome, 0, "timedOut"));
  g_assert_cmpstr(outcome_log(outcome, 0), ==, "said\n");
  g_assert_cmpint(outcome_int(outcome, 1, "exitCode"), ==, 0);
  g_assert_cmpstr(outcome_log(outcome, 1), ==, "others 0\n");
}

static void test_closed_output(void)
{
  HARNESS_OR_SKIP();
  g_autoptr(Outcome) outcome = harness_run_sh("echo before; exec >&- 2>&-; sleep 1; exit 7", 0);
  outcome_assert_complete(outcome);
  g_assert_cmpint(outcome_int(outcome, 0, "exitCode"), ==, 7);
  g_assert_cmpstr(outcome_log(outcome, 0), ==, "before\n");
}

static void test_flood(void)
{
  HARNESS_OR_SKIP();
  g_autoptr(Outcome) outcome =
    harness_run_sh("head -c 200000000 /dev/zero | tr '\\0' x; printf 'the end'", 0);
  outcome_assert_complete(outcome);
  g_assert_cmpint(outcome_int(outcome, 0, "exitCode"), ==, 0);
  g_assert_cmpint(outcome_int(outcome, 0, "logTotalBytes"), ==, 200000007);
  g_assert_true(outcome_true(outcome, 0, "logTruncated"));
  const char *log = outcome_log(outcome, 0);
  g_assert_cmpuint(strlen(log), ==, 65536);
  g_assert_cmpstr(log + 65536 - 9, ==, "xxthe end");
}

/* A flood that does not end while the step does, and one that the time ends. */
static void test_endless_flood(void)
{
  HARNESS_OR_SKIP();
  g_autoptr(GByteArray) base = snapshot_new(NULL, TRUE);
  json_t *steps = json_pack("[o o o]", step_sh("left", "yes & exit 0", 0), step_sh("timed", "yes", SHORT_MS),
                            step_sh("never", "true", 0));
  g_autoptr(Outcome) outcome = harness_run(NULL, request_new(base->len, steps), base);
  outcome_assert_complete(outcome);
  g_assert_cmpint(outcome_int(outcome, 0, "exitCode"), ==, 0);
  g_assert_true(outcome_true(outcome, 1, "timedOut"));
  g_assert_cmpint(outcome_int(outcome, 1, "logTotalBytes"), >, 0);
  g_assert_null(outcome_member(outcome, "steps/2.json"));
}

static void test_live(void)
{
  HARNESS_OR_SKIP();
  g_autoptr(GByteArray) base = snapshot_new(NULL, TRUE);
  json_t *request = request_new(
    base->len, json_pack("[o]", step_sh("talks", "echo one; sleep 3; echo two; sleep 3; echo three", 0)));
  json_object_set_new(request, "live", json_true());
  g_autoptr(Outcome) outcome = harness_run(NULL, request, base);
  outcome_assert_complete(outcome);
  g_assert_cmpstr(((Member *)g_ptr_array_index(outcome->members, 0))->path, ==, "live/0.0");
  g_autoptr(GString) live = g_string_new(NULL);
  guint n = 0;
  for (guint i = 0; i < outcome->members->len; i++) {
    const Member *member = g_ptr_array_index(outcome->members, i);
    g_autofree char *path = g_strdup_printf("live/0.%u", n);
    if (strcmp(member->path, path) != 0)
      continue;
    g_string_append_len(live, (const char *)member->bytes->data, member->bytes->len);
    n++;
  }
  g_assert_cmpuint(n, >=, 1);
  g_assert_true(g_str_has_prefix("one\ntwo\nthree\n", live->str));
  g_assert_true(g_str_has_prefix(live->str, "one\n"));
  g_assert_cmpstr(outcome_log(outcome, 0), ==, "one\ntwo\nthree\n");
}

void add_step_scenarios(void)
{
  static const struct {
    const char *name, *script;
  } hanging[] = {
    {"one-command", "exec sleep 1000"},
    {"two-commands", "sleep 1000; sleep 1000"},
    {"pipeline", "sleep 1000 | sleep 1000"},
    {"subshell", "(sleep 1000; true); true"},
    {"background-waited", "sleep 1000 & wait"},
    {"session", "setsid -w sleep 1000; true"},
    {"ignores-signals", "zz/hostile ignore"},
    {"stopped", "kill -STOP $$; true"},
    {"own-namespaces", "unshare -Urpf sleep 1000; sleep 1000"},
  };
  static const struct {
    const char *name, *script;
  } leaving[] = {
    {"background", "sleep 1000 & echo said"},
    {"session", "setsid sleep 1000 & echo said"},
    {"double-fork", "(setsid sh -c 'sleep 1000 & sleep 1000' &) ; echo said"},
    {"pipeline", "sleep 1000 | sleep 1000 & echo said"},
    {"stopped", "sh -c 'kill -STOP $$' & echo said"},
    {"runners", "zz/hostile runners 8; echo said"},
  };
  g_test_add_func("/entry/plain", test_plain);
  g_test_add_func("/entry/order", test_order);
  g_test_add_func("/entry/setup", test_setup);
  g_test_add_func("/entry/not-startable", test_not_startable);
  for (gsize i = 0; i < G_N_ELEMENTS(hanging); i++) {
    g_autofree char *path = g_strconcat("/entry/hanging/", hanging[i].name, NULL);
    g_test_add_data_func(path, hanging[i].script, test_hanging);
  }
  for (gsize i = 0; i < G_N_ELEMENTS(leaving); i++) {
    g_autofree char *path = g_strconcat("/entry/leaving/", leaving[i].name, NULL);
    g_test_add_data_func(path, leaving[i].script, test_leaving);
  }
  g_test_add_func("/entry/closed-output", test_closed_output);
  g_test_add_func("/entry/flood", test_flood);
  g_test_add_func("/entry/endless-flood", test_endless_flood);
  g_test_add_func("/entry/live", test_live);
}
