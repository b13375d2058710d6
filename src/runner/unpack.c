/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the unpack process. Everything that a library sets up on first use is used once
 * before the filter is entered: behind it, opening a file is the end. A crash
 * here costs one job: the job process calls it bad_output. */
#include "runner/unpack.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/hex.h"
#include "base/io.h"
#include "protocol/payload.h"
#include "runner/ipc.h"
#include "runner/spawn.h"
#include "runner/unpack_filter.h"

enum { READ_BYTES = 64 * 1024, CONFIG_MAX = 512 * 1024 };

typedef struct {
  guint8 stream_key[QV_STREAM_KEY_BYTES];
  char *setup_name;
  char **step_names;
  gboolean *continue_on_failure;
  char **artefact_globs;
  QvEntryOutputSpec spec;
} Config;

typedef struct {
  QvPayloadWriter *payload;
  gboolean silent; /* warming up: write nothing */
  guint members;
  guint32 live; /* members of live logs */
  const QvEntryOutputSpec *spec;
  gboolean last; /* the step whose record came is the last one that runs */
} Unpack;

/* ---- configuration */

char *qv_unpack_config_format(const QvEntryOutputSpec *spec, gsize *n)
{
  char key[2 * QV_STREAM_KEY_BYTES + 1];
  qv_hex_encode(spec->stream_key, QV_STREAM_KEY_BYTES, key);
  json_t *steps = json_array();
  for (gsize i = 0; i < spec->steps_n; i++)
    json_array_append_new(steps, json_pack("{s:s,s:b}", "name", spec->step_names[i], "continueOnFailure",
                                           spec->continue_on_failure[i]));
  json_t *globs = json_array();
  for (const char *const *glob = spec->artefact_globs; glob != NULL && *glob != NULL; glob++)
    json_array_append_new(globs, json_string(*glob));
  json_t *root = json_pack("{s:s,s:s?,s:o,s:o,s:I,s:I,s:I,s:b}", "streamKey", key, "setup", spec->setup_name, "steps",
                           steps, "artefactGlobs", globs, "logBytes", (json_int_t)spec->log_bytes, "artefactBytes",
                           (json_int_t)spec->artefact_bytes, "artefactCount", (json_int_t)spec->artefact_count, "live",
                           spec->live);
  char *dumped = json_dumps(root, JSON_COMPACT);
  char *text = g_strdup(dumped);
  explicit_bzero(key, sizeof key);
  explicit_bzero(dumped, strlen(dumped));
  free(dumped);
  json_decref(root);
  *n = strlen(text);
  return text;
}

static gboolean config_parse(const char *text, gsize n, Config *config)
{
  json_t *steps = NULL, *setup = NULL, *globs = NULL;
  const char *key = NULL;
  json_int_t log_bytes = 0, artefact_bytes = 0, artefact_count = 0;
  int live = 0;
  json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
  gboolean fine = root != NULL &&
                  json_unpack(root, "{s:s,s:o,s:o,s:o,s:I,s:I,s:I,s:b !}", "streamKey", &key, "setup", &setup, "steps",
                              &steps, "artefactGlobs", &globs, "logBytes", &log_bytes, "artefactBytes", &artefact_bytes,
                              "artefactCount", &artefact_count, "live", &live) == 0 &&
                  qv_hex_decode(key, strlen(key), config->stream_key, QV_STREAM_KEY_BYTES);
  gsize steps_n = json_array_size(steps);
  config->step_names = g_new0(char *, steps_n + 1);
  config->continue_on_failure = g_new0(gboolean, steps_n + 1);
  for (gsize i = 0; fine && i < steps_n; i++) {
    const char *name;
    int goes_on;
    fine = json_unpack(json_array_get(steps, i), "{s:s,s:b !}", "name", &name, "continueOnFailure", &goes_on) == 0;
    if (fine) {
      config->step_names[i] = g_strdup(name);
      config->continue_on_failure[i] = goes_on;
    }
  }
  gsize globs_n = json_array_size(globs);
  config->artefact_globs = g_new0(char *, globs_n + 1);
  for (gsize i = 0; fine && i < globs_n; i++) {
    const char *glob = json_string_value(json_array_get(globs, i));
    fine = glob != NULL;
    config->artefact_globs[i] = g_strdup(glob);
  }
  config->setup_name = fine ? g_strdup(json_string_value(setup)) : NULL;
  config->spec = (QvEntryOutputSpec){.stream_key = config->stream_key,
                                     .setup_name = config->setup_name,
                                     .step_names = (const char *const *)config->step_names,
                                     .continue_on_failure = config->continue_on_failure,
                                     .steps_n = steps_n,
                                     .log_bytes = log_bytes,
                                     .artefact_bytes = artefact_bytes,
                                     .artefact_count = artefact_count,
                                     .artefact_globs = (const char *const *)config->artefact_globs,
                                     .live = live};
  json_decref(root);
  return fine;
}

/* The stream, which gets its own number, then to the end of the socket: nothing but the one frame comes. */
static gboolean config_read(Config *config)
{
  static char bytes[QV_IPC_HEADER_BYTES + CONFIG_MAX];
  int guest = qv_fd_receive(QV_UNPACK_CONFIG_FD);
  if (guest < 0 || (guest != QV_UNPACK_GUEST_FD && (dup2(guest, QV_UNPACK_GUEST_FD) < 0 || close(guest) != 0)))
    return FALSE;
  ssize_t n = qv_io_read_full(QV_UNPACK_CONFIG_FD, bytes, sizeof bytes);
  close(QV_UNPACK_CONFIG_FD);
  gboolean fine = n > QV_IPC_HEADER_BYTES && qv_ipc_u32((guint8 *)bytes) == (guint32)n - QV_IPC_HEADER_BYTES &&
                  qv_ipc_u32((guint8 *)bytes + 4) == QV_IPC_CONFIG &&
                  config_parse(bytes + QV_IPC_HEADER_BYTES, n - QV_IPC_HEADER_BYTES, config);
  explicit_bzero(bytes, n > 0 ? (gsize)n : 0); /* the rest was never written: to wipe it would make it memory of ours */
  return fine;
}

char *qv_unpack_end_text(int wait_status)
{
  if (WIFEXITED(wait_status))
    return g_strdup_printf("the unpack process ended with status %d and without a verdict", WEXITSTATUS(wait_status));
  int number = WTERMSIG(wait_status);
  switch (number) {
  case SIGSYS:
    return g_strdup("the unpack process broke its list of system calls");
  case SIGXCPU:
    return g_strdup("the unpack process was at the limit of its processor time");
  case SIGKILL:
    return g_strdup("the unpack process was killed from outside");
  case SIGTRAP: /* how GLib ends a program that gets no memory */
    return g_strdup("the unpack process was at the limit of its memory");
  default:
    return g_strdup_printf("the unpack process crashed with signal %d", number);
  }
}

/* ---- frames out; the job process is gone where that fails */

static void send_frame(QvIpcType type, const void *head, gsize head_n, const void *bytes, gsize n)
{
  guint8 header[QV_IPC_HEADER_BYTES];
  qv_ipc_header(type, head_n + n, header);
  if (!qv_io_write_full(QV_UNPACK_OUT_FD, header, sizeof header) ||
      !qv_io_write_full(QV_UNPACK_OUT_FD, head, head_n) || !qv_io_write_full(QV_UNPACK_OUT_FD, bytes, n))
    _exit(1);
}

static void send_verdict(QvUnpackVerdict verdict, const char *text)
{
  guint32 word = verdict;
  gsize n = text != NULL ? MIN(strlen(text), 1024) : 0;
  send_frame(QV_IPC_VERDICT, &word, sizeof word, text != NULL ? text : "", n);
}

static void on_payload(void *user, const guint8 *bytes, gsize n)
{
  Unpack *unpack = user;
  for (gsize at = 0; !unpack->silent && at < n; at += QV_IPC_PIECE_MAX)
    send_frame(QV_IPC_PAYLOAD, "", 0, bytes + at, MIN(QV_IPC_PIECE_MAX, n - at));
}

/* ---- what the reader finds */

static void member_done(Unpack *unpack)
{
  guint32 done = ++unpack->members;
  if (unpack->last && unpack->members % 2 == 0) /* its log, too */
    done = QV_IPC_COLLECTING;
  if (!unpack->silent)
    send_frame(QV_IPC_PROGRESS, &done, sizeof done, "", 0);
}

static void on_record(void *user, gssize step, const QvStepRecord *record)
{
  Unpack *unpack = user;
  gboolean failed = record->timed_out || record->has_signal || record->exit_code != 0;
  unpack->last = step < 0 ? failed
                          : (gsize)step + 1 == unpack->spec->steps_n || (failed && !unpack->spec->continue_on_failure[step]);
  member_done(unpack);
}

static void on_log(void *user, gssize step, const char *text, gsize n)
{
  Unpack *unpack = user;
  qv_payload_writer_log(unpack->payload, step, text, n);
  member_done(unpack);
}

static void on_artefact_begin(void *user, const char *path, gint64 size, gboolean executable)
{
  qv_payload_writer_artefact_begin(((Unpack *)user)->payload, path, size, executable);
}

static void on_artefact_bytes(void *user, const guint8 *bytes, gsize n)
{
  qv_payload_writer_artefact_bytes(((Unpack *)user)->payload, bytes, n);
}

static void on_artefact_end(void *user)
{
  qv_payload_writer_artefact_end(((Unpack *)user)->payload);
}

static void on_live(void *user, gssize step, const guint8 *bytes, gsize n)
{
  Unpack *unpack = user;
  guint32 i = unpack->live++;
  if (!unpack->silent)
    send_frame(QV_IPC_LIVE, &i, sizeof i, bytes, n);
}

static const QvEntryOutputSink sink = {.record = on_record,
                                       .log = on_log,
                                       .artefact_begin = on_artefact_begin,
                                       .artefact_bytes = on_artefact_bytes,
                                       .artefact_end = on_artefact_end,
                                       .live = on_live};

/* ---- the life of the process */

/* libcrypto reads its configuration at the first digest, jansson its seed at the first object. */
void qv_unpack_warm_up(void)
{
  static const guint8 junk[1536] = {0}, key[QV_STREAM_KEY_BYTES] = {0};
  static const char *const names[] = {"warm"}, *const globs[] = {"*", NULL};
  static const gboolean goes_on[] = {FALSE};
  static const QvEntryOutputSpec spec = {.stream_key = key, .step_names = names, .continue_on_failure = goes_on, .steps_n = 1,
                                         .log_bytes = 1024, .artefact_bytes = 1024, .artefact_count = 1,
                                         .artefact_globs = globs};
  Unpack unpack = {.silent = TRUE, .spec = &spec};
  unpack.payload = qv_payload_writer_new(on_payload, &unpack);
  qv_payload_writer_log(unpack.payload, 0, "warm\n", 5);
  qv_payload_writer_artefact_begin(unpack.payload, "a", 1, FALSE);
  qv_payload_writer_artefact_bytes(unpack.payload, junk, 1);
  qv_payload_writer_artefact_end(unpack.payload);
  char tree_sha256[65];
  qv_payload_writer_finish(unpack.payload, tree_sha256);
  qv_payload_writer_free(unpack.payload);
  unpack.payload = NULL;
  QvEntryOutput *output = qv_entry_output_new(&spec, &sink, &unpack);
  g_autoptr(GError) error = NULL;
  qv_entry_output_feed(output, junk, sizeof junk, &error);
  qv_entry_output_free(output);
  QvEntryFacts *facts = qv_entry_facts_new();
  gsize n;
  g_free(qv_entry_facts_format(facts, &n));
  qv_entry_facts_free(facts);
}

static void send_report(Unpack *unpack, const QvEntryFacts *facts)
{
  char line[66] = "-";
  gboolean some = qv_payload_writer_finish(unpack->payload, line);
  g_strlcpy(line + (some ? 64 : 1), "\n", 2);
  gsize n;
  g_autofree char *text = qv_entry_facts_format(facts, &n);
  send_frame(QV_IPC_REPORT, line, strlen(line), text, n);
}

static ssize_t read_some(guint8 *bytes, gsize n)
{
  ssize_t got;
  do {
    got = read(QV_UNPACK_GUEST_FD, bytes, n);
  } while (got < 0 && errno == EINTR);
  return got;
}

static void unpack_stream(const Config *config)
{
  static guint8 bytes[READ_BYTES];
  Unpack unpack = {.spec = &config->spec};
  unpack.payload = qv_payload_writer_new(on_payload, &unpack);
  QvEntryOutput *output = qv_entry_output_new(&config->spec, &sink, &unpack);
  QvEntryOutputVerdict verdict = QV_ENTRY_OUTPUT_MORE;
  g_autoptr(GError) error = NULL;
  while (verdict == QV_ENTRY_OUTPUT_MORE) {
    ssize_t n = read_some(bytes, sizeof bytes);
    if (n <= 0) {
      send_verdict(QV_UNPACK_CUT, "the output ended early");
      return;
    }
    verdict = qv_entry_output_feed(output, bytes, n, &error);
  }
  if (verdict == QV_ENTRY_OUTPUT_BAD) {
    send_verdict(QV_UNPACK_BAD, error != NULL ? error->message : NULL);
    return;
  }
  send_verdict(QV_UNPACK_COMPLETE, NULL);
  send_report(&unpack, qv_entry_output_facts(output));
}

/* Frees nothing at the end: the process ends, at once. What a library does at an exit, as a search for leaks, would meet the limits
 * and the filter. */
int qv_unpack_main(gboolean warm)
{
  qv_role_enter(TRUE);
  Config config = {0};
  if (!warm)
    qv_unpack_warm_up();
  g_autoptr(GError) error = NULL;
  gboolean fine = qv_unpack_limits_enter(&error);
  if (!config_read(&config))
    _exit(1);
  if (!fine || !qv_unpack_filter_enter(&error)) {
    send_verdict(QV_UNPACK_BAD, error->message);
    _exit(1);
  }
  unpack_stream(&config);
  _exit(0);
}
