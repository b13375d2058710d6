/* SPDX-License-Identifier: Apache-2.0 */
/* Owns one job's sandbox from start to removal.
 *
 *   WAITING ──SETUP, KEYS──> RUNNING ──first end──> ENDED ──removed──> LEAVING
 *      └──WARM──> IDLE ──SETUP, KEYS──┘
 *
 * An idle sandbox has its entry waiting on stdin and serves one job, like any other. The unpack process waits from the start
 * (starter.h); who has none, or lost it, starts one while there is time. The first end counts: the verdict of the unpack process, an
 * OOM or pids event, the sandbox's own end, STOP. From then on nothing of the guest is of interest; a complete run still hands
 * over facts and payload. The channel's end means that the supervisor is gone: the sandbox is removed and that was it. */
#include "runner/job.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/random.h"
#include "images/images.h"
#include "protocol/entry_request.h"
#include "runner/channel.h"
#include "runner/drop.h"
#include "runner/egress.h"
#include "runner/job_input.h"
#include "runner/job_live.h"
#include "runner/job_output.h"
#include "runner/job_payload.h"
#include "runner/relay.h"
#include "runner/setup.h"
#include "runner/spawn.h"
#include "sandbox/backend.h"

enum {
  DRAIN_MS = 30000,       /* for the unpack process to read what a dead sandbox left in the socket, and to sum up */
  LINGER_MS = 2000,       /* for the payload to go out before a sandbox that has done its work is taken down */
  PREPARE_MAX = 3,        /* then the job itself starts the unpack process, or fails where that cannot be */
  PUSH_MS = 1000,         /* for the supervisor to take what is queued, before a call that blocks */
  ORPHAN_SECONDS = 90,    /* then a job process without a supervisor dies: the next start sweeps */
};

typedef struct {
  GMainLoop *loop;
  QvChannel *supervisor;
  QvWarmOrder *warm;     /* NULL: there was a job from the start */
  QvSetup *setup;
  QvJobKeys keys;
  gboolean has_keys;
  QvBackend *backend;
  QvSandbox *sandbox;
  QvRelay *relay;        /* the sandbox's way to the proxy; NULL: none, or closed for good */
  gboolean networked;    /* or its network, not cut yet */
  QvJobInput *input;
  QvJobOutput *output;   /* NULL: not yet */
  gboolean dropped;      /* drop() has done its work */
  QvJobLive *live;       /* NULL: none were asked for */
  QvBlobWriter *sealer;  /* of the payload; NULL: none or not yet */
  guint32 grants;
  gboolean ended, discard, waiting_facts;
  gboolean reported;     /* HOST and REPORT were sent */
  gboolean removed;      /* GONE was sent */
  QvHostEnd end;
  QvSandboxUsage usage;
  guint prepare;         /* idle source */
  guint prepared;        /* unpack processes that died while they waited */
  guint drain;           /* timer source; the sandbox ended, or its stream before it had started: the other one is waited for */
  guint remove;          /* timer source: the sandbox goes once the payload has, or then */
  int status;
} Job;

static void leave(gpointer data)
{
  g_main_loop_quit(((Job *)data)->loop);
}

static void maybe_leave(Job *job)
{
  if (job->removed && (job->discard || (job->reported && job->sealer == NULL)))
    qv_channel_flush(job->supervisor, leave, job);
}

static void trouble(Job *job, const char *code, const char *text)
{
  gsize code_n = strlen(code) + 1;
  g_autoptr(GBytes) bytes = g_bytes_new(text, MIN(strlen(text), 1500));
  qv_channel_send(job->supervisor, QV_IPC_TROUBLE, code, code_n, bytes);
}

/* ---- the way to the proxy */

/* What is open is cut here and now, whatever becomes of the token elsewhere. */
static void end_egress(Job *job)
{
  g_clear_pointer(&job->relay, qv_relay_close);
  explicit_bzero(job->keys.egress_token, sizeof job->keys.egress_token);
}

static gboolean start_egress(Job *job, GError **error)
{
  const QvSetup *setup = job->setup;
  if (setup->egress_proxy == NULL)
    return TRUE;
  job->networked = qv_egress_by_network(setup->place.backend);
  if (job->networked)
    return TRUE;
  g_autofree char *path = qv_egress_socket_path(setup->place.state_dir, setup->sandbox_id);
  job->relay = qv_relay_open(path, setup->egress_proxy, error);
  return job->relay != NULL;
}

/* ---- the end of the sandbox */

static void remove_sandbox(Job *job)
{
  if (job->removed)
    return;
  g_clear_handle_id(&job->remove, g_source_remove);
  end_egress(job);
  /* It has nothing to do with the sandbox: who looks for what that left should not find it. */
  if (qv_job_output_waits(job->output))
    g_clear_pointer(&job->output, qv_job_output_free);
  g_autoptr(GError) error = NULL;
  gboolean clean = job->sandbox == NULL || qv_sandbox_kill(job->sandbox, &error);
  job->removed = TRUE;
  g_autoptr(GBytes) text = clean ? NULL : g_bytes_new(error->message, MIN(strlen(error->message), 4000));
  qv_channel_send(job->supervisor, QV_IPC_GONE, NULL, 0, text);
  maybe_leave(job);
}

static gboolean on_remove(gpointer data)
{
  Job *job = data;
  job->remove = 0;
  qv_channel_push(job->supervisor, PUSH_MS); /* what is queued of the payload need not wait for the removal */
  remove_sandbox(job);
  return G_SOURCE_REMOVE;
}

static void report(Job *job, GBytes *facts)
{
  if (job->reported || job->discard)
    return;
  job->reported = TRUE;
  QvHostReport host = {.end = job->end,
                       .user_ms = job->usage.user_ms,
                       .sys_ms = job->usage.sys_ms,
                       .max_memory_bytes = job->usage.max_memory_bytes,
                       .oom = job->usage.oom,
                       .pids = job->usage.pids};
  if (facts != NULL)
    host.payload_bytes = qv_job_output_payload(job->output, host.payload_sha256);
  if (host.payload_bytes > 0)
    job->sealer = qv_job_payload_open(&job->keys, job->setup->job, host.payload_bytes);
  gsize n;
  g_autofree char *text = qv_host_report_format(&host, &n);
  qv_channel_send(job->supervisor, QV_IPC_HOST, text, n, NULL);
  qv_channel_send(job->supervisor, QV_IPC_REPORT, NULL, 0, facts);
}

static void read_usage(Job *job)
{
  if (job->sandbox != NULL)
    qv_sandbox_usage(job->sandbox, &job->usage);
}

/* Any end but a complete one: kill, then say so. The cgroup knows more than
 * the stream: a sandbox that the OOM killer took ends like one that was lost. */
static void end_run(Job *job, QvHostEnd end)
{
  if (job->ended)
    return;
  job->ended = TRUE;
  job->end = end;
  g_clear_handle_id(&job->drain, g_source_remove);
  /* A container engine knows of an OOM kill only as long as there is a container. */
  if (end == QV_HOST_CUT)
    read_usage(job);
  remove_sandbox(job);
  read_usage(job);
  report(job, NULL);
  maybe_leave(job);
}

/* Setup is over and the run goes on: a network that cannot be taken away ends it. The engine may take its time, or never answer:
 * the supervisor, which takes the token back, has heard of it before the engine is asked. */
static void end_setup(Job *job)
{
  end_egress(job);
  if (!job->networked || job->sandbox == NULL || job->removed)
    return;
  job->networked = FALSE;
  qv_channel_push(job->supervisor, PUSH_MS);
  g_autoptr(GError) error = NULL;
  if (qv_sandbox_cut_network(job->sandbox, &error))
    return;
  trouble(job, "sandbox_failed", error->message);
  end_run(job, QV_HOST_STOPPED);
}

/* The stream was complete, but what the unpack process makes of it is not waited for any longer. */
static void give_up_facts(Job *job, QvHostEnd end)
{
  job->waiting_facts = FALSE;
  job->end = end;
  g_clear_handle_id(&job->drain, g_source_remove);
  remove_sandbox(job);
  report(job, NULL);
  maybe_leave(job);
}

/* ---- payload out */

static void on_sent(gpointer data) { remove_sandbox(data); }

static void send_payload(Job *job)
{
  g_autoptr(GError) error = NULL;
  while (job->sealer != NULL && job->grants > 0) {
    if (!qv_job_payload_step(job->sealer, job->output, job->supervisor, &error)) {
      qv_log(QV_LOG_ERROR, "payload is lost", "error", error->message, NULL);
      job->status = 1;
      leave(job);
      return;
    }
    job->grants--;
    if (qv_blob_writer_next(job->sealer) < 0)
      g_clear_pointer(&job->sealer, qv_blob_writer_free);
  }
  if (job->sealer == NULL && job->remove != 0)
    qv_channel_flush(job->supervisor, on_sent, job);
  maybe_leave(job);
}

/* ---- what the unpack process says */

static gboolean on_drained(gpointer data), on_prepare(gpointer data);

static void on_verdict(QvUnpackVerdict verdict, const char *text, gpointer data)
{
  Job *job = data;
  if (job->ended)
    return;
  if (!job->has_keys) { /* it died while it waited: behind the drop no other one can be started */
    if (job->dropped) {
      trouble(job, "sandbox_lost", text);
      end_run(job, QV_HOST_STOPPED);
    } else if (job->prepare == 0 && ++job->prepared < PREPARE_MAX) {
      job->prepare = g_idle_add_full(G_PRIORITY_LOW, on_prepare, job, NULL);
    }
    return;
  }
  if (verdict == QV_UNPACK_COMPLETE) {
    /* Before the kill: an OOM kill that nobody has heard of yet is in the numbers. */
    job->ended = TRUE;
    job->end = QV_HOST_COMPLETE;
    job->waiting_facts = TRUE;
    g_clear_handle_id(&job->drain, g_source_remove);
    end_egress(job);
    job->drain = g_timeout_add(DRAIN_MS, on_drained, job);
    read_usage(job);
    qv_sandbox_end(job->sandbox); /* what goes on behind the end is nobody's */
    return;
  }
  qv_log(verdict == QV_UNPACK_BAD ? QV_LOG_WARNING : QV_LOG_INFO, "output refused", "jobId", job->setup->job->job_id,
         "reason", text, NULL);
  /* The stream of one that cannot start ends before the one that starts it says why: that is waited for. */
  if (verdict == QV_UNPACK_CUT && job->drain == 0 && !qv_sandbox_has_started(job->sandbox)) {
    job->drain = g_timeout_add(DRAIN_MS, on_drained, job);
    return;
  }
  end_run(job, verdict == QV_UNPACK_BAD ? QV_HOST_BAD_OUTPUT : QV_HOST_CUT);
}

static gboolean on_live(guint32 n, const guint8 *bytes, gsize bytes_n, gpointer data)
{
  Job *job = data;
  /* Without LIVE in its configuration unpack takes such a member for a breach itself. */
  return job->live != NULL && qv_job_live_member(job->live, n, bytes, bytes_n);
}

static void on_progress(guint32 members, gpointer data)
{
  Job *job = data;
  qv_channel_send_u32(job->supervisor, QV_IPC_PROGRESS, members);
  if (members > 0) /* setup.json is the first one */
    end_setup(job);
}

static void on_facts(GBytes *facts, gpointer data)
{
  Job *job = data;
  if (!job->waiting_facts)
    return;
  job->waiting_facts = FALSE;
  g_clear_handle_id(&job->drain, g_source_remove);
  if (facts == NULL)
    job->end = QV_HOST_BAD_OUTPUT;
  report(job, facts);
  /* Taking a sandbox down blocks: the answer does not wait for it. */
  job->remove = g_timeout_add(LINGER_MS, on_remove, job);
  send_payload(job);
}

/* ---- what the sandbox says */

static gboolean on_drained(gpointer data)
{
  Job *job = data;
  job->drain = 0;
  if (job->waiting_facts)
    give_up_facts(job, QV_HOST_BAD_OUTPUT);
  else
    end_run(job, QV_HOST_CUT);
  return G_SOURCE_REMOVE;
}

/* Once the sandbox runs and the unpack process does: nothing is started from there on. A warm sandbox runs long before: there
 * one that has died is none. */
static gboolean drop(Job *job)
{
  g_autoptr(GError) error = NULL;
  gboolean unpacks = job->has_keys ? job->output != NULL : qv_job_output_waits(job->output);
  if (job->dropped || !unpacks || job->sandbox == NULL || !qv_sandbox_has_started(job->sandbox))
    return TRUE;
  if ((job->dropped = qv_drop_after_start(&error)))
    return TRUE;
  trouble(job, "sandbox_failed", error->message);
  end_run(job, QV_HOST_STOPPED);
  return FALSE;
}

static void on_sandbox(QvSandbox *sandbox, QvSandboxEvent event, gpointer data)
{
  Job *job = data;
  if (job->ended)
    return;
  switch (event) {
  case QV_SANDBOX_STARTED:
    if (job->drain != 0) /* its stream is over already */
      end_run(job, QV_HOST_CUT);
    else if (drop(job))
      qv_channel_send(job->supervisor, QV_IPC_STARTED, NULL, 0, NULL);
    break;
  case QV_SANDBOX_OOM:
    end_run(job, QV_HOST_OOM);
    break;
  case QV_SANDBOX_PIDS:
    end_run(job, QV_HOST_PIDS);
    break;
  case QV_SANDBOX_EXITED:
    end_egress(job);
    if (qv_sandbox_failure(sandbox) != NULL || job->setup == NULL) {
      const char *why = qv_sandbox_failure(sandbox);
      trouble(job, "sandbox_failed", why != NULL ? why : "a warm sandbox ended before it had a job");
      end_run(job, QV_HOST_STOPPED);
    } else if (job->drain != 0) {
      end_run(job, QV_HOST_CUT);
    } else {
      job->drain = g_timeout_add(DRAIN_MS, on_drained, job);
    }
    break;
  }
}

/* ---- what goes into the sandbox */

static void on_written(gpointer data) { qv_channel_send_u32(((Job *)data)->supervisor, QV_IPC_CREDIT, 1); }

static void on_input_done(gpointer data) { qv_channel_send(((Job *)data)->supervisor, QV_IPC_INPUT_DONE, NULL, 0, NULL); }

static gboolean on_chunk(Job *job, const guint8 *payload, gsize n, GError **error)
{
  if (n < 8) {
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "a chunk without a head");
    return FALSE;
  }
  if (job->ended || job->input == NULL)
    return TRUE;
  g_autoptr(GError) cause = NULL;
  if (!qv_job_input_chunk(job->input, qv_ipc_u32(payload) != 0, qv_ipc_u32(payload + 4), payload + 8, n - 8, &cause)) {
    trouble(job, "blob_corrupt", cause->message);
    end_run(job, QV_HOST_STOPPED);
  }
  return TRUE;
}

/* ---- start */

/* EGRESS_SOCKET: NULL without. */
static gboolean start_box(Job *job, const QvPlace *place, const char *id, const QvBoxKind *kind, const char *egress_socket,
                          GError **error)
{
  job->backend = qv_place_open(place, error);
  if (job->backend == NULL)
    return FALSE;
  /* A container engine takes it from the image itself. */
  g_auto(GStrv) env = NULL;
  if (kind->rootfs_file != NULL && !qv_images_env(kind->rootfs_file, kind->image_digest, &env, error))
    return FALSE;
  QvSandboxRequest request = {.sandbox_id = id,
                              .egress_socket = egress_socket,
                              .egress_network = job->networked ? place->egress_network : NULL,
                              .rootfs_file = kind->rootfs_file,
                              .image_digest = kind->image_digest,
                              .image_env = (const char *const *)env,
                              .limits = kind->limits};
  job->sandbox = qv_backend_start(job->backend, &request, on_sandbox, job, error);
  return job->sandbox != NULL;
}

static gboolean start_sandbox(Job *job, GError **error)
{
  const QvSetup *setup = job->setup;
  if (job->warm != NULL)
    return TRUE;
  g_autofree char *socket = job->relay != NULL ? qv_egress_socket_path(setup->place.state_dir, setup->sandbox_id) : NULL;
  QvBoxKind kind = qv_setup_kind(setup);
  return start_box(job, &setup->place, setup->sandbox_id, &kind, socket, error);
}

static void start_warm(Job *job)
{
  g_autoptr(GError) error = NULL;
  if (start_box(job, &job->warm->place, job->warm->sandbox_id, &job->warm->kind, NULL, &error))
    return;
  trouble(job, "sandbox_failed", error->message);
  end_run(job, QV_HOST_STOPPED);
}

static const QvJobOutputEvents output_events = {.verdict = on_verdict, .live = on_live, .progress = on_progress,
                                                .report = on_facts};

/* What does not start now is tried again with the job, where it counts. */
static gboolean on_prepare(gpointer data)
{
  Job *job = data;
  job->prepare = 0;
  if (job->has_keys || job->ended)
    return G_SOURCE_REMOVE;
  if (!qv_job_output_waits(job->output)) {
    g_clear_pointer(&job->output, qv_job_output_free);
    job->output = qv_job_output_new(&output_events, job, NULL);
  }
  drop(job);
  return G_SOURCE_REMOVE;
}

/* One that waited may have died since, unnoticed: its place is taken by another where one can still be started. */
static gboolean start_output(Job *job, const guint8 *key, GError **error)
{
  QV_AUTOFD int guest = qv_sandbox_take_stdout(job->sandbox);
  gboolean waits = qv_job_output_waits(job->output);
  gboolean fine = waits && qv_job_output_begin(job->output, guest, job->setup->job, job->setup->live, key,
                                               job->dropped ? error : NULL);
  if (fine || (waits && job->dropped))
    return fine;
  g_clear_pointer(&job->output, qv_job_output_free);
  job->output = qv_job_output_new(&output_events, job, error);
  return job->output != NULL && qv_job_output_begin(job->output, guest, job->setup->job, job->setup->live, key, error);
}

static gboolean start_pipes(Job *job, GError **error)
{
  static const QvJobInputEvents input = {.written = on_written, .done = on_input_done};
  gboolean fine = FALSE;
  guint8 key[QV_STREAM_KEY_BYTES];
  qv_random_bytes(key, sizeof key);
  QvEntryProxy proxy = {.token = job->keys.egress_token,
                        .address = job->networked ? job->setup->egress_proxy : NULL,
                        .socket = job->networked ? NULL : QV_CONTAINER_EGRESS_SOCKET,
                        .ca_pem = job->setup->ca_pem};
  gboolean egress = job->setup->egress_proxy != NULL;
  QvSecret *request =
    qv_entry_request_format(job->setup->job, key, egress ? &proxy : NULL, job->setup->live, error);
  if (request != NULL) {
    if (job->setup->live)
      job->live = qv_job_live_new(job->setup->job, job->keys.live_key, job->supervisor);
    job->input = qv_job_input_new(qv_sandbox_take_stdin(job->sandbox), request, job->setup->job, &job->keys, &input,
                                  job);
    fine = start_output(job, key, error);
  }
  explicit_bzero(key, sizeof key);
  return fine;
}

static void start(Job *job)
{
  g_autoptr(GError) error = NULL;
  if (job->ended) /* a warm sandbox that is gone; that was said */
    return;
  /* Before the sandbox gets it, so that a second start of one job can never go unseen. */
  qv_log(QV_LOG_INFO, "sandbox starts", "jobId", job->setup->job->job_id, NULL);
  if (start_egress(job, &error) && start_sandbox(job, &error) && start_pipes(job, &error)) {
    drop(job);
    return;
  }
  trouble(job, "sandbox_failed", error->message);
  end_run(job, QV_HOST_STOPPED);
}

/* ---- what the supervisor says */

static gboolean on_frame(QvIpcType type, const guint8 *payload, gsize n, gpointer data, GError **error)
{
  Job *job = data;
  switch (type) {
  case QV_IPC_WARM:
    if (job->warm != NULL || job->setup != NULL)
      break;
    job->warm = qv_warm_order_parse((const char *)payload, n, error);
    if (job->warm == NULL)
      return FALSE;
    start_warm(job);
    return TRUE;
  case QV_IPC_SETUP:
    if (job->setup != NULL)
      break;
    job->setup = qv_setup_parse((const char *)payload, n, error);
    if (job->setup == NULL)
      return FALSE;
    if (job->warm != NULL && !qv_setup_fits(job->setup, job->warm))
      break;
    return TRUE;
  case QV_IPC_KEYS:
    if (n != sizeof job->keys || job->setup == NULL || job->has_keys ||
        payload[n - 1] != '\0' || (payload[offsetof(QvJobKeys, egress_token)] != '\0') != (job->setup->egress_proxy != NULL))
      break;
    memcpy(&job->keys, payload, n);
    job->has_keys = TRUE;
    start(job);
    return TRUE;
  case QV_IPC_CHUNK:
    return on_chunk(job, payload, n, error);
  case QV_IPC_GRANT:
    if (n != 4)
      break;
    job->grants += qv_ipc_u32(payload);
    send_payload(job);
    return TRUE;
  case QV_IPC_STOP:
    if (job->waiting_facts)
      give_up_facts(job, QV_HOST_STOPPED);
    else
      end_run(job, QV_HOST_STOPPED);
    return TRUE;
  case QV_IPC_END_EGRESS:
    end_setup(job);
    return TRUE;
  case QV_IPC_DISCARD:
    job->discard = TRUE;
    job->ended = TRUE;
    remove_sandbox(job);
    maybe_leave(job);
    return TRUE;
  default:
    break;
  }
  g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "frame %s comes at the wrong time", qv_ipc_name(type));
  return FALSE;
}

static void on_supervisor_gone(const GError *error, gpointer data)
{
  Job *job = data;
  if (error != NULL)
    qv_log(QV_LOG_ERROR, "channel to the supervisor", "error", error->message, NULL);
  job->ended = job->discard = TRUE;
  alarm(ORPHAN_SECONDS);
  remove_sandbox(job);
  leave(job);
}

int qv_job_main(const QvUnpackProcess *unpack)
{
  qv_role_enter(FALSE);
  signal(SIGALRM, SIG_DFL);
  Job job = {.loop = g_main_loop_new(NULL, FALSE), .grants = QV_CHUNKS_IN_MEMORY_MAX};
  job.supervisor = qv_channel_new(QV_JOB_CHANNEL_FD, QV_IPC_FROM_SUPERVISOR, on_frame, on_supervisor_gone, &job);
  job.output = qv_job_output_new_of(unpack, &output_events, &job);
  job.prepare = g_idle_add_full(G_PRIORITY_LOW, on_prepare, &job, NULL);
  g_main_loop_run(job.loop);
  g_clear_handle_id(&job.prepare, g_source_remove);
  g_clear_handle_id(&job.drain, g_source_remove);
  g_clear_handle_id(&job.remove, g_source_remove);
  qv_relay_close(job.relay);
  qv_job_output_free(job.output);
  qv_job_live_free(job.live);
  qv_job_input_free(job.input);
  qv_sandbox_free(job.sandbox);
  qv_backend_free(job.backend);
  qv_blob_writer_free(job.sealer);
  qv_setup_free(job.setup);
  qv_warm_order_free(job.warm);
  explicit_bzero(&job.keys, sizeof job.keys);
  qv_channel_free(job.supervisor);
  g_main_loop_unref(job.loop);
  return qv_job_output_has_crashed() ? QV_JOB_UNPACK_CRASHED : job.status;
}
