/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of jobs under faults. In each round one of supervisor, job process, unpack process,
 * sandbox and valkey-server is killed with SIGKILL, or the connections to Valkey are cut, at a random moment of a run of
 * jobs; where sandboxes are containers (--backend=docker-runsc), also the engine, the engine with containerd, and a shim, or one
 * of the two stands still for a while. Now and then leftovers are planted, which must be found. Afterwards:
 *
 *   - every job has exactly one terminal state: a verified result, or `stalled`;
 *   - no job's code ran twice: at most one start of a sandbox is logged with its id, and one signed result exists;
 *   - no sandbox, container, process, cgroup, mount, bundle, blob, token or lock is left after one sweep;
 *   - the runner is fine: the next job succeeds.
 *
 *   runner_fault [--backend=NAME] [--series=N] [--first=N] [--rounds=N] [--jobs=N]
 *
 * A series is named by its seed (GLib takes --seed for itself). Without arguments: a few rounds of each of three
 * seeds, of one seed with an engine; with QUAVON_TEST_LONG=1 a hundred of each. A failure's last lines name seed and
 * round. The seed decides what is done and in which order; moments are the machine's. */
#include <glib.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "leftovers.h"
#include "place.h"
#include "support/proxy.h"

enum { JOBS_MAX = 16, SEEDS = 3, SHORT_ROUNDS = 3, LONG_ROUNDS = 100, NEXT_TRIES = 20 };

static guint one_seed, first_round = 1, rounds_n, seeds_n, jobs_n = 3;

/* The last ones are for sandboxes of an engine. */
#define FAULTS(X) \
  X(kill_supervisor) X(kill_starter) X(kill_job) X(kill_unpack) X(kill_sandbox) X(kill_valkey) X(lose_valkey) X(cut_connections) \
  X(freeze_supervisor) X(kill_engine) X(kill_containerd) X(kill_shim) X(freeze_engine) X(freeze_shim)

typedef enum {
#define X(name) FAULT_##name,
  FAULTS(X)
#undef X
  FAULTS_N,
  FAULTS_WITHOUT_ENGINE_N = FAULT_kill_engine
} Fault;

static const char *const fault_names[] = {
#define X(name) #name,
  FAULTS(X)
#undef X
};

typedef struct {
  World *world;
  QvTestProxy *proxy;
  GRand *rand;
  char *url;
} Round;

static void start_runner(Round *round)
{
  const char *const *place = place_environment();
  world_start(round->world, (const char *const[]){round->url, "QUAVON_SANDBOX_LOCK_MS=1000", "QUAVON_SANDBOX_STALLED_MS=1000",
                                                  "QUAVON_SANDBOX_GRACE_MS=1000", "QUAVON_SANDBOX_CONCURRENCY=2", place[0],
                                                  place[1], place[2], NULL});
}

static void pause_ms(gint64 ms)
{
  gint64 end = qv_clock_mono_ms() + ms;
  while (qv_clock_mono_ms() < end) {
    while (g_main_context_iteration(NULL, FALSE))
      ;
    g_usleep(2000);
  }
}

/* A child of the job process; NULL: that itself. */
static void kill_below(World *world, const char *word)
{
  GPid job = world_child(world->runner, "job");
  GPid victim = job != 0 && word != NULL ? world_child(job, word) : job;
  g_test_message("  pid %d", victim);
  if (victim > 0)
    kill(victim, SIGKILL);
}

/* For engines: a process of a sandbox, or a shim. */
static void signal_one(Round *round, PlaceProcess which, int number, gint64 stopped_ms)
{
  GPid pid = place_process(which, (guint)g_rand_int_range(round->rand, 0, 1000));
  g_test_message("  pid %d", pid);
  if (pid <= 0)
    return;
  kill(pid, number);
  if (number != SIGSTOP)
    return;
  pause_ms(stopped_ms);
  kill(pid, SIGCONT);
}

static void strike_engine(Round *round, Fault fault)
{
  gint64 ms = g_rand_int_range(round->rand, 0, 2500);
  GPid pid;
  switch (fault) {
  case FAULT_kill_engine:
  case FAULT_kill_containerd:
    place_kill_engine(fault == FAULT_kill_containerd, ms);
    break;
  case FAULT_kill_shim:
    signal_one(round, PLACE_SHIM, SIGKILL, 0);
    break;
  case FAULT_freeze_shim:
    signal_one(round, PLACE_SHIM, SIGSTOP, ms);
    break;
  case FAULT_freeze_engine:
    pid = place_engine();
    g_assert_cmpint(pid, >, 0);
    kill(pid, SIGSTOP);
    pause_ms(ms);
    kill(pid, SIGCONT);
    break;
  default:
    break;
  }
}

/* While nothing runs: what is planted is found by us, and swept by the next start. */
static void maybe_plant(Round *round, guint percent)
{
  if ((guint)g_rand_int_range(round->rand, 0, 100) < percent)
    leftover_plant(round->world, g_rand_int_range(round->rand, 0, LEFTOVER_KINDS_N), round->rand);
}

static void strike(Round *round, Fault fault)
{
  World *world = round->world;
  switch (fault) {
  case FAULT_kill_supervisor:
    world_stop(world, SIGKILL);
    maybe_plant(round, 50);
    start_runner(round);
    break;
  case FAULT_kill_starter: { /* or a job process that has just come out of it */
    GPid starter = world_child(world->runner, "starter");
    g_test_message("  pid %d", starter);
    if (starter > 0)
      kill(starter, SIGKILL);
    break;
  }
  case FAULT_kill_job:
    kill_below(world, NULL);
    break;
  case FAULT_kill_unpack:
    kill_below(world, "unpack");
    break;
  case FAULT_kill_sandbox:
    if (place_has_engine())
      signal_one(round, PLACE_SANDBOX, SIGKILL, 0);
    else
      kill_below(world, "run");
    break;
  case FAULT_kill_valkey:
  case FAULT_lose_valkey: /* for less, and for more than a lock lives */
    qv_test_valkey_kill(world->valkey);
    pause_ms(fault == FAULT_kill_valkey ? g_rand_int_range(round->rand, 0, 500) : 2500);
    qv_test_valkey_restart(world->valkey);
    break;
  case FAULT_cut_connections:
    for (int i = g_rand_int_range(round->rand, 1, 4); i > 0; i--) {
      qv_test_proxy_cut(round->proxy);
      pause_ms(g_rand_int_range(round->rand, 0, 100));
    }
    break;
  case FAULT_freeze_supervisor:
    kill(world->runner, SIGSTOP);
    pause_ms(g_rand_int_range(round->rand, 100, 2500));
    kill(world->runner, SIGCONT);
    break;
  default:
    strike_engine(round, fault);
    break;
  }
}

/* Of an engine's sandbox any process may be struck. Without one of gVisor's stubs a guest stands still, which only the
 * job's wall time ends. */
enum { HUNG_MS = 60000 };

static QvJob *make_job(Round *round)
{
  static const char *const scripts[] = {"cat hello.txt", "sleep 1; echo slept", "exit 5", "head -c 1500000 /dev/urandom > big",
                                        "sleep 1 & sleep 2 & wait; echo all"};
  QvJob *job = world_job(round->world, scripts[g_rand_int_range(round->rand, 0, G_N_ELEMENTS(scripts))]);
  g_strfreev(job->artefacts);
  job->artefacts = g_strdupv((char *[]){(char *)"big", NULL});
  place_job(job);
  if (place_has_engine())
    job->given.wall_ms = HUNG_MS;
  return job;
}

static void unlinked(const GError *error, gpointer user)
{
  *(gboolean *)user = TRUE;
}

/* As the worker does it: read, then unlink. */
static void take_payload(World *world, const QvJob *job, const QvResult *result)
{
  gboolean done = FALSE;
  g_autofree char *log = world_payload_log(world, job, result, 0);
  g_assert_nonnull(log);
  qv_blob_unlink(world->conn, "quavon-sandbox", result->payload->blob_id, result->payload->chunks, 0, unlinked, &done);
  while (!done)
    g_main_context_iteration(NULL, TRUE);
}

/* What a job may end as under these faults. */
static void check(World *world, const QvJob *job, const char *sha256)
{
  static const char *const fine[] = {"step_failed", "sandbox_lost", "bad_output", "sandbox_failed", "shutdown",
                                     "wall"};
  g_autofree char *text = NULL;
  QvJobState state = world_wait(world, job->job_id, &text);
  if (state == QV_JOB_FAILED) {
    g_test_message("%s %s", job->job_id, text);
    g_assert_cmpstr(text, ==, "stalled");
  } else {
    g_autoptr(QvResult) result = world_result(world, job, sha256);
    const char *code = qv_code_text(result->code);
    gboolean known = code == NULL;
    for (gsize i = 0; i < G_N_ELEMENTS(fine); i++)
      known |= g_strcmp0(code, fine[i]) == 0;
    g_test_message("%s %s", job->job_id, code != NULL ? code : "succeeded");
    g_assert_true(known);
    if (result->payload != NULL)
      take_payload(world, job, result);
  }
}

/* For the whole life of the world. */
static void check_once(World *world, const QvJob *job)
{
  g_autofree char *log = world_log(world), *line = g_strconcat("sandbox starts jobId=", job->job_id, NULL);
  const char *first = strstr(log, line);
  if (first != NULL && strstr(first + 1, line) != NULL)
    g_error("job %s ran twice; the log:\n%s", job->job_id, log);
  g_assert_cmpuint(world_ends(world, job->job_id), ==, 1);
}

/* Locks live for a second here: on a busy machine one may be lost without any fault, which is an end as good as any. */
static void expect_next(Round *round)
{
  for (int tries = 0; tries < NEXT_TRIES; tries++) {
    char sha256[65];
    g_autoptr(QvJob) next = world_job(round->world, "true");
    place_job(next);
    world_add(round->world, next, sha256);
    g_autofree char *text = NULL;
    QvJobState state = world_wait(round->world, next->job_id, &text);
    check_once(round->world, next);
    if (state == QV_JOB_FAILED) {
      g_assert_cmpstr(text, ==, "stalled");
      continue;
    }
    check(round->world, next, sha256);
    g_autoptr(QvResult) result = world_result(round->world, next, sha256);
    g_assert_cmpint(result->status, ==, QV_STATUS_SUCCEEDED);
    return;
  }
  g_error("no job succeeds any more");
}

static void run_jobs(Round *round)
{
  World *world = round->world;
  g_autoptr(GPtrArray) jobs = g_ptr_array_new_with_free_func((GDestroyNotify)qv_job_free);
  char sha256[JOBS_MAX][65];
  for (guint i = 0; i < jobs_n; i++) {
    g_ptr_array_add(jobs, make_job(round));
    world_add(world, jobs->pdata[i], sha256[i]);
  }
  world_await_log(world, "job starts");
  for (guint i = g_rand_int_range(round->rand, 1, 3); i > 0; i--) {
    pause_ms(g_rand_int_range(round->rand, 0, 1500));
    Fault fault = g_rand_int_range(round->rand, 0, place_has_engine() ? FAULTS_N : FAULTS_WITHOUT_ENGINE_N);
    g_test_message("fault %s", fault_names[fault]);
    strike(round, fault);
  }
  for (guint i = 0; i < jobs_n; i++)
    check(world, jobs->pdata[i], sha256[i]);
  expect_next(round);
  leftovers_await_none(world);
  for (guint i = 0; i < jobs_n; i++)
    check_once(world, jobs->pdata[i]);
}

static gboolean run_round(guint seed, guint number)
{
  Round round = {.world = world_new(QV_TEST_VALKEY_PERSIST)};
  if (round.world == NULL)
    return FALSE;
  g_test_message("seed %u round %u", seed, number);
  round.rand = g_rand_new_with_seed_array((const guint32[]){seed, number}, 2);
  round.proxy = qv_test_proxy_start(round.world->dir, qv_test_valkey_socket(round.world->valkey));
  round.url = g_strdup_printf("VALKEY_URL=unix://sandbox:%s@%s", qv_test_valkey_password(round.world->valkey),
                              qv_test_proxy_socket(round.proxy));
  start_runner(&round);
  run_jobs(&round);
  g_assert_cmpint(world_stop(round.world, SIGTERM), ==, 0);
  leftovers_await_none(round.world);
  qv_test_proxy_free(round.proxy);
  world_free(round.world);
  g_rand_free(round.rand);
  g_free(round.url);
  return TRUE;
}

static void test_seed(gconstpointer data)
{
  guint seed = GPOINTER_TO_UINT(data);
  for (guint number = first_round; number < first_round + rounds_n; number++) {
    if (!run_round(seed, number))
      return;
  }
}

/* Each kind once: what finds nothing proves nothing. */
static void test_planted(void)
{
  Round round = {.world = world_new(QV_TEST_VALKEY_PERSIST)};
  if (round.world == NULL)
    return;
  round.rand = g_rand_new_with_seed(1);
  world_start(round.world, place_environment());
  expect_next(&round);
  world_stop(round.world, SIGKILL);
  for (LeftoverKind kind = 0; kind < LEFTOVER_KINDS_N; kind++)
    leftover_plant(round.world, kind, round.rand);
  world_start(round.world, place_environment());
  leftovers_await_none(round.world);
  expect_next(&round);
  g_assert_cmpint(world_stop(round.world, SIGTERM), ==, 0);
  world_free(round.world);
  g_rand_free(round.rand);
}

static void usage(void)
{
  fprintf(stderr, "usage: runner_fault [--backend=NAME] [--series=N] [--first=N] [--rounds=N] [--jobs=N]\n");
  exit(64);
}

static void read_arguments(int argc, char **argv)
{
  gboolean in_full = g_strcmp0(g_getenv("QUAVON_TEST_LONG"), "1") == 0;
  rounds_n = in_full ? LONG_ROUNDS : SHORT_ROUNDS;
  for (int i = 1; i < argc; i++) {
    if (g_str_has_prefix(argv[i], "--backend=") && place_choose(argv[i] + strlen("--backend=")))
      continue;
    if (sscanf(argv[i], "--series=%u", &one_seed) != 1 && sscanf(argv[i], "--first=%u", &first_round) != 1 &&
        sscanf(argv[i], "--rounds=%u", &rounds_n) != 1 &&
        (sscanf(argv[i], "--jobs=%u", &jobs_n) != 1 || jobs_n > JOBS_MAX))
      usage();
  }
  seeds_n = place_has_engine() && !in_full ? 1 : SEEDS;
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  read_arguments(argc, argv);
  const char *missing = place_missing();
  if (missing != NULL) {
    g_print("1..0 # SKIP %s\n", missing);
    return 0;
  }
  if (one_seed == 0)
    g_test_add_func("/runner/fault/planted", test_planted);
  for (guint seed = one_seed != 0 ? one_seed : 1; seed <= (one_seed != 0 ? one_seed : seeds_n); seed++) {
    g_autofree char *name = g_strdup_printf("/runner/fault/seed-%u", seed);
    g_test_add_data_func(name, GUINT_TO_POINTER(seed), test_seed);
  }
  place_open();
  int status = g_test_run();
  place_close();
  return status;
}
