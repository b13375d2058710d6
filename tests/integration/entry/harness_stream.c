/* SPDX-License-Identifier: Apache-2.0 */
/* Owns the harness's bytes: snapshots and requests in, the strict reading of the stream out. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/limits.h"
#include "base/sha256.h"
#include "format/gzip.h"
#include "format/json.h"
#include "format/tar.h"
#include "harness_private.h"

enum { DEADLINE_S = 300, LONG_MS = 200000 };

const guint8 harness_stream_key[32] = "0123456789abcdef0123456789abcde";

void harness_send(Harness *harness, const void *bytes, gsize n)
{
  const char *from = bytes;
  while (n > 0) {
    ssize_t put = send(harness->in_fd, from, n, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR)
      continue;
    if (put < 0)
      return;
    from += put;
    n -= (gsize)put;
  }
}

void harness_send_request(Harness *harness, const json_t *request)
{
  char *line = json_dumps(request, JSON_COMPACT);
  g_assert_nonnull(line);
  harness_send(harness, line, strlen(line));
  harness_send(harness, "\n", 1);
  free(line);
}

/* ---- the stream ---- */

typedef struct {
  Outcome *outcome;
  QvTarReader reader;
  QvHmacSha256 mac;
  gboolean at_exit; /* the code covers no more */
} Reading;

static void member_free(gpointer data)
{
  Member *member = data;
  g_free(member->path);
  g_byte_array_unref(member->bytes);
  g_free(member);
}

static void tap(void *user, const uint8_t *bytes, size_t n)
{
  Reading *reading = user;
  if (!reading->at_exit)
    qv_hmac_sha256_update(&reading->mac, bytes, n);
}

static gboolean check_exit(Reading *reading)
{
  const Member *member = outcome_member(reading->outcome, "exit.json");
  uint8_t mac[32];
  char text[QV_BASE64_LEN(32) + 1];
  if (!member)
    return FALSE;
  json_t *json = qv_json_parse(member->bytes->data, member->bytes->len, 65536, QV_JSON_SIGNED, NULL);
  if (!json)
    return FALSE;
  reading->outcome->exit = json;
  json_t *bare = json_copy(json);
  json_object_del(bare, "mac");
  char *canonical = json_dumps(bare, JSON_COMPACT | JSON_SORT_KEYS);
  qv_hmac_sha256_update(&reading->mac, canonical, strlen(canonical));
  qv_hmac_sha256_final(&reading->mac, mac);
  qv_base64_encode(mac, sizeof mac, text);
  free(canonical);
  json_decref(bare);
  return g_strcmp0(text, json_string_value(json_object_get(json, "mac"))) == 0;
}

/* TRUE when there is no more to read. */
static gboolean take_portion(Reading *reading, const uint8_t *bytes, size_t n)
{
  QvTarReader *reader = &reading->reader;
  GPtrArray *members = reading->outcome->members;
  for (;;) {
    switch (qv_tar_reader_step(reader, &bytes, &n)) {
    case QV_TAR_MORE:
      return FALSE;
    case QV_TAR_ENTRY: {
      Member *member = g_new0(Member, 1);
      member->path = g_strdup(reader->entry.path);
      member->bytes = g_byte_array_new();
      member->executable = reader->entry.executable;
      g_ptr_array_add(members, member);
      reading->at_exit = reading->at_exit || strcmp(member->path, "exit.json") == 0;
      break;
    }
    case QV_TAR_DATA:
      g_byte_array_append(((Member *)g_ptr_array_index(members, members->len - 1))->bytes, reader->data,
                          (guint)reader->data_n);
      break;
    case QV_TAR_ENTRY_END:
      break;
    case QV_TAR_END:
      reading->outcome->complete = n == 0 && check_exit(reading);
      return TRUE;
    case QV_TAR_BAD:
      g_test_message("stream: %s", qv_tar_reason_text(reader->reason));
      return TRUE;
    }
  }
}

Outcome *harness_finish(Harness *harness)
{
  static const QvTarCaps caps = {
    .entries_max = 1000, .total_bytes_max = 256 << 20, .file_bytes_max = 128 << 20, .portable = true};
  Outcome *outcome = g_new0(Outcome, 1);
  Reading reading = {.outcome = outcome};
  outcome->members = g_ptr_array_new_with_free_func(member_free);
  qv_tar_reader_init(&reading.reader, &caps);
  reading.reader.tap = tap;
  reading.reader.tap_user = &reading;
  qv_hmac_sha256_init(&reading.mac, harness_stream_key, sizeof harness_stream_key);
  gint64 deadline_us = g_get_monotonic_time() + DEADLINE_S * G_USEC_PER_SEC;
  gboolean ended = FALSE;
  while (!ended) {
    guint8 bytes[65536];
    struct pollfd ready = {.fd = harness->out_fd, .events = POLLIN};
    gint64 left_ms = (deadline_us - g_get_monotonic_time()) / 1000;
    if (left_ms <= 0 || poll(&ready, 1, (int)left_ms) == 0) {
      g_test_message("the stream did not end in time");
      break;
    }
    ssize_t got = read(harness->out_fd, bytes, sizeof bytes);
    if (got < 0 && errno == EINTR)
      continue;
    ended = got <= 0 || take_portion(&reading, bytes, (size_t)got);
  }
  harness_stop(harness);
  qv_tar_reader_clear(&reading.reader);
  g_file_get_contents(harness->err_path, &outcome->diagnostics, NULL, NULL);
  return outcome;
}

void outcome_free(Outcome *outcome)
{
  g_ptr_array_unref(outcome->members);
  json_decref(outcome->exit);
  g_free(outcome->diagnostics);
  g_free(outcome);
}

const Member *outcome_member(const Outcome *outcome, const char *path)
{
  for (guint i = 0; i < outcome->members->len; i++) {
    const Member *member = g_ptr_array_index(outcome->members, i);
    if (strcmp(member->path, path) == 0)
      return member;
  }
  return NULL;
}

static void describe(const Outcome *outcome)
{
  for (guint i = 0; i < outcome->members->len; i++) {
    const Member *member = g_ptr_array_index(outcome->members, i);
    g_autofree char *text = g_strndup((const char *)member->bytes->data, MIN(member->bytes->len, 400));
    g_autofree char *escaped = g_strescape(text ? text : "", NULL);
    g_test_message("%s (%u bytes): %s", member->path, member->bytes->len, escaped);
  }
  g_test_message("stderr: %s", outcome->diagnostics);
}

const char *outcome_text(const Outcome *outcome, const char *path)
{
  const Member *member = outcome_member(outcome, path);
  if (!member) {
    describe(outcome);
    g_error("no member %s", path);
  }
  /* A NUL behind the bytes, which are not its own. */
  g_byte_array_append(member->bytes, (const guint8 *)"", 1);
  g_byte_array_set_size(member->bytes, member->bytes->len - 1);
  return (const char *)member->bytes->data;
}

const char *outcome_log(const Outcome *outcome, int i)
{
  char path[32];
  if (i < 0)
    return outcome_text(outcome, "logs/setup.log");
  g_snprintf(path, sizeof path, "logs/%d.log", i);
  return outcome_text(outcome, path);
}

/* Borrowed from a table that lives as long as the test. */
static json_t *record_value(const Outcome *outcome, int i, const char *name)
{
  static json_t *record;
  char path[32];
  if (i < 0)
    g_strlcpy(path, "setup.json", sizeof path);
  else
    g_snprintf(path, sizeof path, "steps/%d.json", i);
  const char *text = outcome_text(outcome, path);
  json_decref(record);
  record = qv_json_parse(text, strlen(text), 65536, QV_JSON_SIGNED, NULL);
  json_t *value = json_object_get(record, name);
  g_assert_nonnull(value);
  return value;
}

json_int_t outcome_int(const Outcome *outcome, int i, const char *name)
{
  json_t *value = record_value(outcome, i, name);
  if (!json_is_integer(value))
    describe(outcome);
  g_assert_true(json_is_integer(value));
  return json_integer_value(value);
}

gboolean outcome_null(const Outcome *outcome, int i, const char *name)
{
  return json_is_null(record_value(outcome, i, name));
}

gboolean outcome_true(const Outcome *outcome, int i, const char *name)
{
  json_t *value = record_value(outcome, i, name);
  g_assert_true(json_is_boolean(value));
  return json_is_true(value);
}

const char *outcome_code(const Outcome *outcome)
{
  json_t *code = json_object_get(outcome->exit, "code");
  g_assert_nonnull(code);
  return json_is_null(code) ? "" : json_string_value(code);
}

void outcome_assert_complete(const Outcome *outcome)
{
  if (!outcome->complete)
    describe(outcome);
  g_assert_true(outcome->complete);
}

/* ---- requests and snapshots ---- */

static void append(void *user, const guint8 *bytes, gsize n)
{
  g_byte_array_append(user, bytes, (guint)n);
}

static void add_file(QvGzipWriter *writer, const char *path, const void *bytes, gsize n, gboolean executable)
{
  uint8_t header[QV_TAR_HEADER_BYTES_MAX];
  size_t header_n;
  g_assert_cmpint(qv_tar_header(path, n, executable, header, &header_n), ==, QV_TAR_OK);
  qv_gzip_writer_add(writer, header, header_n);
  qv_gzip_writer_add(writer, bytes, n);
  qv_gzip_writer_add(writer, qv_tar_zeros, qv_tar_padding(n));
}

GByteArray *snapshot_new(const File *files, gboolean hostile)
{
  GByteArray *blob = g_byte_array_new();
  g_autoptr(QvGzipWriter) writer = qv_gzip_writer_new(append, blob);
  for (; files && files->path; files++)
    add_file(writer, files->path, files->text, strlen(files->text), files->executable);
  if (hostile) {
    g_autofree char *program = NULL;
    gsize n;
    g_assert_true(g_file_get_contents(g_getenv("QUAVON_TEST_HOSTILE"), &program, &n, NULL));
    add_file(writer, "zz/hostile", program, n, TRUE);
  }
  qv_gzip_writer_add(writer, qv_tar_zeros, QV_TAR_END_BYTES);
  qv_gzip_writer_finish(writer);
  return blob;
}

json_t *request_new(gsize base_bytes, json_t *steps)
{
  char key[QV_BASE64_LEN(32) + 1];
  qv_base64_encode(harness_stream_key, sizeof harness_stream_key, key);
  json_t *limits = json_pack("{sI sI sI sI sI sI sI sI}", "wallMs", (json_int_t)1800000, "memoryMiB", (json_int_t)512,
                             "milliCpus", (json_int_t)1500, "pids", (json_int_t)128, "workMiB", (json_int_t)64,
                             "logBytes", (json_int_t)65536, "artefactBytes", (json_int_t)1048576, "artefactCount",
                             (json_int_t)16);
  json_t *request = json_pack("{si ss s{sI} sn s[] sn sn so s[] so}", "v", 1, "streamKey", key, "base", "size",
                              (json_int_t)base_bytes, "overlay", "deletes", "setup", "proxy", "run", steps,
                              "artefacts", "limits", limits);
  g_assert_nonnull(request);
  return request;
}

json_t *step_sh(const char *name, const char *script, gint timeout_ms)
{
  return json_pack("{ss s[sss] sI}", "name", name, "argv", "/bin/sh", "-c", script, "timeoutMs",
                   (json_int_t)(timeout_ms > 0 ? timeout_ms : LONG_MS));
}

json_t *step_argv(const char *name, const char *arg0, const char *arg1, const char *arg2)
{
  json_t *argv = json_pack("[s]", arg0);
  if (arg1)
    json_array_append_new(argv, json_string(arg1));
  if (arg2)
    json_array_append_new(argv, json_string(arg2));
  return json_pack("{ss so sI}", "name", name, "argv", argv, "timeoutMs", (json_int_t)LONG_MS);
}

Outcome *harness_run(const HarnessOptions *options, json_t *request, const GByteArray *base)
{
  g_autoptr(Harness) harness = harness_start(options);
  harness_send_request(harness, request);
  harness_send(harness, base->data, base->len);
  json_decref(request);
  return harness_finish(harness);
}

Outcome *harness_run_sh(const char *script, gint timeout_ms)
{
  g_autoptr(GByteArray) base = snapshot_new(NULL, TRUE);
  return harness_run(NULL, request_new(base->len, json_pack("[o]", step_sh("only", script, timeout_ms))), base);
}
