/* SPDX-License-Identifier: Apache-2.0 */
/* A real engine that misbehaves: a restart in the middle, answers that are late, lost, altered or come byte by byte, a full disk,
 * containers that do not die, streams that are longer than any buffer. Where a real engine cannot be made to do it, a
 * relay before it does, so that everything else is the engine's own word. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "fixture.h"
#include "support/proxy.h"

#define MIB ((gsize)1024 * 1024)
#define THAW_MS 3000

static void require_words(const char *text, const char *words)
{
  if (text == NULL || strstr(text, words) == NULL)
    g_error("'%s' is not in: %s", words, text != NULL ? text : "(nothing)");
}

/* A guest that has ended before it started: why. */
static void require_failure(Guest *guest, const char *words)
{
  wait_until(&guest->exited);
  g_assert_cmpuint(guest->started, ==, 0);
  require_words(qv_sandbox_failure(guest->sandbox), words);
}

static void require_works(Fixture *f, QvBackend *backend)
{
  Guest *guest = guest_start(f, backend, &SMALL, NULL);
  guest_expect(guest, "echo again", "echo again");
  guest_free(guest);
  assert_no_leftovers(f->backend);
}

/* A relay before the engine, and a backend of the same runner behind it. */
typedef struct {
  QvTestProxy *proxy;
  QvBackend *backend;
  GThread *thread; /* will thaw it */
} Relay;

static Relay relay_open(Fixture *f, guint start_deadline_ms)
{
  g_autoptr(GError) error = NULL;
  Relay relay = {.proxy = qv_test_proxy_start(f->dir, qv_test_dockerd_socket(backend_dockerd()))};
  QvBackendOptions options = fixture_options(f, "test-runner");
  options.docker_socket = qv_test_proxy_socket(relay.proxy);
  if (start_deadline_ms != 0)
    options.start_deadline_ms = start_deadline_ms;
  relay.backend = qv_backend_open(row->name, &options, &error);
  g_assert_no_error(error);
  return relay;
}

static void relay_close(Relay *relay)
{
  if (relay->thread != NULL)
    g_thread_join(relay->thread);
  qv_backend_free(relay->backend);
  qv_test_proxy_free(relay->proxy);
}

static gpointer thaw(gpointer data)
{
  g_usleep(THAW_MS * 1000);
  qv_test_proxy_freeze(data, FALSE);
  return NULL;
}

/* Silent from now on, for THAW_MS. */
static void relay_pause(Relay *relay)
{
  qv_test_proxy_freeze(relay->proxy, TRUE);
  relay->thread = g_thread_new("thaw", thaw, relay->proxy);
}

/* A creation that was under way when its caller went still makes a container, after the kill's look perhaps: the sweep that comes
 * every minute finds it. The engine tells when it is there. */
static void sweep_created(Fixture *f, const char *id)
{
  g_autofree char *filter = g_strdup_printf("{\"event\":[\"create\"],\"label\":[\"quavon.job=%s\"]}", id);
  g_autofree char *escaped = g_uri_escape_string(filter, NULL, FALSE);
  for (gint64 until = qv_clock_mono_ms() + DEADLINE_MS;; g_usleep(100000)) {
    g_autofree char *path = g_strdup_printf("/events?since=1&until=%" G_GINT64_FORMAT "&filters=%s", qv_clock_unix_ms() / 1000 + 1,
                                            escaped);
    g_autofree char *text = qv_test_dockerd_call(backend_dockerd(), "GET", path, NULL, NULL);
    if (strstr(text, id) != NULL)
      break;
    g_assert_cmpint(qv_clock_mono_ms(), <, until);
  }
  g_autoptr(GError) error = NULL;
  QvSweepReport report;
  g_assert_true(qv_backend_sweep(f->backend, NULL, &report, &error));
  g_assert_no_error(error);
  assert_no_leftovers(f->backend);
}

/* ---- the engine goes and comes */

static void test_restarted(Fixture *f, gconstpointer data)
{
  Guest *guest = guest_started(f, &SMALL);
  qv_test_dockerd_stop(backend_dockerd());
  wait_until(&guest->exited);
  qv_test_dockerd_restart(backend_dockerd());
  guest_free(guest);
  assert_no_leftovers(f->backend);
  require_works(f, f->backend);
}

static void test_slow(Fixture *f, gconstpointer data)
{
  Relay relay = relay_open(f, 0);
  relay_pause(&relay);
  Guest *guest = guest_start(f, relay.backend, &SMALL, NULL);
  guest_expect(guest, "echo late", "echo late");
  g_thread_join(g_steal_pointer(&relay.thread));
  relay_pause(&relay);
  guest_free(guest); /* the kill waits for its answer */
  assert_no_leftovers(f->backend);
  relay_close(&relay);
}

static void test_too_slow(Fixture *f, gconstpointer data)
{
  Relay relay = relay_open(f, 500);
  qv_test_proxy_freeze(relay.proxy, TRUE);
  Guest *guest = guest_start(f, relay.backend, &SMALL, NULL);
  require_failure(guest, "did not start within 500 ms");
  g_autofree char *id = g_strdup(qv_sandbox_id(guest->sandbox));
  qv_test_proxy_freeze(relay.proxy, FALSE);
  guest_free(guest);
  sweep_created(f, id);
  relay_close(&relay);
}

/* With the deadlines as they are. */
static void test_half_a_minute(Fixture *f, gconstpointer data)
{
  if (g_getenv("QUAVON_TEST_LONG") == NULL) {
    g_test_skip("QUAVON_TEST_LONG is not set: it waits for a deadline of 30 s");
    return;
  }
  Relay relay = relay_open(f, 0);
  qv_test_proxy_freeze(relay.proxy, TRUE);
  Guest *guest = guest_start(f, relay.backend, &SMALL, NULL);
  require_failure(guest, "no answer within 30000 ms");
  g_autofree char *id = g_strdup(qv_sandbox_id(guest->sandbox));
  relay_pause(&relay);
  guest_free(guest);
  sweep_created(f, id);
  relay_close(&relay);
  require_works(f, f->backend);
}

/* The engine did what it was asked, and its answer is lost: what it made is found and removed, and made once. What only asks
 * may be asked again. */
static void test_lost_answers(Fixture *f, gconstpointer data)
{
  static const struct {
    const char *call;
    gboolean asks;
  } ROWS[] = {{"/containers/create", FALSE}, {"/json HTTP", TRUE}, {"/attach?", FALSE}, {"/wait?", FALSE},
              {"/events?", TRUE}, {"/start HTTP", FALSE}, {"/containers/create", FALSE}};
  Relay relay = relay_open(f, 0);
  for (gsize i = 0; i < G_N_ELEMENTS(ROWS); i++) {
    guint lost_n = qv_test_proxy_lost_n(relay.proxy);
    g_test_message("%s", ROWS[i].call);
    qv_test_proxy_lose_reply_to(relay.proxy, ROWS[i].call, 1);
    Guest *guest = guest_start(f, relay.backend, &SMALL, NULL);
    while (guest->started + guest->exited == 0)
      g_main_context_iteration(NULL, TRUE);
    if (!ROWS[i].asks)
      require_failure(guest, "lost");
    g_assert_cmpuint(qv_test_proxy_lost_n(relay.proxy), ==, lost_n + 1);
    guest_free(guest);
    assert_no_leftovers(f->backend);
  }
  relay_close(&relay);
}

/* ---- answers */

static void test_byte_by_byte(Fixture *f, gconstpointer data)
{
  Relay relay = relay_open(f, 0);
  qv_test_proxy_trickle(relay.proxy, TRUE);
  Guest *guest = guest_start(f, relay.backend, &SMALL, NULL);
  for (guint i = 0; i < 20; i++) {
    g_autofree char *line = g_strdup_printf("echo %0*u", (int)i + 1, i);
    guest_expect(guest, line, line);
  }
  guest_free(guest);
  assert_no_leftovers(f->backend);
  relay_close(&relay);
}

/* The engine has another image under the name: told by the check, and by every job's own look. */
static void test_altered(Fixture *f, gconstpointer data)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *other = g_strdup(f->digest);
  char *last = other + strlen(other) - 1;
  *last = *last == '0' ? '1' : '0';
  Relay relay = relay_open(f, 0);
  qv_test_proxy_alter(relay.proxy, f->digest, other);
  g_assert_false(check_with(relay.backend, f->digest, NULL, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_AUTH);
  require_words(error->message, "the engine has image");
  Guest *guest = guest_start(f, relay.backend, &SMALL, NULL);
  require_failure(guest, other);
  require_words(qv_sandbox_failure(guest->sandbox), "in place of");
  guest_free(guest);
  assert_no_leftovers(f->backend);
  relay_close(&relay);
}

/* One setting that the engine did not keep. TEXT and OTHER: a part of its account of a container, of the same length. */
static void require_dropped(Fixture *f, const char *text, const char *other, const char *name, const char *allow)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvTestProxy) proxy = qv_test_proxy_start(f->dir, qv_test_dockerd_socket(backend_dockerd()));
  QvBackendOptions options = fixture_options(f, "test-runner");
  options.docker_socket = qv_test_proxy_socket(proxy);
  options.docker_allow = allow;
  g_autoptr(QvBackend) backend = qv_backend_open(row->name, &options, &error);
  g_assert_no_error(error);
  qv_test_proxy_alter(proxy, text, other);
  Guest *guest = guest_start(f, backend, &SMALL, NULL);
  if (allow == NULL)
    require_failure(guest, name);
  else
    guest_expect(guest, "echo without", "echo without");
  guest_free(guest);
  assert_no_leftovers(f->backend);
}

static void test_setting_dropped(Fixture *f, gconstpointer data)
{
  require_dropped(f, "\"ReadonlyRootfs\":true", "\"ReadonlyRootfs\":null", "ReadonlyRootfs", NULL);
  require_dropped(f, "\"NetworkMode\":\"none\"", "\"NetworkMode\":\"host\"", "NetworkMode", NULL);
  require_dropped(f, "\"MemorySwap\":", "\"MemorySwop\":", "MemorySwap", NULL);
  require_dropped(f, "\"MemorySwap\":", "\"MemorySwop\":", "MemorySwap", "MemorySwap");
}

/* What GET /version has behind NAME, as TEXT and the same with VALUE in the place of its first characters. */
static void alter_version(QvTestProxy *proxy, const char *name, const char *value)
{
  g_autofree char *text = qv_test_dockerd_call(backend_dockerd(), "GET", "/version", NULL, NULL);
  g_autofree char *head = g_strdup_printf("\"%s\":\"", name);
  const char *at = g_strrstr(text, head); /* the engine's own; before it are its components' */
  g_assert_nonnull(at);
  g_autofree char *old = g_strndup(at, strlen(head) + strlen(value));
  g_autofree char *other = g_strconcat(head, value, NULL);
  qv_test_proxy_alter(proxy, old, other);
}

/* An older engine is refused, or accepted knowingly; the API is the newest that both sides have. */
static void test_other_versions(Fixture *f, gconstpointer data)
{
  static const struct {
    const char *name, *value, *path;
  } APIS[] = {{"ApiVersion", "1.41", "POST /v1.41/containers/create"}, {"MinAPIVersion", "1.44", "POST /v1.44/containers/create"}};
  g_autoptr(GError) error = NULL;
  g_autoptr(QvTestProxy) proxy = qv_test_proxy_start(f->dir, qv_test_dockerd_socket(backend_dockerd()));
  QvBackendOptions options = fixture_options(f, "test-runner");
  options.docker_socket = qv_test_proxy_socket(proxy);
  alter_version(proxy, "Version", "19.");
  g_assert_null(qv_backend_open(row->name, &options, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_POLICY);
  require_words(error->message, "the engine is 19.");
  require_words(error->message, "accept it with QUAVON_SANDBOX_ENGINE_MIN=19");
  g_clear_error(&error);
  options.engine_min = 19;
  g_autoptr(QvBackend) old = qv_backend_open(row->name, &options, &error);
  g_assert_no_error(error);
  require_works(f, old);
  options.engine_min = 0;
  for (gsize i = 0; i < G_N_ELEMENTS(APIS); i++) {
    alter_version(proxy, APIS[i].name, APIS[i].value);
    g_autoptr(QvBackend) backend = qv_backend_open(row->name, &options, &error);
    g_assert_no_error(error);
    guint lost_n = qv_test_proxy_lost_n(proxy);
    qv_test_proxy_lose_reply_to(proxy, APIS[i].path, 1);
    Guest *guest = guest_start(f, backend, &SMALL, NULL);
    require_failure(guest, "lost");
    g_assert_cmpuint(qv_test_proxy_lost_n(proxy), ==, lost_n + 1);
    guest_free(guest);
    require_works(f, backend);
  }
}

static void call_ok(const char *method, const char *path, int expected)
{
  int status;
  g_autofree char *text = qv_test_dockerd_call(backend_dockerd(), method, path, NULL, &status);
  if (status != expected)
    g_error("%s %s: %d %s", method, path, status, text);
}

/* A tag that moves to another image moves no job: the digest decides, and when it is gone nothing stands in for it. */
static void test_tag_moves(Fixture *f, gconstpointer data)
{
  g_autofree char *folder = fixture_root(f, "changed", g_getenv("QUAVON_TEST_PROBE"));
  g_autofree char *file = g_build_filename(folder, "etc", "changed", NULL);
  g_assert_true(g_file_set_contents(file, "changed", -1, NULL));
  g_autofree char *first = g_strdup_printf("/images/%s/tag?repo=quavon-test&tag=base", f->digest);
  call_ok("POST", first, 201);
  g_autofree char *changed = qv_test_dockerd_image(backend_dockerd(), folder, NULL);
  g_assert_cmpstr(changed, !=, f->digest);
  g_autofree char *second = g_strdup_printf("/images/%s/tag?repo=quavon-test&tag=base", changed);
  call_ok("POST", second, 201);
  Guest *guest = guest_started(f, &SMALL);
  guest_expect(guest, "read /etc/changed", "open ENOENT");
  guest_free(guest);
  g_autofree char *gone = g_strdup_printf("/images/%s?force=1", f->digest);
  call_ok("DELETE", gone, 200);
  guest = guest_start(f, f->backend, &SMALL, NULL);
  require_failure(guest, "quavon images load");
  guest_free(guest);
  call_ok("DELETE", "/images/quavon-test:base?force=1", 200);
}

/* ---- a full disk */

static char *small_path(QvTestDockerd *small, const char *name)
{
  return g_strdup_printf("/proc/%d/root%s/data/%s", (int)qv_test_dockerd_pid(small), qv_test_dockerd_dir(small), name);
}

static void fill(const char *path)
{
  static const char block[65536] = "full";
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  g_assert_cmpint(fd, >=, 0);
  for (gsize step = sizeof block; step > 0;)
    if (write(fd, block, step) < 0)
      step /= 2;
  close(fd);
}

static void test_disk_full(Fixture *f, gconstpointer data)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvTestDockerd) small = qv_test_dockerd_start(QV_TEST_DOCKERD_SMALL);
  g_autofree char *digest = qv_test_dockerd_image(small, f->root, NULL);
  g_autofree char *filler = small_path(small, "filler");
  QvBackendOptions options = fixture_options(f, "test-runner");
  options.docker_socket = qv_test_dockerd_socket(small);
  g_autoptr(QvBackend) backend = qv_backend_open(row->name, &options, &error);
  g_assert_no_error(error);
  QvSandboxRequest request = fixture_request(f, NULL, &SMALL);
  request.image_digest = digest;
  /* One that runs goes on: it writes to tmpfs alone. */
  Guest *running = guest_start_request(backend, &request);
  guest_expect(running, "echo before", "echo before");
  fill(filler);
  QvSandboxRequest another = fixture_request(f, NULL, &SMALL);
  another.image_digest = digest;
  Guest *guest = guest_start_request(backend, &another);
  require_failure(guest, "no space left on device");
  require_words(qv_sandbox_failure(guest->sandbox), "docker system df");
  guest_free(guest);
  guest_expect(running, "echo behind", "echo behind");
  guest_free(running);
  assert_no_leftovers(backend);
  g_assert_cmpint(unlink(filler), ==, 0);
  QvSandboxRequest last = fixture_request(f, NULL, &SMALL);
  last.image_digest = digest;
  guest = guest_start_request(backend, &last);
  guest_expect(guest, "echo again", "echo again");
  guest_free(guest);
  assert_no_leftovers(backend);
}

/* ---- containers that do not die */

static void kill_stopped(Fixture *f, const char *comm)
{
  Guest *guest = guest_started(f, &SMALL);
  pid_t pid = leftover_process(f->backend, qv_sandbox_id(guest->sandbox), comm);
  g_assert_cmpint(pid, >, 1);
  g_assert_cmpint(kill(pid, SIGSTOP), ==, 0);
  guest_free(guest);
  assert_no_leftovers(f->backend);
  require_works(f, f->backend);
}

static void test_stopped_sandbox(Fixture *f, gconstpointer data)
{
  kill_stopped(f, row->process);
}

/* The engine waits for a shim that does not answer. */
static void test_stopped_shim(Fixture *f, gconstpointer data)
{
  kill_stopped(f, "containerd-shim");
}

/* Taken away by somebody between creation and start. */
static void test_removed_before_start(Fixture *f, gconstpointer data)
{
  Relay relay = relay_open(f, 0);
  Guest *guest = guest_start(f, relay.backend, &SMALL, NULL);
  g_autofree char *note = g_build_filename(f->state, "runs", qv_sandbox_id(guest->sandbox), "container", NULL);
  g_autofree char *id = NULL;
  for (gint64 until = qv_clock_mono_ms() + DEADLINE_MS; !g_file_get_contents(note, &id, NULL, NULL) || strlen(id) != 64;) {
    g_assert_cmpint(qv_clock_mono_ms(), <, until);
    g_clear_pointer(&id, g_free);
    g_main_context_iteration(NULL, FALSE);
  }
  qv_test_proxy_freeze(relay.proxy, TRUE);
  g_autofree char *path = g_strdup_printf("/containers/%s?force=1", id);
  call_ok("DELETE", path, 204);
  qv_test_proxy_freeze(relay.proxy, FALSE);
  wait_until(&guest->exited);
  guest_free(guest);
  assert_no_leftovers(f->backend);
  relay_close(&relay);
}

/* ---- streams */

static gsize resident_bytes(void)
{
  g_autofree char *text = NULL;
  unsigned long pages = 0;
  g_assert_true(g_file_get_contents("/proc/self/statm", &text, NULL, NULL));
  g_assert_cmpint(sscanf(text, "%*u %lu", &pages), ==, 1);
  return pages * (gsize)sysconf(_SC_PAGESIZE);
}

/* 200 MiB through the engine, to a reader that pauses: every byte arrives, and nothing piles up here. */
static void test_flood(Fixture *f, gconstpointer data)
{
  const gsize total = 200 * MIB;
  g_autofree char *bytes = g_malloc(MIB);
  Guest *guest = guest_started(f, &SMALL);
  guest_expect(guest, "echo up", "echo up");
  memset(bytes, 0, MIB);
  gsize before = resident_bytes(), got = 0, most = 0;
  guest_send(guest, "flood 200");
  for (gint64 until = qv_clock_mono_ms() + DEADLINE_MS; got < total;) {
    g_assert_cmpint(qv_clock_mono_ms(), <, until);
    g_main_context_iteration(NULL, FALSE);
    ssize_t n = read(guest->out, bytes, MIN(MIB, total - got));
    g_assert_true(n > 0 || (n < 0 && errno == EAGAIN));
    for (ssize_t i = 0; i < n; i += 4093)
      g_assert_cmpint(bytes[i], ==, 'f');
    if (got / (50 * MIB) != (got + (gsize)MAX(n, 0)) / (50 * MIB))
      for (guint turn = 0; turn < 200; turn++, g_usleep(1000))
        g_main_context_iteration(NULL, FALSE);
    got += (gsize)MAX(n, 0);
    most = MAX(most, resident_bytes());
  }
  g_test_message("%zu KiB more than before", (MAX(most, before) - before) / 1024);
#ifndef __SANITIZE_ADDRESS__ /* it keeps what was freed */
  g_assert_cmpuint(most - MIN(most, before), <, 32 * MIB);
#endif
  g_autofree char *line_end = guest_ask(guest, "echo behind");
  g_assert_cmpstr(line_end, ==, "");
  guest_free(guest);
}

/* Writes as much of BYTES as is taken. */
static gsize write_some(Guest *guest, const char *bytes, gsize n)
{
  ssize_t written = write(guest->in, bytes, n);
  g_assert_true(written > 0 || errno == EAGAIN);
  return (gsize)MAX(written, 0);
}

/* The guest takes no input for a while: the writer has to wait, nothing piles up, and then all of it arrives. */
static void test_stdin_blocked(Fixture *f, gconstpointer data)
{
  g_autofree char *word = g_strnfill(900, 'w');
  g_autofree char *line = g_strconcat("echo ", word, "\n", NULL);
  const gsize line_n = strlen(line);
  Guest *guest = guest_started(f, &SMALL);
  guest_send(guest, "burn 3000");
  gsize sent = 0, got = 0;
  for (guint idle = 0; idle < 100;) {
    gsize n = write_some(guest, line + sent % line_n, line_n - sent % line_n);
    sent += n;
    idle = n > 0 ? 0 : idle + 1;
    g_main_context_iteration(NULL, FALSE);
    g_usleep(n > 0 ? 0 : 1000);
    g_assert_cmpuint(sent, <, 16 * MIB);
  }
  const gsize total = (sent + line_n - 1) / line_n * line_n + strlen("burnt\n");
  for (gint64 until = qv_clock_mono_ms() + DEADLINE_MS; got < total;) {
    char bytes[65536];
    g_assert_cmpint(qv_clock_mono_ms(), <, until);
    g_main_context_iteration(NULL, FALSE);
    if (sent % line_n != 0)
      sent += write_some(guest, line + sent % line_n, line_n - sent % line_n);
    ssize_t n = read(guest->out, bytes, sizeof bytes);
    g_assert_true(n > 0 || (n < 0 && errno == EAGAIN));
    got += (gsize)MAX(n, 0);
    g_usleep(n > 0 ? 0 : 1000);
  }
  g_assert_cmpuint(got, ==, total);
  guest_expect(guest, "echo end", "echo end");
  guest_free(guest);
}

static const FixtureCase CASES[] = {
  {ON_DOCKER, "restarted", test_restarted},
  {ON_DOCKER, "slow", test_slow},
  {ON_DOCKER, "too-slow", test_too_slow},
  {ON_DOCKER_RUNSC, "half-a-minute", test_half_a_minute},
  {ON_DOCKER_RUNSC, "lost-answers", test_lost_answers},
  {ON_DOCKER, "byte-by-byte", test_byte_by_byte},
  {ON_DOCKER, "altered", test_altered},
  {ON_DOCKER, "setting-dropped", test_setting_dropped},
  {ON_DOCKER, "other-versions", test_other_versions},
  {ON_DOCKER, "tag-moves", test_tag_moves},
  {ON_DOCKER, "disk-full", test_disk_full},
  {ON_DOCKER_RUNSC, "stopped-sandbox", test_stopped_sandbox},
  {ON_DOCKER, "stopped-shim", test_stopped_shim},
  {ON_DOCKER, "removed-before-start", test_removed_before_start},
  {ON_DOCKER, "flood", test_flood},
  {ON_DOCKER, "stdin-blocked", test_stdin_blocked},
};

int main(int argc, char **argv)
{
  return fixture_main(argc, argv, "trouble", CASES, G_N_ELEMENTS(CASES));
}
