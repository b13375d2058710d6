/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of jobs under faults: runner, Valkey, job process, unpack process and
 * runsc are killed at random moments. Whatever happens, each job is answered exactly once, by a
 * verified result or as `stalled`, nothing of a sandbox is left, and the next job is fine.
 *
 *   runner_fault [--first=N] [--rounds=N] [--jobs=N]
 *
 * The seed decides what is done and in which order; moments are the machine's. */
#include <glib.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "world.h"

enum { FAULTS_A_ROUND = 3, JOBS_MAX = 16 };

static guint first_seed = 1, rounds = 3, jobs_n = 4;

static const char *const settings[] = {"QUAVON_SANDBOX_LOCK_MS=5000", "QUAVON_SANDBOX_STALLED_MS=5000",
                                       "QUAVON_SANDBOX_GRACE_MS=1000", "QUAVON_SANDBOX_CONCURRENCY=2", NULL};

#define FAULTS(X) \
  X(kill_runner) X(term_runner) X(kill_valkey) X(lose_valkey) X(kill_job) X(kill_unpack) X(kill_runsc) X(freeze_runner)

typedef enum {
#define X(name) FAULT_##name,
  FAULTS(X)
#undef X
  FAULTS_N
} Fault;

static const char *const fault_names[] = {
#define X(name) #name,
  FAULTS(X)
#undef X
};

static void pause_ms(gint64 ms)
{
  gint64 end = qv_clock_mono_ms() + ms;
  while (qv_clock_mono_ms() < end) {
    while (g_main_context_iteration(NULL, FALSE))
      ;
    g_usleep(2000);
  }
}

static void kill_below(World *world, const char *word)
{
  GPid job = world_child(world->runner, "job");
  GPid victim = job != 0 && word != NULL ? world_child(job, word) : job;
  if (victim > 0)
    kill(victim, SIGKILL);
}

static void strike(World *world, Fault fault, GRand *rand)
{
  switch (fault) {
  case FAULT_kill_runner:
  case FAULT_term_runner:
    world_stop(world, fault == FAULT_kill_runner ? SIGKILL : SIGTERM);
    world_start(world, settings);
    break;
  case FAULT_kill_valkey:
  case FAULT_lose_valkey: /* for less, and for more than a lock lives */
    qv_test_valkey_kill(world->valkey);
    pause_ms(fault == FAULT_kill_valkey ? g_rand_int_range(rand, 0, 1500) : 6500);
    qv_test_valkey_restart(world->valkey);
    break;
  case FAULT_kill_job:
    kill_below(world, NULL);
    break;
  case FAULT_kill_unpack:
    kill_below(world, "unpack");
    break;
  case FAULT_kill_runsc:
    kill_below(world, "run");
    break;
  case FAULT_freeze_runner:
    kill(world->runner, SIGSTOP);
    pause_ms(g_rand_int_range(rand, 100, 2500));
    kill(world->runner, SIGCONT);
    break;
  case FAULTS_N:
    break;
  }
}

static QvJob *make_job(World *world, GRand *rand)
{
  static const char *const scripts[] = {"cat hello.txt", "sleep 2; echo slept", "exit 5", "head -c 3000000 /dev/urandom > big",
                                        "sleep 1 & sleep 3 & wait; echo all"};
  QvJob *job = world_job(world, scripts[g_rand_int_range(rand, 0, G_N_ELEMENTS(scripts))]);
  g_strfreev(job->artefacts);
  job->artefacts = g_strdupv((char *[]){(char *)"big", NULL});
  return job;
}

/* What a job may end as under these faults. */
static void check(World *world, const QvJob *job, const char *sha256)
{
  static const char *const fine[] = {"step_failed", "sandbox_lost", "bad_output", "sandbox_failed", "shutdown"};
  g_autofree char *text = NULL;
  QvJobState state = world_wait(world, job->job_id, &text);
  if (state == QV_JOB_FAILED) {
    g_assert_cmpstr(text, ==, "stalled");
    g_test_message("%s stalled", job->job_id);
  } else {
    g_autoptr(QvResult) result = world_result(world, job, sha256);
    const char *code = qv_code_text(result->code);
    gboolean known = code == NULL;
    for (gsize i = 0; i < G_N_ELEMENTS(fine); i++)
      known |= g_strcmp0(code, fine[i]) == 0;
    g_test_message("%s %s", job->job_id, code != NULL ? code : "succeeded");
    g_assert_true(known);
    if (result->payload != NULL) {
      g_autofree char *log = world_payload_log(world, job, result, 0);
      g_assert_nonnull(log);
    }
  }
  g_assert_cmpuint(world_ends(world, job->job_id), ==, 1);
}

static void test_round(gconstpointer data)
{
  guint seed = GPOINTER_TO_UINT(data);
  g_autoptr(GRand) rand = g_rand_new_with_seed(seed);
  g_autoptr(World) world = world_new(QV_TEST_VALKEY_PERSIST);
  if (world == NULL)
    return;
  world->keeps_input = TRUE; /* a runner that dies between answer and UNLINK leaves it to its time to live */
  world_start(world, settings);
  g_autoptr(GPtrArray) jobs = g_ptr_array_new_with_free_func((GDestroyNotify)qv_job_free);
  char sha256[JOBS_MAX][65];
  for (guint i = 0; i < jobs_n; i++) {
    g_ptr_array_add(jobs, make_job(world, rand));
    world_add(world, jobs->pdata[i], sha256[i]);
  }
  world_await_log(world, "job starts");
  for (guint i = 0; i < FAULTS_A_ROUND; i++) {
    pause_ms(g_rand_int_range(rand, 0, 1500));
    Fault fault = g_rand_int_range(rand, 0, FAULTS_N);
    g_test_message("fault %s", fault_names[fault]);
    strike(world, fault, rand);
  }
  for (guint i = 0; i < jobs_n; i++)
    check(world, jobs->pdata[i], sha256[i]);
  g_autoptr(QvJob) next = world_job(world, "true");
  world_expect(world, next, NULL);
  world_expect_clean(world);
  g_assert_cmpint(world_stop(world, SIGTERM), ==, 0);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  for (int i = 1; i < argc; i++) {
    if (sscanf(argv[i], "--first=%u", &first_seed) != 1 && sscanf(argv[i], "--rounds=%u", &rounds) != 1 &&
        (sscanf(argv[i], "--jobs=%u", &jobs_n) != 1 || jobs_n > JOBS_MAX)) {
      fprintf(stderr, "usage: runner_fault [--first=N] [--rounds=N] [--jobs=N]\n");
      return 64;
    }
  }
  for (guint seed = first_seed; seed < first_seed + rounds; seed++) {
    g_autofree char *name = g_strdup_printf("/runner/fault/%u", seed);
    g_test_add_data_func(name, GUINT_TO_POINTER(seed), test_round);
  }
  return g_test_run();
}
