/* SPDX-License-Identifier: Apache-2.0 */
/* A small world for the runner's tests: a private Valkey with the shipped
 * users, a fresh key, the test image, a state folder, the runner as a program of its own, and
 * a worker side that speaks the contract through protocol and queue alone. The backend is that of the row of
 * support/backends.h: with docker-* the program's private engine holds a small image in the place of the test image, and that is
 * the only one of the lock. */
#pragma once

#include <glib.h>

#include "base/clock.h"
#include "protocol/health.h"
#include "protocol/job.h"
#include "protocol/result.h"
#include "queue/producer.h"
#include "queue/stores.h"
#include "support/backends.h"
#include "support/valkey.h"

typedef struct {
  QvTestValkey *valkey;
  char *dir;        /* /tmp/qv-…, holds all files below */
  char *state_dir;
  char *key_file;
  char *images_file;
  char *log_file;   /* of all runners of this world */
  QvKey *key;
  QvKeyring *ring;
  QvAddress *address;
  QvConn *conn;     /* as user worker */
  QvProducer *producer;
  QvLimitsPolicy policy;
  QvImageRef image;
  GPid runner;      /* 0: none */
  char *egress_url; /* where the proxy finds Valkey; NULL: at the server's own socket */
  gint64 deadline_ms;   /* for the end of a job; WORLD_DEADLINE_MS */
  gboolean keeps_input; /* some jobs of this world are refused in a way that leaves their input */
} World;

enum { WORLD_DEADLINE_MS = 180000 };

/* Looks again until CONDITION holds; the test fails where it does not in time. Turns no main loop. */
#define AWAIT(condition) \
  do { \
    gint64 end_ = qv_clock_mono_ms() + WORLD_DEADLINE_MS; \
    while (!(condition)) { \
      if (qv_clock_mono_ms() > end_) \
        g_error("%s:%d: waited in vain for: %s", __FILE__, __LINE__, #condition); \
      g_usleep(10000); \
    } \
  } while (0)

#define WORLD_PREFIX "quavon-sandbox"
/* Of a runner whose death is to be noticed soon. */
enum { WORLD_LOCK_MS = 5000, WORLD_STALLED_MS = 5000 };
#define WORLD_FAST_LOCKS "QUAVON_SANDBOX_LOCK_MS=5000", "QUAVON_SANDBOX_STALLED_MS=5000"

/* NULL, and the test skipped, where the machine cannot run sandboxes at all (not root). Once per program with docker-*:
 * the engine starts; backend_finish ends it. */
World *world_new(QvTestValkeyFlags flags);
/* A runner that lives is killed. */
void world_free(World *world);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(World, world_free)
/* Adds the case PATH: FUNC in a world of its own, skipped where world_new skips. */
void world_test_add(const char *path, QvTestValkeyFlags flags, void (*func)(World *world));

/* Jobs made from now on use the image NAME of the lock, which must be there. */
void world_use_image(World *world, const char *name);

/* The runner's whole environment; EXTRA as in world_start. Free with g_strfreev. */
char **world_environment(World *world, const char *const *extra);
/* Starts a runner; EXTRA: NAME=VALUE, NULL at the end (may be NULL). Does not wait. */
void world_start(World *world, const char *const *extra);
/* The setting of a runtime that lacks one protection, KIND of weak_runsc.py. Free with g_free. */
char *world_weak_runsc(World *world, const char *kind);
/* Waits until the runner's log holds TEXT. */
void world_await_log(World *world, const char *text);
gboolean world_log_has(World *world, const char *text);
char *world_log(World *world);
/* Fails the test with WHAT and the end of the runner's log. */
G_NORETURN void world_fail(World *world, const char *what);
/* Sends SIGNAL (0: none) and reaps: exit status, or 128 + the signal that ended it. */
int world_stop(World *world, int signal);

/* A job with one step SCRIPT (sh -c), small limits, and a base of the one file hello.txt. */
QvJob *world_job(World *world, const char *script);
void world_job_add_step(QvJob *job, const char *name, const char *script);

/* A gzip of a tar; FILES: path, content, path, content, …, NULL. */
GBytes *world_snapshot(const char *const *files);
/* Describes PLAIN as JOB's base, or as its overlay, and writes its sealed chunks. */
void world_put_base(World *world, QvJob *job, GBytes *plain);
void world_put_overlay(World *world, QvJob *job, GBytes *plain);
/* Signs and adds; returns the data. SHA256 is for world_result. */
void world_add(World *world, const QvJob *job, char sha256[65]);
void world_add_raw(World *world, const char *id, const char *data, gsize n);

/* Waits until the entry runs and needs nothing more from Valkey. */
void world_await_started(World *world, const QvJob *job);
/* world_job, world_add and world_await_started. */
QvJob *world_started_job(World *world, const char *script, char sha256[65]);

/* A signed cancel; it is stored and told when this returns. */
void world_cancel(World *world, const QvJob *job);

/* Waits for the end, which comes before its sandbox is gone. *TEXT: return value or reason. */
QvJobState world_wait(World *world, const char *id, char **text);
/* Waits until the job is in STATE (or ended, which fails the test where that is not STATE). */
void world_await_state(World *world, const char *id, QvJobState state);
/* Waits for `completed` and verifies. */
QvResult *world_result(World *world, const QvJob *job, const char *sha256);
/* Waits, verifies and compares the code (NULL: succeeded). */
void world_expect_code(World *world, const QvJob *job, const char *sha256, const char *code);
/* The same with a job that it adds. */
void world_expect(World *world, const QvJob *job, const char *code);
/* Adds and expects `failed` with REASON. */
void world_expect_failed(World *world, const QvJob *job, const char *reason);

/* The payload's log of step I (-1: setup). */
char *world_payload_log(World *world, const QvJob *job, const QvResult *result, int step);

/* Ends of a job in BullMQ's event stream: exactly one is right. */
guint world_ends(World *world, const char *id);
/* A child of PARENT that has WORD among its arguments, or 0. */
GPid world_child(GPid parent, const char *word);

/* Adds a line for each process of this world, but for its runner, that one's starter and watch: one of its descriptors is the world's log (all roles
 * of a runner inherit it), or its arguments name the world's folder. */
void world_processes(World *world, GPtrArray *lines);
/* Is there a process, cgroup or folder of a sandbox now? */
gboolean world_has_sandbox(World *world);
/* Waits until no process, cgroup, folder of a sandbox, no job process of the runner and (unless keeps_input) no input chunk is left. */
void world_expect_clean(World *world);
/* The runner's health record, verified: NULL while there is none that counts. */
QvHealth *world_health(World *world);
/* Waits for a record that TEST says yes to. */
QvHealth *world_await_health(World *world, gboolean (*test)(const QvHealth *health));
/* valkey-cli as admin, for the few things that only an admin may. */
gboolean world_key_exists(World *world, const char *key);
