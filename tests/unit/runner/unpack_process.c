/* SPDX-License-Identifier: Apache-2.0 */
#include "unpack_process.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "format/tar.h"
#include "runner/ipc.h"
#include "runner/unpack.h"

const guint8 unpack_stream_key[QV_STREAM_KEY_BYTES] = {1, 2, 3};

void unpack_add_member(GByteArray *out, const char *path, const char *text)
{
  guint8 header[QV_TAR_HEADER_BYTES_MAX];
  gsize n, size = strlen(text);
  g_assert_cmpint(qv_tar_header(path, size, FALSE, header, &n), ==, QV_TAR_OK);
  g_byte_array_append(out, header, n);
  g_byte_array_append(out, (const guint8 *)text, size);
  g_byte_array_append(out, qv_tar_zeros, qv_tar_padding(size));
}

UnpackProcess unpack_start(gboolean live, gboolean keep)
{
  return unpack_start_for(1048576, live, keep);
}

UnpackProcess unpack_start_for(gint64 artefact_bytes, gboolean live, gboolean keep)
{
  static const char *const names[] = {"step"}, *const globs[] = {"*.bin", NULL};
  static const gboolean goes_on[] = {FALSE};
  QvEntryOutputSpec spec = {.stream_key = unpack_stream_key,
                            .step_names = names,
                            .continue_on_failure = goes_on,
                            .steps_n = 1,
                            .log_bytes = 65536,
                            .artefact_bytes = artefact_bytes,
                            .artefact_count = 4,
                            .artefact_globs = globs,
                            .live = live};
  int config[2], frames[2], guest[2];
  g_assert_true(qv_fd_socketpair(config, NULL) && qv_fd_pipe(frames, NULL) && qv_fd_socketpair(guest, NULL));
  g_autofree char *program = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "runner", "quavon-sandbox-runner",
                                              NULL);
  const char *argv[] = {program, "--role", "unpack", NULL};
  const int source[] = {config[0], frames[1]}, target[] = {3, 4};
  UnpackProcess process = {.guest = guest[0], .frames = frames[0]};
  g_autoptr(GError) error = NULL;
  g_spawn_async_with_pipes_and_fds(NULL, argv, NULL, G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL, -1, -1, -1, source, target, 2,
                                   &process.pid, NULL, NULL, NULL, &error);
  g_assert_no_error(error);
  gsize n;
  g_autofree char *text = qv_unpack_config_format(&spec, &n);
  guint8 header[QV_IPC_HEADER_BYTES];
  qv_ipc_header(QV_IPC_CONFIG, n, header);
  g_assert_true(qv_fd_send(config[1], guest[1], NULL));
  g_assert_true(qv_fd_write_all(config[1], "config", header, sizeof header, NULL));
  g_assert_true(qv_fd_write_all(config[1], "config", text, n, NULL));
  close(config[0]);
  close(config[1]);
  close(frames[1]);
  process.kept = keep ? guest[1] : -1;
  if (!keep)
    close(guest[1]);
  return process;
}

/* Reads all frames and reaps: the process must have ended by itself. */
UnpackOutcome unpack_finish(UnpackProcess *process)
{
  UnpackOutcome outcome = {.verdict = -1};
  g_autoptr(QvIpcReader) reader = qv_ipc_reader_new(QV_IPC_FROM_UNPACK);
  guint8 bytes[4096];
  ssize_t got;
  while ((got = read(process->frames, bytes, sizeof bytes)) > 0) {
    QvIpcType type;
    const guint8 *payload;
    gsize n;
    g_assert_true(qv_ipc_reader_feed(reader, bytes, got, NULL));
    while (qv_ipc_reader_next(reader, &type, &payload, &n)) {
      if (type == QV_IPC_VERDICT) {
        outcome.verdict = qv_ipc_u32(payload);
        memcpy(outcome.why, payload + 4, MIN(n - 4, sizeof outcome.why - 1)); /* zeroed: ends in NUL */
      } else if (type == QV_IPC_PAYLOAD)
        outcome.payload_bytes += n;
      else if (type == QV_IPC_PROGRESS)
        outcome.progress++, outcome.progress_last = qv_ipc_u32(payload);
      else if (type == QV_IPC_LIVE) {
        outcome.live = outcome.live != NULL ? outcome.live : g_string_new(NULL);
        g_string_append_printf(outcome.live, "%u:%.*s;", qv_ipc_u32(payload), (int)n - 4, (const char *)payload + 4);
      } else if (type == QV_IPC_REPORT)
        outcome.report = g_strndup((const char *)payload, n);
    }
  }
  int status;
  struct rusage usage;
  g_assert_cmpint(wait4(process->pid, &status, 0, &usage), ==, process->pid);
  outcome.peak_kib = usage.ru_maxrss;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    g_error("the unpack process ended with wait status %x", status);
  close(process->guest);
  close(process->frames);
  if (process->kept >= 0)
    close(process->kept);
  return outcome;
}
