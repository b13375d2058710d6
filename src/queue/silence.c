/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/silence.h"

static gboolean waits(const QvSilence *s)
{
  return !s->up || s->awaited_n > 0;
}

void qv_silence_heard(QvSilence *s, gint64 now_us)
{
  s->since_us = now_us;
}

void qv_silence_await(QvSilence *s, gint64 now_us, guint n)
{
  if (s->awaited_n == 0)
    s->since_us = now_us; /* the wait begins now */
  s->awaited_n += n;
}

gboolean qv_silence_answered(QvSilence *s)
{
  return s->awaited_n > 0 && --s->awaited_n == 0;
}

gint64 qv_silence_due_us(const QvSilence *s)
{
  return s->since_us + (waits(s) ? QV_SILENCE_DEAD_MS : QV_SILENCE_ASK_MS) * G_GINT64_CONSTANT(1000);
}

QvSilenceVerdict qv_silence_judge(const QvSilence *s, gint64 now_us)
{
  if (now_us < qv_silence_due_us(s))
    return QV_SILENCE_REST;
  return waits(s) ? QV_SILENCE_DEAD : QV_SILENCE_ASK;
}
