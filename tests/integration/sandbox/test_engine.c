/* SPDX-License-Identifier: Apache-2.0 */
/* The docker-* backends against an engine that refuses, dies, forgets, or has been tampered with. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "fixture.h"
#include "sandbox/run_folder.h"

static void require_refusal(const QvBackendOptions *options, int code, const char *words)
{
  g_autoptr(GError) error = NULL;
  g_autoptr(QvBackend) backend = qv_backend_open(row->name, options, &error);
  g_assert_null(backend);
  g_assert_error(error, QV_ERROR, code);
  if (strstr(error->message, words) == NULL)
    g_error("'%s' is not in: %s", words, error->message);
}

/* ---- opening */

static void test_open_refuses(Fixture *f, gconstpointer data)
{
  const QvBackendOptions good = fixture_options(f, "r");
  QvBackendOptions options = good;
  options.docker_socket = "/nowhere/docker.sock";
  require_refusal(&options, QV_ERROR_GONE, "no engine answers at /nowhere/docker.sock");
  options = good;
  options.engine_min = 99;
  require_refusal(&options, QV_ERROR_POLICY, "QUAVON_SANDBOX_ENGINE_MIN=");
  options = good;
  options.docker_allow = "MemorySwap,Privileged";
  require_refusal(&options, QV_ERROR_POLICY, "Privileged cannot be done without");
  if (!ON(ON_GVISOR))
    return;
  options = good;
  options.runtime_offline = "no-such-runtime";
  require_refusal(&options, QV_ERROR_POLICY, "runsc install --runtime=no-such-runtime -- --platform=systrap --network=none");
  options.runtime_offline = "runsc-ptrace";
  require_refusal(&options, QV_ERROR_POLICY, "runsc-ptrace of the engine has no --platform=systrap");
  options.runtime_offline = "runsc-bare";
  require_refusal(&options, QV_ERROR_POLICY, "--platform=systrap");
  options.runtime_offline = "runsc-false";
  require_refusal(&options, QV_ERROR_POLICY, "--platform=systrap");
  /* The one with a network is looked at where jobs may have one. */
  options = good;
  options.runtime = "runsc-ptrace";
  g_autoptr(GError) error = NULL;
  g_autoptr(QvBackend) backend = qv_backend_open(row->name, &options, &error);
  g_assert_no_error(error);
  options.egress_network = "some-network";
  require_refusal(&options, QV_ERROR_POLICY, "runsc-ptrace");
}

/* ---- what is told of the engine */

static gboolean say_nothing(gpointer data)
{
  *(guint *)data += 1;
  return FALSE;
}

static gboolean reload(gpointer data)
{
  *(guint *)data += 1;
  g_assert_cmpint(kill(qv_test_dockerd_pid(backend_dockerd()), SIGHUP), ==, 0);
  return TRUE;
}

/* Who is told of it asks nothing, and runs sandboxes all the same. */
static void test_told(Fixture *f, gconstpointer data)
{
  QvBackendOptions options = fixture_options(f, "r");
  g_autofree char *text = qv_backend_engine(f->backend);
  g_assert_nonnull(text);
  options.engine = text;
  options.docker_socket = "/nowhere/docker.sock";
  g_autoptr(GError) error = NULL;
  g_autoptr(QvBackend) nowhere = qv_backend_open(row->name, &options, &error);
  g_assert_no_error(error);
  g_assert_cmpstr(qv_backend_cgroup(nowhere), ==, qv_backend_cgroup(f->backend));
  options = fixture_options(f, "r");
  options.engine = text;
  g_autoptr(QvBackend) backend = qv_backend_open(row->name, &options, &error);
  g_assert_no_error(error);
  g_autofree char *again = qv_backend_engine(backend);
  g_assert_cmpstr(again, ==, text);
  Guest *guest = guest_start(f, backend, &SMALL, NULL);
  wait_until(&guest->started);
  guest_free(guest);
  options.engine = "{}";
  require_refusal(&options, QV_ERROR_FORMAT, "what is told of the engine");
}

/* The watch ends by itself when the engine has read its settings anew, when it goes, and where nobody wants it any more. */
static void test_watch(Fixture *f, gconstpointer data)
{
  guint times = 0;
  qv_backend_await_change(f->backend, say_nothing, &times);
  g_assert_cmpuint(times, ==, 1);
  qv_backend_await_change(f->backend, reload, &times);
  g_assert_cmpuint(times, ==, 2);
}

/* As somebody who is in no group of the socket's: the group is named. */
static void test_no_permission(Fixture *f, gconstpointer data)
{
  int ends[2];
  g_assert_true(qv_fd_pipe(ends, NULL));
  g_assert_cmpint(chmod(f->dir, 0755), ==, 0);
  g_assert_cmpint(chmod(qv_test_dockerd_dir(backend_dockerd()), 0755), ==, 0);
  g_assert_cmpint(chmod(qv_test_dockerd_socket(backend_dockerd()), 0660), ==, 0);
  g_assert_cmpint(chmod(f->state, 0777), ==, 0);
  QvBackendOptions options = fixture_options(f, "r");
  pid_t pid = fork();
  g_assert_cmpint(pid, >=, 0);
  if (pid == 0) {
    GError *error = NULL;
    if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0)
      _exit(3);
    QvBackend *backend = qv_backend_open(row->name, &options, &error);
    const char *text = error != NULL ? error->message : "it was opened";
    gboolean written = qv_io_write_full(ends[1], text, strlen(text));
    _exit(written && backend == NULL && error->code == QV_ERROR_AUTH ? 0 : 1);
  }
  close(ends[1]);
  gsize n;
  g_autofree char *text = qv_fd_read_all(ends[0], "child", 4096, &n, NULL);
  int status;
  g_assert_cmpint(waitpid(pid, &status, 0), ==, pid);
  close(ends[0]);
  if (status != 0 || strstr(text, "it belongs to group ") == NULL || strstr(text, "usermod -aG") == NULL)
    g_error("status %d: %s", status, text);
}

/* ---- images */

static void require_check(Fixture *f, const char *digest, int code, const char *words)
{
  g_autoptr(GError) error = NULL;
  g_assert_false(check_with(f->backend, digest, NULL, &error));
  g_assert_error(error, QV_ERROR, code);
  if (strstr(error->message, words) == NULL)
    g_error("'%s' is not in: %s", words, error->message);
  assert_no_leftovers(f->backend);
}

static void test_images(Fixture *f, gconstpointer data)
{
  static const char ABSENT[] = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
  require_check(f, ABSENT, QV_ERROR_NOT_FOUND, "quavon images load");
  g_autofree char *strange = fixture_root(f, "strange", g_getenv("QUAVON_TEST_PROBE"));
  g_autofree char *other = qv_test_dockerd_image(backend_dockerd(), strange, "s390x");
  require_check(f, other, QV_ERROR_POLICY, "is for s390x");
  g_autofree char *empty = fixture_root(f, "empty", NULL);
  g_autofree char *none = qv_test_dockerd_image(backend_dockerd(), empty, NULL);
  require_check(f, none, QV_ERROR_SYSTEM, "has no /opt/quavon/entry that runs here");
  /* Gone between check and job. */
  QvSandboxRequest request = fixture_request(f, NULL, &SMALL);
  request.image_digest = ABSENT;
  Guest *guest = guest_start_request(f->backend, &request);
  wait_until(&guest->exited);
  g_assert_cmpuint(guest->started, ==, 0);
  g_assert_nonnull(strstr(qv_sandbox_failure(guest->sandbox), "quavon images load"));
  guest_free(guest);
}

static void test_runtime_fails(Fixture *f, gconstpointer data)
{
  QvBackendOptions options = fixture_options(f, "test-runner");
  options.runtime = "runsc-broken";
  options.egress_network = "none";
  g_autoptr(GError) error = NULL;
  g_autoptr(QvBackend) backend = qv_backend_open(row->name, &options, &error);
  g_assert_no_error(error);
  g_assert_false(check_with(backend, f->digest, NULL, &error));
  g_assert_nonnull(strstr(error->message, "trial start of a container on the network none failed"));
  assert_no_leftovers(backend);
}

/* On an engine as a host has it: this release of runsc refuses networks on new kernels, says so in its own words, and leaves
 * processes that no call of the engine removes. Where it does not refuse, there is nothing to see. */
static void test_refused_network(Fixture *f, gconstpointer data)
{
  g_autoptr(QvTestDockerd) plain = qv_test_dockerd_start(QV_TEST_DOCKERD_PLAIN);
  g_autofree char *digest = qv_test_dockerd_image(plain, f->root, NULL);
  QvBackendOptions options = fixture_options(f, "test-runner");
  options.docker_socket = qv_test_dockerd_socket(plain);
  options.egress_network = "none";
  g_autoptr(GError) error = NULL;
  g_autoptr(QvBackend) backend = qv_backend_open(row->name, &options, &error);
  g_assert_no_error(error);
  if (check_with(backend, digest, NULL, &error)) {
    g_test_skip("this kernel lets runsc have networks");
  } else if (strstr(error->message, "install a newer runsc") == NULL) {
    g_error("no remedy in: %s", error->message);
  }
  assert_no_leftovers(backend);
}

/* ---- the engine dies */

static void require_lost(Fixture *f, Guest *guest)
{
  wait_until(&guest->exited);
  g_assert_cmpuint(guest->started, ==, 1);
  qv_test_dockerd_restart(backend_dockerd());
  guest_free(guest); /* kills, and requires that nothing remains */
  assert_no_leftovers(f->backend);
  guest = guest_started(f, &SMALL);
  guest_expect(guest, "echo again", "echo again");
  guest_free(guest);
}

static void test_engine_killed(Fixture *f, gconstpointer data)
{
  Guest *guest = guest_started(f, &SMALL);
  qv_test_dockerd_kill(backend_dockerd());
  require_lost(f, guest);
}

static void test_containerd_killed(Fixture *f, gconstpointer data)
{
  Guest *guest = guest_started(f, &SMALL);
  qv_test_dockerd_kill_all(backend_dockerd());
  require_lost(f, guest);
}

/* Ended, though perhaps not reaped: the engine's keeper inherits what a dead shim had. */
static gboolean is_dead(pid_t pid)
{
  g_autofree char *path = g_strdup_printf("/proc/%d/stat", (int)pid), *text = NULL;
  const char *behind = g_file_get_contents(path, &text, NULL, NULL) ? strrchr(text, ')') : NULL;
  return behind == NULL || g_str_has_prefix(behind, ") Z") || g_str_has_prefix(behind, ") X");
}

/* The kill while nobody answers: what runs is ended all the same, and the rest is said. */
static void test_killed_while_away(Fixture *f, gconstpointer data)
{
  g_autoptr(GError) error = NULL;
  if (g_getenv("QUAVON_TEST_LONG") == NULL) {
    g_test_skip("QUAVON_TEST_LONG is not set: it waits for a deadline of 30 s");
    return;
  }
  Guest *guest = guest_started(f, &SMALL);
  pid_t pid = leftover_process(f->backend, qv_sandbox_id(guest->sandbox), row->process);
  g_assert_cmpint(pid, >, 1);
  qv_test_dockerd_kill(backend_dockerd());
  wait_until(&guest->exited);
  g_assert_false(qv_sandbox_kill(guest->sandbox, &error));
  g_assert_error(error, QV_ERROR, QV_ERROR_GONE);
  g_assert_true(is_dead(pid));
  qv_test_dockerd_restart(backend_dockerd());
  guest_free(guest);
  assert_no_leftovers(f->backend);
}

static void test_shim_killed(Fixture *f, gconstpointer data)
{
  Guest *guest = guest_started(f, &SMALL);
  pid_t pid = leftover_process(f->backend, qv_sandbox_id(guest->sandbox), "containerd-shim");
  g_assert_cmpint(pid, >, 1);
  g_assert_cmpint(kill(pid, SIGKILL), ==, 0);
  wait_until(&guest->exited);
  guest_free(guest);
  assert_no_leftovers(f->backend);
}

/* The youngest of a guest's processes, once there are WANT of them; 0: it has started before, or ended. */
static pid_t await_processes(Fixture *f, Guest *guest, guint want)
{
  for (gint64 until = qv_clock_mono_ms() + DEADLINE_MS; guest->started + guest->exited == 0;) {
    g_auto(GStrv) lines = qv_backend_leftovers(f->backend);
    guint n = 0;
    int pid = 0, youngest = 0;
    for (guint i = 0; lines[i] != NULL; i++)
      if (sscanf(lines[i], "process %d ", &pid) == 1) {
        n++;
        youngest = MAX(youngest, pid);
      }
    if (n >= want)
      return youngest;
    g_assert_cmpint(qv_clock_mono_ms(), <, until);
    g_main_context_iteration(NULL, FALSE);
  }
  return 0;
}

/* TRUE: the process was there to be killed, before its guest had started. */
static gboolean kill_while_starting(Fixture *f, guint want)
{
  Guest *guest = guest_start(f, f->backend, &SMALL, NULL);
  pid_t pid = await_processes(f, guest, want);
  gboolean hit = pid != 0 && kill(pid, SIGKILL) == 0;
  for (gint64 until = qv_clock_mono_ms() + DEADLINE_MS; guest->started + guest->exited == 0; g_usleep(2000)) {
    g_assert_cmpint(qv_clock_mono_ms(), <, until);
    g_main_context_iteration(NULL, FALSE);
  }
  guest_free(guest);
  assert_no_leftovers(f->backend);
  return hit;
}

#define MOMENTS 4
#define TRIES 20

/* kill -9 of what a start has just begun, at its moments. It fails, or goes on where that one had done its part. A moment that was
 * missed is waited for again. */
static void test_killed_while_starting(Fixture *f, gconstpointer data)
{
  for (guint want = 1; want <= MOMENTS; want++) {
    guint tries = 1;
    while (!kill_while_starting(f, want) && tries < TRIES)
      tries++;
    g_test_message("with %u processes: try %u", want, tries);
    g_assert_cmpuint(tries, <, TRIES);
  }
}

static char *container_of(Fixture *f, Guest *guest)
{
  g_autofree char *path = g_build_filename(f->state, "runs", qv_sandbox_id(guest->sandbox), "container", NULL);
  char *id = NULL;
  g_assert_true(g_file_get_contents(path, &id, NULL, NULL));
  return id;
}

static void test_removed_by_others(Fixture *f, gconstpointer data)
{
  Guest *guest = guest_started(f, &SMALL);
  g_autofree char *id = container_of(f, guest);
  g_autofree char *path = g_strdup_printf("/containers/%s?force=1", id);
  int status;
  g_free(qv_test_dockerd_call(backend_dockerd(), "DELETE", path, NULL, &status));
  g_assert_cmpint(status, ==, 204);
  wait_until(&guest->exited);
  guest_free(guest);
  assert_no_leftovers(f->backend);
}

/* ---- sweep */

static char *plant(Fixture *f, const char *labels)
{
  g_autofree char *body = g_strdup_printf("{\"Image\":\"%s\",\"Labels\":{%s},\"Entrypoint\":[\"/opt/quavon/entry\"],"
                                          "\"HostConfig\":{\"NetworkMode\":\"none\",\"Runtime\":\"runc\"}}", f->digest, labels);
  int status;
  g_autofree char *answer = qv_test_dockerd_call(backend_dockerd(), "POST", "/containers/create", body, &status);
  g_assert_cmpint(status, ==, 201);
  const char *at = strstr(answer, "\"Id\":\"");
  g_assert_nonnull(at);
  return g_strndup(at + strlen("\"Id\":\""), 64);
}

static int status_of(const char *id)
{
  g_autofree char *path = g_strdup_printf("/containers/%s/json", id);
  int status;
  g_free(qv_test_dockerd_call(backend_dockerd(), "GET", path, NULL, &status));
  return status;
}

/* Ours of an earlier boot goes; another runner's, a copied state folder's and one without labels stay. */
static void test_sweep_by_label(Fixture *f, gconstpointer data)
{
  Guest *guest = guest_started(f, &SMALL);
  g_autofree char *own = container_of(f, guest);
  g_autofree char *path = g_strdup_printf("/containers/%s/json", own);
  g_autofree char *text = qv_test_dockerd_call(backend_dockerd(), "GET", path, NULL, NULL);
  const char *at = strstr(text, "\"quavon.owner\":\"");
  g_assert_nonnull(at);
  g_autofree char *owner = g_strndup(at + strlen("\"quavon.owner\":\""), 13);
  g_autofree char *mine = g_strdup_printf("\"quavon.owner\":\"%s\",\"quavon.runner\":\"test-runner\",\"quavon.boot\":\"b\","
                                          "\"quavon.job\":\"00000000-0000-4000-8000-00000000000a\"", owner);
  g_autofree char *copied = g_strdup_printf("\"quavon.owner\":\"r000000000000\",\"quavon.runner\":\"test-runner\","
                                            "\"quavon.job\":\"00000000-0000-4000-8000-00000000000b\"");
  g_autofree char *theirs = g_strdup_printf("\"quavon.owner\":\"%s\",\"quavon.runner\":\"another\","
                                            "\"quavon.job\":\"00000000-0000-4000-8000-00000000000c\"", owner);
  g_autofree char *a = plant(f, mine);
  g_autofree char *b = plant(f, copied);
  g_autofree char *c = plant(f, theirs);
  g_autofree char *d = plant(f, "");
  g_assert_cmpuint(leftovers_with(f->backend, "00000000-0000-4000-8000-00000000000a"), ==, 1);
  sweep_ok(f->backend, NULL, 1, 1);
  g_assert_cmpint(status_of(a), ==, 404);
  const char *const kept[] = {b, c, d, own};
  for (gsize i = 0; i < G_N_ELEMENTS(kept); i++)
    g_assert_cmpint(status_of(kept[i]), ==, 200);
  guest_expect(guest, "echo alive", "echo alive");
  guest_free(guest);
  for (gsize i = 0; i < 3; i++) {
    g_autofree char *gone = g_strdup_printf("/containers/%s", kept[i]);
    g_free(qv_test_dockerd_call(backend_dockerd(), "DELETE", gone, NULL, NULL));
  }
}

/* A start that is cut off: the engine has a container without a process, and the host its control group. */
static void test_sweep_groups(Fixture *f, gconstpointer data)
{
  static const char JOB[] = "00000000-0000-4000-8000-00000000000d";
  g_autofree char *owner = qv_run_owner_name("test-runner", f->state);
  g_autofree char *labels = g_strdup_printf("\"quavon.owner\":\"%s\",\"quavon.runner\":\"test-runner\",\"quavon.job\":\"%s\"", owner, JOB);
  g_autofree char *id = plant(f, labels);
  g_autofree char *base = g_path_get_basename(qv_test_dockerd_dir(backend_dockerd())), *top = g_strconcat("quavon-test-", base, NULL);
  const char *host = g_file_test("/sys/fs/cgroup/cgroup.controllers", G_FILE_TEST_EXISTS) ? "" : "memory";
  g_autofree char *group = g_build_filename("/sys/fs/cgroup", host, top, id, NULL);
  g_assert_cmpint(g_mkdir_with_parents(group, 0755), ==, 0);
  sweep_ok(f->backend, NULL, 1, 0);
  g_assert_cmpint(status_of(id), ==, 404);
  g_assert_cmpint(access(group, F_OK), !=, 0);
}

/* ---- network */

static void test_cut_network(Fixture *f, gconstpointer data)
{
  g_autoptr(GError) error = NULL;
  int status;
  g_free(qv_test_dockerd_call(backend_dockerd(), "POST", "/networks/create",
                              "{\"Name\":\"quavon-cut\",\"Internal\":true,\"IPAM\":{\"Config\":[{\"Subnet\":\"198.18.7.0/24\"}]}}",
                              &status));
  g_assert_cmpint(status, ==, 201);
  QvBackendOptions options = fixture_options(f, "test-runner");
  options.egress_network = "quavon-cut";
  g_autoptr(QvBackend) backend = qv_backend_open(row->name, &options, &error);
  g_assert_no_error(error);
  g_assert_true(check_with(backend, f->digest, NULL, &error));
  g_assert_no_error(error);
  QvSandboxRequest request = fixture_request(f, NULL, &SMALL);
  request.egress_network = "quavon-cut";
  Guest *guest = guest_start_request(backend, &request);
  guest_expect(guest, "interfaces", "interfaces 1");
  guest_expect(guest, "tcp 198.18.7.1", "tcp ECONNREFUSED"); /* the gateway hears it */
  g_assert_true(qv_sandbox_cut_network(guest->sandbox, &error));
  g_assert_no_error(error);
  g_autofree char *answer = guest_ask(guest, "tcp 198.18.7.1");
  g_assert_true(g_str_has_prefix(answer, "tcp E") && !g_str_equal(answer, "tcp ECONNREFUSED"));
  guest_expect(guest, "echo alive", "echo alive");
  guest_free(guest);
  g_free(qv_test_dockerd_call(backend_dockerd(), "DELETE", "/networks/quavon-cut", NULL, &status));
  g_assert_cmpint(status, ==, 204);
}

/* The exit status of a sandbox's container, as its engine tells it. Free with g_free. */
static char *engine_exit(const char *id)
{
  g_autofree char *filter = g_strdup_printf("{\"event\":[\"die\"],\"label\":[\"quavon.job=%s\"]}", id);
  g_autofree char *escaped = g_uri_escape_string(filter, NULL, FALSE);
  g_autofree char *path = g_strdup_printf("/events?since=1&until=%" G_GINT64_FORMAT "&filters=%s", qv_clock_unix_ms() / 1000 + 1,
                                          escaped);
  g_autofree char *text = qv_test_dockerd_call(backend_dockerd(), "GET", path, NULL, NULL);
  json_t *event = json_loads(text, JSON_DISABLE_EOF_CHECK, NULL);
  const json_t *attributes = json_object_get(json_object_get(event, "Actor"), "Attributes");
  char *code = g_strdup(json_string_value(json_object_get(attributes, "exitCode")));
  json_decref(event);
  return code;
}

/* LINES: the first is answered with itself, and what is behind it goes the same way. */
static char *exit_of_done(Fixture *f, const char *lines)
{
  Guest *guest = guest_started(f, &SMALL);
  g_autofree char *id = g_strdup(qv_sandbox_id(guest->sandbox));
  guest_expect(guest, lines, "echo done");
  qv_sandbox_end(guest->sandbox);
  g_autoptr(GError) error = NULL;
  g_assert_true(qv_sandbox_kill(guest->sandbox, &error));
  g_assert_no_error(error);
  g_assert_cmpuint(guest->exited, ==, 0);
  assert_no_leftovers(f->backend);
  guest_free(guest);
  return engine_exit(id);
}

/* One that has done its work ends by itself where that takes less than a second, and no kill is asked for; another one is killed. */
static void test_own_end(Fixture *f, gconstpointer data)
{
  g_autofree char *stays = exit_of_done(f, "echo done\nburn 600000");
  g_assert_cmpstr(stays, ==, "137");
  for (guint i = 0; i < 20; i++) { /* on a busy machine it may take longer */
    g_autofree char *ends = exit_of_done(f, "echo done\nburn 50\nexit 7");
    if (g_strcmp0(ends, "7") == 0)
      return;
    g_assert_cmpstr(ends, ==, "137");
  }
  g_assert_not_reached();
}

static const FixtureCase CASES[] = {
  {ON_DOCKER, "open-refuses", test_open_refuses},
  {ON_DOCKER, "told", test_told},
  {ON_DOCKER, "watch", test_watch},
  {ON_DOCKER, "no-permission", test_no_permission},
  {ON_DOCKER, "images", test_images},
  {ON_DOCKER_RUNSC, "runtime-fails", test_runtime_fails},
  {ON_DOCKER_RUNSC, "refused-network", test_refused_network},
  {ON_DOCKER, "engine-killed", test_engine_killed},
  {ON_DOCKER, "containerd-killed", test_containerd_killed},
  {ON_DOCKER, "killed-while-away", test_killed_while_away},
  {ON_DOCKER, "shim-killed", test_shim_killed},
  {ON_DOCKER, "killed-while-starting", test_killed_while_starting},
  {ON_DOCKER, "removed-by-others", test_removed_by_others},
  {ON_DOCKER, "sweep-by-label", test_sweep_by_label},
  {ON_DOCKER, "sweep-groups", test_sweep_groups},
  {ON_DOCKER, "cut-network", test_cut_network},
  {ON_DOCKER, "own-end", test_own_end},
};

int main(int argc, char **argv)
{
  return fixture_main(argc, argv, "engine", CASES, G_N_ELEMENTS(CASES));
}
