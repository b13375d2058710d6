/* SPDX-License-Identifier: Apache-2.0 */
/* One timer on the thread-default main context of its making. It fires once an
 * arming; fire may free the timer. */
#pragma once

#include <glib.h>

typedef struct QvTimer QvTimer;

QvTimer *qv_timer_new(void (*fire)(gpointer user), gpointer user);
void qv_timer_free(QvTimer *timer); /* NULL is fine */

/* Times are those of g_get_monotonic_time. A new time replaces the old one. */
void qv_timer_arm_at_us(QvTimer *timer, gint64 at_us);
void qv_timer_arm_ms(QvTimer *timer, gint64 from_now_ms);
/* Only ever makes it sooner. */
void qv_timer_arm_before_us(QvTimer *timer, gint64 at_us);
void qv_timer_disarm(QvTimer *timer);
gboolean qv_timer_is_armed(const QvTimer *timer);
