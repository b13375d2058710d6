/* SPDX-License-Identifier: Apache-2.0 */
#include <glib.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "entry/output.h"
#include "format/tar.h"

static const uint8_t key[QV_STREAM_KEY_BYTES] = "a stream key of thirty-two bytes";

/* Reads the next member off the front of STREAM. */
static char *next_member(GByteArray *stream, const char *path)
{
  static const QvTarCaps caps = {.entries_max = 9, .total_bytes_max = 1 << 20, .file_bytes_max = 1 << 20};
  QvTarReader reader;
  GString *text = g_string_new(NULL);
  const uint8_t *bytes = stream->data;
  size_t n = stream->len;
  qv_tar_reader_init(&reader, &caps);
  g_assert_cmpint(qv_tar_reader_step(&reader, &bytes, &n), ==, QV_TAR_ENTRY);
  g_assert_cmpstr(reader.entry.path, ==, path);
  const gsize size = reader.entry.size;
  QvTarEvent event;
  while ((event = qv_tar_reader_step(&reader, &bytes, &n)) == QV_TAR_DATA)
    g_string_append_len(text, (const char *)reader.data, (gssize)reader.data_n);
  g_assert_cmpint(event, ==, QV_TAR_ENTRY_END);
  qv_tar_reader_clear(&reader);
  g_byte_array_remove_range(stream, 0, (guint)qv_tar_entry_bytes(strlen(path), size));
  return g_string_free(text, FALSE);
}

static GByteArray *drain(int fd)
{
  GByteArray *stream = g_byte_array_new();
  guint8 bytes[4096];
  for (ssize_t n; (n = read(fd, bytes, sizeof bytes)) > 0;)
    g_byte_array_append(stream, bytes, (guint)n);
  close(fd);
  return stream;
}

static void test_stream(void)
{
  int fds[2];
  char tail[8];
  QvEntryRing ring;
  QvEntryOutput output;
  g_assert_cmpint(pipe(fds), ==, 0);
  qv_entry_ring_init(&ring, tail, sizeof tail);
  qv_entry_output_init(&output, fds[1], key);
  qv_entry_ring_append(&ring, "0123456789", 10);
  const QvEntryOutcome ended = {.exit_code = 3, .started_ms = 11, .duration_ms = 22};
  const QvEntryOutcome killed = {.exit_code = -1, .signal = 9, .timed_out = true, .started_ms = 33, .duration_ms = 44};
  qv_entry_output_step(&output, -1, "prepare", &ended, &ring);
  qv_entry_ring_clear(&ring);
  qv_entry_output_step(&output, 12, "test", &killed, &ring);
  const QvEntryExit facts = {.code = "disk", .artefacts_dropped = 7, .fork_failed = true};
  qv_entry_output_exit(&output, &facts);
  close(fds[1]);
  g_autoptr(GByteArray) stream = drain(fds[0]);

  /* The code is over all that comes before exit.json's header, and its text without the code. */
  static const char bare[] = "{\"artefactsDropped\":7,\"code\":\"disk\",\"forkFailed\":true,\"status\":\"done\",\"v\":1}";
  gsize before = stream->len - QV_TAR_END_BYTES - 2 * QV_TAR_BLOCK_BYTES;
  g_autoptr(GByteArray) covered = g_byte_array_new();
  g_byte_array_append(covered, stream->data, (guint)before);
  g_byte_array_append(covered, (const guint8 *)bare, sizeof bare - 1);
  uint8_t mac[QV_SHA256_BYTES];
  char mac_text[QV_BASE64_LEN(QV_SHA256_BYTES) + 1];
  qv_hmac_sha256(key, sizeof key, covered->data, covered->len, mac);
  qv_base64_encode(mac, sizeof mac, mac_text);
  g_autofree char *exit_text =
    g_strdup_printf("{\"artefactsDropped\":7,\"code\":\"disk\",\"forkFailed\":true,\"mac\":\"%s\",\"status\":\"done\",\"v\":1}",
                    mac_text);

  static const struct {
    const char *path, *text;
  } wanted[] = {
    {"setup.json", "{\"durationMs\":22,\"exitCode\":3,\"logTotalBytes\":10,\"logTruncated\":true,\"name\":\"prepare\","
                   "\"signal\":null,\"startedMs\":11,\"timedOut\":false}"},
    {"logs/setup.log", "23456789"},
    {"steps/12.json", "{\"durationMs\":44,\"exitCode\":null,\"logTotalBytes\":0,\"logTruncated\":false,\"name\":\"test\","
                      "\"signal\":9,\"startedMs\":33,\"timedOut\":true}"},
    {"logs/12.log", ""},
  };
  for (gsize i = 0; i < G_N_ELEMENTS(wanted); i++) {
    g_autofree char *text = next_member(stream, wanted[i].path);
    g_assert_cmpstr(text, ==, wanted[i].text);
  }
  g_autofree char *text = next_member(stream, "exit.json");
  g_assert_cmpstr(text, ==, exit_text);
  g_assert_cmpmem(stream->data, stream->len, qv_tar_zeros, QV_TAR_END_BYTES);
}

static void test_refused(void)
{
  int fds[2];
  QvEntryOutput output;
  g_assert_cmpint(pipe(fds), ==, 0);
  qv_entry_output_init(&output, fds[1], key);
  const QvEntryExit facts = {.refused = true, .code = "snapshot_refused"};
  qv_entry_output_exit(&output, &facts);
  close(fds[1]);
  g_autoptr(GByteArray) stream = drain(fds[0]);
  g_autofree char *text = next_member(stream, "exit.json");
  g_assert_true(g_str_has_prefix(
    text, "{\"artefactsDropped\":0,\"code\":\"snapshot_refused\",\"forkFailed\":false,\"mac\":\""));
  g_assert_true(g_str_has_suffix(text, "=\",\"status\":\"refused\",\"v\":1}"));
}

int main(int argc, char **argv)
{
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/entry/output/stream", test_stream);
  g_test_add_func("/entry/output/refused", test_refused);
  return g_test_run();
}
