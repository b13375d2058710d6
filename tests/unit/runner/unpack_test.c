/* SPDX-License-Identifier: Apache-2.0 */
/* The unpack process as it runs in production, filter and all, on good, cut, altered and
 * senseless streams: it always tells a verdict and never dies of its own filter; and the filter by
 * itself, on what it must kill. */
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/fd.h"
#include "base/io.h"
#include "base/log.h"
#include "base/sha256.h"
#include "format/tar.h"
#include "runner/ipc.h"
#include "runner/unpack.h"
#include "runner/unpack_filter.h"
#include "support/valgrind.h"
#include "unpack_process.h"

/* ---- a stream as an entry writes it */

static GByteArray *stream_with(const char *live)
{
  GByteArray *out = g_byte_array_new();
  if (live != NULL)
    unpack_add_member(out, "live/0.0", live);
  unpack_add_member(out, "steps/0.json",
             "{\"durationMs\":5,\"exitCode\":0,\"logTotalBytes\":6,\"logTruncated\":false,\"name\":\"step\",\"signal\":null,"
             "\"startedMs\":1,\"timedOut\":false}");
  unpack_add_member(out, "logs/0.log", "hello\n");
  unpack_add_member(out, "artefacts/out.bin", "an artefact");
  const char *bare = "{\"artefactsDropped\":0,\"code\":null,\"forkFailed\":false,\"status\":\"done\",\"v\":1}";
  QvHmacSha256 hmac;
  guint8 mac[QV_SHA256_BYTES];
  char mac_text[QV_BASE64_LEN(QV_SHA256_BYTES) + 1];
  qv_hmac_sha256_init(&hmac, unpack_stream_key, sizeof unpack_stream_key);
  qv_hmac_sha256_update(&hmac, out->data, out->len);
  qv_hmac_sha256_update(&hmac, bare, strlen(bare));
  qv_hmac_sha256_final(&hmac, mac);
  qv_base64_encode(mac, sizeof mac, mac_text);
  g_autofree char *text = g_strdup_printf(
    "{\"artefactsDropped\":0,\"code\":null,\"forkFailed\":false,\"mac\":\"%s\",\"status\":\"done\",\"v\":1}", mac_text);
  unpack_add_member(out, "exit.json", text);
  g_byte_array_append(out, qv_tar_zeros, QV_TAR_END_BYTES);
  return out;
}

static GByteArray *good_stream(void)
{
  return stream_with(NULL);
}

/* ---- runs */

/* What is refused early is no longer read: EPIPE is fine. */
static UnpackOutcome run(const guint8 *bytes, gsize n, gsize portion)
{
  UnpackProcess process = unpack_start(FALSE, FALSE);
  for (gsize at = 0; at < n; at += portion) {
    if (!qv_fd_write_all(process.guest, "guest", bytes + at, MIN(portion, n - at), NULL))
      break;
  }
  shutdown(process.guest, SHUT_WR);
  return unpack_finish(&process);
}

static void test_complete(void)
{
  g_autoptr(GByteArray) stream = good_stream();
  for (int i = 0; i < 2; i++) {
    UnpackOutcome outcome = run(stream->data, stream->len, i == 0 ? stream->len : 1);
    g_assert_cmpint(outcome.verdict, ==, QV_UNPACK_COMPLETE);
    g_assert_cmpuint(outcome.payload_bytes, >, 0);
    g_assert_cmpuint(outcome.progress, ==, 2);
    g_assert_cmpuint(outcome.progress_last, ==, QV_IPC_COLLECTING);
    g_assert_nonnull(outcome.report);
    g_assert_cmpint(outcome.report[64], ==, '\n');
    g_assert_nonnull(strstr(outcome.report, "\"out.bin\""));
    g_free(outcome.report);
  }
}

/* Asked for, it is handed on as it is; else it is a breach. */
static void test_live(void)
{
  g_autoptr(GByteArray) stream = stream_with("so\033far");
  for (int asked = 0; asked < 2; asked++) {
    UnpackProcess process = unpack_start(asked, FALSE);
    qv_fd_write_all(process.guest, "guest", stream->data, stream->len, NULL);
    shutdown(process.guest, SHUT_WR);
    UnpackOutcome outcome = unpack_finish(&process);
    g_assert_cmpint(outcome.verdict, ==, asked ? QV_UNPACK_COMPLETE : QV_UNPACK_BAD);
    g_assert_cmpstr(asked ? outcome.live->str : NULL, ==, asked ? "0:so\033far;" : NULL);
    g_assert_cmpuint(outcome.progress, ==, asked ? 2 : 0);
    if (outcome.live != NULL)
      g_string_free(outcome.live, TRUE);
    g_free(outcome.report);
  }
}

static void test_filtered(void)
{
  UnpackProcess process = unpack_start(FALSE, FALSE);
  g_autofree char *path = g_strdup_printf("/proc/%d/status", process.pid);
  gboolean filtered = FALSE;
  for (int tries = 0; tries < 6000 && !filtered; tries++) {
    g_autofree char *text = NULL;
    g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
    filtered = strstr(text, "Seccomp:\t2") != NULL && strstr(text, "NoNewPrivs:\t1") != NULL;
    g_usleep(10000);
  }
  g_assert_true(filtered);
  shutdown(process.guest, SHUT_WR);
  UnpackOutcome outcome = unpack_finish(&process);
  g_assert_cmpint(outcome.verdict, ==, QV_UNPACK_CUT);
}

static void test_cut(void)
{
  g_autoptr(GByteArray) stream = good_stream();
  for (gsize n = 0; n < stream->len; n += 511) {
    UnpackOutcome outcome = run(stream->data, n, 4096);
    g_assert_cmpint(outcome.verdict, ==, QV_UNPACK_CUT);
    g_assert_null(outcome.report);
  }
  g_byte_array_append(stream, (const guint8 *)"x", 1);
  UnpackOutcome outcome = run(stream->data, stream->len, stream->len);
  g_assert_cmpint(outcome.verdict, ==, QV_UNPACK_BAD);
}

static void test_altered(void)
{
  g_autoptr(GByteArray) stream = good_stream();
  for (gsize at = 0; at < stream->len; at += 97) {
    stream->data[at] ^= 1;
    UnpackOutcome outcome = run(stream->data, stream->len, 4096);
    g_assert_cmpint(outcome.verdict, !=, QV_UNPACK_COMPLETE);
    g_assert_cmpint(outcome.verdict, !=, -1);
    stream->data[at] ^= 1;
  }
}

static void test_noise(void)
{
  g_autoptr(GRand) rand = g_rand_new_with_seed(11);
  g_autofree guint8 *noise = g_malloc(100000);
  for (int round = 0; round < 10; round++) {
    for (gsize i = 0; i < 100000; i++)
      noise[i] = g_rand_int(rand);
    UnpackOutcome outcome = run(noise, 100000, 4096);
    g_assert_cmpint(outcome.verdict, ==, QV_UNPACK_BAD);
  }
}

/* ---- the filter alone */

enum { DO_OPEN, DO_SOCKET, DO_EXEC, DO_READ, DO_WRITE, DO_KILL, DO_MAP_EXEC, DO_FORK, DO_N };

static void forbidden(int what)
{
  char byte = 0;
  switch (what) {
  case DO_OPEN:
    open("/dev/null", O_RDONLY);
    break;
  case DO_SOCKET:
    socket(AF_UNIX, SOCK_STREAM, 0);
    break;
  case DO_EXEC:
    execl("/bin/true", "true", NULL);
    break;
  case DO_READ:
    (void)!read(0, &byte, 1);
    break;
  case DO_WRITE:
    (void)!write(QV_UNPACK_GUEST_FD, &byte, 1);
    break;
  case DO_KILL:
    kill(getppid(), 0);
    break;
  case DO_MAP_EXEC:
    mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    break;
  case DO_FORK:
    fork();
    break;
  }
}

/* Valgrind has system calls and memory of its own, which the filter and the limits would meet. */
static gboolean under_valgrind(void)
{
  if (!qv_test_under_valgrind())
    return FALSE;
  g_test_skip("cannot run under valgrind");
  return TRUE;
}

/* Exit status of a child behind its limits; 0: each of them bites. */
static int try_limits(void)
{
  if (!qv_unpack_limits_enter(NULL))
    return 1;
  if (getuid() == 0 || geteuid() == 0 || setuid(0) == 0)
    return 2;
#if !defined(__SANITIZE_ADDRESS__)
  if (mmap(NULL, QV_UNPACK_MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
    return 3;
#endif
  pid_t pid = fork();
  if (pid == 0)
    _exit(0);
  if (pid > 0)
    return 4;
  int file = memfd_create("x", 0);
  if (file >= 0 && write(file, "x", 1) == 1)
    return 5;
  if (open("/etc/shadow", O_RDONLY) >= 0)
    return 6;
  return 0;
}

/* Exit status of a child that logs behind limits and filter, where stderr is a file that it may not write. */
static int try_log(int file)
{
  if (dup2(file, STDERR_FILENO) < 0 || !qv_unpack_limits_enter(NULL) || !qv_unpack_filter_enter(NULL))
    return 1;
  qv_log(QV_LOG_ERROR, "a line", "that", "is lost", NULL);
  return write(STDERR_FILENO, "x", 1) < 0 && errno == EFBIG ? 0 : 2;
}

/* The line is lost, and nothing else: its end by a signal would be taken for the guest's deed. */
static void test_logs_to_file(void)
{
  if (under_valgrind())
    return;
  QV_AUTOFD int file = memfd_create("log", MFD_CLOEXEC);
  g_assert_cmpint(file, >=, 0);
  pid_t pid = fork();
  if (pid == 0)
    _exit(try_log(file));
  int status;
  g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
  g_assert_cmpint(status, ==, 0);
  g_assert_cmpint(lseek(file, 0, SEEK_END), ==, 0);
}

static void test_limits(void)
{
  if (under_valgrind())
    return;
  if (geteuid() != 0) {
    g_test_skip("needs root");
    return;
  }
  pid_t pid = fork();
  if (pid == 0)
    _exit(try_limits());
  int status;
  g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
  g_assert_true(WIFEXITED(status));
  g_assert_cmpint(WEXITSTATUS(status), ==, 0);
}

/* The line NAME of a process's status, waited for: the process sets itself up. */
static char *status_line(GPid pid, const char *name)
{
  g_autofree char *path = g_strdup_printf("/proc/%d/status", pid);
  g_autofree char *text = NULL, *head = g_strdup_printf("\n%s:", name);
  g_assert_true(g_file_get_contents(path, &text, NULL, NULL));
  const char *at = strstr(text, head);
  g_assert_nonnull(at);
  at += strlen(head);
  return g_strstrip(g_strndup(at, strcspn(at, "\n")));
}

/* As it waits for the guest's first byte: nobody, without capabilities, behind its filter, with its descriptors alone. */
static void test_holds_nothing(void)
{
  if (geteuid() != 0) {
    g_test_skip("needs root");
    return;
  }
  UnpackProcess process = unpack_start(FALSE, FALSE);
  gint64 end = g_get_monotonic_time() + 60 * G_USEC_PER_SEC;
  for (;;) {
    g_autofree char *seccomp = status_line(process.pid, "Seccomp");
    if (strcmp(seccomp, "2") == 0)
      break;
    g_assert_cmpint(g_get_monotonic_time(), <, end);
    g_usleep(10000);
  }
  static const char *const want[][2] = {{"CapPrm", "0000000000000000"}, {"CapEff", "0000000000000000"}, {"NoNewPrivs", "1"},
                                        {"Uid", "65534\t65534\t65534\t65534"}, {"Groups", ""}};
  for (gsize i = 0; i < G_N_ELEMENTS(want); i++) {
    g_autofree char *line = status_line(process.pid, want[i][0]);
    g_assert_cmpstr(line, ==, want[i][1]);
  }
  g_autofree char *path = g_strdup_printf("/proc/%d/fd", process.pid);
  g_autoptr(GDir) folder = g_dir_open(path, 0, NULL);
  const char *name;
  g_assert_nonnull(folder);
  while ((name = g_dir_read_name(folder)) != NULL)
    g_assert_cmpint(g_ascii_strtoll(name, NULL, 10), <=, QV_UNPACK_GUEST_FD);
  shutdown(process.guest, SHUT_RDWR);
  UnpackOutcome outcome = unpack_finish(&process);
  g_assert_cmpint(outcome.verdict, ==, QV_UNPACK_CUT);
}

/* One whose job never comes ends in silence: behind its limits nothing that a library does at an exit would work. */
static void test_not_wanted(void)
{
  int config[2], frames[2], words = -1, status;
  g_assert_true(qv_fd_socketpair(config, NULL) && qv_fd_pipe(frames, NULL));
  g_autofree char *program = g_build_filename(g_getenv("QUAVON_BUILD_ROOT"), "src", "runner", "quavon-sandbox-runner", NULL);
  const char *argv[] = {program, "--role", "unpack", NULL};
  const int source[] = {config[0], frames[1]}, target[] = {3, 4};
  GPid pid;
  g_autoptr(GError) error = NULL;
  g_spawn_async_with_pipes_and_fds(NULL, argv, NULL, G_SPAWN_DO_NOT_REAP_CHILD, NULL, NULL, -1, -1, -1, source, target, 2, &pid, NULL,
                                   NULL, &words, &error);
  g_assert_no_error(error);
  close(config[0]);
  close(config[1]);
  close(frames[1]);
  char text[2048] = "";
  ssize_t n = qv_io_read_full(words, text, sizeof text - 1);
  g_assert_cmpstr(text, ==, "");
  g_assert_cmpint(n, ==, 0);
  g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
  g_assert_cmpint(status, ==, W_EXITCODE(1, 0));
  close(words);
  close(frames[0]);
}

static void test_end_texts(void)
{
  static const struct {
    int status;
    const char *word;
  } CASES[] = {{SIGSYS, "system calls"}, {SIGXCPU, "processor time"}, {SIGKILL, "from outside"}, {SIGTRAP, "memory"},
               {SIGSEGV, "crashed with signal 11"}, {SIGABRT, "crashed with signal 6"}, {1 << 8, "status 1"}};
  for (gsize i = 0; i < G_N_ELEMENTS(CASES); i++) {
    g_autofree char *text = qv_unpack_end_text(CASES[i].status);
    g_assert_nonnull(strstr(text, CASES[i].word));
  }
}

static void test_filter(void)
{
  if (under_valgrind())
    return;
  for (int what = 0; what <= DO_N; what++) {
    pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_DUMPABLE, 0);
      int null = open("/dev/null", O_RDWR);
      dup2(null, QV_UNPACK_GUEST_FD);
      dup2(null, QV_UNPACK_OUT_FD);
      if (!qv_unpack_filter_enter(NULL))
        _exit(9);
      char byte = 0;
      if (read(QV_UNPACK_GUEST_FD, &byte, 1) != 0 || write(QV_UNPACK_OUT_FD, &byte, 1) != 1 ||
          mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
        _exit(8);
      forbidden(what);
      _exit(0);
    }
    int status;
    g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
    if (what == DO_N)
      g_assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    else
      g_assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
  }
}

int main(int argc, char **argv)
{
  signal(SIGPIPE, SIG_IGN);
  g_test_init(&argc, &argv, NULL);
  g_test_add_func("/unpack/complete", test_complete);
  g_test_add_func("/unpack/live", test_live);
  g_test_add_func("/unpack/filtered", test_filtered);
  g_test_add_func("/unpack/cut", test_cut);
  g_test_add_func("/unpack/altered", test_altered);
  g_test_add_func("/unpack/noise", test_noise);
  g_test_add_func("/unpack/filter", test_filter);
  g_test_add_func("/unpack/limits", test_limits);
  g_test_add_func("/unpack/logs-to-file", test_logs_to_file);
  g_test_add_func("/unpack/holds-nothing", test_holds_nothing);
  g_test_add_func("/unpack/not-wanted", test_not_wanted);
  g_test_add_func("/unpack/end-texts", test_end_texts);
  return g_test_run();
}
