/* SPDX-License-Identifier: Apache-2.0 */
/* Caps of the output, each crossed by a stream that goes on without an end: it is named, at most 64 KiB more
 * are read, and the memory of the process stays what it was. And a reader on the other side that reads nothing: then
 * nothing is read here either. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "format/tar.h"
#include "runner/ipc.h"
#include "runner/unpack.h"
#include "support/valgrind.h"
#include "unpack_process.h"

enum { MORE_MAX = 64 * 1024, PEAK_MAX_KIB = 64 * 1024, HELD_MAX = 4 * 1024 * 1024, LONG_BYTES = 4 * HELD_MAX, DEADLINE_S = 120 };

#define RECORD(log) \
  "{\"durationMs\":5,\"exitCode\":0,\"logTotalBytes\":" log ",\"logTruncated\":false,\"name\":\"step\",\"signal\":null," \
  "\"startedMs\":1,\"timedOut\":false}"

/* The kernel counts what this program had when it started the other one: with a sanitizer, or under valgrind, more than that may have. */
static void check_peak(const UnpackOutcome *outcome)
{
#if !defined(__SANITIZE_ADDRESS__)
  if (!qv_test_under_valgrind())
    g_assert_cmpint(outcome->peak_kib, <, PEAK_MAX_KIB);
#endif
}

static void add_header(GByteArray *out, const char *path, guint64 size)
{
  guint8 header[QV_TAR_HEADER_BYTES_MAX];
  gsize n;
  g_assert_cmpint(qv_tar_header(path, size, FALSE, header, &n), ==, QV_TAR_OK);
  g_byte_array_append(out, header, n);
}

/* An extended header, as long as it says. */
static void add_pax(GByteArray *out, guint64 size)
{
  guint8 header[QV_TAR_HEADER_BYTES_MAX];
  gsize n;
  unsigned sum = 0;
  g_assert_cmpint(qv_tar_header("pax", 0, FALSE, header, &n), ==, QV_TAR_OK);
  snprintf((char *)header + 124, 12, "%011llo", (unsigned long long)size);
  header[156] = 'x';
  memset(header + 148, ' ', 8);
  for (gsize i = 0; i < QV_TAR_BLOCK_BYTES; i++)
    sum += header[i];
  snprintf((char *)header + 148, 8, "%06o", sum);
  header[155] = ' ';
  g_byte_array_append(out, header, QV_TAR_BLOCK_BYTES);
}

static void make_record(GByteArray *out)
{
  add_header(out, "steps/0.json", 64 * 1024 + 1);
}

static void make_huge_record(GByteArray *out)
{
  add_header(out, "steps/0.json", G_GUINT64_CONSTANT(7) << 30);
}

static void make_log(GByteArray *out)
{
  unpack_add_member(out, "steps/0.json", RECORD("65537"));
  add_header(out, "logs/0.log", 65537);
}

static void make_step(GByteArray *out)
{
  unpack_add_member(out, "steps/0.json", RECORD("1"));
  unpack_add_member(out, "logs/0.log", "x");
}

static void make_artefact(GByteArray *out)
{
  make_step(out);
  add_header(out, "artefacts/a.bin", 1048577);
}

static void make_artefacts_in_all(GByteArray *out)
{
  g_autofree char *half = g_strnfill(600000, 'x');
  make_step(out);
  unpack_add_member(out, "artefacts/a.bin", half);
  add_header(out, "artefacts/b.bin", 600000);
}

/* Of a million empty files the fifth is one too many. */
static void make_empty_files(GByteArray *out)
{
  make_step(out);
  for (int i = 0; i < 5; i++) {
    g_autofree char *path = g_strdup_printf("artefacts/%07d.bin", i);
    add_header(out, path, 0);
  }
}

static void make_long_name(GByteArray *out)
{
  make_step(out);
  add_pax(out, 100 * 1024);
}

static void make_pax_bomb(GByteArray *out)
{
  make_step(out);
  add_pax(out, 1 << 30);
}

static void make_live(GByteArray *out)
{
  add_header(out, "live/0.0", 16 * 1024 + 1);
}

static void make_nothing(GByteArray *out)
{
}

static const struct {
  const char *name;
  void (*make)(GByteArray *out); /* up to the byte that crosses the cap */
  char filler;
  const char *said;
} caps[] = {
  {"record", make_record, 'x', "longer than a record may be"},
  {"record-of-7-gib", make_huge_record, 'x', "size cap"},
  {"log", make_log, 'x', "longer than logBytes"},
  {"artefact", make_artefact, 'x', "size cap"},
  {"artefacts-in-all", make_artefacts_in_all, 'x', "over artefactBytes"},
  {"empty-files", make_empty_files, 0, "more than artefactCount"},
  {"long-name", make_long_name, 'a', "a path of more than 1024 bytes"},
  {"pax-bomb", make_pax_bomb, 'a', "a path of more than 1024 bytes"},
  {"live", make_live, 'x', "cap of live members"},
  {"letters", make_nothing, 'x', "header"},
  {"zeros", make_nothing, 0, "end"},
};

/* Bytes that fit in; FALSE: the process has read its last. */
static gboolean push(int fd, const guint8 *bytes, gsize n, gsize *taken)
{
  while (n > 0) {
    ssize_t wrote = send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (wrote < 0)
      return errno == EAGAIN || errno == EINTR;
    bytes += wrote;
    n -= wrote;
    *taken += wrote;
  }
  return TRUE;
}

/* What is left unread in the socket of the process, through a descriptor of our own. */
static gsize unread(int fd)
{
  guint8 bytes[65536];
  gsize left = 0;
  ssize_t got;
  while ((got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
    left += got;
  return left;
}

static void test_cap(gconstpointer data)
{
  gsize i = GPOINTER_TO_SIZE(data), taken = 0, prefix_at = 0;
  g_autoptr(GByteArray) prefix = g_byte_array_new();
  guint8 filler[65536];
  caps[i].make(prefix);
  memset(filler, caps[i].filler, sizeof filler);
  UnpackProcess process = unpack_start(TRUE, TRUE);
  /* Until it has said its verdict: what it wrote lies in its pipe. */
  struct pollfd frames = {.fd = process.frames, .events = POLLIN};
  gint64 end = g_get_monotonic_time() + DEADLINE_S * G_USEC_PER_SEC;
  gboolean ended = FALSE;
  while (!ended) {
    g_assert_cmpint(g_get_monotonic_time(), <, end);
    gsize before = taken;
    if (prefix_at < prefix->len) {
      g_assert_true(push(process.guest, prefix->data + prefix_at, prefix->len - prefix_at, &taken));
      prefix_at += taken - before;
    } else {
      push(process.guest, filler, sizeof filler, &taken);
    }
    if (before == taken) { /* full: it reads, or it has ended */
      poll(&frames, 1, 10);
      ended = (frames.revents & POLLHUP) != 0;
    }
  }
  gsize read_n = taken - unread(process.kept);
  UnpackOutcome outcome = unpack_finish(&process);
  g_test_message("%s: cap at %u, %" G_GSIZE_FORMAT " bytes read, peak %ld KiB: %s", caps[i].name, prefix->len, read_n,
                 outcome.peak_kib, outcome.why);
  g_assert_cmpint(outcome.verdict, ==, QV_UNPACK_BAD);
  g_assert_nonnull(strstr(outcome.why, caps[i].said));
  g_assert_cmpuint(read_n, >=, prefix->len);
  g_assert_cmpuint(read_n, <=, prefix->len + MORE_MAX);
  check_peak(&outcome);
}

/* An artefact of what does not compress, and nobody takes the frames: the process waits, and holds what it held. */
static void test_slow_reader(void)
{
  g_autoptr(GByteArray) stream = g_byte_array_new();
  g_autoptr(GRand) rand = g_rand_new_with_seed(7);
  guint8 noise[65536]; /* twice what a compressor remembers */
  gsize taken = 0, at = 0;
  for (gsize k = 0; k < sizeof noise; k++)
    noise[k] = g_rand_int(rand);
  make_step(stream);
  add_header(stream, "artefacts/a.bin", LONG_BYTES);
  for (gsize i = 0; i < LONG_BYTES / sizeof noise; i++)
    g_byte_array_append(stream, noise, sizeof noise);
  add_header(stream, "artefacts/b.bin", 0);
  UnpackProcess process = unpack_start_for(LONG_BYTES, FALSE, TRUE);
  /* It stands still once its own pipe is full. */
  for (int idle = 0; idle < 100 && at < stream->len;) {
    gsize before = taken;
    g_assert_true(push(process.guest, stream->data + at, stream->len - at, &taken));
    at += taken - before;
    idle = taken == before ? idle + 1 : 0;
    g_usleep(taken == before ? 10000 : 0);
  }
  g_assert_cmpuint(taken, <, HELD_MAX);
  shutdown(process.guest, SHUT_WR);
  UnpackOutcome outcome = unpack_finish(&process);
  g_assert_cmpint(outcome.verdict, ==, QV_UNPACK_CUT);
  g_test_message("%" G_GSIZE_FORMAT " bytes of %u before anything was taken, peak %ld KiB", taken, stream->len, outcome.peak_kib);
  check_peak(&outcome);
}

int main(int argc, char **argv)
{
  signal(SIGPIPE, SIG_IGN);
  g_test_init(&argc, &argv, NULL);
  for (gsize i = 0; i < G_N_ELEMENTS(caps); i++) {
    g_autofree char *path = g_strconcat("/unpack/caps/", caps[i].name, NULL);
    g_test_add_data_func(path, GSIZE_TO_POINTER(i), test_cap);
  }
  g_test_add_func("/unpack/caps/slow-reader", test_slow_reader);
  return g_test_run();
}
