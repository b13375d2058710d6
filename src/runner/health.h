/* SPDX-License-Identifier: Apache-2.0 */
/* The runner's health record in Valkey (section 8): every 30 s, and at once when what it says has changed. */
#pragma once

#include "protocol/health.h"
#include "queue/conn.h"

typedef struct QvHealthLoop QvHealthLoop;

typedef struct {
  /* What the record says now, all but `at`; and the key that signs it (borrowed). */
  QvHealth *(*describe)(gpointer user);
  QvKey *(*key)(gpointer user);
  /* How far Valkey's clock is ahead of ours, ms; asked each time that the record is renewed. */
  void (*clock)(gint64 ahead_ms, gpointer user);
} QvHealthSource;

/* CONN and PREFIX are borrowed. Nothing is written before the first touch. */
QvHealthLoop *qv_health_loop_new(QvConn *conn, const char *prefix, const char *runner_id, const QvHealthSource *source,
                                 gpointer user);
void qv_health_loop_free(QvHealthLoop *loop);

/* Something changed. NULL is fine: there is no loop yet. Changes in quick succession become one record. */
void qv_health_loop_touch(QvHealthLoop *loop);

/* The facts of this host in HEALTH: host id, kernel. */
void qv_health_fill_host(QvHealth *health);
