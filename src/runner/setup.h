/* SPDX-License-Identifier: Apache-2.0 */
/* What the supervisor tells a job process, and what that tells of the run:
 * SETUP, KEYS and HOST of ipc.h as values. */
#pragma once

#include <glib.h>

#include "protocol/egress_token.h"
#include "protocol/job.h"
#include "sandbox/backend.h"

/* Where sandboxes are made: the same for every process of a runner, save `engine`, which comes and goes (gate.h). X(field, name in
 * the texts): texts, NULL where the backend has no use for it (QvBackendOptions). */
#define QV_PLACE_TEXTS(X)               \
  X(backend, "backend")                 \
  X(state_dir, "stateDir")              \
  X(runner_id, "runnerId")              \
  X(runsc, "runsc")                     \
  X(pool, "pool")                       \
  X(docker_socket, "dockerSocket")      \
  X(runtime, "runtime")                 \
  X(runtime_offline, "runtimeOffline")  \
  X(egress_network, "egressNetwork")    \
  X(egress_proxy, "egressProxy")        \
  X(docker_allow, "dockerAllow")        \
  X(engine, "engine")

typedef struct {
#define X(field, name) char *field;
  QV_PLACE_TEXTS(X)
#undef X
  guint engine_min;
} QvPlace;

void qv_place_clear(QvPlace *place);
G_DEFINE_AUTO_CLEANUP_CLEAR_FUNC(QvPlace, qv_place_clear)

/* Opens the place's backend. Errors are those of qv_backend_open. */
QvBackend *qv_place_open(const QvPlace *place, GError **error);
/* Its sandboxes are over: removes the folders that they shared. See qv_backend_tidy. */
void qv_place_tidy(const QvPlace *place);

/* What a sandbox must be so that it can serve a job: the warm ones are told apart by it. */
typedef struct {
  char *rootfs_file; /* absolute; its digest was checked. NULL where the backend takes none */
  char *image_digest;
  QvSandboxLimits limits;
} QvBoxKind;

/* The part of LIMITS that a sandbox is made with. */
QvSandboxLimits qv_box_limits(const QvLimits *limits);
gboolean qv_box_kind_equal(const QvBoxKind *a, const QvBoxKind *b);
void qv_box_kind_copy(const QvBoxKind *kind, QvBoxKind *copy);
void qv_box_kind_clear(QvBoxKind *kind);

/* WARM: a sandbox to be started before there is a job for it. */
typedef struct {
  QvPlace place;
  char *sandbox_id;
  QvBoxKind kind;
} QvWarmOrder;

char *qv_warm_order_format(const QvWarmOrder *order, gsize *n);
/* QV_ERROR_FORMAT. */
QvWarmOrder *qv_warm_order_parse(const char *text, gsize n, GError **error);
void qv_warm_order_free(QvWarmOrder *order);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvWarmOrder, qv_warm_order_free)

typedef struct {
  QvPlace place;
  QvJob *job;         /* limits: the effective ones */
  char *sandbox_id;   /* the job's id, or that of the warm sandbox that serves it */
  char *rootfs_file;  /* absolute; its digest was checked. NULL where the backend takes none */
  char *image_digest;
  char *egress_proxy; /* address of the proxy; NULL: the job has no egress */
  char *ca_pem;       /* for the setup step, or NULL */
  gboolean live;      /* the entry is asked for live logs */
} QvSetup;

/* The text of SETUP. Free with g_free. */
char *qv_setup_format(const QvSetup *setup, gsize *n);
/* QV_ERROR_FORMAT. */
QvSetup *qv_setup_parse(const char *text, gsize n, GError **error);
void qv_setup_free(QvSetup *setup);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvSetup, qv_setup_free)

/* What the job's sandbox must be; borrows from SETUP. */
QvBoxKind qv_setup_kind(const QvSetup *setup);
/* A sandbox of one kind never serves a job of another, nor one with egress. */
gboolean qv_setup_fits(const QvSetup *setup, const QvWarmOrder *order);

/* KEYS: this layout. A job without an overlay has zeros for its key, one without egress for its token. */
typedef struct {
  guint8 base_key[QV_BLOB_KEY_BYTES];
  guint8 overlay_key[QV_BLOB_KEY_BYTES];
  guint8 result_key[QV_BLOB_KEY_BYTES];
  guint8 result_salt[QV_SALT_BYTES];
  guint8 live_key[QV_BLOB_KEY_BYTES];
  char egress_token[QV_TOKEN_LEN + 1];
} QvJobKeys;

/* How the job process saw the run end; STOPPED: it was told to. */
#define QV_HOST_ENDS(X) \
  X(COMPLETE, "complete") X(STOPPED, "stopped") X(BAD_OUTPUT, "bad_output") X(CUT, "cut") X(OOM, "oom") X(PIDS, "pids")

typedef enum {
#define X(name, text) QV_HOST_##name,
  QV_HOST_ENDS(X)
#undef X
} QvHostEnd;

/* All that the contract lets a payload hold: artefacts, 17 logs and their tar headers, gzip's overhead. */
enum { QV_PAYLOAD_BYTES_MAX = 128 * 1024 * 1024 };

typedef struct {
  QvHostEnd end;
  gint64 user_ms;
  gint64 sys_ms;
  gint64 max_memory_bytes;
  gboolean oom;
  gboolean pids;
  gint64 payload_bytes;     /* 0: there is no payload */
  char payload_sha256[65];
} QvHostReport;

const char *qv_host_end_text(QvHostEnd end);
char *qv_host_report_format(const QvHostReport *report, gsize *n);
gboolean qv_host_report_parse(const char *text, gsize n, QvHostReport *report, GError **error);

/* What the backend is tried with: QvBackendImages as owned values. Without digests there is no trial. */
typedef struct {
  char *rootfs_file;
  char **digests;
} QvTrialImages;

void qv_trial_images_clear(QvTrialImages *images);

/* Argument of the sweep role: a place, the sandbox to sweep (NULL: all), and
 * images to try the backend with (empty: only sweep). */
typedef struct {
  QvPlace place;
  char *sandbox_id;
  QvTrialImages trial;
} QvSweepOrder;

char *qv_sweep_order_format(const QvSweepOrder *order);
gboolean qv_sweep_order_parse(const char *text, QvSweepOrder *order, GError **error);
void qv_sweep_order_clear(QvSweepOrder *order);

/* What the trial of a backend found. */
typedef struct {
  char *runtime_version;
  char *platform; /* of the runtime: "systrap" */
  char *cgroup;   /* "v1" or "v2" */
} QvBackendFacts;

QvBackendFacts *qv_backend_facts_copy(const QvBackendFacts *facts);
void qv_backend_facts_free(QvBackendFacts *facts);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvBackendFacts, qv_backend_facts_free)

/* All that the sweep role says, at once. Each is NULL where there is nothing to say of it. */
typedef struct {
  char *engine;          /* of a watch, as it begins: what the engine is (qv_backend_engine) */
  QvBackendFacts *facts; /* the backend was tried and is good */
  char *event;           /* what went wrong, for the log, where the exit status says that something did */
  char *error;           /* and why; cut to QV_SWEEP_ERROR_BYTES_MAX */
} QvSweepWord;

enum { QV_SWEEP_ERROR_BYTES_MAX = 1024 };

char *qv_sweep_word_format(const QvSweepWord *word, gsize *n);
/* QV_ERROR_FORMAT. */
QvSweepWord *qv_sweep_word_parse(const char *text, gsize n, GError **error);
void qv_sweep_word_free(QvSweepWord *word);
G_DEFINE_AUTOPTR_CLEANUP_FUNC(QvSweepWord, qv_sweep_word_free)
