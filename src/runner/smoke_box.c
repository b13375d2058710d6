/* SPDX-License-Identifier: Apache-2.0 */
/* Owns one sandbox of the smoke test, from its snapshot to its removal. The first end counts, as in job.c. */
#include "runner/smoke_box.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/random.h"
#include "format/gzip.h"
#include "format/tar.h"
#include "protocol/entry_request.h"
#include "protocol/payload.h"
#include "protocol/result.h"
#include "runner/job_input.h"
#include "runner/job_output.h"
#include "runner/job_result.h"
#include "runner/probes_program.h"

enum {
  BOX_MS = 150000,  /* whatever happens, on a machine that is busy */
  STEP_MS = 120000,
  GRACE_MS = 10000, /* for the host to tell of a kill inside a run that has gone on */
  LOG_BYTES = 65536,
  READ_BYTES = 65536,
};

static const char program_name[] = "probes";

typedef struct {
  const QvSmokePlan *plan;
  QvSmokeSeen *seen;
  GMainLoop *loop;
  QvJob *job;
  QvJobKeys keys;
  QvSandbox *sandbox;
  QvJobInput *input;
  QvJobOutput *output;
  gboolean ended;
  gboolean cut, exited; /* both: it has ended by itself */
  guint grace;          /* timer: a complete run whose kill may still be told */
  gint64 asked_ms;
  gint64 mark_wall_ms, mark_cpu_ms;
} Box;

/* ---- what goes in */

static void on_gzip(void *user, const guint8 *bytes, gsize n)
{
  g_byte_array_append(user, bytes, (guint)n);
}

/* The program as the one file of a snapshot (protocol.md section 4). */
static GByteArray *pack_program(void)
{
  GByteArray *gzip = g_byte_array_new();
  g_autoptr(QvGzipWriter) writer = qv_gzip_writer_new(on_gzip, gzip);
  guint8 header[QV_TAR_HEADER_BYTES_MAX];
  gsize n = 0;
  QvTarReason reason = qv_tar_header(program_name, qv_probes_program_n, true, header, &n);
  g_assert(reason == QV_TAR_OK);
  qv_gzip_writer_add(writer, header, n);
  qv_gzip_writer_add(writer, qv_probes_program, qv_probes_program_n);
  qv_gzip_writer_add(writer, qv_tar_zeros, qv_tar_padding(qv_probes_program_n));
  qv_gzip_writer_add(writer, qv_tar_zeros, QV_TAR_END_BYTES);
  qv_gzip_writer_finish(writer);
  return gzip;
}

static void plan_step(QvStep *step, gsize i, const char *arguments)
{
  g_auto(GStrv) words = g_strsplit(arguments, " ", -1);
  g_autoptr(GStrvBuilder) argv = g_strv_builder_new();
  g_strv_builder_add(argv, "./probes");
  g_strv_builder_addv(argv, (const char **)words);
  step->name = g_strdup_printf("probes-%zu", i);
  step->argv = g_strv_builder_end(argv);
  step->timeout_ms = STEP_MS;
  step->continue_on_failure = TRUE;
}

static QvJob *make_job(const QvSmokePlan *plan)
{
  QvJob *job = qv_job_new();
  QvLimitsPolicy policy;
  qv_random_uuid(job->job_id);
  job->tenant_id = g_strdup("smoke");
  job->pool = g_strdup("smoke");
  job->kind = g_strdup("check");
  job->image = (QvImageRef){g_strdup("smoke"), g_strdup("")};
  job->run_n = plan->steps_n;
  job->run = g_new0(QvStep, plan->steps_n);
  for (gsize i = 0; i < plan->steps_n; i++)
    plan_step(&job->run[i], i, plan->arguments[i]);
  qv_limits_policy_standard(&policy, 1);
  qv_limits_resolve(&policy, &job->given, &job->limits);
  job->limits.memory_mib = plan->limits.memory_mib;
  job->limits.work_mib = plan->limits.work_mib;
  job->limits.milli_cpus = plan->limits.milli_cpus;
  job->limits.pids = plan->limits.pids;
  job->limits.log_bytes = LOG_BYTES;
  return job;
}

/* Sealed under a key of the moment and unsealed again: the way of every job's bytes, and no second one. */
static gboolean feed(Box *box, GByteArray *gzip, QvBlobWriter *writer, GError **error)
{
  gsize at = 0;
  for (gint64 i; (i = qv_blob_writer_next(writer)) >= 0;) {
    guint8 iv[QV_CHUNK_IV_BYTES];
    gsize n = qv_blob_writer_want(writer);
    g_autofree guint8 *sealed = g_malloc(n + QV_CHUNK_IV_BYTES + QV_CHUNK_TAG_BYTES);
    qv_random_bytes(iv, sizeof iv);
    qv_blob_writer_step(writer, iv, gzip->data + at, sealed);
    if (!qv_job_input_chunk(box->input, FALSE, (guint32)i, sealed, n + QV_CHUNK_IV_BYTES + QV_CHUNK_TAG_BYTES, error))
      return FALSE;
    at += n;
  }
  return TRUE;
}

static void describe(Box *box, GByteArray *gzip, const QvSecret *key, const guint8 *salt)
{
  char blob_id[QV_BLOB_ID_CAP];
  qv_blob_id_format(box->job->job_id, "base", blob_id);
  box->job->base = (QvBlobDescriptor){.size = gzip->len, .chunks = qv_blob_chunks(gzip->len)};
  g_strlcpy(box->job->base.blob_id, blob_id, sizeof box->job->base.blob_id);
  memcpy(box->job->base.salt, salt, QV_SALT_BYTES);
  g_autofree char *sha256 = g_compute_checksum_for_data(G_CHECKSUM_SHA256, gzip->data, gzip->len);
  g_strlcpy(box->job->base.sha256, sha256, sizeof box->job->base.sha256);
  memcpy(box->keys.base_key, qv_secret_bytes(key), QV_BLOB_KEY_BYTES);
}

/* ---- what comes out */

static void end_box(Box *box, QvHostEnd end, const char *why)
{
  if (box->ended)
    return;
  box->ended = TRUE;
  box->seen->end = end;
  box->seen->why = g_strdup(why);
  box->seen->age_s = (qv_clock_mono_ms() - box->asked_ms) / 1000;
  g_main_loop_quit(box->loop);
}

/* Counters are read before EXITED is told, so an OOM kill has been told by then. */
static void end_by_itself(Box *box)
{
  if (box->cut && box->exited)
    end_box(box, QV_HOST_CUT, qv_sandbox_stderr(box->sandbox));
}

static gboolean on_grace_over(gpointer data)
{
  Box *box = data;
  box->grace = 0;
  end_box(box, QV_HOST_COMPLETE, NULL);
  return G_SOURCE_REMOVE;
}

static gint64 cpu_ms(Box *box)
{
  QvSandboxUsage usage = {0};
  qv_sandbox_usage(box->sandbox, &usage);
  return (gint64)(usage.user_ms + usage.sys_ms);
}

/* Two members a step. The time is taken around the processor's: so it is never too short for it. */
static void on_progress(guint32 members, gpointer data)
{
  Box *box = data;
  if (members == 2) {
    box->mark_wall_ms = qv_clock_mono_ms();
    box->mark_cpu_ms = cpu_ms(box);
  } else if (members == 4) {
    box->seen->cpu_ms = cpu_ms(box) - box->mark_cpu_ms;
    box->seen->wall_ms = qv_clock_mono_ms() - box->mark_wall_ms;
  }
}

static void on_verdict(QvUnpackVerdict verdict, const char *text, gpointer data)
{
  Box *box = data;
  QvSandboxUsage usage = {0};
  qv_sandbox_usage(box->sandbox, &usage);
  /* The counters know of a kill that nobody has told yet. */
  if (usage.oom || usage.pids)
    end_box(box, usage.oom ? QV_HOST_OOM : QV_HOST_PIDS, NULL);
  else if (verdict == QV_UNPACK_BAD)
    end_box(box, QV_HOST_BAD_OUTPUT, text);
  else if (verdict == QV_UNPACK_CUT) {
    box->cut = TRUE;
    end_by_itself(box);
  }
}

typedef struct {
  GString *log;
  gboolean wanted;
} LogReader;

static gboolean log_begin(void *user, const char *path, gint64 size, gboolean executable, GError **error)
{
  LogReader *reader = user;
  reader->wanted = strcmp(path, "logs/0.log") == 0;
  return TRUE;
}

static gboolean log_bytes(void *user, const guint8 *bytes, gsize n, GError **error)
{
  LogReader *reader = user;
  if (reader->wanted)
    g_string_append_len(reader->log, (const char *)bytes, (gssize)n);
  return TRUE;
}

static gboolean log_end(void *user, GError **error)
{
  return TRUE;
}

static gboolean read_log(Box *box, const QvEntryFacts *facts, GError **error)
{
  static const QvPayloadSinkTable sink = {.begin = log_begin, .bytes = log_bytes, .end = log_end};
  static guint8 bytes[READ_BYTES];
  LogReader log = {.log = box->seen->log};
  char sha256[65];
  QvResult result = {.facts = *facts}; /* borrowed for the reader's life */
  g_autoptr(QvPayloadReader) reader = qv_payload_reader_new(&result, box->job, &sink, &log);
  gint64 size = qv_job_output_payload(box->output, sha256);
  for (gint64 at = 0; at < size;) {
    gsize n = (gsize)MIN(size - at, (gint64)sizeof bytes);
    if (!qv_job_output_read(box->output, at, bytes, n, error) || !qv_payload_reader_feed(reader, bytes, n, error))
      return FALSE;
    at += (gint64)n;
  }
  return qv_payload_reader_finish(reader, error);
}

static void on_facts(GBytes *report, gpointer data)
{
  Box *box = data;
  char tree[65];
  g_autoptr(GError) error = NULL;
  g_autoptr(QvEntryFacts) facts = qv_job_report_parse(report, tree, &error);
  if (facts == NULL || !read_log(box, facts, &error))
    end_box(box, QV_HOST_BAD_OUTPUT, error->message);
  else if (facts->refused)
    end_box(box, QV_HOST_BAD_OUTPUT, facts->code);
  else if (box->plan->waits)
    box->grace = g_timeout_add(GRACE_MS, on_grace_over, box);
  else
    end_box(box, QV_HOST_COMPLETE, NULL);
}

static void on_sandbox(QvSandbox *sandbox, QvSandboxEvent event, gpointer data)
{
  Box *box = data;
  if (event == QV_SANDBOX_OOM)
    end_box(box, QV_HOST_OOM, NULL);
  else if (event == QV_SANDBOX_PIDS)
    end_box(box, QV_HOST_PIDS, NULL);
  else if (event == QV_SANDBOX_EXITED && qv_sandbox_failure(sandbox) != NULL)
    end_box(box, QV_HOST_STOPPED, qv_sandbox_failure(sandbox));
  else if (event == QV_SANDBOX_EXITED) {
    box->exited = TRUE;
    end_by_itself(box);
  }
}

static gboolean on_late(gpointer data)
{
  end_box(data, QV_HOST_STOPPED, "its time is over");
  return G_SOURCE_CONTINUE;
}

static void on_input(gpointer data)
{
}

/* ---- the life of a box */

static gboolean start(Box *box, QvBackend *backend, const QvTrialImages *image, GError **error)
{
  static const QvJobInputEvents input = {.written = on_input, .done = on_input, .stuck = on_input};
  static const QvJobOutputEvents output = {.verdict = on_verdict, .progress = on_progress, .report = on_facts};
  guint8 stream_key[QV_STREAM_KEY_BYTES], key_bytes[QV_BLOB_KEY_BYTES], salt[QV_SALT_BYTES];
  g_autoptr(GByteArray) gzip = pack_program();
  qv_random_bytes(stream_key, sizeof stream_key);
  qv_random_bytes(key_bytes, sizeof key_bytes);
  qv_random_bytes(salt, sizeof salt);
  g_autoptr(QvSecret) key = qv_secret_new_copy(key_bytes, sizeof key_bytes);
  describe(box, gzip, key, salt);
  g_autoptr(QvBlobWriter) writer =
    qv_blob_writer_new(key, salt, box->job->tenant_id, box->job->base.blob_id, gzip->len);
  QvSandboxRequest request = {.sandbox_id = box->job->job_id,
                              .rootfs_file = image->rootfs_file,
                              .image_digest = image->digests[0],
                              .egress_network = box->plan->network,
                              .limits = box->plan->limits};
  box->asked_ms = qv_clock_mono_ms();
  box->sandbox = qv_backend_start(backend, &request, on_sandbox, box, error);
  if (box->sandbox == NULL)
    return FALSE;
  QvSecret *line = qv_entry_request_format(box->job, stream_key, NULL, FALSE, error);
  if (line == NULL)
    return FALSE;
  box->input = qv_job_input_new(qv_sandbox_take_stdin(box->sandbox), line, box->job, &box->keys, &input, box);
  if (!feed(box, gzip, writer, error))
    return FALSE;
  box->output = qv_job_output_new(&output, box, error);
  QV_AUTOFD int guest = qv_sandbox_take_stdout(box->sandbox);
  return box->output != NULL && qv_job_output_begin(box->output, guest, box->job, FALSE, stream_key, error);
}

/* What has our id in its name; other sandboxes of this runner are at work. */
static gboolean is_left(QvBackend *backend, const char *id)
{
  g_auto(GStrv) lines = qv_backend_leftovers(backend);
  for (gsize i = 0; lines[i] != NULL; i++)
    if (strstr(lines[i], id) != NULL)
      return TRUE;
  return FALSE;
}

void qv_smoke_box_run(QvBackend *backend, const QvTrialImages *image, const QvSmokePlan *plan, QvSmokeSeen *seen)
{
  *seen = (QvSmokeSeen){.end = QV_HOST_STOPPED, .log = g_string_new(NULL), .wall_ms = -1};
  Box box = {.plan = plan, .seen = seen, .loop = g_main_loop_new(NULL, FALSE), .job = make_job(plan)};
  g_autoptr(GError) error = NULL;
  guint late = g_timeout_add(BOX_MS, on_late, &box);
  if (!start(&box, backend, image, &error))
    end_box(&box, QV_HOST_STOPPED, error->message);
  /* A quit before the run is lost. */
  if (!box.ended)
    g_main_loop_run(box.loop);
  g_source_remove(late);
  g_clear_handle_id(&box.grace, g_source_remove);
  g_clear_error(&error);
  seen->clean = box.sandbox == NULL || qv_sandbox_kill(box.sandbox, &error);
  qv_job_output_free(box.output);
  qv_job_input_free(box.input);
  qv_sandbox_free(box.sandbox);
  seen->clean = seen->clean && !is_left(backend, box.job->job_id);
  qv_job_free(box.job);
  explicit_bzero(&box.keys, sizeof box.keys);
  g_main_loop_unref(box.loop);
}

void qv_smoke_seen_clear(QvSmokeSeen *seen)
{
  g_free(seen->why);
  if (seen->log != NULL)
    g_string_free(seen->log, TRUE);
  *seen = (QvSmokeSeen){0};
}
