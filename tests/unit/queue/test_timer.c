/* SPDX-License-Identifier: Apache-2.0 */
#include <glib.h>

#include "queue/timer.h"

typedef struct {
  QvTimer *timer;
  guint fired;
  gboolean free_in_fire;
} T;

static void fire(gpointer user)
{
  T *t = user;
  t->fired++;
  if (t->free_in_fire)
    qv_timer_free(g_steal_pointer(&t->timer));
}

static void turn_until(guint *counter, guint n)
{
  for (gint64 end = g_get_monotonic_time() + 60 * G_USEC_PER_SEC; *counter < n && g_get_monotonic_time() < end;)
    g_main_context_iteration(NULL, TRUE);
  g_assert_cmpuint(*counter, ==, n);
}

static void test_once(void)
{
  T t = { 0 };
  t.timer = qv_timer_new(fire, &t);
  g_assert_false(qv_timer_is_armed(t.timer));
  gint64 from = g_get_monotonic_time();
  qv_timer_arm_ms(t.timer, 50);
  turn_until(&t.fired, 1);
  g_assert_cmpint(g_get_monotonic_time() - from, >=, 50000);
  g_assert_false(qv_timer_is_armed(t.timer));
  qv_timer_arm_ms(t.timer, 1000000);
  qv_timer_arm_before_us(t.timer, g_get_monotonic_time() + 10000000000);
  qv_timer_arm_before_us(t.timer, g_get_monotonic_time());
  turn_until(&t.fired, 2);
  qv_timer_arm_ms(t.timer, 0);
  qv_timer_disarm(t.timer);
  g_usleep(1000);
  while (g_main_context_iteration(NULL, FALSE)) {
  }
  g_assert_cmpuint(t.fired, ==, 2);
  t.free_in_fire = TRUE;
  qv_timer_arm_ms(t.timer, 0);
  turn_until(&t.fired, 3);
  g_assert_null(t.timer);
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/queue/timer/once", test_once);
  return g_test_run();
}
