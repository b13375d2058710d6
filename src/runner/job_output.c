/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the unpack process of a job and the payload that it makes. */
#include "runner/job_output.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "runner/channel.h"
#include "runner/reap.h"
#include "runner/spawn.h"

struct QvJobOutput {
  QvChannel *channel;
  GPid pid;
  guint child;          /* source; 0: reaped */
  int config_fd;        /* -1: the process has its configuration */
  int payload_fd;
  gint64 payload_bytes;
  GChecksum *sha256;
  gboolean decided, complete, reported;
  gboolean closed;      /* its pipe is */
  char *end_text;       /* how it ended, once it has */
  QvJobOutputEvents events;
  gpointer data;
};

static gboolean crashed;

/* We ourselves end one with those two, and so does the kernel where memory is short. */
static void note_end(int status)
{
  if (WIFSIGNALED(status) && WTERMSIG(status) != SIGTERM && WTERMSIG(status) != SIGKILL)
    crashed = TRUE;
}

gboolean qv_job_output_has_crashed(void)
{
  return crashed;
}

static void decide(QvJobOutput *output, QvUnpackVerdict verdict, const char *text)
{
  if (output->decided)
    return;
  output->decided = TRUE;
  output->complete = verdict == QV_UNPACK_COMPLETE;
  output->events.verdict(verdict, text, output->data);
}

static gboolean keep_payload(QvJobOutput *output, const guint8 *bytes, gsize n, GError **error)
{
  if (output->payload_bytes + (gint64)n > QV_PAYLOAD_BYTES_MAX) {
    g_set_error(error, QV_ERROR, QV_ERROR_LIMIT, "the payload is over its cap");
    return FALSE;
  }
  output->payload_bytes += n;
  g_checksum_update(output->sha256, bytes, n);
  return qv_fd_write_all(output->payload_fd, "payload", bytes, n, error);
}

static gboolean on_frame(QvIpcType type, const guint8 *payload, gsize n, gpointer data, GError **error)
{
  QvJobOutput *output = data;
  switch (type) {
  case QV_IPC_PROGRESS:
    if (n == 4 && !output->decided) {
      output->events.progress(qv_ipc_u32(payload), output->data);
      return TRUE;
    }
    break;
  case QV_IPC_LIVE:
    if (n >= 4 && !output->decided) {
      if (output->events.live == NULL || !output->events.live(qv_ipc_u32(payload), payload + 4, n - 4, output->data))
        decide(output, QV_UNPACK_BAD, "live members come faster than one a second");
      return TRUE;
    }
    if (output->decided)
      return TRUE; /* behind a breach: nobody reads on */
    break;
  case QV_IPC_PAYLOAD:
    if (!output->reported)
      return keep_payload(output, payload, n, error);
    break;
  case QV_IPC_VERDICT:
    if (n >= 4 && qv_ipc_u32(payload) <= QV_UNPACK_CUT && !output->decided) {
      g_autofree char *text = g_strndup((const char *)payload + 4, n - 4);
      decide(output, qv_ipc_u32(payload), text);
      return TRUE;
    }
    break;
  case QV_IPC_REPORT:
    if (output->complete && !output->reported) {
      output->reported = TRUE;
      g_autoptr(GBytes) facts = g_bytes_new(payload, n);
      output->events.report(facts, output->data);
      return TRUE;
    }
    break;
  default:
    break;
  }
  g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "frame %s comes at the wrong time", qv_ipc_name(type));
  return FALSE;
}

static void on_end(const GError *error, gpointer data)
{
  QvJobOutput *output = data;
  output->closed = TRUE;
  if (error != NULL)
    decide(output, QV_UNPACK_BAD, error->message);
  if (!output->decided && output->child != 0) {
    /* How it ended says which kind of breach it is. Nothing that closed its pipe has a reason to live. */
    kill(output->pid, SIGTERM);
    return;
  }
  decide(output, QV_UNPACK_BAD, output->end_text != NULL ? output->end_text : "the unpack process is gone");
  if (output->complete && !output->reported) {
    output->reported = TRUE;
    output->events.report(NULL, output->data);
  }
}

static void on_child(GPid pid, int status, gpointer data)
{
  QvJobOutput *output = data;
  output->child = 0;
  note_end(status);
  output->end_text = qv_unpack_end_text(status);
  if (WIFSIGNALED(status))
    qv_log(QV_LOG_ERROR, output->end_text, NULL);
  if (output->closed)
    decide(output, QV_UNPACK_BAD, output->end_text);
}

static gboolean send_config(int fd, const QvJob *job, gboolean live, const guint8 *key, GError **error)
{
  g_autofree const char **names = g_new0(const char *, job->run_n + 1);
  g_autofree gboolean *goes_on = g_new0(gboolean, job->run_n + 1);
  for (gsize i = 0; i < job->run_n; i++) {
    names[i] = job->run[i].name;
    goes_on[i] = job->run[i].continue_on_failure;
  }
  QvEntryOutputSpec spec = {.stream_key = key,
                            .setup_name = job->setup != NULL ? job->setup->name : NULL,
                            .step_names = names,
                            .continue_on_failure = goes_on,
                            .steps_n = job->run_n,
                            .log_bytes = job->limits.log_bytes,
                            .artefact_bytes = job->limits.artefact_bytes,
                            .artefact_count = job->limits.artefact_count,
                            .artefact_globs = (const char *const *)job->artefacts,
                            .live = live};
  gsize n;
  char *text = qv_unpack_config_format(&spec, &n);
  guint8 header[QV_IPC_HEADER_BYTES];
  qv_ipc_header(QV_IPC_CONFIG, n, header);
  gboolean fine = qv_fd_write_all(fd, "unpack", header, sizeof header, error) &&
                  qv_fd_write_all(fd, "unpack", text, n, error);
  explicit_bzero(text, n);
  g_free(text);
  return fine;
}

static gboolean start(QvUnpackProcess *unpack, GError **error)
{
  int config[2], frames[2];
  if (!qv_fd_socketpair(config, error))
    return FALSE;
  QV_AUTOFD int near = config[0];
  QV_AUTOFD int far = config[1];
  if (!qv_fd_pipe(frames, error))
    return FALSE;
  QV_AUTOFD int frames_in = frames[0];
  QV_AUTOFD int frames_out = frames[1];
  const int fds[] = {far, frames_out};
  if (!qv_spawn_role(QV_ROLE_UNPACK, NULL, fds, G_N_ELEMENTS(fds), &unpack->pid, error))
    return FALSE;
  unpack->config_fd = qv_io_steal(&near);
  unpack->frames_fd = qv_io_steal(&frames_in);
  return TRUE;
}

QvJobOutput *qv_job_output_new_of(const QvUnpackProcess *unpack, const QvJobOutputEvents *events, gpointer data)
{
  if (unpack == NULL)
    return NULL;
  QvJobOutput *output = g_new0(QvJobOutput, 1);
  output->events = *events;
  output->data = data;
  output->sha256 = g_checksum_new(G_CHECKSUM_SHA256);
  output->payload_fd = -1;
  output->pid = unpack->pid;
  output->config_fd = unpack->config_fd;
  output->child = g_child_watch_add(output->pid, on_child, output);
  output->channel = qv_channel_new(unpack->frames_fd, QV_IPC_FROM_UNPACK, on_frame, on_end, output);
  return output;
}

QvJobOutput *qv_job_output_new(const QvJobOutputEvents *events, gpointer data, GError **error)
{
  QvUnpackProcess unpack;
  return start(&unpack, error) ? qv_job_output_new_of(&unpack, events, data) : NULL;
}

gboolean qv_job_output_waits(const QvJobOutput *output)
{
  return output != NULL && output->config_fd >= 0 && !output->decided && output->child != 0;
}

gboolean qv_job_output_begin(QvJobOutput *output, int guest_fd, const QvJob *job, gboolean live,
                             const guint8 key[QV_STREAM_KEY_BYTES], GError **error)
{
  QV_AUTOFD int config = qv_io_steal(&output->config_fd);
  output->payload_fd = memfd_create("payload", MFD_CLOEXEC);
  if (output->payload_fd < 0)
    return qv_error_set_errno(error, errno, "cannot make a file in memory");
  /* The unpack process waits in read(2): it has nothing else to do. */
  qv_io_set_nonblock(guest_fd, false);
  return qv_fd_send(config, guest_fd, error) && send_config(config, job, live, key, error);
}

void qv_job_output_free(QvJobOutput *output)
{
  if (output == NULL)
    return;
  qv_channel_free(output->channel);
  if (output->child != 0) {
    g_source_remove(output->child);
    int status;
    if (qv_reap_child(output->pid, "unpack", QV_REAP_MS, &status))
      note_end(status); /* of what ended it, where it was dead already */
    else
      crashed = TRUE; /* GLib has reaped it and not told yet, or it does not end: that it was no crash is not known */
  }
  qv_io_close_cleanup(&output->config_fd);
  qv_io_close_cleanup(&output->payload_fd);
  g_clear_pointer(&output->sha256, g_checksum_free);
  g_free(output->end_text);
  g_free(output);
}

gint64 qv_job_output_payload(QvJobOutput *output, char sha256[65])
{
  g_autoptr(GChecksum) copy = g_checksum_copy(output->sha256);
  g_strlcpy(sha256, g_checksum_get_string(copy), 65);
  return output->payload_bytes;
}

gboolean qv_job_output_read(QvJobOutput *output, gint64 offset, guint8 *bytes, gsize n, GError **error)
{
  for (gsize at = 0; at < n;) {
    ssize_t got = pread(output->payload_fd, bytes + at, n - at, offset + at);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return qv_error_set_errno(error, got < 0 ? errno : EIO, "cannot read the payload back");
    at += got;
  }
  return TRUE;
}
