/* SPDX-License-Identifier: Apache-2.0 */
/* A GSource with a ready time and nothing to poll. */
#include "queue/timer.h"

struct QvTimer {
  GSource source;
  void (*fire)(gpointer user);
  gpointer user;
};

static gboolean dispatch(GSource *source, GSourceFunc unused, gpointer unused_user)
{
  QvTimer *timer = (QvTimer *)source;
  g_source_set_ready_time(source, -1);
  timer->fire(timer->user);
  return G_SOURCE_CONTINUE;
}

static GSourceFuncs funcs = { .dispatch = dispatch };

QvTimer *qv_timer_new(void (*fire)(gpointer user), gpointer user)
{
  QvTimer *timer = (QvTimer *)g_source_new(&funcs, sizeof(QvTimer));
  timer->fire = fire;
  timer->user = user;
  g_source_set_static_name(&timer->source, "qv-timer");
  g_source_attach(&timer->source, g_main_context_get_thread_default());
  return timer;
}

void qv_timer_free(QvTimer *timer)
{
  if (!timer)
    return;
  g_source_destroy(&timer->source);
  g_source_unref(&timer->source);
}

void qv_timer_arm_at_us(QvTimer *timer, gint64 at_us)
{
  g_source_set_ready_time(&timer->source, MAX(at_us, 0));
}

void qv_timer_arm_ms(QvTimer *timer, gint64 from_now_ms)
{
  qv_timer_arm_at_us(timer, g_get_monotonic_time() + MAX(from_now_ms, 0) * 1000);
}

void qv_timer_arm_before_us(QvTimer *timer, gint64 at_us)
{
  gint64 armed = g_source_get_ready_time(&timer->source);
  if (armed < 0 || armed > at_us)
    qv_timer_arm_at_us(timer, at_us);
}

void qv_timer_disarm(QvTimer *timer)
{
  g_source_set_ready_time(&timer->source, -1);
}

gboolean qv_timer_is_armed(const QvTimer *timer)
{
  return g_source_get_ready_time((GSource *)&timer->source) >= 0;
}
