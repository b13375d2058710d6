/* SPDX-License-Identifier: Apache-2.0 */
/* Against PID 1 itself: its memory, its stream, its signals, the process table, the disk. */
#include <string.h>

#include "harness.h"
#include "scenarios.h"

static void test_memory(gconstpointer verb)
{
  HARNESS_OR_SKIP();
  g_autofree char *script = g_strconcat("zz/hostile ", verb, NULL);
  g_autofree char *wanted = g_strconcat(verb, ": refused\n", NULL);
  g_autoptr(Outcome) outcome = harness_run_sh(script, 0);
  outcome_assert_complete(outcome);
  g_assert_cmpstr(outcome_log(outcome, 0), ==, wanted);
  g_assert_cmpint(outcome_int(outcome, 0, "exitCode"), ==, 0);
}

/* What a step writes to any descriptor of PID 1 that opens is in no byte of the stream: the code is right,
 * and the members are those of the job. A log may hold it: that is the step's own. */
static void test_forged_tail(void)
{
  HARNESS_OR_SKIP();
  g_autoptr(Outcome) outcome = harness_run_sh(
    "echo FORGED > /proc/1/fd/1; echo FORGED > /proc/1/fd/0; echo FORGED >> /proc/1/fd/1; zz/hostile fds; exit 0", 0);
  outcome_assert_complete(outcome);
  g_assert_cmpuint(outcome->members->len, ==, 3);
  g_assert_null(strstr(outcome_text(outcome, "steps/0.json"), "FORGED"));
  g_assert_null(strstr(outcome_text(outcome, "exit.json"), "FORGED"));
  g_assert_null(strstr(outcome_log(outcome, 0), "BREACH"));
}

static void test_signals(void)
{
  HARNESS_OR_SKIP();
  g_autoptr(GByteArray) base = snapshot_new(NULL, TRUE);
  /* Every signal but KILL and STOP, by number, and one to everybody. */
  json_t *steps = json_pack(
    "[o o]",
    step_sh("signals", "for s in 1 2 3 4 5 6 7 8 10 11 12 13 14 15 16 17 18 20 21 22 23 24 25 26 27 28 29 30 31 34 64; "
                       "do kill -$s 1 || echo cannot $s; done; echo sent", 0),
    step_sh("all", "trap '' TERM; kill -TERM -1 2>/dev/null; echo alive", 0));
  g_autoptr(Outcome) outcome = harness_run(NULL, request_new(base->len, steps), base);
  outcome_assert_complete(outcome);
  g_assert_cmpstr(outcome_log(outcome, 0), ==, "sent\n");
  g_assert_cmpstr(outcome_log(outcome, 1), ==, "alive\n");
}

/* In gVisor SIGKILL ends PID 1, in Linux it does nothing to it: never is the stream both cut and accepted. */
static void test_killed(void)
{
  HARNESS_OR_SKIP();
  g_autoptr(Outcome) outcome = harness_run_sh("echo first; kill -KILL 1; echo second", 0);
  if (harness_kind == HARNESS_NAMESPACES) {
    outcome_assert_complete(outcome);
    g_assert_cmpstr(outcome_log(outcome, 0), ==, "first\nsecond\n");
  } else {
    g_assert_false(outcome->complete);
  }
}

static void test_process_table(void)
{
  HARNESS_OR_SKIP();
  if (harness_kind == HARNESS_NAMESPACES) {
    g_test_skip("the limit counts a user's processes on the whole machine; gVisor's counts the sandbox's");
    return;
  }
  const HarnessOptions options = {.nproc = 40};
  g_autoptr(GByteArray) base = snapshot_new(NULL, TRUE);
  json_t *steps = json_pack("[o o]", step_sh("fills", "zz/hostile forks 1000", 0), step_sh("never", "true", 0));
  g_autoptr(Outcome) outcome = harness_run(&options, request_new(base->len, steps), base);
  outcome_assert_complete(outcome);
  g_assert_cmpint(outcome_int(outcome, 0, "exitCode"), ==, 3);
  g_assert_nonnull(strstr(outcome_log(outcome, 0), "Resource temporarily unavailable"));
  g_assert_true(json_is_true(json_object_get(outcome->exit, "forkFailed")));
  /* A small table is not full because it is small. */
  const HarnessOptions small = {.nproc = 4};
  json_t *request = request_new(base->len, json_pack("[o]", step_sh("fails", "exit 3", 0)));
  g_autoptr(Outcome) failed = harness_run(&small, request, base);
  outcome_assert_complete(failed);
  g_assert_cmpint(outcome_int(failed, 0, "exitCode"), ==, 3);
  g_assert_true(json_is_false(json_object_get(failed->exit, "forkFailed")));
}

/* Failed, but with room left: no blame. And a full table whose step goes on is none of the run's. */
static void test_no_blame(void)
{
  HARNESS_OR_SKIP();
  g_autoptr(Outcome) outcome = harness_run_sh("sleep 1000 & sleep 1000 & exit 3", 0);
  outcome_assert_complete(outcome);
  g_assert_true(json_is_false(json_object_get(outcome->exit, "forkFailed")));
  g_assert_cmpstr(outcome_code(outcome), ==, "");
}

static void test_full_disk(gconstpointer path)
{
  HARNESS_OR_SKIP();
  const HarnessOptions options = {.work_mib = 8};
  g_autoptr(GByteArray) base = snapshot_new(NULL, TRUE);
  for (int go_on = 0; go_on < 2; go_on++) {
    g_autofree char *script = g_strdup_printf("zz/hostile fill %s", (const char *)path);
    json_t *steps = json_pack("[o o]", step_sh("fills", script, 0), step_sh("next", "rm -f /workspace/x /tmp/x", 0));
    json_object_set_new(json_array_get(steps, 0), "continueOnFailure", json_boolean(go_on));
    g_autoptr(Outcome) outcome = harness_run(&options, request_new(base->len, steps), base);
    outcome_assert_complete(outcome);
    g_assert_cmpint(outcome_int(outcome, 0, "exitCode"), ==, 5);
    g_assert_cmpstr(outcome_code(outcome), ==, go_on ? "" : "disk");
    g_assert_cmpint(outcome_member(outcome, "steps/1.json") != NULL, ==, go_on);
  }
}

static void test_bad_requests(void)
{
  HARNESS_OR_SKIP();
  static const char *const lines[] = {"\n", "{}\n", "{\"v\":1}\n", "nonsense\n"};
  for (gsize i = 0; i < G_N_ELEMENTS(lines); i++) {
    g_autoptr(Harness) harness = harness_start(NULL);
    harness_send(harness, lines[i], strlen(lines[i]));
    g_autoptr(Outcome) outcome = harness_finish(harness);
    g_assert_cmpuint(outcome->members->len, ==, 0);
    g_assert_nonnull(strstr(outcome->diagnostics, "entry: request line: "));
  }
}

/* The entry waits for its request as long as it takes, and reads no further than it must. */
static void test_warm(void)
{
  HARNESS_OR_SKIP();
  g_autoptr(GByteArray) base = snapshot_new(NULL, TRUE);
  g_autoptr(Harness) harness = harness_start(NULL);
  json_t *request = request_new(base->len, json_pack("[o]", step_sh("only", "echo warm", 0)));
  char *line = json_dumps(request, JSON_COMPACT);
  g_usleep(200000);
  for (char *at = line; *at; at++)
    harness_send(harness, at, 1);
  harness_send(harness, "\n", 1);
  for (guint at = 0; at < base->len; at += 4099)
    harness_send(harness, base->data + at, MIN(4099, base->len - at));
  harness_send(harness, "never read", 10);
  g_autoptr(Outcome) outcome = harness_finish(harness);
  outcome_assert_complete(outcome);
  g_assert_cmpstr(outcome_log(outcome, 0), ==, "warm\n");
  free(line);
  json_decref(request);
}

void add_hostile_scenarios(void)
{
  g_test_add_data_func("/entry/memory/mem", "mem", test_memory);
  g_test_add_data_func("/entry/memory/ptrace", "ptrace", test_memory);
  g_test_add_data_func("/entry/memory/vm", "vm", test_memory);
  g_test_add_data_func("/entry/memory/pidfd", "pidfd", test_memory);
  g_test_add_func("/entry/forged-tail", test_forged_tail);
  g_test_add_func("/entry/signals", test_signals);
  g_test_add_func("/entry/killed", test_killed);
  g_test_add_func("/entry/process-table", test_process_table);
  g_test_add_func("/entry/no-blame", test_no_blame);
  g_test_add_data_func("/entry/full-disk/workspace", "/workspace/x", test_full_disk);
  g_test_add_data_func("/entry/full-disk/tmp", "/tmp/x", test_full_disk);
  g_test_add_func("/entry/bad-requests", test_bad_requests);
  g_test_add_func("/entry/warm", test_warm);
}
