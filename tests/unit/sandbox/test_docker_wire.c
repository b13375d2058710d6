/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and the attached stream against an engine that is a socket of ours: every split, ends within a frame, a reader
 * that does not read, a writer that is not read from. */
#include <errno.h>
#include <fcntl.h>
#include <glib-unix.h>
#include <glib/gstdio.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "sandbox/docker_attach.h"
#include "sandbox/docker_frames.h"

#define DEADLINE_MS 120000
#define HEAD "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"

static void append_frame(GString *to, int kind, const char *bytes, gsize n)
{
  const char header[] = {(char)kind, 0, 0, 0, (char)(n >> 24), (char)(n >> 16), (char)(n >> 8), (char)n};
  g_string_append_len(to, header, sizeof header);
  g_string_append_len(to, bytes, (gssize)n);
}

typedef struct {
  char *dir, *path;
  int listener, engine;   /* engine: the accepted connection */
  int in, out;            /* our ends: what goes to stdin, what comes from stdout */
  QvAttach *attach;
  GString *err;
  guint ready, ended;
  GError *error;
} Wire;

static void on_ready(gpointer data)
{
  ((Wire *)data)->ready++;
}

static void on_diagnostics(const guint8 *bytes, gsize n, gpointer data)
{
  g_string_append_len(((Wire *)data)->err, (const char *)bytes, (gssize)n);
}

static void on_ended(const GError *error, gpointer data)
{
  Wire *wire = data;
  wire->ended++;
  wire->error = error != NULL ? g_error_copy(error) : NULL;
}

static void wire_open(Wire *wire, guint deadline_ms)
{
  static const QvAttachEvents events = {on_ready, on_diagnostics, on_ended};
  g_autoptr(GError) error = NULL;
  char name[] = "/tmp/qv-wire-XXXXXX";
  *wire = (Wire){.err = g_string_new(NULL), .engine = -1};
  wire->dir = g_strdup(g_mkdtemp(name));
  wire->path = g_build_filename(wire->dir, "s", NULL);
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  g_strlcpy(at.sun_path, wire->path, sizeof at.sun_path);
  wire->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  g_assert_cmpint(bind(wire->listener, (struct sockaddr *)&at, sizeof at), ==, 0);
  g_assert_cmpint(listen(wire->listener, 1), ==, 0);
  int in[2], out[2];
  g_assert_true(qv_fd_socketpair(in, NULL) && qv_fd_socketpair(out, NULL));
  for (int i = 0; i < 2; i++)
    g_assert_true(qv_io_set_nonblock(in[i], true) && qv_io_set_nonblock(out[i], true));
  wire->in = in[0];
  wire->out = out[0];
  wire->attach = qv_attach_new(wire->path, "1.43", "cafe", in[1], out[1], deadline_ms, &events, wire, &error);
  g_assert_no_error(error);
  wire->engine = accept4(wire->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  g_assert_cmpint(wire->engine, >=, 0);
  /* The request; a socket that is closed over unread bytes resets the other side. */
  g_autoptr(GString) request = g_string_new(NULL);
  while (strstr(request->str, "\r\n\r\n") == NULL) {
    char byte;
    g_assert_cmpint(read(wire->engine, &byte, 1), ==, 1);
    g_string_append_c(request, byte);
  }
  g_assert_true(g_str_has_prefix(request->str, "POST /v1.43/containers/cafe/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\n"));
}

static void wire_close(Wire *wire)
{
  qv_attach_free(wire->attach);
  close(wire->listener);
  qv_io_close_cleanup(&wire->engine);
  close(wire->in);
  close(wire->out);
  g_unlink(wire->path);
  g_rmdir(wire->dir);
  g_free(wire->dir);
  g_free(wire->path);
  g_string_free(wire->err, TRUE);
  g_clear_error(&wire->error);
}

static void turn(void)
{
  while (g_main_context_iteration(NULL, FALSE))
    ;
}

static gboolean wake(gpointer data)
{
  return G_SOURCE_CONTINUE;
}

static void until(const guint *flag)
{
  gint64 end = qv_clock_mono_ms() + DEADLINE_MS;
  guint id = g_timeout_add(10, wake, NULL);
  while (*flag == 0) {
    g_assert_cmpint(qv_clock_mono_ms(), <, end);
    g_main_context_iteration(NULL, TRUE);
  }
  g_source_remove(id);
}

static void engine_says(Wire *wire, const char *bytes, gsize n)
{
  g_assert_true(qv_io_write_full(wire->engine, bytes, n));
}

static void take_out(Wire *wire, GString *out)
{
  char bytes[65536];
  ssize_t n;
  while ((n = read(wire->out, bytes, sizeof bytes)) > 0)
    g_string_append_len(out, bytes, n);
}

/* Head, frames of both kinds, an empty frame: every border at which a read may end. */
static void test_every_split(void)
{
  g_autoptr(GString) stream = g_string_new(HEAD);
  append_frame(stream, 1, "out", 3);
  append_frame(stream, 2, "error", 5);
  append_frame(stream, 1, "", 0);
  append_frame(stream, 1, "put\n", 4);
  for (gsize split = 0; split <= stream->len; split++) {
    Wire wire;
    wire_open(&wire, DEADLINE_MS);
    engine_says(&wire, stream->str, split);
    turn();
    engine_says(&wire, stream->str + split, stream->len - split);
    qv_io_close_cleanup(&wire.engine);
    until(&wire.ended);
    g_autoptr(GString) out = g_string_new(NULL);
    take_out(&wire, out);
    g_assert_no_error(wire.error);
    g_assert_cmpuint(wire.ready, ==, 1);
    g_assert_cmpstr(out->str, ==, "output\n");
    g_assert_cmpstr(wire.err->str, ==, "error");
    wire_close(&wire);
  }
}

static void test_byte_by_byte(void)
{
  g_autoptr(GString) stream = g_string_new(HEAD);
  append_frame(stream, 1, "out", 3);
  append_frame(stream, 2, "error", 5);
  append_frame(stream, 1, "put\n", 4);
  Wire wire;
  wire_open(&wire, DEADLINE_MS);
  for (gsize i = 0; i < stream->len; i++) {
    engine_says(&wire, stream->str + i, 1);
    turn();
  }
  qv_io_close_cleanup(&wire.engine);
  until(&wire.ended);
  g_autoptr(GString) out = g_string_new(NULL);
  take_out(&wire, out);
  g_assert_cmpstr(out->str, ==, "output\n");
  g_assert_cmpstr(wire.err->str, ==, "error");
  wire_close(&wire);
}

static void require_end(const char *bytes, gsize n, int code, guint ready)
{
  Wire wire;
  wire_open(&wire, DEADLINE_MS);
  engine_says(&wire, bytes, n);
  turn();
  qv_io_close_cleanup(&wire.engine);
  until(&wire.ended);
  g_assert_error(wire.error, QV_ERROR, code);
  g_assert_cmpuint(wire.ready, ==, ready);
  wire_close(&wire);
}

static void test_bad_ends(void)
{
  g_autoptr(GString) cut = g_string_new(HEAD);
  append_frame(cut, 1, "0123456789", 10);
  require_end(cut->str, cut->len - 4, QV_ERROR_GONE, 1);
  require_end(cut->str, sizeof HEAD - 1 + 3, QV_ERROR_GONE, 1);
  require_end(HEAD, 30, QV_ERROR_GONE, 0);
  require_end("", 0, QV_ERROR_GONE, 0);
  static const char NOT_FOUND[] = "HTTP/1.1 404 Not Found\r\n\r\n{\"message\":\"no such container\"}";
  require_end(NOT_FOUND, sizeof NOT_FOUND - 1, QV_ERROR_PEER, 0);
  g_autoptr(GString) wrong = g_string_new(HEAD "this is no frame");
  require_end(wrong->str, wrong->len, QV_ERROR_FORMAT, 1);
  g_autofree char *flood = g_strnfill(20000, 'h');
  require_end(flood, 20000, QV_ERROR_LIMIT, 0);
}

static void test_deadline(void)
{
  Wire wire;
  wire_open(&wire, 50);
  until(&wire.ended);
  g_assert_error(wire.error, QV_ERROR, QV_ERROR_TIMEOUT);
  wire_close(&wire);
}

/* 200 MB of stdout to a reader that pauses: nothing is lost, and nothing piles up. */
static void test_flood(void)
{
  const gsize total = (gsize)200 * 1000 * 1000;
  g_autoptr(GString) frame = g_string_new(NULL);
  g_autofree char *block = g_malloc(32768);
  memset(block, 'f', 32768);
  append_frame(frame, 1, block, 32768);
  Wire wire;
  wire_open(&wire, DEADLINE_MS);
  engine_says(&wire, HEAD, sizeof HEAD - 1);
  until(&wire.ready);
  gsize sent = 0, got = 0, at = 0;
  gint64 end = qv_clock_mono_ms() + DEADLINE_MS;
  g_autofree char *bytes = g_malloc(1 << 20);
  while (got < total / 32768 * 32768) {
    g_assert_cmpint(qv_clock_mono_ms(), <, end);
    while (sent < total / 32768) {
      ssize_t n = write(wire.engine, frame->str + at, frame->len - at);
      if (n < 0)
        break;
      at += (gsize)n;
      if (at == frame->len) {
        at = 0;
        sent++;
      }
    }
    turn();
    /* What the pump holds is one buffer; the rest waits in two sockets. */
    g_assert_cmpuint(sent * 32768 - MIN(got, sent * 32768), <, 8 * 1024 * 1024);
    ssize_t n = read(wire.out, bytes, 1 << 20);
    for (ssize_t i = 0; i < n; i += 4093)
      g_assert_cmpint(bytes[i], ==, 'f');
    got += n > 0 ? (gsize)n : 0;
  }
  qv_io_close_cleanup(&wire.engine);
  until(&wire.ended);
  g_assert_no_error(wire.error);
  wire_close(&wire);
}

/* The engine takes nothing: the writer is told to wait, and stdout goes on. */
static void test_stdin_blocked(void)
{
  g_autofree char *block = g_malloc0(65536);
  g_autoptr(GString) frame = g_string_new(NULL);
  Wire wire;
  wire_open(&wire, DEADLINE_MS);
  engine_says(&wire, HEAD, sizeof HEAD - 1);
  until(&wire.ready);
  gsize written = 0;
  for (guint idle = 0; idle < 20;) {
    ssize_t n = write(wire.in, block, 65536);
    written += n > 0 ? (gsize)n : 0;
    idle = n > 0 ? 0 : idle + 1;
    turn();
    g_assert_cmpuint(written, <, 16 * 1024 * 1024);
  }
  append_frame(frame, 1, "alive", 5);
  engine_says(&wire, frame->str, frame->len);
  turn();
  g_autoptr(GString) out = g_string_new(NULL);
  take_out(&wire, out);
  g_assert_cmpstr(out->str, ==, "alive");
  /* And all of it arrives once the engine reads: the request, then every byte. */
  gsize arrived = 0;
  gint64 end = qv_clock_mono_ms() + DEADLINE_MS;
  char bytes[65536];
  while (arrived < written) {
    g_assert_cmpint(qv_clock_mono_ms(), <, end);
    ssize_t n = read(wire.engine, bytes, sizeof bytes);
    for (ssize_t i = 0; i < n; i++)
      arrived += bytes[i] == '\0';
    turn();
  }
  g_assert_cmpuint(arrived, ==, written);
  wire_close(&wire);
}

/* Nobody reads stdout any more: the stream is read to its end all the same. */
static void test_reader_gone(void)
{
  g_autoptr(GString) stream = g_string_new(HEAD);
  append_frame(stream, 1, "out", 3);
  append_frame(stream, 2, "last words", 10);
  Wire wire;
  wire_open(&wire, DEADLINE_MS);
  close(wire.out);
  wire.out = open("/dev/null", O_RDONLY | O_CLOEXEC);
  engine_says(&wire, stream->str, stream->len);
  turn();
  qv_io_close_cleanup(&wire.engine);
  until(&wire.ended);
  g_assert_no_error(wire.error);
  g_assert_cmpstr(wire.err->str, ==, "last words");
  wire_close(&wire);
}

int main(int argc, char **argv)
{
  setlocale(LC_ALL, "");
  signal(SIGPIPE, SIG_IGN);
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/sandbox/docker_wire/every-split", test_every_split);
  g_test_add_func("/sandbox/docker_wire/byte-by-byte", test_byte_by_byte);
  g_test_add_func("/sandbox/docker_wire/bad-ends", test_bad_ends);
  g_test_add_func("/sandbox/docker_wire/deadline", test_deadline);
  g_test_add_func("/sandbox/docker_wire/flood", test_flood);
  g_test_add_func("/sandbox/docker_wire/stdin-blocked", test_stdin_blocked);
  g_test_add_func("/sandbox/docker_wire/reader-gone", test_reader_gone);
  return g_test_run();
}
