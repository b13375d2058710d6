/* SPDX-License-Identifier: Apache-2.0 */
/* A server, a producer and workers for the tests of the queue. */
#pragma once

#include "queue/producer.h"
#include "queue/stores.h"
#include "queue/worker.h"
#include "support/loop.h"
#include "support/proxy.h"
#include "support/valkey.h"

#define PREFIX "quavon-sandbox"
#define P "quavon-sandbox:sandbox:"

QvAddress *fixture_address(const char *url);
/* The address of a relay, as that user. */
QvAddress *fixture_proxied(QvTestValkey *valkey, QvTestProxy *proxy, const char *user);

/* A worker that keeps what it is told. */
typedef struct {
  QvWorker *worker;
  GPtrArray *jobs; /* QvFetchedJob, in progress, in the order of arrival */
  guint fetched_n, lost_n, cancels_n, states_n;
  QvFetchedJob *lost; /* the last one */
  char *trouble;      /* the last error, NULL: none or over */
  char *first_trouble;
  gboolean drained;
  void (*state_hook)(gpointer t); /* when it is told its state; NULL: nothing */
} TestWorker;

TestWorker *test_worker_new(QvAddress *address, guint concurrency, gint64 lock_ms, gint64 stalled_ms);
void test_worker_free(TestWorker *t);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(TestWorker, test_worker_free)
void test_worker_drain(TestWorker *t);
/* Waits for the next job and takes it from the list. */
QvFetchedJob *test_worker_next(TestWorker *t);
/* Ends a job and waits for the outcome. */
QvFinish test_worker_complete(TestWorker *t, QvFetchedJob *job, const char *json);
QvFinish test_worker_fail(TestWorker *t, QvFetchedJob *job, const char *reason);
QvFinish test_worker_release(TestWorker *t, QvFetchedJob *job);
QvFinish test_worker_release_as(TestWorker *t, QvFetchedJob *job, const char *tenant);

/* Adds with the producer and waits; an error ends the test. */
QvAdd fixture_add(QvProducer *producer, const char *id, const char *data);
gint64 fixture_count(QvProducer *producer);
gboolean fixture_remove(QvProducer *producer, const char *id);
/* "completed <text>", "failed <text>", "waiting", "active", "unknown". The caller's. */
char *fixture_state(QvProducer *producer, const char *id);
/* The events of the stream as "event k=v k=v" lines, without their ids, from the n-th on. The caller's. */
char *fixture_events(QvTestValkey *valkey, guint from);
/* How often COMMAND, as INFO names it, was called; once at the least. */
guint fixture_calls_n(QvTestValkey *valkey, const char *command);
/* How many scripts have run. */
guint fixture_scripts_n(QvTestValkey *valkey);
/* Waits until valkey-cli answers that. */
void fixture_wait_cli(QvTestValkey *valkey, const char *expected, const char *command, const char *key, const char *more);

/* Waits until a worker waits for jobs. */
void fixture_await_blocked_read(QvTestValkey *valkey);

/* What a case has. */
typedef struct {
  QvTestValkey *valkey;
  QvAddress *worker_address, *sandbox_address;
  QvConn *conn; /* as worker */
  QvProducer *producer;
  /* By FixtureParts. */
  QvConn *sandbox_conn;
  QvTestProxy *proxy;
  QvAddress *proxied_worker, *proxied_sandbox;
  TestWorker *t; /* of one job at a time */
} Fixture;

typedef enum {
  FIXTURE_PLAIN = 0,
  FIXTURE_SANDBOX_CONN = 1,
  FIXTURE_PROXY = 2, /* and the server keeps its data */
  FIXTURE_WORKER = 4,
} FixtureParts;

/* Adds the case PATH/NAME: TEST with a fixture of its own. */
void fixture_test_add(const char *path, const char *name, FixtureParts parts, void (*test)(Fixture *, gconstpointer));
/* What valkey-cli answers. */
void fixture_assert_cli(QvTestValkey *valkey, const char *expected, const char *command, const char *key, const char *more);
#define assert_cli(f, expected, command, key, more) fixture_assert_cli((f)->valkey, expected, command, key, more)
