/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/random.h"

#define STEP_MS 20

const QvSandboxLimits SMALL = {.memory_mib = 128, .work_mib = 32, .milli_cpus = 2000, .pids = 64};

static void run(const char *const *argv)
{
  g_autoptr(GError) error = NULL;
  g_autofree char *err = NULL;
  int status = -1;
  g_spawn_sync(NULL, (char **)argv, NULL, G_SPAWN_SEARCH_PATH | G_SPAWN_STDOUT_TO_DEV_NULL, NULL, NULL, NULL, &err,
               &status, &error);
  g_assert_no_error(error);
  if (!g_spawn_check_wait_status(status, &error))
    g_error("%s: %s %s", argv[0], error->message, err);
}

char *fixture_root(Fixture *fixture, const char *name, const char *program)
{
  static const char *const FOLDERS[] = {"proc", "sys", "dev", "tmp", "workspace", "run", "opt/quavon", "etc"};
  char *root = g_build_filename(fixture->dir, name, NULL);
  for (gsize i = 0; i < G_N_ELEMENTS(FOLDERS); i++) {
    g_autofree char *path = g_build_filename(root, FOLDERS[i], NULL);
    g_assert_cmpint(g_mkdir_with_parents(path, 0755), ==, 0);
  }
  /* So that only the mount can refuse to write there. */
  g_autofree char *open_to_all = g_build_filename(root, "etc", NULL);
  g_assert_cmpint(chmod(open_to_all, 0777), ==, 0);
  if (program == NULL)
    return root;
  g_autofree char *entry = g_build_filename(root, "opt/quavon/entry", NULL);
  const char *install[] = {"install", "-m", "755", program, entry, NULL};
  run(install);
  return root;
}

static void build_image(Fixture *fixture)
{
  fixture->root = fixture_root(fixture, "root", g_getenv("QUAVON_TEST_PROBE"));
  if (ON(ON_DOCKER)) {
    fixture->digest = qv_test_dockerd_image(backend_dockerd(), fixture->root, NULL);
    return;
  }
  fixture->image = g_build_filename(fixture->dir, "image.erofs", NULL);
  const char *make[] = {"mkfs.erofs", "-T0", "-E", "noinline_data", fixture->image, fixture->root, NULL};
  run(make);
}

QvBackendOptions fixture_options(Fixture *fixture, const char *runner_id)
{
  return (QvBackendOptions){.state_dir = fixture->state,
                            .runner_id = runner_id,
                            .pool = "test-pool",
                            .docker_socket = ON(ON_DOCKER) ? qv_test_dockerd_socket(backend_dockerd()) : NULL,
                            .start_deadline_ms = DEADLINE_MS};
}

QvBackend *fixture_backend(Fixture *fixture, const char *runner_id)
{
  g_autoptr(GError) error = NULL;
  QvBackendOptions options = fixture_options(fixture, runner_id);
  QvBackend *backend = qv_backend_open(row->name, &options, &error);
  g_assert_no_error(error);
  return backend;
}

gboolean check_with(QvBackend *backend, const char *image, char **version, GError **error)
{
  const char *digests[] = {image, NULL};
  QvBackendImages images = {0};
  if (ON(ON_DOCKER))
    images.digests = digests;
  else
    images.rootfs_file = image;
  return qv_backend_check(backend, &images, version, error);
}

static void set_up(Fixture *fixture, gconstpointer data)
{
  char name[] = "/tmp/qv-sandbox-XXXXXX";
  g_assert_nonnull(g_mkdtemp(name));
  fixture->dir = g_strdup(name);
  fixture->state = g_build_filename(fixture->dir, "state", NULL);
  g_assert_cmpint(mkdir(fixture->state, 0700), ==, 0);
  build_image(fixture);
  fixture->backend = fixture_backend(fixture, "test-runner");
}

static void require_no_mounts(Fixture *fixture)
{
  g_autofree char *mounts = NULL;
  g_assert_true(g_file_get_contents("/proc/self/mountinfo", &mounts, NULL, NULL));
  g_autofree char *below = g_strdup_printf("%s/", fixture->dir);
  g_assert_null(strstr(mounts, below));
}

/* Every child was reaped, those too that came to us when their parent died. */
static void require_no_children(void)
{
  siginfo_t info = {0};
  if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return;
  g_autofree char *path = g_strdup_printf("/proc/%d/stat", (int)info.si_pid);
  g_autofree char *text = NULL;
  g_file_get_contents(path, &text, NULL, NULL);
  g_error("a child that was not reaped: %d %s", (int)info.si_pid, text);
}

static void tear_down(Fixture *fixture, gconstpointer data)
{
  g_autoptr(GError) error = NULL;
  require_no_mounts(fixture);
  assert_no_leftovers(fixture->backend);
  qv_backend_free(fixture->backend);
  require_no_children();
  qv_fd_remove_tree(fixture->dir, &error);
  g_assert_no_error(error);
  g_free(fixture->dir);
  g_free(fixture->state);
  g_free(fixture->root);
  g_free(fixture->image);
  g_free(fixture->digest);
}

int fixture_main(int argc, char **argv, const char *program, const FixtureCase *cases, gsize n)
{
  setlocale(LC_ALL, "");
  signal(SIGPIPE, SIG_IGN);
  if (!backend_select(argc, argv))
    return 0;
  g_test_init(&argc, &argv, NULL);
  for (gsize i = 0; i < n; i++) {
    g_autofree char *path = g_strdup_printf("/sandbox/%s/%s/%s", program, row->name, cases[i].name);
    if (ON(cases[i].on))
      g_test_add(path, Fixture, NULL, set_up, cases[i].func, tear_down);
  }
  int status = g_test_run();
  backend_finish();
  return status;
}

static void note(QvSandbox *sandbox, QvSandboxEvent event, gpointer data)
{
  Guest *guest = data;
  guint *const COUNTS[] = {&guest->started, &guest->oom, &guest->pids, &guest->exited};
  g_assert_cmpuint(event, <, G_N_ELEMENTS(COUNTS));
  g_assert_cmpuint(guest->exited, ==, 0); /* nothing comes after the end */
  ++*COUNTS[event];
}

QvSandboxRequest fixture_request(Fixture *fixture, const char *id, const QvSandboxLimits *limits)
{
  static char made[QV_UUID_LEN + 1];
  if (id == NULL)
    qv_random_uuid(made);
  return (QvSandboxRequest){.sandbox_id = id != NULL ? id : made, .rootfs_file = fixture->image,
                            .image_digest = fixture->digest, .limits = *limits};
}

Guest *guest_start_request(QvBackend *backend, const QvSandboxRequest *request)
{
  g_autoptr(GError) error = NULL;
  Guest *guest = g_new0(Guest, 1);
  guest->said = g_string_new(NULL);
  guest->sandbox = qv_backend_start(backend, request, note, guest, &error);
  g_assert_no_error(error);
  guest->in = qv_sandbox_take_stdin(guest->sandbox);
  guest->out = qv_sandbox_take_stdout(guest->sandbox);
  g_assert_cmpint(qv_sandbox_take_stdin(guest->sandbox), ==, -1);
  return guest;
}

Guest *guest_start(Fixture *fixture, QvBackend *backend, const QvSandboxLimits *limits, const char *egress_socket)
{
  QvSandboxRequest request = fixture_request(fixture, NULL, limits);
  request.egress_socket = egress_socket;
  return guest_start_request(backend, &request);
}

static gboolean tick(gpointer data)
{
  return G_SOURCE_CONTINUE;
}

void wait_until(const guint *flag)
{
  gint64 until = qv_clock_mono_ms() + DEADLINE_MS;
  guint id = g_timeout_add(STEP_MS, tick, NULL);
  while (*flag == 0) {
    g_assert_cmpint(qv_clock_mono_ms(), <, until);
    g_main_context_iteration(NULL, TRUE);
  }
  g_source_remove(id);
}

static void require_started(Guest *guest)
{
  guint either = 0;
  gint64 until = qv_clock_mono_ms() + DEADLINE_MS;
  guint id = g_timeout_add(STEP_MS, tick, NULL);
  while (either == 0) {
    g_assert_cmpint(qv_clock_mono_ms(), <, until);
    g_main_context_iteration(NULL, TRUE);
    either = guest->started + guest->exited;
  }
  g_source_remove(id);
  if (guest->started == 0)
    g_error("the sandbox did not start: %s", qv_sandbox_failure(guest->sandbox));
}

Guest *guest_started(Fixture *fixture, const QvSandboxLimits *limits)
{
  Guest *guest = guest_start(fixture, fixture->backend, limits, NULL);
  require_started(guest);
  return guest;
}

void guest_free(Guest *guest)
{
  g_autoptr(GError) error = NULL;
  qv_sandbox_kill(guest->sandbox, &error);
  g_assert_no_error(error);
  qv_sandbox_free(guest->sandbox);
  close(guest->in);
  close(guest->out);
  g_string_free(guest->said, TRUE);
  g_free(guest);
}

void guest_send(Guest *guest, const char *line)
{
  g_autofree char *text = g_strconcat(line, "\n", NULL);
  g_assert_true(qv_io_write_full(guest->in, text, strlen(text)));
}

char *guest_ask(Guest *guest, const char *line)
{
  gint64 until = qv_clock_mono_ms() + DEADLINE_MS;
  guest_send(guest, line);
  for (;;) {
    char *lf = strchr(guest->said->str, '\n');
    if (lf != NULL) {
      char *answer = g_strndup(guest->said->str, (gsize)(lf - guest->said->str));
      g_string_erase(guest->said, 0, lf - guest->said->str + 1);
      return answer;
    }
    if (guest->closed)
      return g_strdup("(closed)");
    g_assert_cmpint(qv_clock_mono_ms(), <, until);
    while (g_main_context_iteration(NULL, FALSE))
      ;
    struct pollfd waiting = {.fd = guest->out, .events = POLLIN};
    if (poll(&waiting, 1, STEP_MS) <= 0)
      continue;
    char bytes[4096];
    ssize_t n = read(guest->out, bytes, sizeof bytes);
    if (n > 0)
      g_string_append_len(guest->said, bytes, n);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
      guest->closed = TRUE;
  }
}

guint leftovers_with(QvBackend *backend, const char *text)
{
  g_auto(GStrv) lines = qv_backend_leftovers(backend);
  guint n = 0;
  for (guint i = 0; lines[i] != NULL; i++)
    n += strstr(lines[i], text) != NULL;
  return n;
}

void assert_no_leftovers(QvBackend *backend)
{
  g_auto(GStrv) lines = qv_backend_leftovers(backend);
  if (lines[0] != NULL)
    g_error("left behind: %s", lines[0]);
}

void sweep_says(QvBackend *backend, const char *id, guint removed, guint busy, guint later)
{
  g_autoptr(GError) error = NULL;
  QvSweepReport report;
  gboolean ok = qv_backend_sweep(backend, id, &report, &error);
  g_assert_no_error(error);
  g_assert_true(ok);
  g_assert_cmpuint(report.removed, ==, removed);
  g_assert_cmpuint(report.busy, ==, busy);
  g_assert_cmpuint(report.later, ==, later);
  g_assert_cmpuint(report.failed, ==, 0);
}

void sweep_ok(QvBackend *backend, const char *id, guint removed, guint busy)
{
  sweep_says(backend, id, removed, busy, 0);
}

pid_t leftover_process(QvBackend *backend, const char *id, const char *comm)
{
  g_auto(GStrv) lines = qv_backend_leftovers(backend);
  g_autofree char *named = g_strdup_printf(" (%s) ", comm);
  for (guint i = 0; lines[i] != NULL; i++) {
    int pid;
    if (strstr(lines[i], id) != NULL && strstr(lines[i], named) != NULL && sscanf(lines[i], "process %d ", &pid) == 1)
      return pid;
  }
  return 0;
}
