/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a job as transcripts, each phase met by each event, and the five promises of
 * run_state.h on random lives in a small simulated world. */
#include "runner/run_state.h"

#include <glib.h>
#include <string.h>

static QvRunActions feed(QvRun *run, QvRunEventType type)
{
  QvRunEvent event = {.type = type};
  return qv_run_step(run, &event);
}

/* A transcript: words are events (lower case detail after ':'), a "-> A B" after
 * each says which actions must come out. */
static void play(const char *script)
{
  QvRun run = {0};
  g_auto(GStrv) lines = g_strsplit(script, "\n", -1);
  for (char **line = lines; *line != NULL; line++) {
    if (**line == '\0')
      continue;
    g_auto(GStrv) sides = g_strsplit(*line, " ->", 2);
    g_auto(GStrv) word = g_strsplit(sides[0], ":", 2);
    QvRunEvent event = {.type = 0};
    gboolean found = FALSE;
    for (unsigned i = 0; i <= QV_RUN_EVENT_ABANDON; i++) {
      if (strcmp(qv_run_event_name(i), word[0]) == 0) {
        event.type = i;
        found = TRUE;
      }
    }
    g_assert_true(found);
    const char *detail = word[1] != NULL ? word[1] : "";
    event.refusal = g_str_has_prefix(detail, "rejected") ? "rejected: test" : NULL;
    event.stalled = strstr(detail, "stalled") != NULL;
    event.verified = strstr(detail, "verified") != NULL;
    event.egress = strcmp(detail, "egress") == 0;
    for (unsigned i = 0; i <= QV_RUN_CAUSE_LOCK_LOST; i++) {
      if (strcmp(qv_run_cause_name(i), detail) == 0)
        event.cause = i;
    }
    QvRunActions out = qv_run_step(&run, &event);
    g_autoptr(GString) got = g_string_new(NULL);
    for (unsigned i = 0; i < out.n; i++)
      g_string_append_printf(got, " %s", qv_run_action_name(out.item[i]));
    g_assert_nonnull(sides[1]);
    if (strcmp(got->str, sides[1]) != 0)
      g_error("after '%s': got '%s', phase %s", *line, got->str, qv_run_phase_name(run.phase));
  }
  g_assert_cmpint(run.phase, ==, QV_RUN_DONE);
}

#define ADMIT "FETCHED -> CLAIM\nCLAIM_WON -> ARM_WALL ADMIT\nADMITTED -> ASK_CANCEL\n"
#define START ADMIT "NO_CANCEL -> SPAWN\n"

#define GRANT "FETCHED -> CLAIM\nCLAIM_WON -> ARM_WALL ADMIT\nADMITTED:egress -> ASK_CANCEL\nNO_CANCEL -> GRANT\n"
#define START_EGRESS GRANT "GRANTED -> SPAWN\n"

static void test_egress(void)
{
  play(START_EGRESS "SETUP_OVER -> REVOKE\nREVOKED ->\nUSAGE ->\nSETUP_OVER ->\nREPORT -> STORE\nRECEIVED ->\nGONE ->\n"
                    "STORED -> FINISH\nANSWERED -> STOP UNLINK\nUNLINKED ->\nEXITED -> RELEASE\n");
  /* The proxy's account is waited for before the answer, Valkey's word before the end. */
  play(START_EGRESS "REPORT -> REVOKE STORE\nRECEIVED ->\nGONE ->\nSTORED ->\nEXITED ->\nUSAGE -> FINISH\nANSWERED -> UNLINK\n"
                    "UNLINKED ->\nREVOKED -> RELEASE\n");
  /* The job process is killed during setup. */
  play(START_EGRESS "EXITED -> REVOKE SWEEP\nREVOKED ->\nUSAGE -> FINISH\nANSWERED -> UNLINK\nUNLINKED ->\nSWEPT -> RELEASE\n");
  play(START_EGRESS "INTERRUPT:CANCELLED -> REVOKE STOP\nREVOKED ->\nREPORT -> DISCARD\nRECEIVED ->\nSTORED ->\n"
                    "USAGE -> FINISH\nGONE ->\nEXITED ->\nANSWERED -> UNLINK\nUNLINKED -> RELEASE\n");
  play(START_EGRESS "LOCK_LOST -> REVOKE STOP DISCARD UNLINK\nUSAGE ->\nUNLINKED ->\nGONE ->\nEXITED ->\nREVOKED -> RELEASE\n");
  play(START_EGRESS "REPORT -> REVOKE STORE\nREVOKED ->\nRECEIVED ->\nSTORED ->\nLOCK_LOST -> STOP DISCARD UNLINK\nUSAGE ->\n"
                    "UNLINKED ->\nGONE ->\nEXITED -> RELEASE\n");
  play(START_EGRESS "ABANDON -> REVOKE STOP DISCARD\nGONE ->\nEXITED -> RELEASE\nREVOKED ->\n");
  /* It was not written, or nobody knows whether it was. */
  play(GRANT "INTERRUPT:SANDBOX_FAILED -> REVOKE FINISH\nGRANTED ->\nANSWERED -> UNLINK\nUNLINKED ->\nREVOKED -> RELEASE\n");
  play(GRANT "LOCK_LOST -> REVOKE UNLINK\nGRANTED ->\nREVOKED ->\nUNLINKED -> RELEASE\n");
}

static void test_success(void)
{
  play(START "REPORT -> STORE\nRECEIVED ->\nGONE ->\nSTORED -> FINISH\nANSWERED -> STOP UNLINK\n"
             "UNLINKED ->\nEXITED -> RELEASE\n");
  /* The process may be gone before the last chunk is stored. */
  play(START "REPORT -> STORE\nRECEIVED ->\nGONE ->\nEXITED ->\nSTORED -> FINISH\nANSWERED -> UNLINK\n"
             "UNLINKED -> RELEASE\n");
}

static void test_refusals(void)
{
  play("FETCHED:rejected -> FAIL\nANSWERED -> RELEASE\n");
  play("FETCHED -> CLAIM\nCLAIM_LOST -> FAIL\nANSWERED -> RELEASE\n");
  play("FETCHED -> CLAIM\nCLAIM_WON -> ARM_WALL ADMIT\nREFUSED:rejected -> FAIL\nANSWERED -> UNLINK\nUNLINKED -> RELEASE\n");
}

static void test_stalled(void)
{
  play("FETCHED:stalled -> FAIL\nANSWERED -> RELEASE\n");
  play("FETCHED:stalled,verified -> CLAIM\nCLAIM_WON -> FAIL\nANSWERED -> UNLINK\nUNLINKED -> RELEASE\n");
  play("FETCHED:stalled,verified -> CLAIM\nCLAIM_LOST -> FAIL\nANSWERED -> UNLINK\nUNLINKED -> RELEASE\n");
}

static void test_causes(void)
{
  /* Before anything was started. */
  play(ADMIT "INTERRUPT:CANCELLED -> FINISH\nANSWERED -> UNLINK\nUNLINKED -> RELEASE\n");
  play("FETCHED -> CLAIM\nINTERRUPT:SHUTDOWN ->\nCLAIM_WON -> ARM_WALL ADMIT\nADMITTED -> FINISH\n"
       "ANSWERED -> UNLINK\nUNLINKED -> RELEASE\n");
  /* While it runs: the report of what there was until then is kept. */
  play(START "INTERRUPT:WALL -> STOP\nINTERRUPT:CANCELLED ->\nREPORT -> DISCARD FINISH\nRECEIVED ->\n"
             "GONE ->\nEXITED ->\nANSWERED -> UNLINK\nUNLINKED -> RELEASE\n");
  /* Storing is within wallMs too. */
  play(START "REPORT -> STORE\nRECEIVED ->\nINTERRUPT:WALL -> DISCARD FINISH\nSTORED ->\nGONE ->\nEXITED ->\n"
             "ANSWERED -> UNLINK\nUNLINKED -> RELEASE\n");
  play(START "REPORT -> STORE\nRECEIVED ->\nGONE ->\nEXITED ->\nINTERRUPT:WALL -> FINISH\n"
             "ANSWERED -> UNLINK\nUNLINKED -> RELEASE\n");
  /* After the report nothing else outside changes it. */
  play(START "REPORT -> STORE\nINTERRUPT:CANCELLED ->\nRECEIVED ->\nSTORED -> FINISH\nANSWERED -> STOP UNLINK\n"
             "GONE ->\nEXITED ->\nUNLINKED -> RELEASE\n");
}

static void test_crash(void)
{
  play(START "EXITED -> SWEEP FINISH\nSWEPT ->\nANSWERED -> UNLINK\nUNLINKED -> RELEASE\n");
  play(START "REPORT -> STORE\nEXITED -> SWEEP FINISH\nANSWERED -> UNLINK\nUNLINKED ->\nSWEPT -> RELEASE\n");
  play(START "REPORT -> STORE\nRECEIVED ->\nSTORE_FAILED -> FINISH\nANSWERED -> STOP UNLINK\nUNLINKED ->\nGONE ->\n"
             "EXITED -> RELEASE\n");
  play(START "INTERRUPT:WALL -> STOP\nOVERDUE -> KILL\nEXITED -> SWEEP FINISH\nANSWERED -> UNLINK\nUNLINKED ->\n"
             "SWEEP_FAILED -> PROBLEM RELEASE\n");
}

static void test_lock_lost(void)
{
  play("LOCK_LOST -> RELEASE\nFETCHED ->\n");
  play("FETCHED -> CLAIM\nLOCK_LOST ->\nCLAIM_WON -> UNLINK\nUNLINKED -> RELEASE\n");
  play("FETCHED -> CLAIM\nLOCK_LOST ->\nCLAIM_LOST -> RELEASE\n");
  play(START "LOCK_LOST -> STOP DISCARD UNLINK\nREPORT ->\nGONE ->\nEXITED ->\nUNLINKED -> RELEASE\n");
  play(START "REPORT -> STORE\nRECEIVED ->\nLOCK_LOST -> STOP DISCARD UNLINK\nSTORED ->\nUNLINKED ->\nGONE ->\nEXITED -> RELEASE\n");
  play(START "REPORT -> STORE\nRECEIVED ->\nSTORED -> FINISH\nLOCK_LOST ->\nANSWER_REFUSED -> STOP UNLINK\nUNLINKED ->\n"
             "GONE ->\nEXITED -> RELEASE\n");
}

static void test_abandon(void)
{
  play("FETCHED -> CLAIM\nABANDON -> RELEASE\nCLAIM_WON ->\n");
  play(START "ABANDON -> STOP DISCARD\nGONE ->\nEXITED -> RELEASE\n");
  play(START "REPORT -> STORE\nRECEIVED ->\nGONE ->\nEXITED ->\nSTORED -> FINISH\nABANDON -> RELEASE\nANSWERED ->\n");
}

/* ------------------------------------------------------------------ random */

typedef struct {
  GRand *rand;
  QvRun run;
  gboolean pending[QV_RUN_EVENT_ABANDON + 1]; /* events that the world owes */
  unsigned count[QV_RUN_DO_RELEASE + 1];
  gboolean lost, abandoned, answered;
  gboolean voided_before_answer; /* the lock was lost while no answer was under way */
  gboolean won, verified_stalled;
  gboolean egress;
} World;

static gboolean coin(World *world, unsigned percent)
{
  return (unsigned)g_rand_int_range(world->rand, 0, 100) < percent;
}

static void owe(World *world, QvRunEventType type)
{
  world->pending[type] = TRUE;
}

static void act(World *world, QvRunAction action)
{
  g_assert_cmpuint(world->count[QV_RUN_DO_RELEASE], ==, 0);
  world->count[action]++;
  switch (action) {
  case QV_RUN_DO_CLAIM:
    owe(world, coin(world, 80) ? QV_RUN_EVENT_CLAIM_WON : QV_RUN_EVENT_CLAIM_LOST);
    break;
  case QV_RUN_DO_ADMIT:
    owe(world, coin(world, 80) ? QV_RUN_EVENT_ADMITTED : QV_RUN_EVENT_REFUSED);
    break;
  case QV_RUN_DO_ASK_CANCEL:
    owe(world, coin(world, 90) ? QV_RUN_EVENT_NO_CANCEL : QV_RUN_EVENT_INTERRUPT);
    break;
  case QV_RUN_DO_GRANT:
    owe(world, coin(world, 90) ? QV_RUN_EVENT_GRANTED : QV_RUN_EVENT_INTERRUPT);
    break;
  case QV_RUN_DO_REVOKE:
    g_assert_cmpuint(world->count[QV_RUN_DO_GRANT], ==, 1);
    owe(world, QV_RUN_EVENT_REVOKED);
    owe(world, QV_RUN_EVENT_USAGE);
    break;
  case QV_RUN_DO_SPAWN:
    g_assert_cmpuint(world->count[QV_RUN_DO_GRANT], ==, world->egress);
    owe(world, coin(world, 80) ? QV_RUN_EVENT_REPORT : QV_RUN_EVENT_EXITED);
    if (coin(world, 80))
      owe(world, QV_RUN_EVENT_SETUP_OVER);
    break;
  case QV_RUN_DO_STOP: /* obeys, or hangs until it is killed */
    if (coin(world, 80)) {
      if (coin(world, 80))
        owe(world, QV_RUN_EVENT_REPORT);
      if (coin(world, 80))
        owe(world, QV_RUN_EVENT_GONE);
      owe(world, QV_RUN_EVENT_EXITED);
    } else {
      owe(world, QV_RUN_EVENT_OVERDUE);
    }
    break;
  case QV_RUN_DO_KILL:
    owe(world, QV_RUN_EVENT_EXITED);
    break;
  case QV_RUN_DO_SWEEP:
    owe(world, coin(world, 90) ? QV_RUN_EVENT_SWEPT : QV_RUN_EVENT_SWEEP_FAILED);
    break;
  case QV_RUN_DO_STORE:
    owe(world, QV_RUN_EVENT_RECEIVED);
    owe(world, coin(world, 50)   ? QV_RUN_EVENT_STORED
               : coin(world, 50) ? QV_RUN_EVENT_STORE_FAILED
                                 : QV_RUN_EVENT_EXITED);
    break;
  case QV_RUN_DO_FAIL:
  case QV_RUN_DO_FINISH:
    g_assert_false(world->voided_before_answer);
    owe(world, coin(world, 90) ? QV_RUN_EVENT_ANSWERED : QV_RUN_EVENT_ANSWER_REFUSED);
    break;
  case QV_RUN_DO_UNLINK: /* never before the answer, unless there is none */
    g_assert_true(world->answered || world->run.voided);
    owe(world, QV_RUN_EVENT_UNLINKED);
    break;
  case QV_RUN_DO_PROBLEM:
  case QV_RUN_DO_ARM_WALL:
  case QV_RUN_DO_DISCARD:
  case QV_RUN_DO_RELEASE:
    break;
  }
}

static void tell(World *world, const QvRunEvent *event)
{
  QvRunPhase before = world->run.phase;
  gboolean had_process = world->run.process;
  if (event->type == QV_RUN_EVENT_LOCK_LOST || event->type == QV_RUN_EVENT_ABANDON) {
    if (before < QV_RUN_ANSWERING || event->type == QV_RUN_EVENT_ABANDON)
      world->voided_before_answer = TRUE;
    world->lost = TRUE;
    if (event->type == QV_RUN_EVENT_ABANDON)
      world->abandoned = TRUE;
  }
  if (before == QV_RUN_CLAIMING && event->type == QV_RUN_EVENT_CLAIM_WON)
    world->won = TRUE;
  if (before == QV_RUN_ANSWERING && (event->type == QV_RUN_EVENT_ANSWERED || event->type == QV_RUN_EVENT_ANSWER_REFUSED))
    world->answered = TRUE;
  QvRunActions out = qv_run_step(&world->run, event);
  for (unsigned i = 0; i < out.n; i++)
    act(world, out.item[i]);
  if (event->type == QV_RUN_EVENT_EXITED && had_process)
    world->pending[QV_RUN_EVENT_REPORT] = world->pending[QV_RUN_EVENT_GONE] = world->pending[QV_RUN_EVENT_OVERDUE] = FALSE;
  g_assert_cmpuint(world->count[QV_RUN_DO_FAIL] + world->count[QV_RUN_DO_FINISH], <=, 1);
  g_assert_cmpuint(world->count[QV_RUN_DO_UNLINK], <=, 1);
  g_assert_cmpuint(world->count[QV_RUN_DO_SPAWN], <=, 1);
  g_assert_cmpuint(world->count[QV_RUN_DO_SWEEP], <=, 1);
  gboolean over = world->run.phase > QV_RUN_RUNNING || (before == QV_RUN_RUNNING && event->type == QV_RUN_EVENT_SETUP_OVER);
  g_assert_cmpuint(world->count[QV_RUN_DO_REVOKE], <=, 1);
  if (world->count[QV_RUN_DO_GRANT] > 0 && over)
    g_assert_cmpuint(world->count[QV_RUN_DO_REVOKE], ==, 1);
}

static void check_end(World *world)
{
  unsigned answers = world->count[QV_RUN_DO_FAIL] + world->count[QV_RUN_DO_FINISH];
  g_assert_cmpint(world->run.phase, ==, QV_RUN_DONE);
  g_assert_cmpuint(world->count[QV_RUN_DO_RELEASE], ==, 1);
  if (!world->lost)
    g_assert_cmpuint(answers, ==, 1);
  if ((world->won || (world->verified_stalled && !world->lost)) && !world->abandoned)
    g_assert_cmpuint(world->count[QV_RUN_DO_UNLINK], ==, 1);
  if (!world->won && !world->verified_stalled)
    g_assert_cmpuint(world->count[QV_RUN_DO_UNLINK], ==, 0);
  g_assert_false(world->run.process);
  g_assert_false(world->run.sandbox);
  g_assert_cmpuint(world->count[QV_RUN_DO_REVOKE], ==, world->count[QV_RUN_DO_GRANT]);
  if (world->count[QV_RUN_DO_GRANT] > 0 && !world->abandoned)
    g_assert_false(world->pending[QV_RUN_EVENT_REVOKED]);
}

static void live(guint32 seed)
{
  World world = {.rand = g_rand_new_with_seed(seed)};
  world.egress = coin(&world, 50);
  QvRunEvent first = {.type = QV_RUN_EVENT_FETCHED, .stalled = coin(&world, 15), .verified = coin(&world, 50)};
  if (!first.stalled && coin(&world, 15))
    first.refusal = "rejected: test";
  world.verified_stalled = first.stalled && first.verified;
  tell(&world, &first);
  for (unsigned i = 0; i < 200 && world.run.phase != QV_RUN_DONE; i++) {
    if (coin(&world, 4)) {
      tell(&world, &(QvRunEvent){.type = QV_RUN_EVENT_LOCK_LOST});
    } else if (coin(&world, 6)) {
      QvRunCause cause = g_rand_int_range(world.rand, QV_RUN_CAUSE_CANCELLED, QV_RUN_CAUSE_LOCK_LOST);
      tell(&world, &(QvRunEvent){.type = QV_RUN_EVENT_INTERRUPT, .cause = cause});
    } else if (coin(&world, 1)) {
      tell(&world, &(QvRunEvent){.type = QV_RUN_EVENT_ABANDON});
    } else {
      unsigned type = g_rand_int_range(world.rand, 0, QV_RUN_EVENT_ABANDON);
      for (unsigned k = 0; k < QV_RUN_EVENT_ABANDON && !world.pending[type]; k++)
        type = (type + 1) % QV_RUN_EVENT_ABANDON;
      if (!world.pending[type])
        continue;
      world.pending[type] = FALSE;
      tell(&world, &(QvRunEvent){.type = type, .refusal = "rejected: test", .cause = QV_RUN_CAUSE_CANCELLED,
                                 .egress = world.egress});
    }
  }
  if (world.run.phase != QV_RUN_DONE)
    g_error("seed %u hangs in %s", seed, qv_run_phase_name(world.run.phase));
  check_end(&world);
  g_rand_free(world.rand);
}

static void test_random_lives(void)
{
  for (guint32 seed = 1; seed <= 200000; seed++)
    live(seed);
}

/* Any event at any time, sense or not: the safety half of the promises. */
static void test_chaos(void)
{
  g_autoptr(GRand) rand = g_rand_new_with_seed(7);
  for (unsigned life = 0; life < 50000; life++) {
    QvRun run = {0};
    unsigned answers = 0, released = 0, spawned = 0, unlinked = 0, granted = 0, revoked = 0;
    gboolean silent = FALSE;
    for (unsigned i = 0; i < 60; i++) {
      QvRunEvent event = {.type = g_rand_int_range(rand, 0, QV_RUN_EVENT_ABANDON + 1),
                          .cause = g_rand_int_range(rand, QV_RUN_CAUSE_CANCELLED, QV_RUN_CAUSE_LOCK_LOST),
                          .stalled = g_rand_boolean(rand), .verified = g_rand_boolean(rand),
                          .egress = g_rand_boolean(rand),
                          .refusal = g_rand_boolean(rand) ? "rejected: test" : NULL};
      if (run.phase != QV_RUN_NEW && run.phase < QV_RUN_ANSWERING && event.type == QV_RUN_EVENT_LOCK_LOST)
        silent = TRUE;
      QvRunActions out = qv_run_step(&run, &event);
      for (unsigned k = 0; k < out.n; k++) {
        g_assert_cmpuint(released, ==, 0);
        gboolean answer = out.item[k] == QV_RUN_DO_FAIL || out.item[k] == QV_RUN_DO_FINISH;
        g_assert_false(answer && silent);
        answers += answer;
        released += out.item[k] == QV_RUN_DO_RELEASE;
        spawned += out.item[k] == QV_RUN_DO_SPAWN;
        unlinked += out.item[k] == QV_RUN_DO_UNLINK;
        granted += out.item[k] == QV_RUN_DO_GRANT;
        revoked += out.item[k] == QV_RUN_DO_REVOKE;
      }
      g_assert_cmpuint(granted, <=, 1);
      g_assert_cmpuint(revoked, <=, granted);
      g_assert_cmpuint(answers, <=, 1);
      g_assert_cmpuint(spawned, <=, 1);
      g_assert_cmpuint(unlinked, <=, 1);
      if (run.phase == QV_RUN_DONE)
        g_assert_true(released == 1 && !run.process && !run.sandbox && revoked == granted);
    }
  }
}

/* The first answered event ends the wait for the job process's word: every
 * phase must know what to do when the process dies in it. */
static void test_death_in_each_phase(void)
{
  static const QvRunEventType path[] = {QV_RUN_EVENT_FETCHED,  QV_RUN_EVENT_CLAIM_WON, QV_RUN_EVENT_ADMITTED,
                                        QV_RUN_EVENT_NO_CANCEL, QV_RUN_EVENT_REPORT,    QV_RUN_EVENT_RECEIVED,
                                        QV_RUN_EVENT_STORED,   QV_RUN_EVENT_ANSWERED};
  for (unsigned dies = 4; dies <= G_N_ELEMENTS(path); dies++) {
    QvRun run = {0};
    for (unsigned i = 0; i < dies; i++)
      feed(&run, path[i]);
    gboolean sweep = FALSE;
    QvRunActions out = feed(&run, QV_RUN_EVENT_EXITED);
    for (unsigned k = 0; k < out.n; k++)
      sweep |= out.item[k] == QV_RUN_DO_SWEEP;
    g_assert_true(sweep);
    feed(&run, QV_RUN_EVENT_SWEPT);
    feed(&run, QV_RUN_EVENT_STORED);
    feed(&run, QV_RUN_EVENT_ANSWERED);
    feed(&run, QV_RUN_EVENT_UNLINKED);
    g_assert_cmpint(run.phase, ==, QV_RUN_DONE);
  }
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/run/success", test_success);
  g_test_add_func("/run/egress", test_egress);
  g_test_add_func("/run/refusals", test_refusals);
  g_test_add_func("/run/stalled", test_stalled);
  g_test_add_func("/run/causes", test_causes);
  g_test_add_func("/run/crash", test_crash);
  g_test_add_func("/run/lock-lost", test_lock_lost);
  g_test_add_func("/run/abandon", test_abandon);
  g_test_add_func("/run/death-in-each-phase", test_death_in_each_phase);
  g_test_add_func("/run/random-lives", test_random_lives);
  g_test_add_func("/run/chaos", test_chaos);
  return g_test_run();
}
