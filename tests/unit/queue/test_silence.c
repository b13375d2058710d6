/* SPDX-License-Identifier: Apache-2.0 */
/* A link on a clock of the test's own: when a dead peer is found, and that a living one never is. */
#include <glib.h>

#include "queue/silence.h"

#define MS G_GINT64_CONSTANT(1000)
#define PROMISE_MS 10000

/* What link.c does, in a world where a moment passes by being named. */
typedef struct {
  QvSilence silence;
  gint64 now_us, answer_at_us; /* 0: no answer is on its way */
  gint64 answer_ms, talk_ms;   /* how long an answer takes, -1: never; a command that often, 0: none */
  gint64 talk_at_us;
  guint asked_n;
} Sim;

static void say(Sim *s)
{
  qv_silence_await(&s->silence, s->now_us, 1);
  if (s->answer_ms >= 0 && s->answer_at_us == 0)
    s->answer_at_us = s->now_us + s->answer_ms * MS;
}

/* Runs until UNTIL or until the peer is found dead: TRUE then. */
static gboolean run(Sim *s, gint64 until_us)
{
  for (;;) {
    gint64 next = MIN(qv_silence_due_us(&s->silence), until_us);
    if (s->answer_at_us)
      next = MIN(next, s->answer_at_us);
    if (s->talk_ms)
      next = MIN(next, s->talk_at_us);
    s->now_us = MAX(next, s->now_us);
    if (s->answer_at_us && s->answer_at_us <= s->now_us) {
      qv_silence_heard(&s->silence, s->now_us);
      qv_silence_answered(&s->silence);
      s->answer_at_us = s->silence.awaited_n ? s->now_us + s->answer_ms * MS : 0;
    }
    if (s->talk_ms && s->talk_at_us <= s->now_us) {
      s->talk_at_us = s->now_us + s->talk_ms * MS;
      say(s);
    }
    switch (qv_silence_judge(&s->silence, s->now_us)) {
    case QV_SILENCE_ASK:
      s->asked_n++;
      say(s);
      break;
    case QV_SILENCE_DEAD:
      return TRUE;
    case QV_SILENCE_REST:
      if (s->now_us >= until_us)
        return FALSE;
    }
  }
}

static Sim up(gint64 answer_ms, gint64 talk_ms)
{
  Sim s = { .silence = { .up = TRUE }, .answer_ms = answer_ms, .talk_ms = talk_ms };
  qv_silence_heard(&s.silence, 0);
  s.talk_at_us = talk_ms * MS;
  return s;
}

static void test_living(void)
{
  /* Idle: asked every two seconds, and never taken for dead; nor when it is slow, or when it is busy. */
  Sim idle = up(1, 0), slow = up(6999, 0), busy = up(5, 10);
  g_assert_false(run(&idle, 3600 * 1000 * MS));
  g_assert_cmpuint(idle.asked_n, >=, 1790);
  g_assert_cmpuint(idle.asked_n, <=, 1800);
  g_assert_false(run(&slow, 3600 * 1000 * MS));
  g_assert_false(run(&busy, 60 * 1000 * MS));
  g_assert_cmpuint(busy.asked_n, ==, 0);
}

static void test_dies(void)
{
  /* It dies at any moment, of a link that is idle, or that goes on sending commands, often or seldom. */
  const gint64 talks_ms[] = { 0, 1, 50, 500, 1999, 2001, 5000, 6999, 7001, 9999 };
  for (gsize i = 0; i < G_N_ELEMENTS(talks_ms); i++) {
    for (int round = 0; round < 500; round++) {
      Sim s = up(g_test_rand_int_range(0, 500), talks_ms[i]);
      gint64 dies_us = g_test_rand_int_range(0, 30000) * MS;
      g_assert_false(run(&s, dies_us));
      s.now_us = dies_us;
      s.answer_ms = -1;
      s.answer_at_us = 0;
      if (!run(&s, dies_us + PROMISE_MS * MS))
        g_error("a command every %" G_GINT64_FORMAT " ms, dead at %" G_GINT64_FORMAT " us, not found", talks_ms[i], dies_us);
    }
  }
}

static void test_connecting(void)
{
  QvSilence s = { 0 };
  qv_silence_heard(&s, 5);
  g_assert_cmpint(qv_silence_judge(&s, 5 + QV_SILENCE_DEAD_MS * MS - 1), ==, QV_SILENCE_REST);
  g_assert_cmpint(qv_silence_judge(&s, 5 + QV_SILENCE_DEAD_MS * MS), ==, QV_SILENCE_DEAD);
  g_assert_cmpint(QV_SILENCE_FOUND_MS, <, PROMISE_MS);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/queue/silence/living", test_living);
  g_test_add_func("/queue/silence/dies", test_dies);
  g_test_add_func("/queue/silence/connecting", test_connecting);
  return g_test_run();
}
