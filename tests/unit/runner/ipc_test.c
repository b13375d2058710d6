/* SPDX-License-Identifier: Apache-2.0 */
/* Frames: byte by byte and at once, caps, wrong senders, ends inside a frame; and a channel
 * between two ends of one process. */
#include <glib-unix.h>
#include <glib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/error.h"
#include "base/fd.h"
#include "runner/channel.h"
#include "runner/ipc.h"

static void put(GByteArray *out, QvIpcType type, const void *bytes, gsize n)
{
  guint8 header[QV_IPC_HEADER_BYTES];
  qv_ipc_header(type, n, header);
  g_byte_array_append(out, header, sizeof header);
  g_byte_array_append(out, bytes, n);
}

static void expect(QvIpcReader *reader, QvIpcType want, const char *text)
{
  QvIpcType type;
  const guint8 *payload;
  gsize n;
  g_assert_true(qv_ipc_reader_next(reader, &type, &payload, &n));
  g_assert_cmpstr(qv_ipc_name(type), ==, qv_ipc_name(want));
  g_assert_cmpmem(payload, n, text, strlen(text));
}

static void test_frames(void)
{
  g_autoptr(GByteArray) bytes = g_byte_array_new();
  put(bytes, QV_IPC_STARTED, "", 0);
  put(bytes, QV_IPC_TROUBLE, "blob_corrupt", 12);
  put(bytes, QV_IPC_REPORT, "{}", 2);
  for (gsize step = 1; step <= bytes->len; step += 7) {
    g_autoptr(QvIpcReader) reader = qv_ipc_reader_new(QV_IPC_FROM_JOB);
    g_autoptr(GPtrArray) got = g_ptr_array_new_with_free_func(g_free);
    for (gsize at = 0; at < bytes->len; at += step) {
      g_autoptr(GError) error = NULL;
      g_assert_true(qv_ipc_reader_feed(reader, bytes->data + at, MIN(step, bytes->len - at), &error));
      QvIpcType type;
      const guint8 *payload;
      gsize n;
      while (qv_ipc_reader_next(reader, &type, &payload, &n))
        g_ptr_array_add(got, g_strdup_printf("%s %.*s", qv_ipc_name(type), (int)n, (const char *)payload));
    }
    g_assert_cmpuint(got->len, ==, 3);
    g_assert_cmpstr(got->pdata[0], ==, "STARTED ");
    g_assert_cmpstr(got->pdata[1], ==, "TROUBLE blob_corrupt");
    g_assert_cmpstr(got->pdata[2], ==, "REPORT {}");
    g_assert_false(qv_ipc_reader_partial(reader));
  }
}

static void refuse(unsigned sender, guint32 n, guint32 type)
{
  g_autoptr(QvIpcReader) reader = qv_ipc_reader_new(sender);
  g_autoptr(GError) error = NULL;
  guint32 header[2] = {n, type};
  g_assert_false(qv_ipc_reader_feed(reader, (const guint8 *)header, sizeof header, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
}

static void test_refusals(void)
{
  refuse(QV_IPC_FROM_JOB, 0, QV_IPC_NONE);
  refuse(QV_IPC_FROM_JOB, 0, 1000);
  refuse(QV_IPC_FROM_JOB, 0, 0xffffffffu);
  refuse(QV_IPC_FROM_JOB, QV_IPC_TEXT_MAX + 1, QV_IPC_TROUBLE);
  refuse(QV_IPC_FROM_JOB, 0xffffffffu, QV_IPC_REPORT);
  refuse(QV_IPC_FROM_UNPACK, 0, QV_IPC_GONE);
  refuse(QV_IPC_FROM_UNPACK, 0, QV_IPC_SETUP);
  refuse(QV_IPC_FROM_JOB, 0, QV_IPC_STOP);
  refuse(QV_IPC_FROM_SUPERVISOR, 0, QV_IPC_VERDICT);
}

/* A bad header behind a good frame is met as well. */
static void test_bad_second(void)
{
  g_autoptr(GByteArray) bytes = g_byte_array_new();
  put(bytes, QV_IPC_STARTED, "", 0);
  guint32 header[2] = {0, QV_IPC_KEYS};
  g_byte_array_append(bytes, (const guint8 *)header, sizeof header);
  g_autoptr(QvIpcReader) reader = qv_ipc_reader_new(QV_IPC_FROM_JOB);
  g_autoptr(GError) error = NULL;
  g_assert_false(qv_ipc_reader_feed(reader, bytes->data, bytes->len, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_FORMAT);
}

static void test_partial(void)
{
  g_autoptr(QvIpcReader) reader = qv_ipc_reader_new(QV_IPC_FROM_JOB);
  g_autoptr(GByteArray) bytes = g_byte_array_new();
  put(bytes, QV_IPC_GONE, "", 0);
  put(bytes, QV_IPC_REPORT, "abc", 3);
  g_assert_true(qv_ipc_reader_feed(reader, bytes->data, bytes->len - 1, NULL));
  expect(reader, QV_IPC_GONE, "");
  g_assert_true(qv_ipc_reader_partial(reader));
  g_assert_true(qv_ipc_reader_feed(reader, bytes->data + bytes->len - 1, 1, NULL));
  expect(reader, QV_IPC_REPORT, "abc");
  g_assert_false(qv_ipc_reader_partial(reader));
}

/* The memory of a chunk is given back when it was taken: what comes behind it, whole or in part, is not lost with it. */
static void test_behind_large(void)
{
  static const char large[1024 * 1024];
  g_autoptr(GByteArray) bytes = g_byte_array_new();
  g_autoptr(QvIpcReader) reader = qv_ipc_reader_new(QV_IPC_FROM_SUPERVISOR);
  put(bytes, QV_IPC_CHUNK, large, sizeof large);
  gsize first = bytes->len;
  put(bytes, QV_IPC_CHUNK, "12345678abc", 11);
  for (gsize behind = 0; behind <= bytes->len - first; behind++) {
    QvIpcType type;
    const guint8 *payload;
    gsize n;
    g_assert_true(qv_ipc_reader_feed(reader, bytes->data, first + behind, NULL));
    g_assert_true(qv_ipc_reader_next(reader, &type, &payload, &n));
    g_assert_cmpmem(payload, n, large, sizeof large);
    g_assert_true(qv_ipc_reader_feed(reader, bytes->data + first + behind, bytes->len - first - behind, NULL));
    expect(reader, QV_IPC_CHUNK, "12345678abc");
    g_assert_false(qv_ipc_reader_next(reader, &type, &payload, &n));
    g_assert_false(qv_ipc_reader_partial(reader));
  }
}

typedef struct {
  GString *log;
  gsize bytes;
  gboolean refuse, ended;
} End;

static gboolean on_frame(QvIpcType type, const guint8 *payload, gsize n, gpointer data, GError **error)
{
  End *end = data;
  g_string_append_printf(end->log, "%s ", qv_ipc_name(type));
  end->bytes += n;
  if (end->refuse)
    g_set_error(error, QV_ERROR, QV_ERROR_FORMAT, "no");
  return !end->refuse;
}

static void on_end(const GError *error, gpointer data)
{
  End *end = data;
  g_string_append(end->log, error != NULL ? "error" : "end");
  end->ended = TRUE;
}

static void run_until(gboolean *flag)
{
  while (!*flag)
    g_main_context_iteration(NULL, TRUE);
}

/* Two megabytes in frames cross a socket whose buffer is far smaller, both sides in one loop. */
static void test_channel(void)
{
  int pair[2];
  g_assert_true(qv_fd_socketpair(pair, NULL));
  End near = {.log = g_string_new(NULL)}, far = {.log = g_string_new(NULL)};
  QvChannel *a = qv_channel_new(pair[0], QV_IPC_FROM_SUPERVISOR, on_frame, on_end, &near);
  QvChannel *b = qv_channel_new(pair[1], QV_IPC_FROM_JOB, on_frame, on_end, &far);
  g_autoptr(GBytes) body = g_bytes_new_take(g_malloc0(1048604), 1048604);
  guint32 head[2] = {0, 1};
  qv_channel_send(b, QV_IPC_CHUNK, head, sizeof head, body);
  qv_channel_send(b, QV_IPC_CHUNK, head, sizeof head, body);
  qv_channel_send(b, QV_IPC_STOP, NULL, 0, NULL);
  g_assert_cmpuint(qv_channel_queued_bytes(b), ==, 2 * (8 + 8 + 1048604) + 8);
  while (!g_str_has_suffix(near.log->str, "STOP "))
    g_main_context_iteration(NULL, TRUE);
  g_assert_cmpuint(near.bytes, ==, 2 * (8 + 1048604));
  qv_channel_send_u32(a, QV_IPC_CREDIT, 4);
  qv_channel_free(b);
  run_until(&near.ended);
  g_assert_cmpstr(near.log->str, ==, "CHUNK CHUNK STOP end");
  qv_channel_free(a);
  g_string_free(near.log, TRUE);
  g_string_free(far.log, TRUE);
}

/* Without a turn of the loop: what the other side takes is there, what it does not take comes later and in order. */
static void test_channel_push(void)
{
  int pair[2];
  guint8 header[QV_IPC_HEADER_BYTES], got[QV_IPC_HEADER_BYTES];
  g_assert_true(qv_fd_socketpair(pair, NULL));
  End near = {.log = g_string_new(NULL)}, far = {.log = g_string_new(NULL)};
  QvChannel *b = qv_channel_new(pair[1], QV_IPC_FROM_JOB, on_frame, on_end, &far);
  qv_channel_push(b, 60000);
  qv_channel_send(b, QV_IPC_STOP, NULL, 0, NULL);
  qv_channel_push(b, 60000);
  g_assert_cmpuint(qv_channel_queued_bytes(b), ==, 0);
  qv_ipc_header(QV_IPC_STOP, 0, header);
  g_assert_cmpint(qv_io_read_full(pair[0], got, sizeof got), ==, sizeof got);
  g_assert_cmpmem(got, sizeof got, header, sizeof header);
  g_autoptr(GBytes) body = g_bytes_new_take(g_malloc0(1048604), 1048604);
  guint32 head[2] = {0, 1};
  qv_channel_send(b, QV_IPC_CHUNK, head, sizeof head, body);
  qv_channel_push(b, 1);
  g_assert_cmpuint(qv_channel_queued_bytes(b), >, 0);
  qv_channel_send(b, QV_IPC_STOP, NULL, 0, NULL);
  QvChannel *a = qv_channel_new(pair[0], QV_IPC_FROM_SUPERVISOR, on_frame, on_end, &near);
  while (!g_str_has_suffix(near.log->str, "STOP "))
    g_main_context_iteration(NULL, TRUE);
  g_assert_cmpstr(near.log->str, ==, "CHUNK STOP ");
  qv_channel_free(a);
  qv_channel_send(b, QV_IPC_STOP, NULL, 0, NULL);
  qv_channel_push(b, 60000); /* nobody is there: nothing is said, and not waited */
  run_until(&far.ended);
  qv_channel_free(b);
  g_string_free(near.log, TRUE);
  g_string_free(far.log, TRUE);
}

static void test_channel_refuses(void)
{
  int pair[2];
  g_assert_true(qv_fd_socketpair(pair, NULL));
  End near = {.log = g_string_new(NULL), .refuse = TRUE}, far = {.log = g_string_new(NULL)};
  QvChannel *a = qv_channel_new(pair[0], QV_IPC_FROM_SUPERVISOR, on_frame, on_end, &near);
  QvChannel *b = qv_channel_new(pair[1], QV_IPC_FROM_JOB, on_frame, on_end, &far);
  qv_channel_send(b, QV_IPC_STOP, NULL, 0, NULL);
  qv_channel_send(b, QV_IPC_STOP, NULL, 0, NULL);
  run_until(&near.ended);
  g_assert_cmpstr(near.log->str, ==, "STOP error");
  qv_channel_free(a);
  run_until(&far.ended);
  qv_channel_send(b, QV_IPC_STOP, NULL, 0, NULL);
  qv_channel_free(b);
  g_string_free(near.log, TRUE);
  g_string_free(far.log, TRUE);
}

/* What was said before the other side went away is heard, although writing to it fails. */
static void test_last_words(void)
{
  int pair[2];
  g_assert_true(qv_fd_socketpair(pair, NULL));
  guint8 header[QV_IPC_HEADER_BYTES];
  qv_ipc_header(QV_IPC_GONE, 0, header);
  g_assert_true(qv_fd_write_all(pair[1], "pair", header, sizeof header, NULL));
  close(pair[1]);
  End near = {.log = g_string_new(NULL)};
  QvChannel *a = qv_channel_new(pair[0], QV_IPC_FROM_JOB, on_frame, on_end, &near);
  qv_channel_send(a, QV_IPC_STOP, NULL, 0, NULL);
  run_until(&near.ended);
  g_assert_cmpstr(near.log->str, ==, "GONE end");
  qv_channel_free(a);
  g_string_free(near.log, TRUE);
}

int main(int argc, char **argv)
{
  signal(SIGPIPE, SIG_IGN);
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/ipc/frames", test_frames);
  g_test_add_func("/ipc/refusals", test_refusals);
  g_test_add_func("/ipc/bad-second", test_bad_second);
  g_test_add_func("/ipc/partial", test_partial);
  g_test_add_func("/ipc/behind-large", test_behind_large);
  g_test_add_func("/channel/two-megabytes", test_channel);
  g_test_add_func("/channel/push", test_channel_push);
  g_test_add_func("/channel/refuses", test_channel_refuses);
  g_test_add_func("/channel/last-words", test_last_words);
  return g_test_run();
}
