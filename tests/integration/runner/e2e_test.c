/* SPDX-License-Identifier: Apache-2.0 */
/* Whole jobs through a real Valkey and a real backend: each way in which a job
 * ends. One runner serves all of them: what one job does must not touch the next. */
#include <glib.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "protocol/cancel.h"
#include "support/zeros.h"
#include "world.h"

static World *world;

/* Against the clock of the test, and against the job's limits: one processor, and what a sandbox of world_job may hold. What the
 * kernel says of each process is in sandbox/run. */
static void check_usage(const QvResult *result, gint64 took)
{
  gint64 cpu = result->usage.user_ms + result->usage.system_ms, step = result->facts.steps[0].duration_ms;
  g_assert_cmpint(step, >=, 1000);
  g_assert_cmpint(result->usage.wall_ms, >=, step);
  g_assert_cmpint(result->usage.wall_ms, <=, took + 1);
  g_assert_cmpint(cpu, >, 0);
  g_assert_cmpint(cpu, <=, took + 1000);
  g_assert_cmpint(result->usage.max_memory_bytes, >, 1000000);
  g_assert_cmpint(result->usage.max_memory_bytes, <=, (gint64)(256 + 64 + QV_SANDBOX_TMP_MIB + QV_SANDBOX_HEADROOM_MIB + 32) << 20);
}

static void test_success(void)
{
  /* It counts first: processor time is told in ticks of 10 ms, and without gVisor the rest takes less than one. An
   * engine's container that is over before it was looked at has told nothing: it rests for a second. */
  g_autoptr(QvJob) job = world_job(world, "sleep 1; i=0; while test $i -lt 200000; do i=$((i + 1)); done; cat hello.txt; "
                                          "echo to stderr >&2; mkdir -p out/deep; echo art > out/deep/a.txt");
  g_strfreev(job->artefacts);
  job->artefacts = g_strdupv((char *[]){(char *)"out/**", NULL});
  char sha256[65];
  gint64 before = qv_clock_mono_ms();
  world_add(world, job, sha256);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  gint64 took = qv_clock_mono_ms() - before;
  g_assert_cmpstr(qv_code_text(result->code), ==, NULL);
  g_assert_cmpint(result->status, ==, QV_STATUS_SUCCEEDED);
  g_assert_cmpuint(result->facts.steps_n, ==, 1);
  g_assert_cmpint(result->facts.steps[0].exit_code, ==, 0);
  g_assert_cmpuint(result->facts.artefacts_n, ==, 1);
  g_assert_cmpstr(result->facts.artefacts[0].path, ==, "out/deep/a.txt");
  g_assert_cmpint(result->facts.artefacts[0].size, ==, 4);
  g_assert_cmpint(result->facts.steps[0].log_total_bytes, ==, 16);
  check_usage(result, took);
  g_assert_cmpint(result->finished_at, >=, result->started_at);
  g_autofree char *log = world_payload_log(world, job, result, 0);
  g_assert_cmpstr(log, ==, "hello\nto stderr\n");
  world_expect_clean(world);
}

static void test_steps(void)
{
  g_autoptr(QvJob) job = world_job(world, "test -f made-by-setup && exit 3");
  job->run[0].continue_on_failure = TRUE;
  world_job_add_step(job, "second", "echo second; test -n \"$QUAVON_CPUS\"");
  job->setup = g_new0(QvStep, 1);
  const char *argv[] = {"/bin/sh", "-c", "echo setting up; touch made-by-setup", NULL};
  *job->setup = (QvStep){.name = g_strdup("setup"), .argv = g_strdupv((char **)argv)};
  char sha256[65];
  world_add(world, job, sha256);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_cmpint(result->status, ==, QV_STATUS_SUCCEEDED);
  g_assert_true(result->facts.has_setup);
  g_assert_cmpuint(result->facts.steps_n, ==, 2);
  g_assert_cmpint(result->facts.steps[0].exit_code, ==, 3);
  g_autofree char *setup = world_payload_log(world, job, result, -1);
  g_assert_cmpstr(setup, ==, "setting up\n");
  g_autofree char *second = world_payload_log(world, job, result, 1);
  g_assert_cmpstr(second, ==, "second\n");
}

static void test_overlay_and_deletes(void)
{
  g_autoptr(QvJob) job = world_job(world, "cat added.txt; test ! -e hello.txt");
  const char *files[] = {"added.txt", "laid over\n", NULL};
  g_autoptr(GBytes) plain = world_snapshot(files);
  world_put_overlay(world, job, plain);
  g_strfreev(job->deletes);
  job->deletes = g_strdupv((char *[]){(char *)"hello.txt", (char *)"never/there", NULL});
  char sha256[65];
  world_add(world, job, sha256);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_autofree char *log = world_payload_log(world, job, result, 0);
  g_assert_cmpstr(log, ==, "laid over\n");
  g_assert_cmpint(result->status, ==, QV_STATUS_SUCCEEDED);
  world_expect_clean(world);
}

/* 5 chunks in, 2 out: more than the window holds. */
static void test_many_chunks(void)
{
  g_autoptr(QvJob) job = world_job(world, "cmp big copy && sha256sum big");
  g_autofree char *noise = g_malloc(2500001);
  guint32 state = 7;
  for (gsize i = 0; i < 2500000; i++) {
    state = state * 1664525u + 1013904223u;
    noise[i] = 33 + (state >> 24) % 90;
  }
  noise[2500000] = '\0';
  const char *files[] = {"big", noise, "copy", noise, NULL};
  g_autoptr(GBytes) plain = world_snapshot(files);
  world_put_base(world, job, plain);
  g_assert_cmpint(job->base.chunks, >=, 4);
  g_strfreev(job->artefacts);
  job->artefacts = g_strdupv((char *[]){(char *)"big", NULL});
  char sha256[65];
  world_add(world, job, sha256);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_cmpint(result->status, ==, QV_STATUS_SUCCEEDED);
  g_assert_cmpint(result->payload->chunks, >=, 2);
  g_autofree char *log = world_payload_log(world, job, result, 0);
  g_assert_true(g_str_has_suffix(log, "  big\n"));
  g_assert_cmpint(result->facts.artefacts[0].size, ==, 2500000);
  world_expect_clean(world);
}

static void expect_script(const char *script, const char *code)
{
  g_autoptr(QvJob) job = world_job(world, script);
  world_expect(world, job, code);
}

/* The program's own end, as it was: SIGNAL 0: it exited with EXIT_CODE. */
static void expect_end(const char *script, gint64 exit_code, gint64 signal)
{
  g_autoptr(QvJob) job = world_job(world, script);
  char sha256[65];
  world_add(world, job, sha256);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_cmpstr(qv_code_text(result->code), ==, "step_failed");
  g_assert_cmpuint(result->facts.steps_n, ==, 1);
  const QvStepRecord *step = &result->facts.steps[0];
  g_assert_cmpint(step->has_signal, ==, signal != 0);
  g_assert_cmpint(signal != 0 ? step->signal : step->exit_code, ==, signal != 0 ? signal : exit_code);
  g_assert_false(step->timed_out);
  g_assert_false(result->usage.oom);
}

static void test_step_failed(void)
{
  expect_end("exit 3", 3, 0);
  expect_end("kill -SEGV $$", 0, SIGSEGV);
  expect_end("kill -KILL $$", 0, SIGKILL);
  expect_end("exit 137", 137, 0);
  g_autoptr(QvJob) job = world_job(world, "true");
  g_strfreev(job->run[0].argv);
  job->run[0].argv = g_strdupv((char *[]){(char *)"no-such-program", NULL});
  world_expect(world, job, "step_failed");
}

static void test_setup_failed(void)
{
  g_autoptr(QvJob) job = world_job(world, "true");
  job->setup = g_new0(QvStep, 1);
  const char *argv[] = {"/bin/false", NULL};
  *job->setup = (QvStep){.name = g_strdup("setup"), .argv = g_strdupv((char **)argv)};
  world_expect(world, job, "setup_failed");
}

static void test_timeout(void)
{
  g_autoptr(QvJob) job = world_job(world, "trap '' TERM INT HUP; sleep 1000 & wait; sleep 1000");
  job->run[0].timeout_ms = 1500;
  world_expect(world, job, "timeout");
}

static void test_wall(void)
{
  g_autoptr(QvJob) job = world_job(world, "sleep 1000");
  job->given.wall_ms = 6000;
  world_expect(world, job, "wall");
  /* The entry stopped by a step: only the outer clock ends it. */
  g_autoptr(QvJob) stopped = world_job(world, "kill -STOP 1; sleep 1000");
  stopped->given.wall_ms = 6000;
  world_expect(world, stopped, "wall");
  world_expect_clean(world);
}

static void test_memory(void)
{
  expect_script("head -c 4000000000 /dev/zero | tail >/dev/null; echo goes on", "memory");
  world_expect_clean(world);
}

static void test_processes(void)
{
  g_autoptr(QvJob) job = world_job(world, "true");
  job->given.pids = 1;
  world_expect(world, job, "processes");
  /* A bomb hurts nobody but itself. */
  g_autoptr(QvJob) bomb = world_job(world, "b() { b | b & }; b; sleep 2; exit 9");
  bomb->run[0].timeout_ms = 20000;
  char sha256[65];
  world_add(world, bomb, sha256);
  g_autoptr(QvResult) result = world_result(world, bomb, sha256);
  /* Its own failure, by whichever limit it met first; the sandbox and the entry outlive it. */
  const char *code = qv_code_text(result->code);
  static const char *const allowed[] = {"processes", "step_failed", "timeout", "memory", NULL};
  if (code == NULL || !g_strv_contains(allowed, code))
    g_error("the bomb ended as %s", code != NULL ? code : "a success");
  world_expect_clean(world);
  expect_script("cat hello.txt", NULL);
}

static void test_disk(void)
{
  expect_script("head -c 200000000 /dev/zero > big", "disk");
}

static void test_floods(void)
{
  /* 200 MB of log: the tail is kept, the job is fine. */
  g_autoptr(QvJob) job = world_job(world, "head -c 200000000 /dev/zero | tr '\\0' x; echo end");
  char sha256[65];
  world_add(world, job, sha256);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_cmpint(result->status, ==, QV_STATUS_SUCCEEDED);
  g_assert_true(result->facts.steps[0].log_truncated);
  g_assert_cmpint(result->facts.steps[0].log_total_bytes, ==, 200000004);
  g_autofree char *log = world_payload_log(world, job, result, 0);
  g_assert_true(g_str_has_suffix(log, "xxxend\n"));
  g_assert_cmpuint(strlen(log), <=, 65536);
  expect_script("exec >&- 2>&-; true", NULL);
}

static void test_lost(void)
{
  expect_script("kill -9 1; sleep 10", row->first_killed);
  world_expect_clean(world);
}

static void test_forged_output(void)
{
  g_autoptr(QvJob) job = world_job(world, "echo forged > /proc/1/fd/1; true");
  g_strfreev(job->artefacts);
  job->artefacts = g_strdupv((char *[]){(char *)"**", NULL});
  char sha256[65];
  world_add(world, job, sha256);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_cmpstr(qv_code_text(result->code), ==, row->forged);
  if (row->forged != NULL)
    return;
  g_assert_cmpuint(result->facts.steps_n, ==, 1);
  g_assert_cmpuint(result->facts.artefacts_n, ==, 1);
  g_assert_cmpstr(result->facts.artefacts[0].path, ==, "hello.txt");
  /* Step records and artefact list are in it, whole. */
  json_t *json = qv_result_build(result);
  char *text = json_dumps(json, JSON_COMPACT);
  json_decref(json);
  g_assert_nonnull(strstr(text, "hello.txt"));
  g_assert_null(strstr(text, "forged"));
  free(text);
}

static void test_cancelled(void)
{
  g_autoptr(QvJob) job = world_job(world, "sleep 1000");
  char sha256[65];
  world_add(world, job, sha256);
  world_await_state(world, job->job_id, QV_JOB_ACTIVE);
  world_cancel(world, job);
  g_autoptr(QvResult) result = world_result(world, job, sha256);
  g_assert_cmpstr(qv_code_text(result->code), ==, "cancelled");
  /* Before it was taken: check 8. */
  g_autoptr(QvJob) early = world_job(world, "sleep 1000");
  world_cancel(world, early);
  world_expect(world, early, "cancelled");
  world_expect_clean(world);
}

/* A record that somebody else signed cancels nothing. */
static void test_false_cancel(void)
{
  g_autoptr(QvJob) job = world_job(world, "sleep 1");
  guint8 bytes[32] = {1};
  g_autoptr(QvKey) other = qv_key_new(bytes, sizeof bytes);
  gsize n;
  g_autofree char *text = qv_cancel_sign(job, qv_clock_unix_ms(), other, &n, NULL);
  qv_cancel_put(world->conn, "quavon-sandbox", job->job_id, text, n, 600000, 0, NULL, NULL);
  world_expect(world, job, NULL);
}

static char *chunk_key(const char *blob_id, int i)
{
  return g_strdup_printf("quavon-sandbox:blob:%s:%d", blob_id, i);
}

static void test_blob_missing(void)
{
  g_autoptr(QvJob) job = world_job(world, "true");
  g_autofree char *key = chunk_key(job->base.blob_id, 0);
  g_free(qv_test_valkey_cli(world->valkey, "DEL", key, NULL));
  world_expect(world, job, "blob_missing");
  world_expect_clean(world);
}

static void test_blob_corrupt(void)
{
  g_autoptr(QvJob) altered = world_job(world, "true");
  g_autofree char *key = chunk_key(altered->base.blob_id, 0);
  g_free(qv_test_valkey_cli(world->valkey, "SETRANGE", key, "20", "x", NULL));
  world_expect(world, altered, "blob_corrupt");

  g_autoptr(QvJob) longer = world_job(world, "true");
  g_autofree char *key2 = chunk_key(longer->base.blob_id, 0);
  g_free(qv_test_valkey_cli(world->valkey, "APPEND", key2, "x", NULL));
  world_expect(world, longer, "blob_corrupt");

  g_autoptr(QvJob) shorter = world_job(world, "true");
  g_autofree char *key3 = chunk_key(shorter->base.blob_id, 0);
  g_free(qv_test_valkey_cli(world->valkey, "SET", key3, "short", NULL));
  world_expect(world, shorter, "blob_corrupt");

  g_autoptr(QvJob) huge = world_job(world, "true");
  g_autofree char *key4 = chunk_key(huge->base.blob_id, 0);
  g_free(qv_test_valkey_cli(world->valkey, "SETRANGE", key4, "3000000", "x", NULL));
  world_expect(world, huge, "blob_corrupt");

  /* Another job's chunk under this name. */
  g_autoptr(QvJob) one = world_job(world, "true");
  g_autoptr(QvJob) two = world_job(world, "true");
  g_autofree char *from = chunk_key(one->base.blob_id, 0);
  g_autofree char *to = chunk_key(two->base.blob_id, 0);
  g_free(qv_test_valkey_cli(world->valkey, "COPY", from, to, "REPLACE", NULL));
  world_expect(world, two, "blob_corrupt");
  world_expect(world, one, NULL);
  world_expect_clean(world);
}

static void test_snapshot_refused(void)
{
  g_autoptr(QvJob) garbage = world_job(world, "true");
  g_autoptr(GBytes) junk = g_bytes_new_static("this is no gzip at all, whatever the descriptor says", 52);
  world_put_base(world, garbage, junk);
  world_expect(world, garbage, "snapshot_refused");

  g_autoptr(QvJob) conflict = world_job(world, "true");
  const char *files[] = {"hello.txt/below", "a file is a folder here", NULL};
  g_autoptr(GBytes) plain = world_snapshot(files);
  world_put_overlay(world, conflict, plain);
  world_expect(world, conflict, "snapshot_refused");

  /* One byte more than a file may have: refused by its header, not when the disk is full. */
  g_autoptr(QvJob) large = world_job(world, "true");
  g_autoptr(GBytes) big = qv_test_zeros((guint64)QV_SNAPSHOT_FILE_BYTES_MAX + 1);
  world_put_base(world, large, big);
  world_expect(world, large, "snapshot_refused");
  expect_script("cat hello.txt", NULL);
}

static void test_next_job_is_fine(void)
{
  expect_script("cat hello.txt", NULL);
  world_expect_clean(world);
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
  world_expect_clean(world);
}

int main(int argc, char **argv)
{
  if (!backend_select(argc, argv))
    return 0;
  g_test_init(&argc, &argv, NULL);
  world = world_new(QV_TEST_VALKEY_PLAIN);
  if (world == NULL)
    return 77;
  world_start(world, (const char *const[]){"QUAVON_SANDBOX_CONCURRENCY=1", NULL});
  g_test_add_func("/runner/e2e/success", test_success);
  g_test_add_func("/runner/e2e/steps", test_steps);
  g_test_add_func("/runner/e2e/overlay-and-deletes", test_overlay_and_deletes);
  g_test_add_func("/runner/e2e/many-chunks", test_many_chunks);
  g_test_add_func("/runner/e2e/step-failed", test_step_failed);
  g_test_add_func("/runner/e2e/setup-failed", test_setup_failed);
  g_test_add_func("/runner/e2e/timeout", test_timeout);
  g_test_add_func("/runner/e2e/wall", test_wall);
  g_test_add_func("/runner/e2e/memory", test_memory);
  g_test_add_func("/runner/e2e/processes", test_processes);
  g_test_add_func("/runner/e2e/disk", test_disk);
  g_test_add_func("/runner/e2e/floods", test_floods);
  g_test_add_func("/runner/e2e/lost", test_lost);
  g_test_add_func("/runner/e2e/forged-output", test_forged_output);
  g_test_add_func("/runner/e2e/cancelled", test_cancelled);
  if (ON(ON_RUNSC)) { /* what depends on no backend */
    g_test_add_func("/runner/e2e/false-cancel", test_false_cancel);
    g_test_add_func("/runner/e2e/blob-missing", test_blob_missing);
    g_test_add_func("/runner/e2e/blob-corrupt", test_blob_corrupt);
    g_test_add_func("/runner/e2e/snapshot-refused", test_snapshot_refused);
  }
  g_test_add_func("/runner/e2e/next-job-is-fine", test_next_job_is_fine);
  int status = g_test_run();
  world_free(world);
  backend_finish();
  return status;
}
