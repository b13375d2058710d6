/* SPDX-License-Identifier: Apache-2.0 */
/* The tests' stand-in for a runner: starts the real entry program as PID 1 of a
 * sandbox, gives it a request and snapshots, and reads its stream with the
 * strict reader. Two kinds of sandbox: Linux namespaces, and gVisor from a
 * bundle written here; programs and libraries are the machine's own, read-only. */
#pragma once

#include <glib.h>
#include <jansson.h>

typedef enum { HARNESS_NAMESPACES, HARNESS_GVISOR } HarnessKind;

/* What all scenarios run in; set by main. */
extern HarnessKind harness_kind;

/* NULL where sandboxes of this kind can be made here, else why not. */
const char *harness_missing(void);

/* First in each test: leaves it, as skipped, where it cannot run. */
#define HARNESS_OR_SKIP()             \
  do {                                \
    if (harness_missing()) {          \
      g_test_skip(harness_missing()); \
      return;                         \
    }                                 \
  } while (0)

typedef struct {
  guint nproc;        /* RLIMIT_NPROC, 0: none */
  guint work_mib;     /* 0: 64 */
  const char *socket; /* host path for /run/quavon/egress.sock, or NULL */
} HarnessOptions;

typedef struct Harness Harness;

Harness *harness_start(const HarnessOptions *options);
/* Kills and removes everything. */
void harness_free(Harness *harness);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Harness, harness_free)

/* Writes to the entry's stdin; the other side may be gone. */
void harness_send(Harness *harness, const void *bytes, gsize n);
void harness_send_request(Harness *harness, const json_t *request);

typedef struct {
  char *path;
  GByteArray *bytes;
  gboolean executable;
} Member;

typedef struct {
  GPtrArray *members; /* of Member, in order */
  gboolean complete;  /* two zero blocks were read, of a strict stream, and the code of exit.json is right */
  json_t *exit;       /* or NULL */
  char *diagnostics;  /* what the sandbox wrote to stderr */
} Outcome;

/* Reads to the two zero blocks or to the end. */
Outcome *harness_finish(Harness *harness);
void outcome_free(Outcome *outcome);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(Outcome, outcome_free)

/* NULL where it is not there. */
const Member *outcome_member(const Outcome *outcome, const char *path);
/* The text of a member; fails the test where it is not there. */
const char *outcome_text(const Outcome *outcome, const char *path);
/* A member of the record of step I (-1: setup); fails the test where it is not there. */
json_int_t outcome_int(const Outcome *outcome, int i, const char *name);
gboolean outcome_null(const Outcome *outcome, int i, const char *name);
gboolean outcome_true(const Outcome *outcome, int i, const char *name);
/* The log of step I (-1: setup). */
const char *outcome_log(const Outcome *outcome, int i);
/* exit.json's code, "" for null. */
const char *outcome_code(const Outcome *outcome);

/* All steps were run and the stream is complete; prints everything otherwise. */
void outcome_assert_complete(const Outcome *outcome);

/* ---- requests and snapshots ---- */

typedef struct {
  const char *path;
  const char *text;
  gboolean executable;
} File;

/* The gzip of a snapshot of FILES, a NULL path at the end; HOSTILE adds zz/hostile. */
GByteArray *snapshot_new(const File *files, gboolean hostile);

/* A request without setup, overlay and artefacts; STEPS is taken. */
json_t *request_new(gsize base_bytes, json_t *steps);
/* A step that runs a script with /bin/sh. TIMEOUT_MS 0: a long one. */
json_t *step_sh(const char *name, const char *script, gint timeout_ms);
json_t *step_argv(const char *name, const char *arg0, const char *arg1, const char *arg2);

/* One run of a request whose snapshot holds zz/hostile: start, send, finish. REQUEST is taken. */
Outcome *harness_run(const HarnessOptions *options, json_t *request, const GByteArray *base);
/* The same for one script; 0 is its step. */
Outcome *harness_run_sh(const char *script, gint timeout_ms);

extern const guint8 harness_stream_key[32];
