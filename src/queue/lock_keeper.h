/* SPDX-License-Identifier: Apache-2.0 */
/* Renews job locks in a thread with a connection and a main loop of its own, so that
 * nothing the program does can hold up a renewal. Its callbacks run on the main
 * context on which it was made. Entries go by token, which is never used twice. */
#pragma once

#include "queue/address.h"

typedef struct QvLockKeeper QvLockKeeper;

typedef struct {
  void (*lost)(const char *token, const char *why, gpointer user); /* once; the entry is gone */
  void (*cancel_seen)(const char *token, gpointer user);
} QvLockKeeperEvents;

/* queue: P; cancel_start: what a job id is appended to for its cancel key. */
QvLockKeeper *qv_lock_keeper_new(QvAddress *address, const char *queue, const char *cancel_start, gint64 lock_ms,
                                 const QvLockKeeperEvents *events, gpointer user);
/* Joins the thread. */
void qv_lock_keeper_free(QvLockKeeper *keeper);

/* locked_us: monotonic, not later than the moment at which the lock was set. */
void qv_lock_keeper_add(QvLockKeeper *keeper, const char *token, const char *job_id, gint64 locked_us);
/* The job's end is on its way: go on renewing, but a lock that is gone is no news any more. */
void qv_lock_keeper_hush(QvLockKeeper *keeper, const char *token);
void qv_lock_keeper_remove(QvLockKeeper *keeper, const char *token);
