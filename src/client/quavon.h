/* SPDX-License-Identifier: Apache-2.0 */
/* libquavon: the worker side of the Quavon sandbox runner.
 *
 *   client = quavon_client_open(NULL, &error);          settings from the environment
 *   job = quavon_job_new();  quavon_job_set_folder(job, "."); …
 *   quavon_submit(client, job, NULL, NULL, id, &error);
 *   result = quavon_wait(client, id, NULL, NULL, &error);   signature and identity checked
 *   payload = quavon_payload_fetch(client, result, &error); logs and artefacts
 *
 * A client and what came from it belong to one thread at a time. Every function that can fail takes
 * a QuavonError **, which may be NULL; what it returns then (NULL or -1) is
 * said with it. Strings are UTF-8; a returned `const` pointer lives as long as what it came from. */
#ifndef QUAVON_H
#define QUAVON_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define QUAVON_API __attribute__((visibility("default")))
#else
#define QUAVON_API
#endif

/* "0.1.0" */
QUAVON_API const char *quavon_version(void);

/* ── Errors ─────────────────────────────────────────────────────────────── */

typedef enum {
  QUAVON_ERROR_SYSTEM = 1, /* the machine: a file, a missing program */
  QUAVON_ERROR_CONFIG,     /* a setting or a job description that is not what it must be, a missing image */
  QUAVON_ERROR_FORMAT,     /* bytes that are not what they must be, a file that changed while read */
  QUAVON_ERROR_LIMIT,      /* over a named limit */
  QUAVON_ERROR_AUTH,       /* a signature, a digest or an identity that does not hold (`bad_result`) */
  QUAVON_ERROR_UNAVAILABLE,/* Valkey cannot be reached or refuses */
  QUAVON_ERROR_QUEUE_FULL, /* too many jobs wait: later */
  QUAVON_ERROR_NOT_FOUND,  /* no such job, folder, revision */
  QUAVON_ERROR_REJECTED,   /* the job was not run: "rejected: <code>" or "stalled"; unsigned */
  QUAVON_ERROR_LOST,       /* no result in the time that the job could have taken */
  QUAVON_ERROR_CANCELLED,  /* the caller asked for it, before there was a result */
  QUAVON_ERROR_BUG,
  QUAVON_ERROR_NO_RUNNER   /* no healthy sandbox runner offers the image: nothing was queued; the text has a line a runner */
} QuavonErrorCode;

typedef struct QuavonError QuavonError;

QUAVON_API QuavonErrorCode quavon_error_code(const QuavonError *error);
QUAVON_API const char *quavon_error_message(const QuavonError *error);
QUAVON_API void quavon_error_free(QuavonError *error); /* NULL is nothing */

/* ── Client ─────────────────────────────────────────────────────────────── */

typedef struct QuavonClient QuavonClient;

/* Settings are "NAME=VALUE" texts with a NULL behind the last, of the names that quavon(1) lists
 * (VALKEY_URL, QUAVON_SANDBOX_SIGNING_KEY_FILE, …); NULL: the process's environment.
 * Connects, and reads the keys. NULL on failure: CONFIG, SYSTEM, UNAVAILABLE. */
QUAVON_API QuavonClient *quavon_client_open(const char *const *settings, QuavonError **error);
QUAVON_API void quavon_client_close(QuavonClient *client); /* NULL is nothing; jobs go on */

/* ── Runners ────────────────────────────────────────────────────────────── */

/* A runner of the pool that has reported in the last 90 s, as its signed health record says. */
typedef struct {
  const char *runner_id;
  const char *trouble;         /* why its record does not count (signature, age); what follows is then unset. NULL: it does */
  int previous_key;            /* signed with a previous key */
  const char *version, *backend, *runtime_name, *platform, *kernel, *cgroup;
  const char *runtime_version; /* or NULL */
  const char *host_id;         /* or NULL: it cannot know it */
  int64_t concurrency, busy, started_at_ms, at_ms;
  int insecure;
  int smoke_passed;            /* of the last escape smoke test; -1: none was run */
  int64_t smoke_at_ms, smoke_probes;
  const char *const *smoke_failed; /* names of probes, NULL behind the last */
  const char *const *problems;     /* texts for people, NULL behind the last */
  const char *const *image_names, *const *image_digests; /* parallel, images_n of each */
  size_t images_n;
} QuavonRunner;

typedef struct QuavonRunners QuavonRunners;

/* NULL: UNAVAILABLE. No runner at all is no failure. */
QUAVON_API QuavonRunners *quavon_runners_read(QuavonClient *client, QuavonError **error);
QUAVON_API size_t quavon_runners_n(const QuavonRunners *runners);
QUAVON_API const QuavonRunner *quavon_runners_get(const QuavonRunners *runners, size_t i); /* NULL: past the end */
QUAVON_API void quavon_runners_free(QuavonRunners *runners);

/* Submit refuses with NO_RUNNER where no runner is healthy for the job: for that it reads the records first, and
 * picks a digest of the image that every live runner offers. 0 switches this off: the job then waits for whatever
 * runner comes. On by default. */
QUAVON_API void quavon_client_set_need_runner(QuavonClient *client, int need);

/* ── Job description ────────────────────────────────────────────────────── */

typedef struct QuavonJob QuavonJob;
typedef struct QuavonStep QuavonStep;

/* Nothing here fails: what was said is checked when the job is submitted. Texts are copied. */
QUAVON_API QuavonJob *quavon_job_new(void);
QUAVON_API void quavon_job_free(QuavonJob *job);
QUAVON_API void quavon_job_set_tenant(QuavonJob *job, const char *tenant_id); /* "local" */
QUAVON_API void quavon_job_set_kind(QuavonJob *job, const char *kind);        /* "check" or "scan" */
/* Without a digest: the one that every live runner of the pool offers, that of the local images lock where it is among
 * them. With one it is used as it is. Default "base". */
QUAVON_API void quavon_job_set_image(QuavonJob *job, const char *name, const char *digest_or_null);
/* A backend that may run it; called for none, every isolating one may. */
QUAVON_API void quavon_job_add_backend(QuavonJob *job, const char *backend);
/* The folder whose snapshot is the repository. In a git work tree: tracked files and those
 * that are not ignored; with `all`, everything. With a revision: that commit's files. */
QUAVON_API void quavon_job_set_folder(QuavonJob *job, const char *folder);
QUAVON_API void quavon_job_set_revision(QuavonJob *job, const char *revision);
QUAVON_API void quavon_job_set_all(QuavonJob *job, int all);
/* argv has a NULL behind the last; it is executed directly. The step belongs to the job. */
QUAVON_API QuavonStep *quavon_job_set_setup(QuavonJob *job, const char *const *argv);
QUAVON_API QuavonStep *quavon_job_add_step(QuavonJob *job, const char *name, const char *const *argv);
QUAVON_API void quavon_step_set_cwd(QuavonStep *step, const char *cwd);
QUAVON_API void quavon_step_set_timeout_ms(QuavonStep *step, int64_t timeout_ms);
/* Job data is signed, not encrypted: no secrets. */
QUAVON_API void quavon_step_add_env(QuavonStep *step, const char *name, const char *value);
QUAVON_API void quavon_step_set_continue_on_failure(QuavonStep *step, int go_on);
QUAVON_API void quavon_job_add_egress(QuavonJob *job, const char *host_and_port);
QUAVON_API void quavon_job_add_artefact(QuavonJob *job, const char *glob);
/* wallMs, memoryMiB, milliCpus, pids, workMiB, logBytes, artefactBytes, artefactCount */
QUAVON_API void quavon_job_set_limit(QuavonJob *job, const char *name, int64_t value);
/* How long it may wait to be taken; at most and by default 900 000 ms. */
QUAVON_API void quavon_job_set_admission_ms(QuavonJob *job, int64_t admission_ms);

/* ── Submit, wait, cancel ───────────────────────────────────────────────── */

enum { QUAVON_JOB_ID_SIZE = 37 };

typedef enum {
  QUAVON_STAGE_PACKING,   /* done and total: files */
  QUAVON_STAGE_PACKED,    /* detail: what was left out, or NULL; done: files, total: bytes of gzip */
  QUAVON_STAGE_SENDING,   /* done and total: bytes of gzip */
  QUAVON_STAGE_WAITING,   /* in the queue */
  QUAVON_STAGE_PREPARING, /* taken by a runner */
  QUAVON_STAGE_SETUP,
  QUAVON_STAGE_STEP,      /* done: index from 1, total: steps; detail: the step's name */
  QUAVON_STAGE_FINISHING
} QuavonStage;

typedef struct {
  QuavonStage stage;
  int64_t done, total;
  int64_t elapsed_ms; /* since submit or wait was called */
  const char *detail;
} QuavonProgress;

/* What a progress function answers. */
enum {
  QUAVON_GO_ON = 0,
  QUAVON_CANCEL = 1, /* a job that was submitted is cancelled, and its result awaited for a short time */
  QUAVON_ABANDON = 2 /* return at once; the job is left as it is */
};

/* Called when something changed; while quavon_wait waits, at least four times a second. What a runner says of its progress
 * is unsigned. */
typedef int (*QuavonProgressFunction)(const QuavonProgress *progress, void *data);

/* Packs, seals, writes and adds the job; its id is written to job_id. 0, or -1. */
QUAVON_API int quavon_submit(QuavonClient *client, const QuavonJob *job, QuavonProgressFunction progress,
                             void *data, char job_id[QUAVON_JOB_ID_SIZE], QuavonError **error);

typedef struct QuavonResult QuavonResult;

/* Waits for the end and verifies the result: signature under the job's key, job id and digest, tenant,
 * pool, image, backend. NULL: REJECTED, LOST (the cancel key is then set), AUTH, NOT_FOUND, … */
QUAVON_API QuavonResult *quavon_wait(QuavonClient *client, const char *job_id, QuavonProgressFunction progress,
                                     void *data, QuavonError **error);
/* The same without waiting; NULL with no error set: not ended yet. */
QUAVON_API QuavonResult *quavon_result_get(QuavonClient *client, const char *job_id, QuavonError **error);
/* Verifies a result that came another way: the text of its envelope. */
QUAVON_API QuavonResult *quavon_result_verify(QuavonClient *client, const char *job_id, const char *text,
                                              size_t text_len, QuavonError **error);
/* Asks for the job's end; 0, or -1. A job that has ended is not changed. */
QUAVON_API int quavon_cancel(QuavonClient *client, const char *job_id, QuavonError **error);

/* ── Live logs ──────────────────────────────────────────────────────────── */

/* What a running job prints, as it comes, setup and steps one behind the other: hostile bytes, at most 16 KiB a second. They
 * inform only and are not signed: a flood is passed over in part, and what Valkey was too slow for is missing. CHUNK counts
 * from 0; a number that was left out is a gap. */
typedef void (*QuavonLogFunction)(const char *bytes, size_t len, int64_t chunk, void *data);

/* While quavon_wait waits, FUNCTION gets the live logs of its job, from the start on; NULL: no longer. */
QUAVON_API void quavon_client_follow_logs(QuavonClient *client, QuavonLogFunction function, void *data);
/* Those that are there now: of a running job, or of one whose end left no payload, for 15 minutes. 0, or -1. */
QUAVON_API int quavon_logs_read(QuavonClient *client, const char *job_id, QuavonLogFunction function, void *data,
                                QuavonError **error);

/* ── Result ─────────────────────────────────────────────────────────────── */

typedef struct {
  const char *name;
  int exit_code; /* -1: it did not exit */
  int signal;    /* 0: none */
  int timed_out;
  int64_t duration_ms;
  int64_t log_total_bytes;
  int log_truncated;
} QuavonStepRecord;

typedef struct {
  const char *path;
  int64_t size;
  const char *sha256;
} QuavonArtefact;

typedef struct {
  int64_t user_ms, sys_ms, max_memory_bytes, wall_ms;
  int oom;
} QuavonUsage;

QUAVON_API void quavon_result_free(QuavonResult *result);
QUAVON_API const char *quavon_result_job_id(const QuavonResult *result);
QUAVON_API const char *quavon_result_status(const QuavonResult *result); /* succeeded failed timed_out cancelled error */
QUAVON_API const char *quavon_result_code(const QuavonResult *result);   /* NULL where it succeeded */
QUAVON_API const char *quavon_result_runner_id(const QuavonResult *result);
QUAVON_API const char *quavon_result_backend(const QuavonResult *result);
/* The whole verified body as canonical JSON. */
QUAVON_API const char *quavon_result_json(const QuavonResult *result);
/* 0 and the record, or -1: there is none. */
QUAVON_API int quavon_result_setup(const QuavonResult *result, QuavonStepRecord *record);
QUAVON_API size_t quavon_result_steps_n(const QuavonResult *result);
QUAVON_API int quavon_result_step(const QuavonResult *result, size_t i, QuavonStepRecord *record);
QUAVON_API size_t quavon_result_artefacts_n(const QuavonResult *result);
QUAVON_API int quavon_result_artefact(const QuavonResult *result, size_t i, QuavonArtefact *artefact);
QUAVON_API int64_t quavon_result_artefacts_dropped(const QuavonResult *result);
QUAVON_API void quavon_result_usage(const QuavonResult *result, QuavonUsage *usage);

/* ── Payload ────────────────────────────────────────────────────────────── */

typedef struct QuavonPayload QuavonPayload;

/* Reads logs and artefacts, checks every tag, digest and name. Valkey keeps them for 15 minutes.
 * A result without any gives an empty payload. NULL on failure. */
QUAVON_API QuavonPayload *quavon_payload_fetch(QuavonClient *client, const QuavonResult *result,
                                               QuavonError **error);
/* Removes them from Valkey, which whoever fetched them owes it. 0, or -1. */
QUAVON_API int quavon_payload_unlink(QuavonClient *client, const QuavonResult *result, QuavonError **error);
QUAVON_API void quavon_payload_free(QuavonPayload *payload);
/* The tail of a log, NULL where the step did not run. Hostile bytes: not for a terminal. */
QUAVON_API const char *quavon_payload_setup_log(const QuavonPayload *payload, size_t *len);
QUAVON_API const char *quavon_payload_log(const QuavonPayload *payload, size_t step, size_t *len);
QUAVON_API const char *quavon_payload_artefact(const QuavonPayload *payload, const char *path, size_t *len);
/* Writes all artefacts below the folder, which is made where it is missing. No link is followed,
 * nothing is written outside; a file that exists is an error before anything is written,
 * unless `replace`. 0, or -1. */
QUAVON_API int quavon_payload_save(const QuavonPayload *payload, const char *folder, int replace,
                                   QuavonError **error);

#ifdef __cplusplus
}
#endif

#endif
