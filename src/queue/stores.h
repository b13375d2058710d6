/* SPDX-License-Identifier: Apache-2.0 */
/* Our own keys, outside BullMQ's: blob chunks, replay guard, cancel, egress tokens, health, smoke.
 * Sections 2.1, 2.3, 3, 7 and 8 of protocol.md. All are tried until they are answered
 * or deadline_ms (0: none) has passed; each returns an id for qv_conn_cancel
 * unless it says void. */
#pragma once

#include "queue/conn.h"

/* A sealed chunk: IV, 1 MiB at most, tag. One byte more is read, so that longer ones are seen. */
#define QV_CHUNK_MAX_BYTES (12 + 1048576 + 16)

char *qv_blob_key(const char *prefix, const char *blob_id, guint chunk);
/* bytes is sent as it is; ttl_ms at least 1. */
guint64 qv_blob_put(QvConn *conn, const char *prefix, const char *blob_id, guint chunk, GBytes *bytes, gint64 ttl_ms,
                    gint64 deadline_ms, QvDoneFunc func, gpointer user);
/* Absent (or empty): bytes NULL. A longer value than a chunk may be: QV_CHUNK_MAX_BYTES + 1 bytes of it. */
guint64 qv_blob_get(QvConn *conn, const char *prefix, const char *blob_id, guint chunk, gint64 deadline_ms,
                    QvBytesFunc func, gpointer user);
/* Chunks 0 to chunks-1; that they are gone already is no error. */
guint64 qv_blob_unlink(QvConn *conn, const char *prefix, const char *blob_id, guint chunks, gint64 deadline_ms,
                       QvDoneFunc func, gpointer user);

/* Live logs (section 10): a sealed chunk, how many there are now, then the message that tells of it. On the wire at most
 * once: GONE. destroy(user) when it is done with, also where it was cancelled (the message may still go out). */
guint64 qv_live_put(QvConn *conn, const char *prefix, const char *job_id, guint n, GBytes *sealed, gint64 deadline_ms,
                    QvDoneFunc func, gpointer user, GDestroyNotify destroy);
/* How many chunks were written, those that expired or were lost among them; 0 where nobody knows. */
typedef void (*QvLiveCountFunc)(guint n, const GError *error, gpointer user);
guint64 qv_live_count(QvConn *conn, const char *prefix, const char *job_id, gint64 deadline_ms, QvLiveCountFunc func,
                      gpointer user);
/* Those of the chunks below n that can still be there expire in ttl_ms. */
void qv_live_expire(QvConn *conn, const char *prefix, const char *job_id, guint n, gint64 ttl_ms);
/* UNLINKs the same. */
guint64 qv_live_unlink(QvConn *conn, const char *prefix, const char *job_id, guint n, gint64 deadline_ms, QvDoneFunc func,
                       gpointer user);
/* "<prefix>:live", for a QvSubscriber. */
char *qv_live_channel(const char *prefix);

typedef enum {
  QV_GUARD_WON,
  QV_GUARD_REPLAYED,
  QV_GUARD_UNKNOWN, /* no answer within the deadline, or an error: the job must not run */
} QvGuard;
typedef void (*QvGuardFunc)(QvGuard guard, const GError *error, gpointer user);
/* SET <prefix>:replay:<job_id> <runner_id>:<nonce> NX PX ttl_ms; no reply: GET, own value is won. nonce is made
 * inside. Cannot be cancelled. */
void qv_replay_guard_take(QvConn *conn, const char *prefix, const char *job_id, const char *runner_id, gint64 ttl_ms,
                          gint64 deadline_ms, QvGuardFunc func, gpointer user);

/* SET <prefix>:cancel:<job_id>, then PUBLISH job_id on <prefix>:cancel. */
void qv_cancel_put(QvConn *conn, const char *prefix, const char *job_id, const char *envelope, gsize len,
                   gint64 ttl_ms, gint64 deadline_ms, QvDoneFunc func, gpointer user);
/* At most 64 KiB + 1 bytes of it. */
guint64 qv_cancel_get(QvConn *conn, const char *prefix, const char *job_id, gint64 deadline_ms, QvBytesFunc func,
                      gpointer user);
/* "<prefix>:cancel", for a QvSubscriber. */
char *qv_cancel_channel(const char *prefix);

/* SET <prefix>:egress:<hash> to the record of an egress token (hash: 64 hex digits). */
guint64 qv_egress_token_put(QvConn *conn, const char *prefix, const char *hash, const char *record, gsize len,
                            gint64 ttl_ms, gint64 deadline_ms, QvDoneFunc func, gpointer user);
/* UNLINK of it, and PUBLISH of the hash on <prefix>:egress; that it is gone already is no error. Not both may be
 * cancelled: the token is to go. */
void qv_egress_token_revoke(QvConn *conn, const char *prefix, const char *hash, gint64 deadline_ms, QvDoneFunc func,
                            gpointer user);
/* "<prefix>:egress" and "<prefix>:egress-usage", for a QvSubscriber. */
char *qv_egress_channel(const char *prefix);
char *qv_egress_usage_channel(const char *prefix);

/* SET <prefix>:health:<runner_id> PX 90000 and ZADD <prefix>:runners at_ms runner_id. */
void qv_health_put(QvConn *conn, const char *prefix, const char *runner_id, gint64 at_ms, const char *envelope,
                   gsize len, gint64 deadline_ms, QvDoneFunc func, gpointer user);
/* Records of the runners seen in the 90 s before now_ms, 1000 at most, 64 KiB + 1 bytes of each. runner_ids and
 * records are parallel; a record that expired is NULL. Borrowed. */
typedef void (*QvHealthFunc)(guint n, const char *const *runner_ids, GBytes *const *records, const GError *error,
                             gpointer user);
void qv_health_list(QvConn *conn, const char *prefix, gint64 now_ms, gint64 deadline_ms, QvHealthFunc func,
                    gpointer user);

/* SET <prefix>:smoke:<runner_id> PX 120000, then PUBLISH runner_id on <prefix>:smoke. */
void qv_smoke_request_put(QvConn *conn, const char *prefix, const char *runner_id, const char *envelope, gsize len,
                          gint64 deadline_ms, QvDoneFunc func, gpointer user);
/* At most 64 KiB + 1 bytes of it. */
guint64 qv_smoke_request_get(QvConn *conn, const char *prefix, const char *runner_id, gint64 deadline_ms,
                             QvBytesFunc func, gpointer user);
/* "<prefix>:smoke", for a QvSubscriber. */
char *qv_smoke_channel(const char *prefix);
