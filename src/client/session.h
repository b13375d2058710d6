/* SPDX-License-Identifier: Apache-2.0 */
/* QuavonClient from the inside: connection, keys, and what is known of jobs.
 *
 * The rooms below are asynchronous; the functions of quavon.h are not. A client has a main
 * context of its own, which is the thread's default inside each of its functions (qv_session_enter) and is turned
 * until the answer is there. */
#pragma once

#include <gio/gio.h>

#include "base/config.h"
#include "client/api_error.h"
#include "client/quavon.h"
#include "protocol/job.h"
#include "protocol/key.h"
#include "queue/conn.h"
#include "queue/producer.h"

/* A job that was signed or whose signature was verified: what its result is held against. Immutable, counted. */
typedef struct {
  QvJob *job;
  QvKey *key;
  char job_sha256[65];
} QvTicket;

QvTicket *qv_ticket_ref(QvTicket *ticket);
void qv_ticket_unref(QvTicket *ticket);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvTicket, qv_ticket_unref)

struct QuavonClient {
  GMainContext *context;
  QvConfig *config;
  QvAddress *address;
  QvConn *conn;
  QvProducer *producer;
  char *prefix;
  QvKeyring *ring;
  QvLimitsPolicy policy;
  GHashTable *tickets; /* job id → QvTicket: those that this client submitted */
  QuavonLogFunction log_function; /* or NULL */
  void *log_data;
  char *keys_stamp;    /* what the key files looked like when they were read */
  gboolean unattended; /* submit does not ask for a healthy runner */
};

enum { QV_CALL_DEADLINE_MS = 30000 };

/* The client's context as the thread's default, for the scope of a function. */
typedef GMainContext QvSessionScope;
QvSessionScope *qv_session_enter(QuavonClient *client);
void qv_session_leave(QvSessionScope *scope);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvSessionScope, qv_session_leave)

/* An answer that is waited for. */
typedef struct {
  gboolean done;
  GError *error;
} QvCall;

/* Turns the loop until call->done; FALSE and the call's error where it has one. */
gboolean qv_session_wait(QuavonClient *client, QvCall *call, GError **error);
/* A QvDoneFunc for it. */
void qv_call_done(const GError *error, gpointer call);
void qv_call_finish(QvCall *call, const GError *error);

/* How many jobs wait, as qv_producer_count counts them. */
gboolean qv_session_count(QuavonClient *client, gint64 *count, GError **error);

/* Reads the key files again where they have changed. TRUE: there are other keys now. Bad files change nothing. */
gboolean qv_session_reload_keys(QuavonClient *client);

/* What is known of a job: its own ticket, or the data in Valkey when one of our keys signed it.
 * NOT_FOUND; AUTH: not signed by us, or another job's. */
QvTicket *qv_session_ticket(QuavonClient *client, const char *job_id, GError **error);
